//! The keys of SASL between servers (`quorum.auth.*`). The sections of the JAAS file that they name have
//! users with passwords, which servers prove to each other by the handshake of their links instead of
//! DIGEST-MD5.

use ringkeeper_host::links::Secrets;

use super::keys::Treatment::{self, Honoured, NoEffect};
use super::keys::{THREADS, flag};
use super::{Redacted, jaas};

/// Who authenticates to whom.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct QuorumAuth {
    pub(super) is_on: bool,
    /// Whether this server proves itself to those whom it dials.
    learner_requires: bool,
    /// Whether those who dial have to prove themselves.
    server_requires: bool,
    learner_section: String,
    server_section: String,
    /// Once they are read: what this server proves, and what it takes.
    learner: Redacted<Vec<u8>>,
    users: Redacted<Vec<Vec<u8>>>,
}

impl Default for QuorumAuth {
    fn default() -> Self {
        Self {
            is_on: false,
            learner_requires: false,
            server_requires: false,
            learner_section: "QuorumLearner".to_owned(),
            server_section: "QuorumServer".to_owned(),
            learner: Redacted(Vec::new()),
            users: Redacted(Vec::new()),
        }
    }
}

impl QuorumAuth {
    /// Whether nobody is taken for a peer without the password of a user.
    pub(crate) const fn is_demanded(&self) -> bool {
        self.server_requires
    }

    /// Whether the keys contradict one another: the key and the reason.
    pub(super) fn contradiction(&self) -> Option<(&'static str, &'static str)> {
        if self.learner_requires && !self.is_on {
            return Some(("quorum.auth.learnerRequireSasl", "needs quorum.auth.enableSasl=true, too"));
        }
        (self.server_requires && !self.learner_requires)
            .then_some(("quorum.auth.serverRequireSasl", "needs quorum.auth.learnerRequireSasl=true, too"))
    }

    /// Reads the users from the text of the JAAS file.
    pub(super) fn read(&mut self, text: &str) -> Result<(), String> {
        self.learner.0 = jaas::learner(text, &self.learner_section)?.into_bytes();
        self.users.0 = jaas::peers(text, &self.server_section)?.into_iter().map(String::into_bytes).collect();
        Ok(())
    }

    /// What servers prove to each other.
    pub(crate) fn secrets(&self) -> Secrets {
        let nothing = || Box::<[u8]>::default();
        let own = if self.learner_requires { self.learner.0.as_slice().into() } else { nothing() };
        let users = self.users.0.iter().map(|user| user.as_slice().into());
        Secrets { own, accepted: users.chain((!self.server_requires).then(nothing)).collect() }
    }
}

/// Keys by their name in the file.
pub(super) const KEYS: &[(&str, Treatment)] = &[
    ("quorum.auth.enableSasl", Honoured(|c, v| flag(v).map(|on| c.quorum_auth.is_on = on))),
    (
        "quorum.auth.learnerRequireSasl",
        Honoured(|c, v| flag(v).map(|on| c.quorum_auth.learner_requires = on)),
    ),
    ("quorum.auth.serverRequireSasl", Honoured(|c, v| flag(v).map(|on| c.quorum_auth.server_requires = on))),
    ("quorum.auth.learner.saslLoginContext", Honoured(|c, v| section(&mut c.quorum_auth.learner_section, v))),
    ("quorum.auth.server.saslLoginContext", Honoured(|c, v| section(&mut c.quorum_auth.server_section, v))),
    (
        "quorum.auth.kerberos.servicePrincipal",
        NoEffect("servers know each other by passwords or certificates"),
    ),
    ("quorum.cnxn.threads.size", NoEffect(THREADS)),
];

fn section(section: &mut String, name: &str) -> Result<(), String> {
    name.clone_into(section);
    Ok(())
}
