//! How clients reach the servers: in the clear or by TLS, as somebody or as anybody.

use std::fs;

use anyhow::Result;
use ringkeeper_client::{Builder, Client, TlsSettings};
use ringkeeper_testkit::{Seat, TlsFiles};
use tempfile::NamedTempFile;

const USER: &str = "soak";
const PASSWORD: &str = "soak's password";

/// What servers and clients need for it. Dropped, the files go.
#[derive(Default)]
pub(crate) struct Access {
    tls: Option<(TlsFiles, TlsSettings)>,
    /// The file with the user who may log in.
    users: Option<NamedTempFile>,
}

impl Access {
    /// TLS for servers in these seats if `tls`, and a user who has to log in if `login`.
    pub(crate) fn new(seats: &[Seat], tls: bool, login: bool) -> Result<Self> {
        let files = || {
            let addresses: Vec<String> = seats.iter().map(|seat| seat.ip.to_string()).collect();
            let files = TlsFiles::new(&addresses)?;
            let client = files.client("soak")?;
            anyhow::Ok((files, client))
        };
        let users = || {
            let file = NamedTempFile::new()?;
            let module = "org.apache.zookeeper.server.auth.DigestLoginModule";
            fs::write(&file, format!("Server {{ {module} required user_{USER}=\"{PASSWORD}\"; }};\n"))?;
            anyhow::Ok(file)
        };
        Ok(Self { tls: tls.then(files).transpose()?, users: login.then(users).transpose()? })
    }

    /// Lines of the servers' configuration.
    pub(crate) fn server_settings(&self) -> String {
        let tls = self.tls.as_ref().map(|(files, _)| files.server_settings());
        let users = self.users.as_ref().map(|file| {
            let file = file.path().display();
            format!(
                "java.security.auth.login.config={file}\n\
                 authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n\
                 enforce.auth.enabled=true\nenforce.auth.schemes=sasl\n"
            )
        });
        [tls, users].into_iter().flatten().collect()
    }

    /// A client of servers with these addresses.
    pub(crate) fn client(&self, connect_string: &str) -> Builder {
        let mut builder = Client::builder(connect_string);
        if let Some((_, settings)) = &self.tls {
            builder = builder.tls(settings.clone());
        }
        if self.users.is_some() {
            builder = builder.login(USER, PASSWORD);
        }
        builder
    }
}
