//! TLS of one connection of a client, over any socket: blocking or not, driven by whoever has it.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{CertificateError, ClientConfig, ClientConnection};

/// The TLS of one connection. The socket comes with each call; where it would block, so does the call.
pub struct ClientSession(Box<ClientConnection>);

impl ClientSession {
    /// A session with the server that is reached by this name or address.
    ///
    /// # Errors
    /// The name is none, or rustls does not take the configuration: the reason.
    pub fn new(config: Arc<ClientConfig>, host: &str) -> Result<Self, String> {
        let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
        let session = ClientConnection::new(config, name).map_err(|error| error.to_string())?;
        Ok(Self(Box::new(session)))
    }

    /// Whether the handshake is not done.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        self.0.is_handshaking()
    }

    /// Goes on with the handshake, as far as the socket lets it. Whether it is done.
    ///
    /// # Errors
    /// The socket fails, or the server is refused, or refuses.
    pub fn shake_hands(&mut self, tcp: &mut (impl Read + Write)) -> io::Result<bool> {
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
    ///
    /// # Errors
    /// Those of [`Self::shake_hands`].
    pub fn read(&mut self, tcp: &mut (impl Read + Write), buffer: &mut [u8]) -> io::Result<usize> {
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
    ///
    /// # Errors
    /// The socket fails.
    pub fn write(&mut self, tcp: &mut (impl Read + Write), bytes: &[u8]) -> io::Result<usize> {
        self.send(tcp)?;
        let taken = self.0.writer().write(bytes)?;
        unless_full(self.send(tcp))?;
        Ok(taken)
    }

    /// Sends what was sealed.
    ///
    /// # Errors
    /// The socket fails.
    pub fn send(&mut self, tcp: &mut (impl Read + Write)) -> io::Result<()> {
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
    pub fn end(&mut self, tcp: &mut (impl Read + Write)) {
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
