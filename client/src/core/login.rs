//! The login by SASL: two requests on each new connection, before anything else. [`Login`] is usable without
//! a [`Core`], by whoever speaks the protocol himself.

use std::fmt;

use ringkeeper_wire::digest_md5;
use ringkeeper_wire::frame::put_frame;
use ringkeeper_wire::scram::Unsuitable;
use ringkeeper_wire::{OpCode, Record, RequestHeader, SaslRequest, SetSaslResponse, xid};

use super::replies::split_header;
use super::scram::Scram;
use super::{Core, Loss, Millis, Sink};
use crate::SessionState;

/// Who logs in on every connection.
#[derive(Clone, PartialEq, Eq)]
pub struct User {
    /// The name.
    pub name: String,
    /// The password.
    pub password: String,
    /// How it is proved.
    pub mechanism: Mechanism,
}

/// How the knowledge of a password is proved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mechanism {
    /// DIGEST-MD5 (RFC 2831), which Apache ZooKeeper has, too.
    #[default]
    DigestMd5,
    /// SCRAM-SHA-256 (RFC 7677).
    ScramSha256,
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, mechanism, .. } = self;
        f.debug_struct("User").field("name", name).field("mechanism", mechanism).finish_non_exhaustive()
    }
}

/// The client's side of a user's logins, on one connection after the other.
pub struct Login {
    user: User,
    nonces: fastrand::Rng,
    scram: Scram,
    /// What the server has to answer to the last token.
    expected_proof: Option<String>,
}

/// Why a user is not logged in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoginFailure {
    /// The name has characters that SCRAM does not allow.
    #[error("the name of the user does not suit SCRAM-SHA-256")]
    Unsuitable,
    /// The server says no.
    #[error("the server has refused the login: its user, password or mechanism is not one of the server's")]
    Refused,
    /// The server does not know the password either, or is none of ZooKeeper's.
    #[error("{0}")]
    Garbled(String),
}

impl Login {
    /// Logins of `user`. `seed`: decides the nonces.
    #[must_use]
    pub fn new(user: User, seed: u64) -> Self {
        let nonces = fastrand::Rng::with_seed(seed);
        Self { user, nonces, scram: Scram::default(), expected_proof: None }
    }

    /// Logins of the same user on connections beside those of `self`, with other nonces.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        let Self { user, nonces, scram, .. } = self;
        Self { user: user.clone(), nonces: nonces.fork(), scram: scram.clone(), expected_proof: None }
    }

    /// Begins a login on a connection whose session is granted: appends the first request to `out`.
    ///
    /// # Errors
    /// [`LoginFailure::Unsuitable`].
    pub fn begin(&mut self, out: &mut Vec<u8>) -> Result<(), LoginFailure> {
        self.expected_proof = None;
        let first = match self.user.mechanism {
            Mechanism::DigestMd5 => String::new(),
            Mechanism::ScramSha256 => {
                let nonce = nonce(&mut self.nonces);
                self.scram.begin(&self.user, nonce).map_err(|Unsuitable| LoginFailure::Unsuitable)?
            }
        };
        encode_token(first.as_bytes(), out);
        Ok(())
    }

    /// Handles the next reply, a frame without its length. Whether the user is logged in; if not, the next
    /// request is appended to `out`.
    ///
    /// # Errors
    /// There is no login on this connection.
    pub fn handle_reply(&mut self, payload: &[u8], out: &mut Vec<u8>) -> Result<bool, LoginFailure> {
        let Some((header, body)) = split_header(payload) else {
            return Err(LoginFailure::Garbled("a reply without a header".to_owned()));
        };
        let response = SetSaslResponse::from_bytes(body);
        let (0, Ok(SetSaslResponse { token: Some(token) })) = (header.err, response) else {
            // A server that has no users answers without a token.
            return Err(LoginFailure::Refused);
        };
        if let Some(expected) = self.expected_proof.take() {
            return if token == expected.as_bytes() {
                Ok(true)
            } else {
                let reason = "the server does not know the password of the user";
                Err(LoginFailure::Garbled(reason.to_owned()))
            };
        }
        let (response, proof) = self.respond(token).map_err(LoginFailure::Garbled)?;
        encode_token(&response, out);
        self.expected_proof = Some(proof);
        Ok(false)
    }

    /// What proves the knowledge of the password, and what proves the server's.
    fn respond(&mut self, challenge: &[u8]) -> Result<(Vec<u8>, String), String> {
        let Self { user, nonces, scram, .. } = self;
        match user.mechanism {
            Mechanism::DigestMd5 => {
                digest_md5::respond(challenge, &user.name, &user.password, &nonce(nonces))
                    .map_err(|error| error.to_string())
            }
            Mechanism::ScramSha256 => {
                let (response, proof) = scram.respond(user, challenge)?;
                Ok((response.into_bytes(), proof))
            }
        }
    }
}

impl<S: Sink> Core<S> {
    pub(super) fn begin_login(&mut self, now: Millis, sink: &mut S) {
        let Some(login) = &mut self.login else { return };
        if let Err(failure) = login.begin(&mut self.prelude) {
            self.fail_login(now, failure, sink);
        }
    }

    /// Handles a reply while the login is under way. `is_read_only`: what the server said of itself.
    pub(super) fn handle_login_reply(
        &mut self,
        now: Millis,
        payload: &[u8],
        is_read_only: bool,
        sink: &mut S,
    ) {
        let Some(login) = &mut self.login else { return };
        match login.handle_reply(payload, &mut self.prelude) {
            Ok(true) => {
                self.servers.answered();
                self.serve(now, is_read_only, sink);
            }
            Ok(false) => {}
            Err(failure) => self.fail_login(now, failure, sink),
        }
    }

    fn fail_login(&mut self, now: Millis, failure: LoginFailure, sink: &mut S) {
        match failure {
            LoginFailure::Unsuitable | LoginFailure::Refused => self.end(SessionState::AuthFailed, sink),
            LoginFailure::Garbled(reason) => self.lose(now, Loss::Garbled(reason), sink),
        }
    }
}

fn nonce(random: &mut fastrand::Rng) -> String {
    format!("{:032x}", random.u128(..))
}

fn encode_token(token: &[u8], out: &mut Vec<u8>) {
    put_frame(out, |out| {
        RequestHeader { xid: xid::AUTH, op: OpCode::Sasl.to_wire() }.encode(out);
        SaslRequest { token: Some(token) }.encode(out);
    });
}
