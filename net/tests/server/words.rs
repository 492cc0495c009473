//! Four-letter words, as tools parse them.

use std::io::Write;
use std::net::TcpStream;

use ringkeeper_wire::CreateMode;

use crate::support::{Client, Server, is_closed};
use ringkeeper_testkit::ask;

const ALL: &[&str] = &["-o", "4lw.commands.whitelist=*", "--shards", "3"];

/// `key<separator>value` lines.
fn pairs<'a>(text: &'a str, separator: &str) -> Vec<(&'a str, &'a str)> {
    let pair =
        |line: &'a str| line.split_once(separator).unwrap_or_else(|| panic!("no {separator:?} in {line:?}"));
    text.lines().map(pair).collect()
}

fn value<'a>(pairs: &[(&'a str, &'a str)], key: &str) -> &'a str {
    pairs.iter().find(|(name, _)| *name == key).unwrap_or_else(|| panic!("no {key} in {pairs:?}")).1
}

/// A server with a client that has an ephemeral znode and two watches.
fn server_and_client() -> (Server, Client) {
    let server = Server::start_with(ALL);
    let mut client = Client::connect(server.address(), 30_000);
    client.create("/e", b"12345", CreateMode::Ephemeral);
    assert!(client.exists("/e", true));
    assert!(!client.exists("/none", true));
    (server, client)
}

#[test]
fn monitoring_is_answered_by_default_and_the_rest_is_refused_by_name() {
    let server = Server::start();
    assert_eq!(server.word("ruok"), "imok");
    assert_eq!(server.word("isro"), "rw");
    assert!(server.word("srvr").starts_with("Zookeeper version: 3.9."));
    assert!(server.word("mntr").starts_with("zk_version\t3.9."));
    assert_eq!(server.word("wchc"), "wchc is not executed because it is not in the whitelist.\n");
}

#[test]
fn srvr_and_stat_tell_the_servers_numbers() {
    let (server, client) = server_and_client();
    let srvr = server.word("srvr");
    let keys: Vec<&str> = pairs(&srvr, ": ").into_iter().map(|(key, _)| key).collect();
    let expected = ["Latency min/avg/max", "Received", "Sent", "Connections", "Outstanding", "Zxid", "Mode"];
    assert_eq!(keys, [&["Zookeeper version"], &expected[..], &["Node count"]].concat());
    let numbers = pairs(&srvr, ": ");
    assert_eq!((value(&numbers, "Mode"), value(&numbers, "Node count")), ("standalone", "6"));
    assert_eq!(value(&numbers, "Zxid"), "0x100000002");

    let stat = server.word("stat");
    let mut lines = stat.lines();
    assert!(lines.next().is_some_and(|line| line.starts_with("Zookeeper version: 3.9.")), "{stat}");
    assert_eq!(lines.next(), Some("Clients:"));
    let clients: Vec<&str> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
    assert_eq!(clients.len(), 2, "the client and whoever asks: {stat}");
    assert!(clients.iter().all(|line| line.starts_with(" /127.") && line.ends_with(')')), "{stat}");
    assert_eq!(lines.map(|line| line.split_once(": ").expect("a pair").0).collect::<Vec<_>>(), keys[1..]);
    client.close();
}

#[test]
fn cons_dump_and_the_watch_words_name_the_session() {
    let (server, client) = server_and_client();
    let session = client.session.id.to_string();
    let cons = server.word("cons");
    assert!(cons.contains(&format!(",sid={session},lop=EXIS,")), "{cons}");
    assert!(cons.ends_with(")\n\n"), "{cons:?}");
    let dump = server.word("dump");
    assert!(
        dump.starts_with(&format!("SessionTracker dump:\nGlobal Sessions(1):\n{session}\t30000ms\n")),
        "{dump}"
    );
    let ephemerals = format!(
        "ephemeral nodes dump:\nSessions with Ephemerals (1):\n{session}:\n\t/e\nConnections dump:\n"
    );
    assert!(dump.contains(&ephemerals), "{dump}");
    assert_eq!(server.word("wchs"), "1 connections watching 2 paths\nTotal watches:2\n");
    assert_eq!(server.word("wchc"), format!("{session}\n\t/e\n\t/none\n\n"));
    assert_eq!(server.word("wchp"), format!("/e\n\t{session}\n/none\n\t{session}\n\n"));
    client.close();
}

#[test]
fn conf_and_envi_tell_what_is_in_force() {
    let server = Server::start_with(&[ALL, &["-o", "tickTime=1000", "-o", "maxClientCnxns=7"]].concat());
    let conf = server.word("conf");
    let conf = pairs(&conf, "=");
    let data_dir = server.data_dir();
    for (key, expected) in [
        ("clientPort", server.address().port().to_string().as_str()),
        ("dataDir", data_dir.canonicalize().expect("there").to_str().expect("UTF-8")),
        ("tickTime", "1000"),
        ("maxClientCnxns", "7"),
        ("minSessionTimeout", "2000"),
        ("maxSessionTimeout", "20000"),
        ("serverId", "0"),
        ("ringkeeper.shards", "3"),
    ] {
        assert_eq!(value(&conf, key), expected, "{key}");
    }
    let envi = server.word("envi");
    let environment = pairs(envi.strip_prefix("Environment:\n").expect("a title"), "=");
    assert!(value(&environment, "zookeeper.version").starts_with("3.9."), "{envi}");
    assert_eq!(value(&environment, "os.name"), "Linux");
}

