//! What an ensemble is to its clients while nothing goes wrong.

use ringkeeper_wire::CreateMode;
use serde_json::json;

use crate::cluster::Ensemble;
use crate::support::{get, wait_for};

#[test]
fn a_write_through_any_server_is_seen_on_every_server_after_a_sync() {
    let ensemble = Ensemble::start();
    let mut clients: Vec<_> = ensemble.servers().map(|server| ensemble.connect(server)).collect();
    for writer in ensemble.servers() {
        let path = format!("/from-{writer}");
        clients[writer].create(&path, b"1", CreateMode::Persistent);
        for client in &mut clients {
            client.sync();
            assert_eq!(client.get(&path, false).as_deref(), Some(&b"1"[..]));
        }
    }
    ensemble.assert_equal_trees(1);
}

#[test]
fn writes_of_one_client_are_pipelined_through_a_follower_in_order() {
    let ensemble = Ensemble::start();
    let mut client = ensemble.connect(ensemble.others(ensemble.leader())[0]);
    let sent: Vec<_> = (0..500)
        .map(|number| client.send_create(&format!("/n{number}"), b"", CreateMode::Persistent))
        .collect();
    let answered: Vec<_> = sent.iter().map(|_| client.reply().expect("a reply")).collect();
    assert_eq!(answered.iter().map(|reply| reply.xid).collect::<Vec<_>>(), sent);
    assert!(answered.iter().all(|reply| reply.err == 0));
    assert!(answered.is_sorted_by_key(|reply| reply.zxid), "zxids never go back");
}

#[test]
fn every_server_shows_the_ensemble_in_zookeeper_config() {
    let ensemble = Ensemble::start();
    let mut expected = String::new();
    for server in ensemble.servers() {
        expected += &format!("server.{}={}:3888:participant\n", server + 1, ensemble.quorum_address(server));
    }
    expected += "version=0";
    for server in ensemble.servers() {
        let mut client = ensemble.connect_synced(server);
        let data = client.get("/zookeeper/config", false).expect("built in");
        assert_eq!(String::from_utf8(data).expect("text"), expected);
    }
}

#[test]
fn every_server_tells_what_it_is() {
    let ensemble = Ensemble::start();
    let leader = ensemble.leader();
    for server in ensemble.servers() {
        let mntr = ensemble.server(server).ask("mntr").expect("an answer");
        let state = if server == leader { "leader" } else { "follower" };
        assert!(mntr.contains(&format!("zk_server_state\t{state}\n")), "{mntr}");
        assert_eq!(mntr.contains("zk_synced_followers\t2\n"), server == leader, "{mntr}");
        assert_eq!(ensemble.server(server).ask("isro").expect("an answer"), "rw");
    }
}

#[test]
fn a_member_without_a_quorum_lives_but_is_not_ready() {
    let ensemble = Ensemble::start();
    let (alone, admin) = (ensemble.leader(), |server| (ensemble.address(server).ip(), 8080).into());
    for server in ensemble.servers() {
        assert_eq!(get(admin(server), "/readyz").status, 200);
        let leader = get(admin(server), "/commands/leader").json();
        assert_eq!(
            (&leader["is_leader"], &leader["leader_id"]),
            (&json!(server == alone), &json!(alone + 1))
        );
        let told = get(admin(server), "/commands/ensemble").json();
        assert_eq!(told["leader_id"], json!(alone + 1), "{told}");
        for (other, member) in told["servers"].as_array().expect("a list").iter().enumerate() {
            // Nobody but the leader knows how far the others are.
            let is_known = server == alone && other != alone;
            assert_eq!(
                (&member["id"], member["durable_zxid_hex"].is_string()),
                (&json!(other + 1), is_known)
            );
        }
        let zab = get(admin(server), "/commands/zabstate").json();
        assert_eq!(
            (&zab["myid"], &zab["voting"], &zab["zabstate"]),
            (&json!(server + 1), &json!(true), &json!("broadcast"))
        );
    }
    ensemble.others(alone).into_iter().for_each(|server| ensemble.stop(server));
    let unready = wait_for("the loss of the quorum", || {
        Some(get(admin(alone), "/readyz")).filter(|answer| answer.status == 503)
    });
    assert!(unready.text().contains("[-]leader failed: "), "{}", unready.text());
    assert_eq!(
        (get(admin(alone), "/livez").status, get(admin(alone), "/readyz?exclude=leader").status),
        (200, 200)
    );
    let refused = get(admin(alone), "/commands/stats").json();
    assert_eq!(refused["error"], "This ZooKeeper instance is not currently serving requests");
    assert!(get(admin(alone), "/metrics").text().contains("\nlooking_count "));
}
