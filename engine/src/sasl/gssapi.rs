//! The mechanism GSSAPI (RFC 4752), as a server answers its tokens:
//!
//! ```text
//! client -> server   a ticket (one token or more of the security context)
//! server -> client   the answer; if it is none, the layers at once
//! client -> server   (empty)
//! server -> client   layers that are offered, wrapped: only "none", as in ZooKeeper
//! client -> server   the layer that is chosen, and for whom the client wants to act, wrapped
//! server -> client   (none)
//! ```
//!
//! The cryptography, and whatever it asks of the system, is the security context's: it may block, so it runs
//! beside the shard.

use super::{Answer, LoginError};
use crate::acl::is_sasl_id;

/// The security layer "none", which leaves the messages after the login as they are.
const NO_LAYER: u8 = 1;

/// The layers that are offered, and the longest wrapped message: 0, since there are none.
const OFFER: [u8; 4] = [NO_LAYER, 0, 0, 0];

/// The end of a security context that accepts a client (GSS-API, RFC 2743).
pub trait SecurityContext {
    /// Takes a token of the client.
    ///
    /// # Errors
    /// The client is not who it says.
    fn accept(&mut self, token: &[u8]) -> Result<Accepted, LoginError>;

    /// Signs a message; to be called when the context is established.
    ///
    /// # Errors
    /// The context has ended.
    fn wrap(&mut self, message: &[u8]) -> Result<Vec<u8>, LoginError>;

    /// Verifies a message of the client.
    ///
    /// # Errors
    /// The client has not signed it.
    fn unwrap(&mut self, message: &[u8]) -> Result<Vec<u8>, LoginError>;
}

/// What came of a token.
#[derive(Debug)]
pub struct Accepted {
    /// The token for the client, or nothing.
    pub token: Vec<u8>,
    /// The client's principal, when the context is established.
    pub principal: Option<String>,
}

/// The login of one connection by GSSAPI.
#[derive(Debug)]
pub struct Negotiation<C> {
    context: C,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Accepting,
    /// This principal is to confirm with an empty token.
    Established(String),
    /// It was sent the layers.
    Offered(String),
    Ended,
}

impl<C: SecurityContext> Negotiation<C> {
    /// A login that begins.
    pub const fn new(context: C) -> Self {
        Self { context, stage: Stage::Accepting }
    }

    /// Answers a token of the client.
    ///
    /// # Errors
    /// The login has failed; further tokens do, too.
    pub fn answer(&mut self, token: &[u8]) -> Result<Answer, LoginError> {
        match std::mem::replace(&mut self.stage, Stage::Ended) {
            Stage::Accepting => {
                let Accepted { token, principal } = self.context.accept(token)?;
                self.stage = match principal {
                    None => Stage::Accepting,
                    Some(principal) if !is_plain(&principal) => return Err(LoginError::Principal),
                    Some(principal) if token.is_empty() => return self.offer(principal),
                    Some(principal) => Stage::Established(principal),
                };
                Ok(Answer { token: Some(token), user: None })
            }
            Stage::Established(principal) if token.is_empty() => self.offer(principal),
            Stage::Established(_) => Err(LoginError::Layer),
            Stage::Offered(principal) => {
                let choice = self.context.unwrap(token)?;
                let Some(([NO_LAYER, _, _, _], acts_for)) = choice.split_first_chunk() else {
                    return Err(LoginError::Layer);
                };
                if !names(acts_for, &principal) {
                    return Err(LoginError::ActsForAnother);
                }
                Ok(Answer { token: None, user: Some(principal) })
            }
            Stage::Ended => Err(LoginError::Ended),
        }
    }

    fn offer(&mut self, principal: String) -> Result<Answer, LoginError> {
        let token = self.context.wrap(&OFFER)?;
        self.stage = Stage::Offered(principal);
        Ok(Answer { token: Some(token), user: None })
    }
}

/// Whether the name is one or two components and a realm, none of which contains a separator (which Kerberos
/// would write with a backslash).
fn is_plain(principal: &str) -> bool {
    principal.contains('@') && is_sasl_id(principal) && !principal.contains('\\')
}

