//! Four-letter words, by which servers tell how they are.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::Socket;

/// A server that is paused or cut off does not answer, and is not waited for.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// The answer to a four-letter word: everything until the server closes the connection.
///
/// # Errors
/// The server cannot be reached, or is silent for two seconds.
pub fn ask(server: SocketAddr, word: &[u8]) -> io::Result<String> {
    ask_on(TcpStream::connect_timeout(&server, ANSWER_MAX)?, word)
}

/// As [`ask`], on a connection that is there.
fn ask_on(socket: impl Into<Socket>, word: &[u8]) -> io::Result<String> {
    let mut socket = socket.into();
    socket.tcp().set_read_timeout(Some(ANSWER_MAX))?;
    socket.write_all(word)?;
    let mut answer = Vec::new();
    match socket.read_to_end(&mut answer) {
        // The end of the connection, which TLS asks to announce.
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => {}
        read => drop(read?),
    }
    String::from_utf8(answer).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
}

/// What a server says that it is, such as `leader`; `None` if it does not serve.
#[must_use]
pub fn mode(server: SocketAddr) -> Option<String> {
    mode_on(TcpStream::connect_timeout(&server, ANSWER_MAX).ok()?)
}

/// As [`mode`], of the server at the other end of a connection.
#[must_use]
pub fn mode_on(socket: impl Into<Socket>) -> Option<String> {
    let answer = ask_on(socket, b"srvr").ok()?;
    answer.lines().find_map(|line| line.strip_prefix("Mode: ")).map(str::to_owned)
}

/// A number of `mntr`, whose name has `zk_` in front; `None` if the server does not tell it.
#[must_use]
pub fn metric(server: SocketAddr, name: &str) -> Option<f64> {
    let answer = ask(server, b"mntr").ok()?;
    let value = answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('\t'));
    value?.trim().parse().ok()
}
