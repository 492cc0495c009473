//! The keys of SASL between servers (`quorum.auth.*`). The sections of the JAAS file that they name have
//! users with passwords, which servers prove to each other by the handshake of their links instead of
//! DIGEST-MD5, or keytabs of Kerberos.

use std::path::Path;

use ringkeeper_host::links::{Kerberos, Secrets};

use super::jaas::{KerberosService, Learner, OwnKeytab, Peers};
use super::keys::Treatment::{self, Honoured, NoEffect};
use super::keys::{THREADS, flag};
use super::{Redacted, jaas};

/// What stands for the host of the server that is dialed.
const HOST: &str = "_HOST";

/// The principals of the services that this server dials, one for each host.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ServicePattern(String);

impl ServicePattern {
    /// The principal of the service on a host. Like ZooKeeper, in lower case: Java and MIT's tools write
    /// principals so.
    pub(crate) fn of(&self, host: &str, realm: &str) -> String {
        let (name, realm) = self.0.split_once('@').unwrap_or((&self.0, realm));
        match name.split_once('/') {
            Some((service, HOST)) => format!("{service}/{}@{realm}", host.to_lowercase()),
            _ => format!("{name}@{realm}"),
        }
    }
}

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
    peers: ServicePattern,
    /// Once they are read: what this server proves, and what it takes.
    learner: Redacted<Vec<u8>>,
    own_keytab: Option<OwnKeytab>,
    users: Redacted<Vec<Vec<u8>>>,
    service: Option<KerberosService>,
}

impl Default for QuorumAuth {
    fn default() -> Self {
        Self {
            is_on: false,
            learner_requires: false,
            server_requires: false,
            learner_section: "QuorumLearner".to_owned(),
            server_section: "QuorumServer".to_owned(),
            peers: ServicePattern("zkquorum/localhost".to_owned()),
            learner: Redacted(Vec::new()),
            own_keytab: None,
            users: Redacted(Vec::new()),
            service: None,
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
        match jaas::learner(text, &self.learner_section)? {
            Learner::Password(user) => self.learner.0 = user.into_bytes(),
            Learner::Keytab(own) => self.own_keytab = Some(own),
        }
        let Peers { users, kerberos } = jaas::peers(text, &self.server_section)?;
        self.users.0 = users.into_iter().map(String::into_bytes).collect();
        self.service = kerberos;
        Ok(())
    }

    /// The files with keys.
    pub(super) fn keytabs(&self) -> impl Iterator<Item = &Path> {
        let own = self.own_keytab.iter().map(|own| &*own.keytab);
        own.chain(self.service.iter().filter_map(|service| service.keytab.as_deref()))
    }

    /// Who this server is by its tickets. It shows them to those whom it dials with `learnerRequireSasl`.
    pub(crate) const fn own_keytab(&self) -> Option<&OwnKeytab> {
        self.own_keytab.as_ref()
    }

    /// What takes the tickets of those who dial.
    pub(crate) const fn service(&self) -> Option<&KerberosService> {
        self.service.as_ref()
    }

    /// The services of those whom this server dials.
    pub(crate) const fn peers(&self) -> &ServicePattern {
        &self.peers
    }

    /// What servers prove to each other.
    pub(crate) fn secrets(&self, kerberos: Option<Kerberos>) -> Secrets {
        let nothing = || Box::<[u8]>::default();
        let own = if self.learner_requires { self.learner.0.as_slice().into() } else { nothing() };
        let users = self.users.0.iter().map(|user| user.as_slice().into());
        let kerberos = kerberos.map(|kerberos| Kerberos {
            initiator: kerberos.initiator.filter(|_| self.learner_requires),
            ..kerberos
        });
        Secrets { own, accepted: users.chain((!self.server_requires).then(nothing)).collect(), kerberos }
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
    ("quorum.auth.kerberos.servicePrincipal", Honoured(|c, v| service(&mut c.quorum_auth.peers, v))),
    ("quorum.cnxn.threads.size", NoEffect(THREADS)),
];

fn section(section: &mut String, name: &str) -> Result<(), String> {
    name.clone_into(section);
    Ok(())
}

fn service(peers: &mut ServicePattern, principal: &str) -> Result<(), String> {
    let (name, realm) = principal.split_once('@').unwrap_or((principal, "of the server"));
    let is_service =
        name.split_once('/').is_some_and(|(service, host)| !service.is_empty() && !host.is_empty());
    if !is_service || realm.is_empty() || principal.contains('\0') {
        return Err(format!("write SERVICE/{HOST} or SERVICE/{HOST}@REALM, not {principal:?}"));
    }
    principal.clone_into(&mut peers.0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_principal_of_a_service_names_the_host_that_is_dialed() {
        let of = |pattern: &str| ServicePattern(pattern.to_owned()).of("Zoo1.example.org", "R");
        assert_eq!(of("zk/_HOST"), "zk/zoo1.example.org@R");
        assert_eq!(of("zk/_HOST@S"), "zk/zoo1.example.org@S");
        assert_eq!(of("zk/localhost"), "zk/localhost@R");
        let mut peers = ServicePattern(String::new());
        for bad in ["zk", "zk/", "/_HOST", "zk/_HOST@", ""] {
            assert!(service(&mut peers, bad).is_err(), "{bad}");
        }
    }
}
