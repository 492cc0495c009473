//! Logins by SASL: what the server answers to the tokens of opcode 102 (`ZooKeeperSaslServer`, with the rules
//! of DIGEST-MD5 in RFC 2831 and those of GSSAPI in RFC 4752).
//!
//! The opcode names no mechanism, so the client's first token tells: a first message of SCRAM-SHA-256 begins
//! with a flag that begins no other token, a client begins DIGEST-MD5 with an empty token, and Kerberos with
//! a ticket.

mod gssapi;
mod principal;
mod scram;

pub use self::gssapi::{Accepted, Negotiation, SecurityContext};
pub use self::principal::{Principals, Rules};

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::RngCore;
use ringkeeper_wire::digest_md5::{self, DIGEST_URI, Directives, NONCE_COUNT, Proof, REALM, Secret};
use ringkeeper_wire::scram::{self as scram_sha_256, ClientFirst};
use ringkeeper_wire::{Identity, decode_utf8};

use crate::acl;
pub use scram::{NoUser, ScramUsers};

/// Random bytes in a nonce; a multiple of three, so that the base64 has no padding.
const NONCE_BYTES: usize = 30;

/// Settings of SASL logins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Who can log in by DIGEST-MD5; `None` if nobody can.
    pub users: Option<Users>,
    /// Who can log in by SCRAM-SHA-256; `None` if nobody can.
    pub scram: Option<Arc<ScramUsers>>,
    /// Whether principals of Kerberos can log in.
    pub kerberos: bool,
    /// How they become users.
    pub principals: Principals,
    /// Users who bypass all ACLs (`superUser` and `superUser.N`).
    pub super_users: BTreeSet<String>,
    /// Whether a client stays connected without an identity after a login that failed
    /// (`allowSaslFailedClients`).
    pub failed_clients_stay: bool,
    /// Seed of the nonces; secret and random in production.
    pub nonce_seed: [u8; 32],
}

impl Settings {
    /// Whether anybody can log in.
    pub(crate) const fn is_on(&self) -> bool {
        self.users.is_some() || self.scram.is_some() || self.kerberos
    }

