//! Asking another server whether it has a quorum, beside the connection to a read-only one.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use super::Shared;
use super::tls::Session;

const PATIENCE: Duration = Duration::from_secs(1);

/// Asks from a thread of its own: rare, short, and off the path of every request.
pub(super) fn ask(
    shared: &Arc<Shared>,
    servers: &Arc<[(String, u16)]>,
    server: usize,
    session: Option<Session>,
) {
    let (shared, servers) = (Arc::clone(shared), Arc::clone(servers));
    let spawned = std::thread::Builder::new().name("ringkeeper-isro".to_owned()).spawn(move || {
        let (host, port) = &servers[server];
        if has_quorum(host, *port, session).unwrap_or(false) {
            shared.change(|core, now, outcomes| core.handle_read_write_server(now, server, outcomes));
        }
    });
    if let Err(error) = spawned {
        tracing::warn!(%error, "no thread to look for a server with a quorum");
    }
}

fn has_quorum(host: &str, port: u16, session: Option<Session>) -> std::io::Result<bool> {
    let address = (host, port).to_socket_addrs()?.next().ok_or(std::io::ErrorKind::NotFound)?;
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut answer = [0; 2];
    match session {
        None => {
            stream.write_all(b"isro")?;
            stream.read_exact(&mut answer)?;
        }
        Some(mut session) => {
            session.shake_hands(&mut stream)?;
            session.write(&mut stream, b"isro")?;
            session.read(&mut stream, &mut answer)?;
        }
    }
    Ok(&answer == b"rw")
}
