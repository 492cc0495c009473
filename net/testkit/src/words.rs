//! Four-letter words, by which servers tell how they are.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A server that is paused or cut off does not answer, and is not waited for.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// The answer to a four-letter word: everything until the server closes the connection.
///
/// # Errors
/// The server cannot be reached, or is silent for two seconds.
pub fn ask(server: SocketAddr, word: &[u8]) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&server, ANSWER_MAX)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    stream.write_all(word)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// What a server says that it is, such as `leader`; `None` if it does not serve.
#[must_use]
pub fn mode(server: SocketAddr) -> Option<String> {
    let answer = ask(server, b"srvr").ok()?;
    answer.lines().find_map(|line| line.strip_prefix("Mode: ")).map(str::to_owned)
}

/// A number of `mntr`, whose name has `zk_` in front; `None` if the server does not tell it.
#[must_use]
pub fn metric(server: SocketAddr, name: &str) -> Option<f64> {
    let answer = ask(server, b"mntr").ok()?;
    let value = answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('\t'));
    value?.trim().parse().ok()
}
