//! Who can log in by SASL, and which connections have to.

use std::path::Path;

use ringkeeper_engine::sasl::{self, Users};

use super::{Config, ConfigError, Redacted, jaas, keys, text_of};

/// The SASL user whose password `SASLAuthenticationProvider.superPassword` sets.
const SASL_SUPER: &str = "super";

impl Config {
    /// The schemes of which a connection needs one; empty where it needs none.
    pub(crate) fn required_schemes(&self) -> Vec<String> {
        if self.require_sasl && self.has_logins() {
            return vec!["sasl".to_owned()];
        }
        if self.enforce_auth { self.enforced_auth_schemes.clone() } else { Vec::new() }
    }

    /// Whether clients can log in by SASL.
    pub(super) const fn has_logins(&self) -> bool {
        self.sasl_users.is_some() || self.kerberos.is_some() || self.scram_file.is_some()
    }

    /// Reads from the JAAS file, if there is one, who can log in by SASL.
    ///
    /// # Errors
    /// It, or the keytab that it names, cannot be read, or other users of the machine can read it; or it
    /// names nobody in the section; or a section is named without a file.
    pub(crate) fn read_logins(&mut self) -> Result<(), ConfigError> {
        let has_own_section = self.jaas_section != Self::default().jaas_section;
        let refuse = |key: &str, reason: String| Err(ConfigError::new(Path::new(key), None, reason));
        if let Some((key, reason)) = self.quorum_auth.contradiction() {
            return refuse(key, reason.to_owned());
        }
        if self.quorum_auth.is_on && self.peer_secret.is_some() {
            let reason = "ringkeeper.peerSecretFile is set, too: keep one of them".to_owned();
            return refuse("quorum.auth.enableSasl", reason);
        }
        let Some(path) = &self.jaas_file else {
            let key = match (has_own_section, self.quorum_auth.is_on) {
                (true, _) => "sasl.serverconfig",
                (false, true) => "quorum.auth.enableSasl",
                (false, false) => return Ok(()),
            };
            return refuse(
                key,
                format!("it needs {}, which names the file with its section", keys::JAAS_FILE),
            );
        };
        let fail = |reason| ConfigError::new(path, None, reason);
        let text = text_of(path, keys::private_file(path).map_err(fail)?)?;
        let jaas::Logins { mut users, kerberos } =
            jaas::logins(&text, &self.jaas_section, self.quorum_auth.is_on && !has_own_section)
                .map_err(fail)?;
        if self.quorum_auth.is_on {
            self.quorum_auth.read(&text).map_err(fail)?;
        }
        let keytab = kerberos.as_ref().and_then(|service| service.keytab.as_deref());
        for keytab in keytab.into_iter().chain(self.quorum_auth.keytabs()) {
            keys::private_file(keytab).map_err(fail)?;
        }
        if let Some(Redacted(password)) = &self.sasl_super_password
            && users.contains(SASL_SUPER)
        {
            users.insert(SASL_SUPER, password);
        }
        self.sasl_users = Some(users).filter(|users| *users != Users::default());
        self.kerberos = kerberos;
        Ok(())
    }

    /// Settings of logins by SASL, without the users of SCRAM-SHA-256, who may change.
    pub(crate) fn sasl_settings(&self, nonce_seed: [u8; 32]) -> sasl::Settings {
        sasl::Settings {
            users: self.sasl_users.clone(),
            kerberos: self.kerberos.is_some(),
            principals: self.principals.clone(),
            scram: None,
            super_users: self.sasl_super_users.clone(),
            failed_clients_stay: self.failed_sasl_clients_stay,
            nonce_seed,
        }
    }
}
