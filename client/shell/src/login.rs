//! Name and password for a login by SASL: from a file or the environment, never from the command line, which
//! all users of a machine can read.

use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use ringkeeper_client::Mechanism;

use crate::error::ShellError;

/// The environment's variable with `USER:PASSWORD`.
const VARIABLE: &str = "RINGKEEPER_LOGIN";

/// A user's name and password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Login {
    pub(crate) user: String,
    pub(crate) password: String,
}

/// How the password is proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LoginMechanism {
    DigestMd5,
    #[value(name = "scram-sha-256")]
    ScramSha256,
}

impl From<LoginMechanism> for Mechanism {
    fn from(mechanism: LoginMechanism) -> Self {
        match mechanism {
            LoginMechanism::DigestMd5 => Self::DigestMd5,
            LoginMechanism::ScramSha256 => Self::ScramSha256,
        }
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

impl Login {
    /// From `file`, or else from the environment; `None` if neither is there.
    pub(crate) fn find(file: Option<&Path>) -> Result<Option<Self>, ShellError> {
        match file {
            Some(file) => Self::read(file).map(Some),
            None => std::env::var(VARIABLE).ok().map(|text| Self::parse(&text, &VARIABLE)).transpose(),
        }
    }

    fn read(file: &Path) -> Result<Self, ShellError> {
        let name = file.display();
        let failed = |error| ShellError::Usage(format!("{name} cannot be read: {error}"));
        if std::fs::metadata(file).map_err(failed)?.permissions().mode() & 0o077 != 0 {
            let reason = format!("{name} is open to other users of this machine: `chmod 600 {name}`");
            return Err(ShellError::Usage(reason));
        }
        Self::parse(std::fs::read_to_string(file).map_err(failed)?.trim_end_matches(['\n', '\r']), &name)
    }

    fn parse(text: &str, source: &dyn fmt::Display) -> Result<Self, ShellError> {
        match text.split_once(':') {
            Some((user, password)) if !user.is_empty() => {
                Ok(Self { user: user.to_owned(), password: password.to_owned() })
            }
            _ => Err(ShellError::Usage(format!("{source} is not of the form USER:PASSWORD"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_read_from_a_file_that_nobody_else_can_read() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let read = |text: &str, mode| {
            std::fs::write(file.path(), text).expect("written");
            std::fs::set_permissions(file.path(), PermissionsExt::from_mode(mode)).expect("changed");
            Login::find(Some(file.path())).map_err(|error| format!("{error:?}"))
        };
        let login = Login { user: "bob".to_owned(), password: "a:b ".to_owned() };
        assert_eq!(read("bob:a:b \n", 0o600), Ok(Some(login.clone())));
        assert!(read("bob:pw", 0o640).expect_err("open").contains("chmod 600"));
        let error = read("secret", 0o600).expect_err("no user");
        assert!(error.contains("USER:PASSWORD") && !error.contains("secret"), "{error}");
        assert!(!format!("{login:?}").contains("a:b"));
    }
}
