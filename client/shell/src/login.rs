//! Options for a login by SASL, of every command that logs in. Name and password come from a file or the
//! environment, never from the command line, which all users of a machine can read.

use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ringkeeper_client::Mechanism;
use ringkeeper_client::core::User;

/// The environment's variable with `USER:PASSWORD`.
const VARIABLE: &str = "RINGKEEPER_LOGIN";

/// A login by SASL, if there is a file or a variable with a user.
#[derive(Clone, Debug, clap::Args)]
pub struct LoginArgs {
    /// A file with USER:PASSWORD for a login by SASL, which its owner alone can read. Without it, the
    /// environment's RINGKEEPER_LOGIN
    #[arg(long, value_name = "FILE")]
    login_file: Option<PathBuf>,
    /// How the password of a login is proved; Apache ZooKeeper has digest-md5 alone
    #[arg(long, value_name = "MECHANISM", env = "RINGKEEPER_LOGIN_MECHANISM", default_value = "digest-md5")]
    login_mechanism: LoginMechanism,
}

/// How the password is proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum LoginMechanism {
    DigestMd5,
    #[value(name = "scram-sha-256")]
    ScramSha256,
}

/// Why there is no user to log in as: what is wrong with the file or the variable.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct LoginError(String);

impl LoginArgs {
    /// Who logs in: from the file, or else from the environment; `None` if neither is there.
    ///
    /// # Errors
    /// The file cannot be read, or others can read it too, or there is something else in it.
    pub fn user(&self) -> Result<Option<User>, LoginError> {
        let found = match &self.login_file {
            Some(file) => read(file).map(Some),
            None => std::env::var(VARIABLE).ok().map(|text| parse(&text, &VARIABLE)).transpose(),
        };
        let mechanism = match self.login_mechanism {
            LoginMechanism::DigestMd5 => Mechanism::DigestMd5,
            LoginMechanism::ScramSha256 => Mechanism::ScramSha256,
        };
        Ok(found?.map(|(name, password)| User { name, password, mechanism }))
    }

    /// Whether a file is named.
    #[must_use]
    pub const fn has_file(&self) -> bool {
        self.login_file.is_some()
    }
}

/// A user's name and password.
fn read(file: &Path) -> Result<(String, String), LoginError> {
    let name = file.display();
    let failed = |error| LoginError(format!("{name} cannot be read: {error}"));
    if std::fs::metadata(file).map_err(failed)?.permissions().mode() & 0o077 != 0 {
        return Err(LoginError(format!("{name} is open to other users of this machine: `chmod 600 {name}`")));
    }
    parse(std::fs::read_to_string(file).map_err(failed)?.trim_end_matches(['\n', '\r']), &name)
}

fn parse(text: &str, source: &dyn fmt::Display) -> Result<(String, String), LoginError> {
    match text.split_once(':') {
        Some((user, password)) if !user.is_empty() => Ok((user.to_owned(), password.to_owned())),
        _ => Err(LoginError(format!("{source} is not of the form USER:PASSWORD"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_read_from_a_file_that_nobody_else_can_read() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let args = LoginArgs {
            login_file: Some(file.path().to_owned()),
            login_mechanism: LoginMechanism::ScramSha256,
        };
        let read = |text: &str, mode| {
            std::fs::write(file.path(), text).expect("written");
            std::fs::set_permissions(file.path(), PermissionsExt::from_mode(mode)).expect("changed");
            args.user().map_err(|error| error.to_string())
        };
        let (name, password) = ("bob".to_owned(), "a:b ".to_owned());
        let user = User { name, password, mechanism: Mechanism::ScramSha256 };
        assert_eq!(read("bob:a:b \n", 0o600), Ok(Some(user)));
        assert!(read("bob:pw", 0o640).expect_err("open").contains("chmod 600"));
        let error = read("secret", 0o600).expect_err("no user");
        assert!(error.contains("USER:PASSWORD") && !error.contains("secret"), "{error}");
    }
}