#[test]
fn dirs_tells_the_bytes_of_the_folders() {
    let server = Server::start_with(ALL);
    let dirs = server.word("dirs");
    let sizes = pairs(&dirs, ": ");
    for key in ["datadir_size", "logdir_size"] {
        assert!(value(&sizes, key).parse::<u64>().expect("a number") > 0, "{dirs}");
    }
}

#[test]
fn mntr_counts_what_happened() {
    let (server, client) = server_and_client();
    assert_eq!(server.metric("zk_global_sessions"), 1.0);
    assert_eq!(server.metric("zk_ephemerals_count"), 1.0);
    assert_eq!(server.metric("zk_watch_count"), 2.0);
    assert_eq!(server.metric("zk_znode_count"), 6.0);
    assert_eq!(server.metric("zk_outstanding_requests"), 0.0);
    assert_eq!(server.metric("zk_num_alive_connections"), 2.0);
    assert_eq!(server.metric("zk_shards"), 3.0);
    assert!(server.metric("zk_cnt_fsynctime") >= 2.0);
    let percentiles =
        ["p50", "p95", "p99", "p999"].map(|name| server.metric(&format!("zk_{name}_fsynctime")));
    assert!(percentiles.iter().all(|time_ms| *time_ms > 0.0), "{percentiles:?}");
    assert!(server.metric("zk_open_file_descriptor_count") <= server.metric("zk_max_file_descriptor_count"));
    client.close();
    assert_eq!(server.metric("zk_global_sessions"), 0.0);
}

#[test]
fn every_line_of_mntr_is_a_key_and_a_value() {
    let server = Server::start();
    let mntr = server.word("mntr");
    for (key, value) in pairs(&mntr, "\t") {
        let text = matches!(key, "zk_version" | "zk_server_state");
        assert!(key.starts_with("zk_") && (text || value.parse::<f64>().is_ok()), "{key} {value}");
    }
}

#[test]
fn hash_shows_the_same_digests_until_another_128_transactions_have_come() {
    let server = Server::start_with(ALL);
    let mut client = Client::connect(server.address(), 30_000);
    assert_eq!(server.word("hash"), "");
    for number in 0..130 {
        client.create(&format!("/n{number}"), b"", CreateMode::Persistent);
    }
    let hash = server.word("hash");
    let (zxid, digest) = hash.strip_suffix('\n').and_then(|line| line.split_once(": ")).expect("one line");
    assert_eq!(zxid, "100000080");
    assert!(digest.parse::<u64>().is_ok_and(|digest| digest != 0), "{hash}");
    client.set("/n1", b"changed");
    assert_eq!(server.word("hash"), hash);
}

#[test]
fn srst_and_crst_reset_the_statistics_of_all_shards() {
    let server = Server::start_with(ALL);
    let mut clients: Vec<Client> = (0..3).map(|_| Client::connect(server.address(), 30_000)).collect();
    clients.iter_mut().for_each(|client| (0..10).for_each(|_| assert!(client.exists("/", false))));
    assert!(server.metric("zk_packets_received") >= 33.0);
    assert_eq!(server.word("srst"), "Server stats reset.\n");
    assert_eq!(server.metric("zk_packets_received"), 0.0);
    assert_eq!(server.word("cons").matches("recved=11,").count(), 3);
    assert_eq!(server.word("crst"), "Connection stats reset.\n");
    assert_eq!(server.word("cons").matches("recved=0,").count(), 4, "three clients and whoever asks");
}

#[test]
fn the_trace_mask_that_is_set_is_shown() {
    let server = Server::start_with(ALL);
    assert_eq!(server.word("gtmk"), "306");
    let command = [&b"stmk"[..], &77_i64.to_be_bytes()].concat();
    assert_eq!(ask(server.address(), &command).expect("an answer"), "77");
    assert_eq!(server.word("gtmk"), "77");
}

#[test]
fn a_word_that_comes_byte_by_byte_is_answered_and_an_unknown_one_closed() {
    let server = Server::start();
    let mut stream = TcpStream::connect(server.address()).expect("connected");
    stream.set_nodelay(true).expect("an option");
    for byte in b"ruo" {
        stream.write_all(&[*byte]).expect("sent");
        assert_eq!(server.word("ruok"), "imok", "others are served meanwhile");
    }
    stream.write_all(b"k").expect("sent");
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut stream, &mut answer).expect("an answer");
    assert_eq!(answer, "imok");
    let mut unknown = TcpStream::connect(server.address()).expect("connected");
    unknown.write_all(b"wxyz").expect("sent");
    assert!(is_closed(&mut unknown), "read as a length, it is far too long");
}
