//! What is written for Apache ZooKeeper reads back as what it was.

use std::fs;
use std::path::Path;

use ringkeeper_apache::snapshot::{self, Summary};
use ringkeeper_apache::{Folder, load};
use ringkeeper_engine::state::State;

use crate::fixture::{Fixture, NAMES, described};

fn export(state: &State, to: &Path) -> Summary {
    let folder = to.join("version-2");
    fs::create_dir(&folder).expect("a new folder");
    let name = snapshot::file_name(state.last_zxid().to_wire());
    let file = fs::File::create(folder.join(name)).expect("a new file");
    snapshot::write(state, file).expect("there is room")
}

#[test]
fn an_exported_state_is_imported_as_it_was() {
    for name in NAMES {
        let state = Fixture::unpack(name).load().into_state(1).expect("a tree").state;
        let target = tempfile::tempdir().expect("a temporary folder");
        let summary = export(&state, target.path());
        let sessions = state.sessions().len();
        assert_eq!(summary, Summary { znodes: state.tree().len(), sessions, ttl_znodes: 2 }, "{name}");
        let loaded = load(&Folder::open(target.path(), None).expect("a data folder")).expect("sound");
        let again = loaded.into_state(2).expect("a tree").state;
        assert_eq!(described(&again), described(&state), "{name}");
        assert_eq!((again.digest(), again.last_zxid()), (state.digest(), state.last_zxid()), "{name}");
        assert!(again.sessions().eq(state.sessions()), "{name}");
    }
}

#[test]
fn a_new_state_can_be_exported_too() {
    let state = State::new(1);
    let target = tempfile::tempdir().expect("a temporary folder");
    export(&state, target.path());
    let loaded = load(&Folder::open(target.path(), None).expect("a data folder")).expect("sound");
    assert_eq!(loaded.into_state(1).expect("a tree").state.digest(), state.digest());
}
