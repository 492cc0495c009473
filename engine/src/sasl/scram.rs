//! Logins by SCRAM-SHA-256 (RFC 5802): the server's side of the exchange, and its users.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::RngCore;
use ringkeeper_wire::scram::{
    ClientFinal, ClientFirst, MESSAGE_LEN_MAX, Malformed, ServerFirst, Verifier, exchange,
};
use sha2::Sha512;

use super::{Answer, LoginError, NONCE_BYTES};

/// The users of SCRAM-SHA-256, with what proves their passwords.
///
/// Whoever asks for an unknown user gets a salt, too, and always the same one, so that nobody can find out
/// names: it is made from the name and the decoy key. Servers with the same key give the same salts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScramUsers {
    /// Sorted by name; at least one.
    verifiers: Vec<(String, Verifier)>,
    decoy_key: Vec<u8>,
}

/// There is no user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no user")]
pub struct NoUser;

impl ScramUsers {
    /// Of several verifiers of one name the last one counts.
    ///
    /// # Errors
    /// See [`NoUser`].
    pub fn new(mut verifiers: Vec<(String, Verifier)>, decoy_key: Vec<u8>) -> Result<Self, NoUser> {
        verifiers.reverse();
        verifiers.sort_by(|(one, _), (other, _)| one.cmp(other));
        verifiers.dedup_by(|(one, _), (other, _)| one == other);
        if verifiers.is_empty() { Err(NoUser) } else { Ok(Self { verifiers, decoy_key }) }
    }

    /// The verifier of a user; that of another one, with a salt of its own, if there is no such user.
    fn find(&self, user: &str) -> (Result<&Verifier, &Verifier>, Vec<u8>) {
        let mut hmac = Hmac::<Sha512>::new_from_slice(&self.decoy_key).expect("keys have any length");
        hmac.update(user.as_bytes());
        let decoy: [u8; 64] = hmac.finalize().into_bytes().into();
        let (salt, choice) = decoy.split_at(32);
        let choice =
            choice.iter().fold(0, |sum, &byte| (sum << 8 | usize::from(byte)) % self.verifiers.len());
        let other = &self.verifiers[choice].1;
        match self.verifiers.binary_search_by(|(name, _)| name.as_str().cmp(user)) {
            Ok(at) => (Ok(&self.verifiers[at].1), self.verifiers[at].1.salt().to_owned()),
            Err(_) => (Err(other), salt[..other.salt().len()].to_owned()),
        }
    }
}

/// What the client has to prove with its last message.
#[derive(Debug)]
pub(crate) struct Challenge {
    user: String,
    verifier: Verifier,
    is_known: bool,
    acts_for_another: bool,
    gs2_header: String,
    nonce: String,
    client_first_bare: String,
    server_first: String,
}

/// Answers a client's first message.
pub(super) fn begin(
    first: &[u8],
    users: &ScramUsers,
    random: &mut ChaCha12Rng,
) -> Result<(Challenge, Answer), LoginError> {
    let first = Some(first).filter(|first| first.len() <= MESSAGE_LEN_MAX).ok_or(Malformed)?;
    let ClientFirst { authzid, user, nonce, gs2_header, bare } = ClientFirst::parse(first)?;
    let mut bytes = [0; NONCE_BYTES];
    random.fill_bytes(&mut bytes);
    let nonce = format!("{nonce}{}", STANDARD.encode(bytes));
    let (found, salt) = users.find(&user);
    let (Ok(verifier) | Err(verifier)) = found;
    let server_first = ServerFirst { nonce: &nonce, salt, iterations: verifier.iterations() }.to_string();
    let challenge = Challenge {
        verifier: verifier.clone(),
        is_known: found.is_ok(),
        acts_for_another: authzid.is_some_and(|other| other != user),
        gs2_header: gs2_header.to_owned(),
        client_first_bare: bare.to_owned(),
        server_first: server_first.clone(),
        user,
        nonce,
    };
    Ok((challenge, Answer { token: Some(server_first.into_bytes()), user: None }))
}

