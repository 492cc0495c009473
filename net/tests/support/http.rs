//! Questions to an admin listener.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

use super::PATIENCE;

/// An answer.
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// In lower case.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("UTF-8")
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in {:?}", self.text()))
    }
}

fn ask(address: SocketAddr, request: &str) -> Answer {
    let mut stream = TcpStream::connect(address).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("an option");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("an answer and its end");
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("a header");
    let body = bytes.split_off(end + 4);
    let head = String::from_utf8(bytes).expect("UTF-8").to_ascii_lowercase();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    Answer { status, head, body }
}

/// The answer to a request with one more line of its header, or none.
pub(crate) fn request(address: SocketAddr, method: &str, path: &str, header: &str) -> Answer {
    request_by_name(address, "x", method, path, header)
}

/// The same, with the name by which a browser knows the server.
pub(crate) fn request_by_name(
    address: SocketAddr,
    host: &str,
    method: &str,
    path: &str,
    header: &str,
) -> Answer {
    ask(address, &format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{header}\r\n"))
}

/// The answer to a body of JSON.
pub(crate) fn post(address: SocketAddr, path: &str, header: &str, body: &Value) -> Answer {
    let (body, host) = (body.to_string(), "localhost");
    let length = body.len();
    ask(
        address,
        &format!(
            "POST {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{header}\
             content-length: {length}\r\n\r\n{body}"
        ),
    )
}

/// What there is at a path.
pub(crate) fn get(address: SocketAddr, path: &str) -> Answer {
    request(address, "GET", path, "")
}
