//! Strangers, and peers that are not what they say, on the quorum port.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hmac::{Hmac, KeyInit, Mac};
use ringkeeper_wire::CreateMode;
use sha2::Sha256;

use crate::cluster::Ensemble;
use crate::feature_level;
use crate::support::{PATIENCE, is_closed, wait_for};

pub(crate) const MAGIC: &[u8; 8] = b"RKPEER\0\x0d";
pub(crate) const HELLO_BYTES: usize = 56;

pub(crate) fn hello(magic: &[u8; 8], from: u64, to: u64) -> Vec<u8> {
    [&magic[..], &from.to_le_bytes(), &to.to_le_bytes(), &[7; 32]].concat()
}

fn noise() -> Vec<u8> {
    (0..4096_u32).map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[0] | 0x80).collect()
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the quorum port is open");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

/// Introduces itself as server `from` to server `to`, with the secret that servers have by default: none.
fn introduce(address: SocketAddr, from: u64, to: u64) -> TcpStream {
    introduce_as(MAGIC, address, from, to)
}

fn introduce_as(magic: &[u8; 8], address: SocketAddr, from: u64, to: u64) -> TcpStream {
    let mut stream = connect(address);
    let own = hello(magic, from, to);
    stream.write_all(&own).expect("sent");
    let mut theirs = [0; HELLO_BYTES];
    stream.read_exact(&mut theirs).expect("an answer");
    let mut mac = Hmac::<Sha256>::new_from_slice(b"").expect("any key");
    mac.update(&own);
    mac.update(&theirs);
    stream.write_all(&mac.finalize().into_bytes()).expect("sent");
    stream.read_exact(&mut [0; 32]).expect("a proof");
    stream
}

/// Two of three servers run, so that nobody else is server 3.
fn two_of_three() -> Ensemble {
    let ensemble = Ensemble::start();
    ensemble.kill(2);
    ensemble.leader();
    ensemble
}

pub(crate) fn assert_serves(ensemble: &Ensemble) {
    let mut client = ensemble.connect(1);
    let path = client.create("/s", b"", CreateMode::PersistentSequential);
    client.delete(&path);
}

#[test]
fn strangers_are_refused_and_the_service_goes_on() {
    let ensemble = two_of_three();
    let leader_before = ensemble.leader();
    let mut client = ensemble.connect(0);
    let http = b"GET / HTTP/1.1\r\nHost: zookeeper\r\nUser-Agent: a browser of some length\r\n\r\n";
    let greetings: [(&str, Vec<u8>); 6] = [
        ("random bytes", noise()),
        ("another protocol", http.to_vec()),
        ("an older build", hello(b"RKPEER\0\x06", 3, 1)),
        ("a word for another server", hello(MAGIC, 3, 2)),
        ("ZooKeeper's FOLLOWERINFO", [&[0, 0, 0, 11][..], &[0; 60]].concat()),
        ("half a greeting, then nothing", hello(MAGIC, 3, 1)[..20].to_vec()),
    ];
    for (what, bytes) in greetings {
        let mut stream = connect(ensemble.quorum_address(0));
        stream.write_all(&bytes).expect("sent");
        assert!(is_closed(&mut stream), "{what}");
    }
    client.set("/", b"its connection still stands");
    assert_eq!(ensemble.leader(), leader_before);
    assert_serves(&ensemble);
}

#[test]
fn a_server_number_that_does_not_belong_is_refused_even_if_it_knows_the_secret() {
    let ensemble = two_of_three();
    for stranger in [1, 9, u64::MAX] {
        assert!(is_closed(&mut introduce(ensemble.quorum_address(0), stranger, 1)), "server {stranger}");
    }
    assert_serves(&ensemble);
}

#[test]
fn builds_of_two_versions_speak_the_older_one() {
    let ensemble = two_of_three();
    feature_level::change(&ensemble, &["--lower", "0"]);
    // A connected server is told who leads: in version 8 with what is committed, which is a kind of its own.
    for (version, kind) in [(7, 1), (8, 16), (0xff, 16)] {
        let mut magic = *MAGIC;
        magic[7] = version;
        let mut stream = introduce_as(&magic, ensemble.quorum_address(0), 3, 1);
        let mut told = [0; 5];
        stream.read_exact(&mut told).expect("a message in the version that both speak");
        assert_eq!(told[4], kind, "version {version}");
    }
}

