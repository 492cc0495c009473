//! TLS between the core and the socket: one rustls session a connection.

use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;
use std::sync::Arc;

pub(crate) use ringkeeper_tls::ClientSettings;
use ringkeeper_tls::Stores;
use ringkeeper_tls::rustls::pki_types::ServerName;
use ringkeeper_tls::rustls::{self, CertificateError, ClientConfig, ClientConnection};

use crate::core::Loss;
use crate::{Error, Result};

/// How a client speaks TLS: what was read from the files of its settings.
pub(crate) struct Security(Stores<ClientConfig>);

/// The TLS of one connection.
pub(super) struct Session(Box<ClientConnection>);

impl Security {
    pub(crate) fn load(settings: ClientSettings) -> Result<Self> {
        let files = settings.files().map(Path::to_owned).collect();
        let stores = Stores::open(files, move || settings.load());
        stores.map(Self).map_err(|error| Error::Tls(error.to_string()))
    }

    /// A session with the server that is reached by this name or address. Files that have changed are read
    /// first; if they cannot be used, the last ones stay.
    pub(super) fn session(&self, host: &str) -> Result<Session, Loss> {
        if let Err(error) = self.0.reload_changed() {
            tracing::warn!(%error, "the changed files cannot be used, the last ones stay");
        }
        Session::new(self.0.config(), host)
    }
}

impl Session {
    fn new(config: Arc<ClientConfig>, host: &str) -> Result<Self, Loss> {
        let failed = |reason: &dyn std::fmt::Display| Loss::Dial(format!("TLS with {host}: {reason}"));
        let name = ServerName::try_from(host.to_owned()).map_err(|error| failed(&error))?;
        let session = ClientConnection::new(config, name).map_err(|error| failed(&error))?;
        Ok(Self(Box::new(session)))
    }

    pub(super) fn is_handshaking(&self) -> bool {
        self.0.is_handshaking()
    }

    /// Goes on with the handshake, as far as the socket lets it. Whether it is done.
    pub(super) fn shake_hands(&mut self, tcp: &mut (impl Read + Write)) -> io::Result<bool> {
        loop {
            unless_full(self.send(tcp))?;
            if !self.is_handshaking() {
                return Ok(true);
            }
            match self.receive(tcp) {
                Ok(0) => {
                    return Err(io::Error::new(
                        ErrorKind::UnexpectedEof,
                        "the server has closed the connection",
                    ));
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    /// As [`Read::read`]: bytes that were opened, or an error if there are none and the socket has none.
    pub(super) fn read(&mut self, tcp: &mut (impl Read + Write), buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                opened => return opened,
            }
            if self.receive(tcp)? == 0 {
                return Ok(0);
            }
        }
    }

    /// As [`Write::write`]. What is taken is sent as far as the socket lets it, the rest by [`Self::send`].
    pub(super) fn write(&mut self, tcp: &mut (impl Read + Write), bytes: &[u8]) -> io::Result<usize> {
        self.send(tcp)?;
        let taken = self.0.writer().write(bytes)?;
        unless_full(self.send(tcp))?;
        Ok(taken)
    }

    /// Sends what was sealed.
    pub(super) fn send(&mut self, tcp: &mut (impl Read + Write)) -> io::Result<()> {
        while self.0.wants_write() {
            match self.0.write_tls(tcp) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                Ok(_) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// Tells the server that nothing more comes.
    pub(super) fn end(&mut self, tcp: &mut (impl Read + Write)) {
        self.0.send_close_notify();
        let _ = self.send(tcp);
    }

    /// Opens what the socket has. Returns how many bytes that was.
    fn receive(&mut self, tcp: &mut (impl Read + Write)) -> io::Result<usize> {
        let received = self.0.read_tls(tcp)?;
        let processed = self.0.process_new_packets();
        // An answer to a key update, or the alert that says what is wrong.
        let sent = unless_full(self.send(tcp));
        processed.map_err(|error| io::Error::new(ErrorKind::InvalidData, explained(&error)))?;
        sent.map(|()| received)
    }
}

fn unless_full(sent: io::Result<()>) -> io::Result<()> {
    match sent {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
        sent => sent,
    }
}

/// What is wrong and, where the user can do something about it, what.
fn explained(error: &rustls::Error) -> String {
    use rustls::AlertDescription::{CertificateRequired, UnknownCA};
    let remedy = match error {
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "the trust store has no authority that has signed the server's certificate"
        }
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "connect by a name that the server's certificate has, or give it one for this name",
        rustls::Error::AlertReceived(CertificateRequired) => "the server asks for a key store",
        rustls::Error::AlertReceived(UnknownCA) => {
            "the server does not trust the certificate in the key store"
        }
        rustls::Error::InvalidMessage(_) => "the server may not speak TLS on this port",
        _ => return error.to_string(),
    };
    format!("{error}: {remedy}")
}
