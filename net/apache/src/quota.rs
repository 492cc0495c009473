//! The use of quotas: Apache counts it anew whenever it loads a snapshot, so what files say of it means
//! nothing.

use ringkeeper_engine::quota::{self, Figures};

use crate::tree::{Tree, Znode};

/// Counts the use of every quota.
pub(crate) fn count_anew(tree: &mut Tree) {
    let limited = tree.descendants("/zookeeper/quota").filter_map(|(path, _)| quota::limited_by(path));
    let limited: Vec<_> = limited.map(str::to_owned).collect();
    for subject in limited {
        let itself = tree.get(&subject).into_iter();
        let below = tree.descendants(&subject).map(|(_, znode)| znode);
        let nothing = Figures { count: Some(0), bytes: Some(0), ..Figures::default() };
        let used = itself.chain(below).fold(nothing, |used, znode| used.plus(1, data_len(znode)));
        tree.change(&quota::stats_path(&subject), |znode| {
            znode.data = Some(used.to_string().into_bytes().into_boxed_slice());
        });
    }
}

fn data_len(znode: &Znode) -> i64 {
    znode.data.as_deref().map_or(0, <[u8]>::len).try_into().expect("data is shorter than a record")
}