#[test]
fn garbage_and_oversize_frames_of_an_introduced_peer_end_its_connection_alone() {
    let ensemble = two_of_three();
    let mut client = ensemble.connect(0);
    let frames: [(&str, Vec<u8>); 5] = [
        ("an oversize frame", u32::MAX.to_le_bytes().to_vec()),
        ("an empty frame", vec![0; 4]),
        ("an unknown kind", vec![1, 0, 0, 0, 200]),
        ("a message cut short", vec![2, 0, 0, 0, 3, 1]),
        ("random bytes", noise()),
    ];
    for (what, bytes) in frames {
        let mut stream = introduce(ensemble.quorum_address(0), 3, 1);
        stream.write_all(&bytes).expect("sent");
        assert!(is_closed(&mut stream), "{what}");
    }
    client.set("/", b"its connection still stands");
    assert_serves(&ensemble);
}

#[test]
fn a_flood_of_strangers_does_not_keep_a_peer_out() {
    let ensemble = two_of_three();
    // Idle connections, of which each that is closed is replaced at once.
    let flooded = ensemble.quorum_address(0);
    let done = Arc::new(AtomicBool::new(false));
    let (ended, mut strangers) = (Arc::clone(&done), Vec::new());
    strangers.extend((0..150).map(|_| connect(flooded)));
    let flood = thread::spawn(move || {
        while !ended.load(Ordering::Relaxed) {
            for stranger in &mut strangers {
                stranger.set_nonblocking(true).expect("a socket");
                let closed = !matches!(stranger.read(&mut [0]), Err(e) if e.kind() == ErrorKind::WouldBlock);
                if closed && let Ok(next) = TcpStream::connect(flooded) {
                    *stranger = next;
                }
            }
            thread::sleep(Duration::from_millis(10));
        }
    });
    let started = Instant::now();
    ensemble.run(2);
    ensemble.server(2).wait_until_serving(PATIENCE).expect("it is let in");
    println!("let in after {:?}", started.elapsed());
    done.store(true, Ordering::Relaxed);
    flood.join().expect("the flood ends");
    assert_serves(&ensemble);
}

#[test]
fn a_server_with_another_secret_is_kept_out_and_told_why() {
    let ensemble = Ensemble::prepare(3, "");
    let secret = ensemble.file("secret", "what all servers know");
    for server in ensemble.servers() {
        ensemble.configure(server, &format!("ringkeeper.peerSecretFile={}", secret.display()));
        ensemble.run(server);
    }
    ensemble.leader();
    ensemble.kill(2);
    let wrong = ensemble.file("wrong", "what nobody knows");
    ensemble.reconfigure(2, &secret.display().to_string(), &wrong.display().to_string());
    ensemble.run(2);
    wait_for("the refusal", || ensemble.server(2).log().contains("do not share a secret").then_some(()));
    ensemble.leader_among(&[0, 1]);
    assert_eq!(ensemble.server(2).mode(), None);
    assert_serves(&ensemble);
}

#[test]
fn a_member_without_descriptors_for_more_clients_still_hears_its_peers() {
    const OPEN_FILES: u32 = 200;
    let ensemble = Ensemble::start_with_open_files(OPEN_FILES, "snapCount=100\npreAllocSize=64\n");
    let [follower, other] = ensemble.others(ensemble.leader())[..] else { panic!("three servers") };
    let mut client = ensemble.connect(follower);
    let flood: Vec<_> = (0..2 * OPEN_FILES).map(|_| TcpStream::connect(ensemble.address(follower))).collect();
    let refused = || ensemble.server(follower).log().contains("the other files that the system allows");
    wait_for("the refusal", || refused().then_some(()));
    // Files of the log and snapshots, and a peer that comes anew.
    ensemble.kill(other);
    ensemble.run(other);
    ensemble.server(other).wait_until_serving(PATIENCE).expect("it finds its peers");
    for number in 0..300 {
        client.create(&format!("/n{number}"), &[7; 4096], CreateMode::Persistent);
    }
    drop(flood);
    assert!(client.exists("/n299", false));
}