impl Challenge {
    /// Checks a client's last message.
    pub(super) fn verify(self, last: &[u8]) -> Result<Answer, LoginError> {
        let last = Some(last).filter(|last| last.len() <= MESSAGE_LEN_MAX).ok_or(Malformed)?;
        let last = ClientFinal::parse(last)?;
        if last.gs2_header != self.gs2_header.as_bytes() || last.nonce != self.nonce {
            return Err(LoginError::OtherChallenge);
        }
        let exchange = exchange(&self.client_first_bare, &self.server_first, last.without_proof);
        if !(self.verifier.has_proof(&exchange, &last.proof) & self.is_known) {
            return Err(LoginError::NotProved);
        }
        if self.acts_for_another {
            return Err(LoginError::ActsForAnother);
        }
        Ok(Answer { token: Some(self.verifier.server_final(&exchange).into_bytes()), user: Some(self.user) })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use ringkeeper_wire::scram::{Keys, client_first_bare};

    use super::super::Settings;
    use super::super::tests::random;
    use super::*;

    fn keys(password: &str) -> Keys {
        Keys::derive(password, b"sixteen bytes of", 4096).expect("suitable")
    }

    fn users() -> ScramUsers {
        let verifiers = [("bob", "old"), ("eve", "pw of eve"), ("bob", "pw")];
        let verifiers =
            verifiers.map(|(user, password)| (user.to_owned(), keys(password).verifier().clone()));
        ScramUsers::new(verifiers.into(), b"decoys".to_vec()).expect("users")
    }

    pub(in super::super) fn settings() -> Settings {
        Settings { scram: Some(Arc::new(users())), ..Settings::default() }
    }

    /// Who logs in with these messages: a header, a name and a password, and a change of the last message.
    fn outcome(
        header: &str,
        user: &str,
        password: &str,
        change: impl FnOnce(String) -> String,
    ) -> Result<String, LoginError> {
        let bare = client_first_bare(user, "nonce").expect("suitable");
        let (challenge, Answer { token, user: None }) =
            begin(format!("{header}{bare}").as_bytes(), &users(), &mut random())?
        else {
            panic!("nobody is logged in by a name")
        };
        let token = String::from_utf8(token.expect("a token")).expect("text");
        let offered = ServerFirst::parse(token.as_bytes()).expect("a message");
        assert!(offered.nonce.len() == 45 && offered.nonce.starts_with("nonce"), "{token}");
        let known = Keys::derive(password, &offered.salt, offered.iterations).expect("suitable");
        let (last, server_final) = known.respond(&bare, &token, offered.nonce);
        let answer = challenge.verify(change(last).as_bytes())?;
        assert_eq!(answer.token, Some(server_final.into_bytes()));
        Ok(answer.user.expect("complete"))
    }

    #[test]
    fn a_user_logs_in_with_the_password() {
        assert_eq!(outcome("n,,", "bob", "pw", |last| last), Ok("bob".to_owned()));
        assert_eq!(outcome("n,,", "bob", "old", |last| last), Err(LoginError::NotProved), "it was replaced");
    }

    #[test]
    fn unknown_users_and_wrong_passwords_fail_alike() {
        for (user, password) in [("bob", "guess"), ("eve", "pw"), ("mallory", "pw")] {
            assert_eq!(outcome("n,,", user, password, |last| last), Err(LoginError::NotProved), "{user}");
        }
    }

    #[test]
    fn an_unknown_user_has_a_salt_of_its_own_that_stays() {
        let salt = |user: &str| users().find(user).1;
        assert_eq!((salt("bob"), salt("mallory").len()), (b"sixteen bytes of".to_vec(), 16));
        assert_eq!(salt("mallory"), salt("mallory"));
        assert_ne!(salt("mallory"), salt("mallorz"));
        let others = ScramUsers { decoy_key: b"other".to_vec(), ..users() };
        assert_ne!(others.find("mallory").1, salt("mallory"));
    }

    #[test]
    fn nobody_acts_for_another_user() {
        let as_header = |header: &str| {
            let sent = format!("c={}", STANDARD.encode(header));
            // The header is signed: the proof is another one.
            outcome(header, "bob", "pw", |last| last.replace("c=biws", &sent))
        };
        assert_eq!(as_header("n,a=eve,"), Err(LoginError::NotProved));
        let bare = client_first_bare("bob", "x").expect("suitable");
        let acts = |header: &str| {
            let first = format!("{header}{bare}");
            begin(first.as_bytes(), &users(), &mut random()).expect("a message").0.acts_for_another
        };
        assert_eq!((acts("n,a=eve,"), acts("n,a=bob,"), acts("y,,")), (true, false, false));
    }

    #[test]
    fn a_last_message_for_another_exchange_is_refused() {
        use LoginError::{MalformedScram, OtherChallenge};
        for (part, replacement, expected) in [
            ("r=nonce", "r=other", OtherChallenge),
            ("c=biws", "c=eSws", OtherChallenge),
            (",p=", ",q=", MalformedScram(Malformed)),
            ("c=biws,", "", MalformedScram(Malformed)),
        ] {
            let result = outcome("n,,", "bob", "pw", |last| last.replace(part, replacement));
            assert_eq!(result, Err(expected), "{replacement:?} for {part:?}");
        }
        let long = outcome("n,,", "bob", "pw", |last| last.replace("r=", &"x".repeat(4096)));
        assert_eq!(long, Err(MalformedScram(Malformed)));
    }
}
