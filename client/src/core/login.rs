//! The login by SASL: two requests on each new connection, before anything else.

use std::fmt;

use ringkeeper_wire::digest_md5;
use ringkeeper_wire::frame::{begin_frame, end_frame};
use ringkeeper_wire::scram::Unsuitable;
use ringkeeper_wire::{OpCode, Record, RequestHeader, SaslRequest, SetSaslResponse, xid};

use super::replies::split_header;
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

impl<S: Sink> Core<S> {
    pub(super) fn begin_login(&mut self, sink: &mut S) {
        self.expected_proof = None;
        let Some(user) = &self.config.user else { return };
        let first = match user.mechanism {
            Mechanism::DigestMd5 => Ok(String::new()),
            Mechanism::ScramSha256 => self.scram.begin(user, nonce(&mut self.nonces)),
        };
        match first {
            Ok(first) => encode_token(first.as_bytes(), &mut self.prelude),
            Err(Unsuitable) => self.end(SessionState::AuthFailed, sink),
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
        let Some((header, body)) = split_header(payload) else {
            return self.lose(now, Loss::Garbled("a reply without a header".to_owned()), sink);
        };
        let response = SetSaslResponse::from_bytes(body);
        let (0, Ok(SetSaslResponse { token: Some(token) })) = (header.err, response) else {
            // A server that has no users answers without a token.
            return self.end(SessionState::AuthFailed, sink);
        };
        if let Some(expected) = self.expected_proof.take() {
            if token == expected.as_bytes() {
                self.servers.answered();
                return self.serve(now, is_read_only, sink);
            }
            let loss = Loss::Garbled("the server does not know the password of the user".to_owned());
            return self.lose(now, loss, sink);
        }
        let Some(user) = &self.config.user else { return };
        let responded = match user.mechanism {
            Mechanism::DigestMd5 => {
                let cnonce = nonce(&mut self.nonces);
                let response = digest_md5::respond(token, &user.name, &user.password, &cnonce);
                response.map_err(|error| error.to_string())
            }
            Mechanism::ScramSha256 => {
                let messages = self.scram.respond(user, token);
                messages.map(|(response, proof)| (response.into_bytes(), proof))
            }
        };
        match responded {
            Ok((response, proof)) => {
                encode_token(&response, &mut self.prelude);
                self.expected_proof = Some(proof);
            }
            Err(error) => self.lose(now, Loss::Garbled(error), sink),
        }
    }
}

fn nonce(random: &mut fastrand::Rng) -> String {
    format!("{:032x}", random.u128(..))
}

fn encode_token(token: &[u8], out: &mut Vec<u8>) {
    let start = begin_frame(out);
    RequestHeader { xid: xid::AUTH, op: OpCode::Sasl.to_wire() }.encode(out);
    SaslRequest { token: Some(token) }.encode(out);
    end_frame(out, start).expect("a response to a challenge fits into a frame");
}
