//! Logins by SASL: what the server answers to the tokens of opcode 102 (`ZooKeeperSaslServer`, with the rules
//! of DIGEST-MD5 in RFC 2831).

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::RngCore;
use ringkeeper_wire::digest_md5::{self, DIGEST_URI, Directives, NONCE_COUNT, Proof, REALM, Secret};
use ringkeeper_wire::{Identity, decode_utf8};

use crate::acl;

/// Random bytes in a nonce; a multiple of three, so that the base64 has no padding.
const NONCE_BYTES: usize = 30;

/// Settings of SASL logins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Who can log in; `None` if nobody can, since the server has no JAAS file.
    pub users: Option<Users>,
    /// Users who bypass all ACLs (`superUser` and `superUser.N`).
    pub super_users: BTreeSet<String>,
    /// Whether a client stays connected without an identity after a login that failed
    /// (`allowSaslFailedClients`).
    pub failed_clients_stay: bool,
    /// Seed of the nonces; secret and random in production.
    pub nonce_seed: [u8; 32],
}

impl Settings {
    /// The identities of a user who has logged in.
    pub(crate) fn identities(&self, user: String) -> Vec<Identity> {
        let superuser = self.super_users.contains(&user).then(acl::superuser);
        [acl::sasl_identity(user)].into_iter().chain(superuser).collect()
    }
}

/// The users of DIGEST-MD5, with what checks their passwords.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Users(BTreeMap<String, Secret>);

impl Users {
    /// Adds a user, or replaces the password of one.
    pub fn insert(&mut self, user: &str, password: &str) {
        self.0.insert(user.to_owned(), Secret::new(user, REALM, password));
    }

    /// Whether there is this user.
    #[must_use]
    pub fn contains(&self, user: &str) -> bool {
        self.0.contains_key(user)
    }
}

/// Why a login failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoginError {
    /// The token is longer than a client's response may be, or no list of directives that makes sense.
    #[error("malformed response of DIGEST-MD5")]
    Malformed(#[from] digest_md5::Malformed),
    /// The client answered for another realm, service, nonce, quality of protection or character set.
    #[error("response of DIGEST-MD5 to another challenge")]
    OtherChallenge,
    /// There is no such user, or the password is another one. The client is not told which.
    #[error("unknown user or wrong password")]
    NotProved,
    /// The client wants to act for somebody else.
    #[error("client wants to act for another user than it logs in as")]
    ActsForAnother,
    /// The login on this connection has ended.
    #[error("second login on one connection")]
    Ended,
}

/// The answer to a token.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The token to send.
    pub(crate) token: String,
    /// Who has logged in, if the login is complete.
    pub(crate) user: Option<String>,
}

/// The login of one connection. One is all it may have, successful or not.
#[derive(Debug, Default)]
pub(crate) enum Login {
    #[default]
    NotBegun,
    /// The client was sent this nonce.
    Challenged(Box<str>),
    Ended,
}

impl Login {
    /// Answers a token of the client.
    pub(crate) fn answer(
        &mut self,
        token: &[u8],
        users: &Users,
        random: &mut ChaCha12Rng,
    ) -> Result<Answer, LoginError> {
        match std::mem::replace(self, Self::Ended) {
            // An initial response is ignored, as RFC 2831 (2.2) has it for a server that remembers no nonces.
            Self::NotBegun if token.len() <= digest_md5::RESPONSE_LEN_MAX => {
                let mut bytes = [0; NONCE_BYTES];
                random.fill_bytes(&mut bytes);
                let nonce = STANDARD.encode(bytes);
                let token = digest_md5::challenge(&nonce);
                *self = Self::Challenged(nonce.into());
                Ok(Answer { token, user: None })
            }
            Self::NotBegun => Err(digest_md5::Malformed.into()),
            Self::Challenged(nonce) => verify(token, &nonce, users),
            Self::Ended => Err(LoginError::Ended),
        }
    }
}