    /// The identities of a user or principal who has logged in. If no rule applies to a principal, the user
    /// is called like it.
    pub(crate) fn identities(&self, name: String) -> Vec<Identity> {
        let user = self.principals.user(&name).unwrap_or(name);
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
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoginError {
    /// The token is longer than a client's response may be, or no list of directives that makes sense.
    #[error("malformed response of DIGEST-MD5")]
    Malformed(#[from] digest_md5::Malformed),
    /// The token is no message of SCRAM-SHA-256, or is longer than one may be.
    #[error(transparent)]
    MalformedScram(#[from] scram_sha_256::Malformed),
    /// The client begins with a mechanism that is not configured.
    #[error("no user can log in by the mechanism that the client has chosen")]
    OtherMechanism,
    /// The client answered for another realm, service, nonce, quality of protection or character set.
    #[error("response to another challenge")]
    OtherChallenge,
    /// There is no such user, or the password is another one. The client is not told which.
    #[error("unknown user or wrong password")]
    NotProved,
    /// The client wants to act for somebody else.
    #[error("client wants to act for another user than it logs in as")]
    ActsForAnother,
    /// Kerberos refuses the client, or failed: what MIT's library says.
    #[error("Kerberos: {0}")]
    Kerberos(Box<str>),
    /// The client's principal has separators inside a component, or too many components.
    #[error("the client's principal has another form than name@REALM or name/host@REALM")]
    Principal,
    /// The client chose a security layer that it was not offered, or its token has another form.
    #[error("malformed choice of a security layer, or another one than none")]
    Layer,
    /// The login on this connection has ended.
    #[error("second login on one connection")]
    Ended,
}

/// The answer to a token.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    /// The token to send; Kerberos ends without one.
    pub token: Option<Vec<u8>>,
    /// Who has logged in, if the login is complete.
    pub user: Option<String>,
}

/// The login of one connection. One is all it may have, successful or not.
#[derive(Debug, Default)]
pub(crate) enum Login {
    #[default]
    NotBegun,
    /// The client was sent this nonce.
    Challenged(Box<str>),
    /// By Kerberos, beside the shard.
    Beside,
    /// The client has named a user of SCRAM-SHA-256.
    Named(Box<scram::Challenge>),
    Ended,
}

impl Login {
    /// Answers a token of the client; `None` if it is to be answered beside the shard, by a [`Negotiation`].
    /// A client begins DIGEST-MD5 with an empty token, and Kerberos with a ticket.
    pub(crate) fn answer(
        &mut self,
        token: &[u8],
        settings: &Settings,
        random: &mut ChaCha12Rng,
    ) -> Result<Option<Answer>, LoginError> {
        let begins_beside = settings.kerberos && (settings.users.is_none() || !token.is_empty());
        match std::mem::replace(self, Self::Ended) {
            Self::NotBegun if ClientFirst::is_begun_by(token) => {
                let users = settings.scram.as_ref().ok_or(LoginError::OtherMechanism)?;
                let (challenge, answer) = scram::begin(token, users, random)?;
                *self = Self::Named(Box::new(challenge));
                Ok(Some(answer))
            }
            Self::Named(challenge) => challenge.verify(token).map(Some),
            Self::Beside => {
                *self = Self::Beside;
                Ok(None)
            }
            Self::NotBegun if begins_beside => {
                *self = Self::Beside;
                Ok(None)
            }
            Self::NotBegun if settings.users.is_none() => Err(LoginError::OtherMechanism),
            // An initial response is ignored, as RFC 2831 (2.2) has it for a server that remembers no nonces.
            Self::NotBegun if token.len() <= digest_md5::RESPONSE_LEN_MAX => {
                let mut bytes = [0; NONCE_BYTES];
                random.fill_bytes(&mut bytes);
                let nonce = STANDARD.encode(bytes);
                let token = Some(digest_md5::challenge(&nonce).into_bytes());
                *self = Self::Challenged(nonce.into());
                Ok(Some(Answer { token, user: None }))
            }
            Self::NotBegun => Err(digest_md5::Malformed.into()),
            Self::Challenged(nonce) => verify(token, &nonce, settings.users.as_ref()).map(Some),
            Self::Ended => Err(LoginError::Ended),
        }
    }
}

/// Checks the client's response to the challenge with `nonce`.
fn verify(response: &[u8], nonce: &str, users: Option<&Users>) -> Result<Answer, LoginError> {
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
    let known = users.and_then(|users| users.0.get(&*user));
    let secret = known.unwrap_or(&nobody);
    let expected = Proof { secret, nonce: nonce.as_bytes(), cnonce, authzid, digest_uri };
    if !(expected.has_response(proof) & known.is_some()) {
        return Err(LoginError::NotProved);
    }
    if authzid.is_some_and(|other| !other.is_empty() && other != user.as_bytes()) {
        return Err(LoginError::ActsForAnother);
    }
    Ok(Answer { token: Some(expected.rspauth().into_bytes()), user: Some(user.into_owned()) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::rand_core::SeedableRng;

    fn settings() -> Settings {
        let mut users = Users::default();
        for (user, password) in [("bob", "pw"), ("m\u{fc}ller", "p\u{e4}ss")] {
            users.insert(user, password);
        }
        Settings { users: Some(users), ..Settings::default() }
    }

    /// The answer of a login that needs no Kerberos.
    fn answer(login: &mut Login, token: &[u8], random: &mut ChaCha12Rng) -> Result<Answer, LoginError> {
        login.answer(token, &settings(), random).map(|answer| answer.expect("by the shard"))
    }

    fn text(answer: &Answer) -> &str {
        std::str::from_utf8(answer.token.as_ref().expect("a token")).expect("text")
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
        let challenge = answer(&mut login, b"", random).expect("anybody is sent a challenge");
        let challenge = text(&challenge).to_owned();
        let nonce = challenge.split('"').nth(3).expect("the second quoted value").to_owned();
        assert_eq!(
            (challenge, nonce.len()),
            (format!("realm=\"zk-sasl-md5\",nonce=\"{nonce}\",charset=utf-8,algorithm=md5-sess"), 40)
        );
        (login, nonce)
    }

    pub(super) fn random() -> ChaCha12Rng {
        ChaCha12Rng::from_seed([7; 32])
    }

    /// Who logs in with a response that is made from the nonce.
    fn outcome(response: impl FnOnce(&str) -> String) -> Result<String, LoginError> {
        let (mut login, nonce) = challenged(&mut random());
        let answer = answer(&mut login, response(&nonce).as_bytes(), &mut random())?;
        assert!(text(&answer).starts_with("rspauth="), "{answer:?}");
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
        let malformed = || Malformed(digest_md5::Malformed);
        for (part, replacement, expected) in [
            ("zk-sasl-md5\",nonce", "other\",nonce", Some(OtherChallenge)),
            ("nonce=\"", "nonce=\"x", Some(OtherChallenge)),
            ("zookeeper/zk-sasl-md5", "zookeeper/other", Some(OtherChallenge)),
            ("nc=00000001", "nc=00000002", Some(OtherChallenge)),
            ("qop=auth", "qop=auth-int", Some(OtherChallenge)),
            ("charset=utf-8", "charset=latin1", Some(OtherChallenge)),
            ("cnonce=\"c\"", "cnonce=\"d\"", Some(NotProved)),
            ("username=\"bob\",", "", Some(malformed())),
            ("realm=\"zk-sasl-md5\",", "", Some(malformed())),
            ("cnonce=\"c\",", "", Some(malformed())),
            ("digest-uri=\"zookeeper/zk-sasl-md5\",", "", Some(malformed())),
            ("response=", "other=", Some(malformed())),
            ("qop=auth", "qop=auth,username=\"bob\"", Some(malformed())),
            ("qop=auth", "qop=auth,more=\"", Some(malformed())),
            ("qop=auth", "qop=auth,more", Some(malformed())),
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
        assert_eq!(padded(4097), Err(malformed()));
    }

    #[test]
    fn a_login_is_answered_twice_at_most() {
        let (mut login, nonce) = challenged(&mut random());
        let response = BOB.response(&nonce);
        let mut answered = |token: &str| answer(&mut login, token.as_bytes(), &mut random());
        assert!(answered(&response).is_ok());
        assert_eq!(answered(&response), Err(LoginError::Ended));
        assert_eq!(answered(""), Err(LoginError::Ended));
        let (mut failed, _) = challenged(&mut random());
        assert!(answer(&mut failed, b"", &mut random()).is_err());
        assert_eq!(answer(&mut failed, b"", &mut random()), Err(LoginError::Ended));
    }

    #[test]
    fn a_response_is_worth_nothing_on_another_connection() {
        let mut random = random();
        let ((_, nonce), (mut other, _)) = (challenged(&mut random), challenged(&mut random));
        let answer = answer(&mut other, BOB.response(&nonce).as_bytes(), &mut random);
        assert_eq!(answer, Err(LoginError::OtherChallenge));
    }

    #[test]
    fn a_mechanism_without_users_is_refused() {
        let answer = |token: &str, settings: &Settings| {
            let answer = Login::default().answer(token.as_bytes(), settings, &mut random());
            answer.err()
        };
        let first_of_scram = "n,,n=bob,r=x";
        assert_eq!(answer(first_of_scram, &settings()), Some(LoginError::OtherMechanism));
        assert_eq!(answer("", &settings()), None);
        let scram = Settings { users: None, ..scram::tests::settings() };
        assert_eq!(answer(first_of_scram, &scram), None);
        assert_eq!(answer("", &scram), Some(LoginError::OtherMechanism));
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
        let shown = format!("{:?}", settings().users.expect("there are some"));
        assert_eq!(shown, "Users({\"bob\": Secret, \"m\u{fc}ller\": Secret})");
    }
}
