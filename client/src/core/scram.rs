//! The client's side of SCRAM-SHA-256 (RFC 5802), over all connections of a client.

use ringkeeper_wire::scram::{GS2_HEADER, Keys, ServerFirst, Unsuitable, client_first_bare};

use super::User;

/// A login, and what the next one can use again.
#[derive(Clone, Default)]
pub(super) struct Scram {
    nonce: String,
    client_first_bare: String,
    /// Derived from the password when a server asks for the first time: that takes long, and servers have the
    /// same salt.
    keys: Option<Keys>,
}

impl Scram {
    /// The first message of a login.
    pub(super) fn begin(&mut self, user: &User, nonce: String) -> Result<String, Unsuitable> {
        self.client_first_bare = client_first_bare(&user.name, &nonce)?;
        self.nonce = nonce;
        Ok(format!("{GS2_HEADER}{}", self.client_first_bare))
    }

    /// The answer to the server's first message, and what a server that knows the user says last.
    pub(super) fn respond(&mut self, user: &User, server_first: &[u8]) -> Result<(String, String), String> {
        let challenge = ServerFirst::parse(server_first).map_err(|error| error.to_string())?;
        let own = challenge.nonce.strip_prefix(&*self.nonce).filter(|added| !added.is_empty());
        own.ok_or("an answer to another login")?;
        let keys = match self.keys.take().filter(|keys| keys.fit(&challenge)) {
            Some(keys) => keys,
            None => Keys::derive(&user.password, &challenge.salt, challenge.iterations)
                .map_err(|error| error.to_string())?,
        };
        let server_first = String::from_utf8_lossy(server_first);
        let messages = keys.respond(&self.client_first_bare, &server_first, challenge.nonce);
        self.keys = Some(keys);
        Ok(messages)
    }
}
