//! A folder to read, and what clients saw of it.

use std::fs;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use ringkeeper_apache::snapshot::Packing;
use ringkeeper_apache::{Folder, Loaded, load};
use ringkeeper_engine::state::State;
use tempfile::TempDir;

/// All of them.
pub(crate) const NAMES: [&str; 5] = [
    "zookeeper-3.9",
    "zookeeper-3.9-gz",
    "zookeeper-3.9-snappy",
    "zookeeper-3.8",
    "zookeeper-3.8-without-digests",
];

/// A fixture, unpacked.
pub(crate) struct Fixture {
    folder: TempDir,
}

impl Fixture {
    pub(crate) fn unpack(name: &str) -> Self {
        let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/{name}.tar.gz"));
        let packed = fs::File::open(&packed).unwrap_or_else(|error| panic!("{}: {error}", packed.display()));
        let folder = tempfile::tempdir().expect("a temporary folder");
        tar::Archive::new(GzDecoder::new(packed)).unpack(folder.path()).expect("a sound archive");
        Self { folder }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The files of which the names begin so, in the order of their zxids.
    pub(crate) fn files(&self, prefix: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path().join("version-2")).expect("unpacked");
        let mut files: Vec<_> = entries
            .map(|entry| entry.expect("readable").path())
            .filter(|file| file.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix)))
            .collect();
        files.sort_by_key(|file| name_of(file).0);
        files
    }

    pub(crate) fn load(&self) -> Loaded {
        let folder = Folder::open(self.path(), None).expect("a data folder");
        load(&folder).unwrap_or_else(|error| panic!("{error}"))
    }

    /// What clients saw.
    pub(crate) fn expected(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path().join("expected")).expect("in every fixture");
        text.lines().map(str::to_owned).collect()
    }
}

/// What the name of a snapshot or log says.
pub(crate) fn name_of(file: &Path) -> (i64, Packing) {
    let name = file.file_name().expect("a file").to_string_lossy();
    let mut parts = name.split('.').skip(1);
    let zxid = i64::from_str_radix(parts.next().expect("snapshot.<zxid>"), 16).expect("hex");
    let packing = match parts.next() {
        Some("gz") => Packing::Gzip,
        Some("snappy") => Packing::Snappy,
        _ => Packing::Plain,
    };
    (zxid, packing)
}

/// The same of a state, as `make_apache_fixtures.py` writes it.
pub(crate) fn described(state: &State) -> Vec<String> {
    let mut lines: Vec<_> = state.tree().nodes().map(|znode| line(state, znode)).collect();
    lines.sort();
    lines
}

fn line(state: &State, znode: &ringkeeper_engine::tree::Znode) -> String {
    let data = znode.data().map_or_else(
        || "null".to_owned(),
        |data| data.iter().map(|byte| format!("{byte:02x}")).collect::<String>(),
    );
    let stat = znode.stat();
    let stat = [
        stat.czxid,
        stat.mzxid,
        stat.ctime,
        stat.mtime,
        stat.version.into(),
        stat.cversion.into(),
        stat.aversion.into(),
        stat.ephemeral_owner,
        stat.data_length.into(),
        stat.num_children.into(),
        stat.pzxid,
    ]
    .map(|field| field.to_string())
    .join(" ");
    let acl = state.acl_of(znode).entries().iter();
    let acl: Vec<_> = acl.map(|entry| format!("{}:{}:{}", entry.perms.0, entry.scheme, entry.id)).collect();
    format!("{}\t{data}\t{stat}\t{}", znode.path(), acl.join(","))
}
