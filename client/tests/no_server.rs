//! What is no ZooKeeper, and what cannot be one: clear errors, and nothing hangs.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use ringkeeper_client::{Client, CreateMode, Error, Outcome, Wait};

const CONNECT_TIMEOUT: Duration = Duration::from_millis(300);

/// A peer of whatever kind: its address. Its threads end with the process.
fn peer(serve: impl Fn(TcpStream) + Send + Clone + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address").to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let serve = serve.clone();
            std::thread::spawn(move || serve(stream));
        }
    });
    address
}

fn error(address: &str) -> Error {
    let client = Client::builder(address).connect_timeout(CONNECT_TIMEOUT).connect().wait();
    client.expect_err("there is no server")
}

fn assert_unreachable(error: &Error, words: &str) {
    assert!(matches!(error, Error::Unreachable(why) if why.contains(words)), "{error}");
    assert_eq!(error.outcome(), Outcome::NotExecuted);
    assert!(error.is_session_end());
}

#[test]
fn a_web_server_is_no_zookeeper() {
    let address = peer(|mut stream| {
        // The client may be gone already.
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    assert_unreachable(&error(&address), "not a ZooKeeper server");
}

#[test]
fn a_server_that_waits_for_other_words_is_given_up() {
    // As TLS and SSH servers do: they read, and say nothing that they were not asked for.
    let address = peer(|mut stream| {
        let mut buffer = [0; 1024];
        while matches!(stream.read(&mut buffer), Ok(1..)) {}
    });
    assert_unreachable(&error(&address), "no answer");
}

#[test]
fn a_server_that_hangs_up_is_given_up() {
    let address = peer(|mut stream| {
        // With something unread, the end would be a reset.
        let _ = stream.read(&mut [0; 1024]);
    });
    assert_unreachable(&error(&address), "closed by the server");
}

#[test]
fn a_port_where_nobody_listens_is_refused() {
    assert_unreachable(&error("127.0.0.1:1"), "refused");
}

#[test]
fn a_host_that_is_not_there_is_named() {
    assert_unreachable(&error("no-such-host.invalid"), "no-such-host.invalid");
}

#[test]
fn one_server_among_others_that_are_none_is_told_of_too() {
    let web = peer(|mut stream| {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    let error = error(&format!("{web},127.0.0.1:1"));
    assert!(matches!(error, Error::Unreachable(_)), "{error}");
}

#[test]
fn wrong_connection_strings_and_settings_are_refused_before_anything_is_dialled() {
    for text in ["", ":2181", "zk1:port", "zk1:2181,,zk2", "zk1:99999", "zk 1", "zk1/a//b", "[::1:2181"] {
        let error = Client::connect(text).wait().expect_err("wrong");
        assert!(matches!(&error, Error::InvalidConnectString { .. }), "{text:?}: {error}");
        assert!(error.to_string().contains(&format!("{text:?}")), "{error}");
    }
    let zero = Client::builder("127.0.0.1:1").session_timeout(Duration::ZERO).connect().wait();
    assert!(matches!(zero.expect_err("wrong"), Error::InvalidSetting(_)));
}

#[test]
fn requests_before_the_first_server_end_with_the_attempt_to_reach_one() {
    let client = Client::builder("127.0.0.1:1").connect_timeout(CONNECT_TIMEOUT).open().expect("a client");
    let waiting = client.create("/a", b"", CreateMode::Persistent);
    let error = waiting.wait().expect_err("there is no server");
    assert!(matches!(error, Error::Unreachable(_) | Error::NotSent(_)), "{error}");
    assert_eq!(error.outcome(), Outcome::NotExecuted);
}
