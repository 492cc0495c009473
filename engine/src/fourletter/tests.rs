use ringkeeper_wire::{OpCode, SessionId, Xid, Zxid};

use super::*;
use crate::metrics::{Samples, Sizes, Summary, Totals};
use crate::samples;
use crate::shard::{ConnectionReport, Counters, ShardReport, WatchCounts};

fn report() -> ServerReport {
    let latency = Totals { count: 3, sum: 4_000, min: 100, max: 3_400 };
    let connection = ConnectionReport {
        peer: "127.0.0.1:50123".parse().expect("an address"),
        session: SessionId(0x0100_0000_0000_00ab),
        timeout_ms: 30_000,
        outstanding: 1,
        received: 5,
        sent: 4,
        established_ms: 500,
        last_op: Some(OpCode::GetData.to_wire()),
        last_xid: Xid(10),
        last_zxid: 0x1_0000_0002,
        last_response_ms: 900,
        last_latency_us: 2_900,
        latency,
    };
    let mut metrics = Samples::default();
    samples!(metrics, { "quorum_size": 3_u64, "fsynctime": Summary::time_totals(latency) });
    ServerReport {
        version: "3.9.5-ring, built on 2026-01-02 03:04 UTC".to_owned(),
        mode: Some(Mode::Leader),
        missing: String::new(),
        shards: ShardReport {
            counters: Counters { received: 12, sent: 11, ..Counters::default() },
            latency,
            timings: Vec::new(),
            outstanding: 1,
            output_bytes: 0,
            watches: WatchCounts { connections: 1, paths: 2, watches: 3, child_watches: 2 },
            connection_count: 1,
            connections: vec![connection],
        },
        clock_offset_ms: 1_000_000,
        uptime_ms: 77,
        last_zxid: Zxid(0x1_0000_0002),
        znode_count: 4,
        proposal_sizes: Some(Sizes { last: 36, min: 32, max: 48 }),
        metrics,
        configuration: vec![("clientPort".to_owned(), "2181".to_owned())],
        membership: Some("server.1=a:2888:3888:participant".to_owned()),
        environment: vec![("host.name".to_owned(), "box".to_owned())],
        directory_sizes_bytes: (100, 200),
        sessions: vec![(SessionId(0xab), 30_000)],
        local_sessions: None,
        ephemerals: vec![(SessionId(0xab), vec!["/e".to_owned()])],
        data_watches: vec![
            (SessionId(2), "/b".to_owned()),
            (SessionId(1), "/a".to_owned()),
            (SessionId(1), "/b".to_owned()),
        ],
        digests: vec![(Zxid(0x80), 12345)],
        trace_mask: 306,
    }
}

const SERVER: &str = "Latency min/avg/max: 0/1.3333/3\nReceived: 12\nSent: 11\nConnections: 1\nOutstanding: 1\n\
    Zxid: 0x100000002\nMode: leader\nNode count: 5\nProposal sizes last/min/max: 36/32/48\n";

#[test]
fn srvr_is_the_version_and_the_servers_numbers() {
    let version = "Zookeeper version: 3.9.5-ring, built on 2026-01-02 03:04 UTC\n";
    assert_eq!(format(Word::Srvr, &report()), format!("{version}{SERVER}"));
}

#[test]
fn stat_lists_the_clients_before_the_numbers() {
    let answer = format(Word::Stat, &report());
    let clients = "Clients:\n /127.0.0.1:50123[1](queued=1,recved=5,sent=4)\n\n";
    assert!(answer.ends_with(&format!("UTC\n{clients}{SERVER}")), "{answer}");
}

#[test]
fn a_read_only_server_says_so_below_its_version() {
    let answer = format(Word::Srvr, &ServerReport { mode: Some(Mode::ReadOnly), ..report() });
    assert!(answer.contains("UTC\nREAD-ONLY mode; serving only read-only clients\nLatency"), "{answer}");
    assert!(answer.contains("\nMode: read-only\n"));
}

#[test]
fn cons_shows_everything_about_a_connection() {
    let expected = " /127.0.0.1:50123[1](queued=1,recved=5,sent=4,sid=0x1000000000000ab,lop=GETD,est=1000500,to=30000,\
        lcxid=0xa,lzxid=0x100000002,lresp=900,llat=2,minlat=0,avglat=1,maxlat=3)\n\n";
    assert_eq!(format(Word::Cons, &report()), expected);
}

