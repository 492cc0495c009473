//! Reads: the znode first, then the ACL; paths are not validated (docs/protocol.md, 4.2 and 8).

use ringkeeper_wire::ErrorCode;

use crate::fixture::*;

#[test]
fn a_path_that_no_znode_can_have_is_missing() {
    let server = Server::new();
    let caller = server.caller();
    for path in ["", "zookeeper", "/zookeeper/", "//", "/nul\0"] {
        assert_eq!(server.state.exists(path, caller), Err(ErrorCode::NoNode), "{path:?}");
        let counted = server.state.get_all_children_number(path, caller, 10);
        assert_eq!(counted, Err(ErrorCode::NoNode), "{path:?}");
        assert!(server.state.get_children(path, caller).is_err(), "{path:?}");
    }
}

#[test]
fn all_reads_need_the_read_permission_but_get_acl_takes_admin_too() {
    let mut server = Server::new();
    server.ask(&create_with("/write", 2));
    server.ask(&create_with("/admin", 16));
    let (state, caller) = (&server.state, server.caller());
    for path in ["/write", "/admin"] {
        assert_eq!(state.exists(path, caller), Err(ErrorCode::NoAuth));
        assert_eq!(state.get_data(path, caller), Err(ErrorCode::NoAuth));
        assert_eq!(state.get_children(path, caller).map(|_| ()), Err(ErrorCode::NoAuth));
        assert_eq!(state.get_all_children_number(path, caller, 10), Err(ErrorCode::NoAuth));
    }
    assert_eq!(state.get_acl("/write", caller).map(|_| ()), Err(ErrorCode::NoAuth));
    assert_eq!(state.get_acl("/admin", caller).map(|(acl, _)| acl.len()), Ok(1));
    server.identities = vec![identity("super", "")];
    assert!(server.state.get_data("/write", server.caller()).is_ok());
}

#[test]
fn reads_give_data_children_and_stat() {
    let mut server = Server::new();
    for path in ["/a", "/a/b", "/a/b/c", "/a/d"] {
        server.create(path, 0);
    }
    let (state, caller) = (&server.state, server.caller());
    assert_eq!(state.get_data("/a", caller), Ok((Some(&b"data"[..]), server.stat("/a"))));
    let listing = state.get_children("/a", caller).expect("exists");
    assert_eq!((listing.len(), listing.is_empty(), listing.names().len()), (2, false, 2));
    let mut names: Vec<_> = listing.names().collect();
    names.sort_unstable();
    assert_eq!(names, ["b", "d"]);
    assert_eq!(listing.stat(), server.stat("/a"));
}

#[test]
fn all_children_are_counted_at_any_depth() {
    let mut server = Server::new();
    let counted = |server: &Server, path, visits_max| {
        let counted = server.state.get_all_children_number(path, server.caller(), visits_max);
        counted.map(|counted| (counted.number, counted.visits))
    };
    assert_eq!(counted(&server, "/", 0), Ok((3, 0)));
    for path in ["/a", "/a/b", "/a/b/c", "/a/d", "/ab"] {
        server.create(path, 0);
    }
    for (path, expected) in [("/a", 3), ("/a/b", 1), ("/ab", 0), ("/zookeeper", 2)] {
        assert_eq!(counted(&server, path, 3), Ok((expected, usize::try_from(expected).unwrap())), "{path}");
    }
    assert_eq!(counted(&server, "/", 0), Ok((8, 0)), "known without a visit");
    assert_eq!(counted(&server, "/a", 1), Ok((2, 2)), "one more than allowed tells that there are more");
}

#[test]
fn ephemerals_are_found_by_a_plain_prefix() {
    let mut server = Server::new();
    for path in ["/e", "/ea", "/f"] {
        server.create(path, 1);
    }
    let found = |prefix| server.state.get_ephemerals(ALICE, prefix).collect::<Vec<_>>();
    for all in [None, Some(""), Some("  "), Some("/")] {
        assert_eq!(found(all), ["/e", "/ea", "/f"]);
    }
    assert_eq!(found(Some("/e")), ["/e", "/ea"]);
    assert_eq!(server.state.get_ephemerals(BOB, None).count(), 0);
}
