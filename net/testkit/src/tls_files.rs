//! TLS for servers and clients under test: their files, and the settings that name them.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use ringkeeper_tls::ClientSettings;
use ringkeeper_tls::rustls::ClientConfig;
use tempfile::TempDir;

use crate::Authority;

/// A name that the servers' certificate bears, whatever their addresses are.
pub const SERVER_NAME: &str = "localhost";

/// An authority, and a folder with the files of those whom it has certified. Dropped, the folder goes.
pub struct TlsFiles {
    authority: Authority,
    folder: TempDir,
}

impl TlsFiles {
    /// The files of servers that are reached by [`SERVER_NAME`] or one of `names`.
    ///
    /// # Errors
    /// They cannot be written, or a name is neither a host's nor an address.
    pub fn new(names: &[String]) -> Result<Self> {
        let files = Self { authority: Authority::new("authority")?, folder: tempfile::tempdir()? };
        let names: Vec<&str> = names.iter().map(String::as_str).chain([SERVER_NAME]).collect();
        fs::write(files.path("trust"), files.authority.certificate())?;
        fs::write(files.path("server"), files.authority.issue("server", &names)?.store())?;
        Ok(files)
    }

    /// Lines of a server's configuration: its client port takes TLS from clients with a certificate, too.
    #[must_use]
    pub fn server_settings(&self) -> String {
        format!(
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
             authProvider.x509=org.apache.zookeeper.server.auth.X509AuthenticationProvider\n\
             client.portUnification=true\nssl.keyStore.location={}\nssl.trustStore.location={}\n",
            self.path("server").display(),
            self.path("trust").display()
        )
    }

    /// The files of a client with a certificate of its own.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn client(&self, subject: &str) -> Result<ClientSettings> {
        let path = self.path(&format!("client-{subject}"));
        fs::write(&path, self.authority.issue(subject, &[])?.store())?;
        Ok(ClientSettings::trusting(self.path("trust")).with_key_store(path))
    }

    /// What such a client connects with.
    ///
    /// # Errors
    /// The files cannot be written or read.
    pub fn client_config(&self, subject: &str) -> Result<Arc<ClientConfig>> {
        Ok(Arc::new(self.client(subject)?.load()?))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name).with_extension("pem")
    }
}