#[test]
fn a_connection_without_a_session_shows_only_its_counters() {
    let mut report = report();
    report.shards.connections[0].session = SessionId(0);
    assert_eq!(format(Word::Cons, &report), " /127.0.0.1:50123[1](queued=1,recved=5,sent=4)\n\n");
}

#[test]
fn dump_shows_local_sessions_before_those_of_the_ensemble_if_the_server_keeps_any() {
    let with = |local_sessions| format(Word::Dump, &ServerReport { local_sessions, ..report() });
    let global = "SessionTracker dump:\nGlobal Sessions(1):\n";
    let local = "SessionTracker dump:\nLocal Sessions(1):\n0x1000000000000ac\t4000ms\nGlobal Sessions(1):\n";
    assert!(with(None).starts_with(global));
    let id = SessionId(0x100_0000_0000_00ac);
    assert!(with(Some(vec![(id, 4000)])).starts_with(local), "{}", with(Some(vec![(id, 4000)])));
}

#[test]
fn short_answers_are_exact() {
    let report = report();
    for (word, expected) in [
        (Word::Ruok, "imok"),
        (Word::Isro, "rw"),
        (Word::Crst, "Connection stats reset.\n"),
        (Word::Srst, "Server stats reset.\n"),
        (Word::Conf, "clientPort=2181\nmembership: \nserver.1=a:2888:3888:participant\n"),
        (Word::Envi, "Environment:\nhost.name=box\n"),
        (Word::Dirs, "datadir_size: 100\nlogdir_size: 200\n"),
        (Word::Wchs, "1 connections watching 2 paths\nTotal watches:3\n"),
        (Word::Wchc, "0x1\n\t/a\n\t/b\n0x2\n\t/b\n\n"),
        (Word::Wchp, "/a\n\t0x1\n/b\n\t0x1\n\t0x2\n\n"),
        (Word::Hash, "80: 12345\n"),
        (Word::Gtmk, "306"),
    ] {
        assert_eq!(format(word, &report), expected, "{word}");
    }
}

#[test]
fn dump_lists_sessions_ephemerals_and_connections() {
    let expected = "SessionTracker dump:\nGlobal Sessions(1):\n0xab\t30000ms\n\
        ephemeral nodes dump:\nSessions with Ephemerals (1):\n0xab:\n\t/e\n\
        Connections dump:\n /127.0.0.1:50123[1](queued=1,recved=5,sent=4)\n";
    assert_eq!(format(Word::Dump, &report()), expected);
}

#[test]
fn mntr_is_a_key_a_tab_and_a_value_a_line() {
    let answer = format(Word::Mntr, &report());
    for line in answer.lines() {
        let (key, value) = line.split_once('\t').expect("a tab");
        assert!(key.starts_with("zk_") && !value.is_empty(), "{line}");
    }
    for line in [
        "zk_server_state\tleader",
        "zk_peer_state\tleading - broadcast",
        "zk_quorum_size\t3",
        "zk_avg_fsynctime\t1.3333",
        "zk_max_fsynctime\t3",
    ] {
        assert!(answer.lines().any(|other| other == line), "{line}");
    }
}

#[test]
fn a_server_that_does_not_serve_answers_only_for_itself() {
    let report = ServerReport { mode: None, missing: "server 2 has not connected".to_owned(), ..report() };
    let refusal = "This ZooKeeper instance is not currently serving requests\n";
    for &word in Word::ALL {
        let refused = format(word, &report).starts_with(refusal);
        assert_eq!(refused, !matches!(word, Word::Ruok | Word::Envi | Word::Isro), "{word}");
    }
    assert_eq!(format(Word::Isro, &report), "null");
    assert_eq!(format(Word::Stat, &report), refusal);
    assert_eq!(format(Word::Srvr, &report), format!("{refusal}server 2 has not connected\n"));
    let metrics = format(Word::Mntr, &report);
    assert!(
        metrics.contains("zk_avg_fsynctime\t1.3333") && !metrics.contains("zk_server_state"),
        "{metrics}"
    );
}

#[test]
fn the_whitelist_names_words_or_all_of_them() {
    let some = Whitelist::parse("stat, ruok,nonsense");
    assert!(some.allows(Word::Stat) && some.allows(Word::Ruok) && !some.allows(Word::Srvr));
    assert!(Word::ALL.iter().all(|&word| Whitelist::parse("*").allows(word)));
    let default = Whitelist::default();
    let allowed: Vec<Word> = Word::ALL.iter().copied().filter(|&word| default.allows(word)).collect();
    assert_eq!(allowed, [Word::Isro, Word::Mntr, Word::Ruok, Word::Srvr]);
}