/// Whether a client acts for itself: it names nobody, its principal, or that without realm or host.
fn names(acts_for: &[u8], principal: &str) -> bool {
    let rest = principal.as_bytes().strip_prefix(acts_for);
    rest.is_some_and(|rest| acts_for.is_empty() || matches!(rest.first(), None | Some(b'@' | b'/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A context of as many rounds as its ticket says, `2:alice@R` two. A signature is an S in front.
    struct Plain;

    impl SecurityContext for Plain {
        fn accept(&mut self, token: &[u8]) -> Result<Accepted, LoginError> {
            match token {
                [b'2', ..] => Ok(Accepted { token: b"more".to_vec(), principal: None }),
                [rounds @ (b'1' | b'0'), b':', principal @ ..] => Ok(Accepted {
                    token: if *rounds == b'1' { b"ok".to_vec() } else { Vec::new() },
                    principal: Some(String::from_utf8_lossy(principal).into_owned()),
                }),
                _ => Err(LoginError::Kerberos("no ticket".into())),
            }
        }

        fn wrap(&mut self, message: &[u8]) -> Result<Vec<u8>, LoginError> {
            Ok([b"S", message].concat())
        }

        fn unwrap(&mut self, message: &[u8]) -> Result<Vec<u8>, LoginError> {
            message
                .strip_prefix(b"S")
                .map(<[u8]>::to_vec)
                .ok_or_else(|| LoginError::Kerberos("unsigned".into()))
        }
    }

    /// The last answer to the tokens; those before have to be successes.
    fn last_answer(tokens: &[&[u8]]) -> Result<Answer, LoginError> {
        let mut login = Negotiation::new(Plain);
        let (last, first) = tokens.split_last().expect("a token");
        for token in first {
            assert_eq!(login.answer(token).expect("a success").user, None);
        }
        let answer = login.answer(last);
        if answer.as_ref().map_or(true, |answer| answer.user.is_some()) {
            assert_eq!(login.answer(b""), Err(LoginError::Ended));
        }
        answer
    }

    #[test]
    fn a_ticket_and_the_layer_none_make_a_login() {
        let token = |token: &[u8]| Ok(Answer { token: Some(token.to_vec()), user: None });
        assert_eq!(last_answer(&[b"2"]), token(b"more"));
        assert_eq!(last_answer(&[b"2", b"1:alice@R"]), token(b"ok"));
        assert_eq!(last_answer(&[b"2", b"1:alice@R", b""]), token(b"S\x01\0\0\0"));
        assert_eq!(last_answer(&[b"0:alice@R"]), token(b"S\x01\0\0\0"));
        for acts_for in ["", "alice@R", "alice"] {
            let choice = [b"S\x01\x01\0\0", acts_for.as_bytes()].concat();
            let user = Ok(Answer { token: None, user: Some("alice@R".to_owned()) });
            assert_eq!(last_answer(&[b"1:alice@R", b"", &choice]), user, "{acts_for}");
        }
    }

    #[test]
    fn everything_else_fails() {
        let kerberos = |reason: &str| LoginError::Kerberos(reason.into());
        let cases: [(&[&[u8]], LoginError); 12] = [
            (&[b"x"], kerberos("no ticket")),
            (&[b""], kerberos("no ticket")),
            (&[b"1:alice@R", b"x"], LoginError::Layer),
            (&[b"0:alice@R", b"\x01\0\0\0"], kerberos("unsigned")),
            (&[b"0:alice@R", b"S\x02\0\0\0"], LoginError::Layer),
            (&[b"0:alice@R", b"S\x01\0\0"], LoginError::Layer),
            (&[b"0:alice@R", b"S"], LoginError::Layer),
            (&[b"0:alice@R", b"S\x01\0\0\0super"], LoginError::ActsForAnother),
            (&[b"0:alice@R", b"S\x01\0\0\0ali"], LoginError::ActsForAnother),
            (&[b"0:a\\@S@R"], LoginError::Principal),
            (&[b"0:a/b/c@R"], LoginError::Principal),
            (&[b"0:alice"], LoginError::Principal),
        ];
        for (tokens, expected) in cases {
            assert_eq!(last_answer(tokens), Err(expected), "{tokens:?}");
        }
    }
}
