//! What can go wrong, and the exit status that says so.

use ringkeeper_client::Error;

use crate::login::LoginError;

/// Why a command was not carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ShellError {
    /// The service said no, or could not be asked.
    #[error("{}", in_words_of_command(what, source))]
    Client {
        /// What was asked for, such as `delete /a`.
        what: String,
        /// The answer.
        source: Error,
    },
    /// Words that the parser refuses; help, when it was asked for, comes this way too.
    #[error(transparent)]
    Parse(#[from] clap::Error),
    /// Words that make no sense.
    #[error("{0}")]
    Usage(String),
    /// A file, a terminal, an editor.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// Whoever reads the output has seen enough.
    #[error("the output was closed")]
    OutputClosed,
    /// Ctrl-C.
    #[error("interrupted")]
    Interrupted,
    /// The session was ended by `close`.
    #[error("not connected: `connect` opens a session")]
    NotConnected,
}

/// What the client says, behind `what` was asked for: without the client's name for a call on the same path,
/// which is the same call.
fn in_words_of_command(what: &str, source: &Error) -> String {
    let text = source.to_string();
    let own = source.call().filter(|call| what.ends_with(&call.path));
    match own.and_then(|call| text.strip_prefix(&format!("{call}: "))) {
        Some(reason) => format!("{what}: {reason}"),
        None => format!("{what}: {text}"),
    }
}

impl ShellError {
    /// A request that failed.
    pub(crate) fn client(what: impl Into<String>) -> impl FnOnce(Error) -> Self {
        move |source| Self::Client { what: what.into(), source }
    }

    /// Something with files that failed.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { what: what.into(), source }
    }

    /// The exit status of a command that ends so.
    pub(crate) fn status(&self) -> u8 {
        match self {
            Self::OutputClosed => 0,
            Self::Parse(error) => u8::try_from(error.exit_code()).unwrap_or(2),
            Self::Usage(_) => 2,
            Self::Client { source, .. } => match source {
                Error::InvalidPath { .. } | Error::InvalidConnectString { .. } | Error::InvalidSetting(_) => {
                    2
                }
                other if other.is_connection() || other.is_session_end() => 3,
                _ => 1,
            },
            Self::NotConnected => 3,
            Self::Interrupted => 130,
            Self::Io { .. } => 1,
        }
    }

    /// Shows it to the user.
    pub(crate) fn print(&self) {
        match self {
            Self::OutputClosed => {}
            // Knows itself what is help, what is an error, and which of them is coloured.
            Self::Parse(error) => drop(error.print()),
            other => eprintln!("{other}"),
        }
    }
}

impl From<LoginError> for ShellError {
    fn from(error: LoginError) -> Self {
        Self::Usage(error.to_string())
    }
}

impl From<std::io::Error> for ShellError {
    /// Of writing to the output.
    fn from(source: std::io::Error) -> Self {
        match source.kind() {
            std::io::ErrorKind::BrokenPipe => Self::OutputClosed,
            _ => Self::Io { what: "writing the output".to_owned(), source },
        }
    }
}