/// Checks the client's response to the challenge with `nonce`.
fn verify(response: &[u8], nonce: &str, users: &Users) -> Result<Answer, LoginError> {
    if response.len() > digest_md5::RESPONSE_LEN_MAX {
        return Err(digest_md5::Malformed.into());
    }
    let directives = Directives::parse(response)?;
    let user = decode_utf8(directives.expect("username")?);
    let digest_uri = directives.expect("digest-uri")?;
    let authzid = directives.get("authzid")?;
    let (cnonce, proof) = (directives.expect("cnonce")?, directives.expect("response")?);
    let is_or_absent = |name, value: &str| -> Result<bool, LoginError> {
        Ok(directives.get(name)?.is_none_or(|found| found == value.as_bytes()))
    };
    let fits = directives.expect("realm")? == REALM.as_bytes()
        && directives.expect("nonce")? == nonce.as_bytes()
        && digest_uri.eq_ignore_ascii_case(DIGEST_URI.as_bytes())
        && is_or_absent("nc", NONCE_COUNT)?
        && is_or_absent("qop", "auth")?
        && is_or_absent("charset", "utf-8")?;
    if !fits {
        return Err(LoginError::OtherChallenge);
    }
    // An unknown user costs the same time as a known one, so that nobody can find out names by it.
    let nobody = Secret::new("", REALM, "");
    let known = users.0.get(&*user);
    let secret = known.unwrap_or(&nobody);
    let expected = Proof { secret, nonce: nonce.as_bytes(), cnonce, authzid, digest_uri };
    if !(expected.has_response(proof) & known.is_some()) {
        return Err(LoginError::NotProved);
    }
    if authzid.is_some_and(|other| !other.is_empty() && other != user.as_bytes()) {
        return Err(LoginError::ActsForAnother);
    }
    Ok(Answer { token: expected.rspauth(), user: Some(user.into_owned()) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::rand_core::SeedableRng;

    fn users() -> Users {
        let mut users = Users::default();
        for (user, password) in [("bob", "pw"), ("m\u{fc}ller", "p\u{e4}ss")] {
            users.insert(user, password);
        }
        users
    }

    /// What a client answers to a challenge with this nonce.
    struct Client<'a> {
        user: &'a str,
        password: &'a str,
        authzid: Option<&'a str>,
    }

    const BOB: Client<'static> = Client { user: "bob", password: "pw", authzid: None };

    impl Client<'_> {
        fn response(&self, nonce: &str) -> String {
            let Self { user, password, authzid } = *self;
            let proof = Proof {
                secret: &Secret::new(user, REALM, password),
                nonce: nonce.as_bytes(),
                cnonce: b"c",
                authzid: authzid.map(str::as_bytes),
                digest_uri: DIGEST_URI.as_bytes(),
            };
            let authzid = authzid.map(|authzid| format!(",authzid=\"{authzid}\"")).unwrap_or_default();
            format!(
                "charset=utf-8,username=\"{user}\",realm=\"{REALM}\",nonce=\"{nonce}\",nc=00000001,\
                 cnonce=\"c\",digest-uri=\"{DIGEST_URI}\",maxbuf=65536,response={},qop=auth{authzid}",
                proof.response()
            )
        }
    }

    /// A login whose client has been sent a challenge, and the nonce of it.
    fn challenged(random: &mut ChaCha12Rng) -> (Login, String) {
        let mut login = Login::default();
        let challenge = login.answer(b"", &users(), random).expect("anybody is sent a challenge").token;
        let nonce = challenge.split('"').nth(3).expect("the second quoted value").to_owned();
        assert_eq!(
            (challenge, nonce.len()),
            (format!("realm=\"zk-sasl-md5\",nonce=\"{nonce}\",charset=utf-8,algorithm=md5-sess"), 40)
        );
        (login, nonce)
    }

    fn random() -> ChaCha12Rng {
        ChaCha12Rng::from_seed([7; 32])
    }

    /// Who logs in with a response that is made from the nonce.
    fn outcome(response: impl FnOnce(&str) -> String) -> Result<String, LoginError> {
        let (mut login, nonce) = challenged(&mut random());
        let answer = login.answer(response(&nonce).as_bytes(), &users(), &mut random())?;
        assert!(answer.token.starts_with("rspauth="), "{answer:?}");
        Ok(answer.user.expect("complete"))
    }

    #[test]
    fn a_user_logs_in_with_the_password() {
        assert_eq!(outcome(|nonce| BOB.response(nonce)), Ok("bob".to_owned()));
        let umlauts = Client { user: "m\u{fc}ller", password: "p\u{e4}ss", authzid: Some("m\u{fc}ller") };
        assert_eq!(outcome(|nonce| umlauts.response(nonce)), Ok("m\u{fc}ller".to_owned()));
    }

    #[test]
    fn unknown_users_and_wrong_passwords_fail_alike() {
        for (user, password) in [("bob", "guess"), ("eve", "pw"), ("", "")] {
            let client = Client { user, password, authzid: None };
            assert_eq!(outcome(|nonce| client.response(nonce)), Err(LoginError::NotProved), "{user}");
        }
    }

    #[test]
    fn nobody_acts_for_another_user() {
        let acting_for = |authzid| outcome(|nonce| Client { authzid: Some(authzid), ..BOB }.response(nonce));
        assert_eq!(acting_for("bob"), Ok("bob".to_owned()));
        assert_eq!(acting_for(""), Ok("bob".to_owned()));
        assert_eq!(acting_for("super"), Err(LoginError::ActsForAnother));
    }

    /// Each case was tried on Apache ZooKeeper 3.9.5, which decides likewise, but for `nc` (it overlooks a
    /// wrong one) and for a name without a value (it takes one at the end).
    #[test]
    fn responses_that_differ_from_a_right_one() {
        use LoginError::{Malformed, NotProved, OtherChallenge};
        let malformed = Malformed(digest_md5::Malformed);
        for (part, replacement, expected) in [
            ("zk-sasl-md5\",nonce", "other\",nonce", Some(OtherChallenge)),
            ("nonce=\"", "nonce=\"x", Some(OtherChallenge)),
            ("zookeeper/zk-sasl-md5", "zookeeper/other", Some(OtherChallenge)),
            ("nc=00000001", "nc=00000002", Some(OtherChallenge)),
            ("qop=auth", "qop=auth-int", Some(OtherChallenge)),
            ("charset=utf-8", "charset=latin1", Some(OtherChallenge)),
            ("cnonce=\"c\"", "cnonce=\"d\"", Some(NotProved)),
            ("username=\"bob\",", "", Some(malformed)),
            ("realm=\"zk-sasl-md5\",", "", Some(malformed)),
            ("cnonce=\"c\",", "", Some(malformed)),
            ("digest-uri=\"zookeeper/zk-sasl-md5\",", "", Some(malformed)),
            ("response=", "other=", Some(malformed)),
            ("qop=auth", "qop=auth,username=\"bob\"", Some(malformed)),
            ("qop=auth", "qop=auth,more=\"", Some(malformed)),
            ("qop=auth", "qop=auth,more", Some(malformed)),
            ("charset=utf-8,", "", None),
            ("nc=00000001,", "", None),
            ("maxbuf=65536,", "", None),
            (",qop=auth", "", None),
            ("qop=auth", "qop=auth,more=1,more=2", None),
            ("username=\"bob\"", "USERNAME = b\\ob", Some(NotProved)),
            ("username=\"bob\"", "UserName = \"b\\ob\"", None),
            ("username=\"bob\"", "username=bob", None),
            (",", " , ,", None),
        ] {
            let result = outcome(|nonce| BOB.response(nonce).replace(part, replacement));
            assert_eq!(result.err(), expected, "{replacement:?} for {part:?}");
        }
        let padded = |len: usize| {
            outcome(|nonce| {
                let response = BOB.response(nonce);
                let padding = "x".repeat(len - response.len() - ",more=".len());
                format!("{response},more={padding}")
            })
        };
        assert_eq!(padded(4096), Ok("bob".to_owned()));
        assert_eq!(padded(4097), Err(malformed));
    }

    #[test]
    fn a_login_is_answered_twice_at_most() {
        let (mut login, nonce) = challenged(&mut random());
        let response = BOB.response(&nonce);
        let mut answer = |token: &str| login.answer(token.as_bytes(), &users(), &mut random());
        assert!(answer(&response).is_ok());
        assert_eq!(answer(&response), Err(LoginError::Ended));
        assert_eq!(answer(""), Err(LoginError::Ended));
        let (mut failed, _) = challenged(&mut random());
        assert!(failed.answer(b"", &users(), &mut random()).is_err());
        assert_eq!(failed.answer(b"", &users(), &mut random()), Err(LoginError::Ended));
    }

    #[test]
    fn a_response_is_worth_nothing_on_another_connection() {
        let mut random = random();
        let ((_, nonce), (mut other, _)) = (challenged(&mut random), challenged(&mut random));
        let answer = other.answer(BOB.response(&nonce).as_bytes(), &users(), &mut random);
        assert_eq!(answer, Err(LoginError::OtherChallenge));
    }

    #[test]
    fn super_users_get_both_identities() {
        let settings = Settings { super_users: BTreeSet::from(["root".to_owned()]), ..Settings::default() };
        let schemes = |user: &str| -> Vec<String> {
            settings.identities(user.to_owned()).into_iter().map(|identity| identity.scheme).collect()
        };
        assert_eq!(
            (schemes("root"), schemes("bob")),
            (vec!["sasl".into(), "super".into()], vec!["sasl".into()])
        );
    }

    #[test]
    fn passwords_are_not_shown() {
        let shown = format!("{:?}", users());
        assert_eq!(shown, "Users({\"bob\": Secret, \"m\u{fc}ller\": Secret})");
    }
}
