//! Three members.

use std::collections::BTreeSet;
use std::thread;

use ringkeeper_broadcast::{ProposeError, Status, TlsSettings};
use ringkeeper_testkit::Authority;

use crate::support::{Ensemble, Server, nothing_done, own_host, wait_for};

fn leader(servers: &[Server]) -> usize {
    wait_for("there is a leader and all follow", || {
        let serving = servers.iter().all(Server::serves);
        servers.iter().position(Server::leads).filter(|_| serving)
    })
}

#[test]
fn members_agree_on_the_order_of_concurrent_proposals() {
    let ensemble = Ensemble::new();
    let servers = ensemble.start_all();
    leader(&servers);
    let acknowledged: Vec<Vec<_>> = thread::scope(|scope| {
        let proposers: Vec<_> = servers
            .iter()
            .zip(b'a'..)
            .flat_map(|(server, name)| [(server, name), (server, name.to_ascii_uppercase())])
            .map(|(server, name)| {
                scope.spawn(move || {
                    let handle = server.broadcast.handle();
                    let proposal = |n: u32| format!("{} {n}", char::from(name)).into_bytes();
                    let outcomes: Vec<_> =
                        (0..500).map(|n| (proposal(n), handle.propose(proposal(n)))).collect();
                    let delivered = |(proposal, outcome): (Vec<u8>, ringkeeper_broadcast::Outcome)| {
                        (outcome.wait().expect("the leader stays"), proposal)
                    };
                    outcomes.into_iter().map(delivered).collect::<Vec<_>>()
                })
            })
            .collect();
        proposers.into_iter().map(|proposer| proposer.join().expect("no panic")).collect()
    });
    servers.iter().for_each(|server| {
        server.sync();
    });
    let order = servers[0].delivered();
    assert_eq!(order.len(), 3000);
    for server in &servers[1..] {
        assert_eq!(server.delivered(), order);
    }
    for of_one in acknowledged {
        assert!(of_one.is_sorted_by(|one, next| one.0 < next.0), "in the order in which they were proposed");
        assert!(of_one.iter().all(|delivered| order.binary_search(delivered).is_ok()));
    }
}

#[test]
fn members_take_each_other_for_such_by_certificates() {
    let ensemble = Ensemble::new();
    let authority = Authority::new("ca").expect("a key");
    let write = |name: String, text: String| {
        let file = ensemble.folder.path().join(name);
        std::fs::write(&file, text).expect("written");
        file
    };
    let trust = write("ca.pem".to_owned(), authority.certificate());
    let secured = |id| {
        let own = authority.issue("member", &[own_host().trim_end_matches(":0")]).expect("a key");
        let key = write(format!("{id}.pem"), own.store());
        ensemble.config(id).secret(Vec::new()).tls(TlsSettings::new(key, &trust))
    };
    let mut servers: Vec<_> = (1..=3).map(|id| Server::start(secured(id))).collect();
    leader(&servers);
    servers[0].propose(b"sealed");
    servers.pop().expect("three").stop();
    let in_the_clear = Server::start(ensemble.config(3).secret(Vec::new()));
    servers[1].propose(b"without the third");
    assert!(!in_the_clear.serves());
    in_the_clear.stop();
    servers.push(Server::start(secured(3)));
    leader(&servers);
    servers[2].sync();
    assert_eq!(servers[2].delivered(), servers[0].delivered());
}

#[test]
fn a_leader_that_ends_is_replaced_and_nothing_acknowledged_is_lost() {
    let ensemble = Ensemble::new();
    let mut servers = ensemble.start_all();
    let mut acknowledged = BTreeSet::new();
    for round in 0..3_u8 {
        let leading = leader(&servers);
        let id = leading as u64 + 1;
        let handle = servers[(leading + 1) % 3].broadcast.handle();
        let outcomes: Vec<_> = (0..50_u8).map(|n| (vec![round, n], handle.propose(vec![round, n]))).collect();
        // While they are under way.
        servers.remove(leading).stop();
        for (proposal, outcome) in outcomes {
            match outcome.wait() {
                Ok(zxid) => drop(acknowledged.insert((zxid, proposal))),
                Err(error) => assert!(error == ProposeError::Unknown || nothing_done(error), "{error}"),
            }
        }
        let proposal = vec![round, 255];
        acknowledged.insert((servers[0].propose(&proposal), proposal));
        servers.insert(leading, ensemble.start(id));
        for server in &servers {
            server.sync();
            let delivered: BTreeSet<_> = server.delivered().into_iter().collect();
            assert!(acknowledged.is_subset(&delivered), "{:?}", acknowledged.difference(&delivered));
        }
        assert_eq!(servers[0].delivered(), servers[1].delivered());
        assert_eq!(servers[0].delivered(), servers[2].delivered());
    }
}

#[test]
fn a_sync_on_a_follower_shows_what_another_member_was_told() {
    let ensemble = Ensemble::new();
    let servers = ensemble.start_all();
    leader(&servers);
    for round in 0..50_u8 {
        let zxid = servers[usize::from(round) % 3].propose(&[round]);
        let reader = &servers[usize::from(round + 1) % 3];
        assert!(reader.sync() >= zxid);
        assert!(reader.delivered().contains(&(zxid, vec![round])));
    }
}

#[test]
fn a_minority_takes_nothing_and_says_so() {
    let ensemble = Ensemble::new();
    let mut servers = ensemble.start_all();
    leader(&servers);
    let zxid = servers[0].propose(b"with all");
    servers[0].sync();
    servers.drain(1..).for_each(Server::stop);
    let alone = &servers[0];
    wait_for("it notices", || (!alone.serves()).then_some(()));
    let handle = alone.broadcast.handle();
    assert_eq!(handle.propose(b"alone".to_vec()).wait(), Err(ProposeError::NoLeader));
    assert_eq!(handle.sync().wait(), Err(ProposeError::NoLeader));
    assert_eq!(alone.told(|told| told.statuses.last().copied()), Some(Status::Looking));
    servers.push(ensemble.start(2));
    let after = servers[1].propose(b"with two");
    assert!(after > zxid);
    servers[0].sync();
    let proposals: Vec<_> = servers[0].delivered().into_iter().map(|(_, proposal)| proposal).collect();
    assert!(!proposals.contains(&b"alone".to_vec()));
}

#[test]
fn a_stranger_with_another_secret_stays_outside() {
    let ensemble = Ensemble::new();
    let mut two = ensemble.start_all();
    let before = two[0].propose(b"a new ensemble begins with all its members");
    two.pop().expect("three").stop();
    let stranger = Server::start(ensemble.config(3).secret("another"));
    for number in 0..20 {
        two[0].propose(&[number]);
    }
    assert!(!stranger.serves());
    assert!(stranger.delivered().iter().all(|(zxid, _)| *zxid <= before));
}
