//! `ringkeeper scram`: the users who log in by SCRAM-SHA-256.

use std::fs::{File, OpenOptions, rename};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::builder::RangedI64ValueParser;
use clap::{Args, Subcommand};
use ringkeeper_wire::scram::{ITERATIONS, Keys, prepared};

use crate::config::{ConfigError, is_suitable, read_scram_file, with_scram_user};

/// How often a password is hashed, unless the operator says otherwise: what RFC 7677 recommends.
const ITERATIONS_DEFAULT: u32 = 15_000;

const SALT_LEN: usize = 16;
const DECOY_KEY_LEN: usize = 32;

/// What can be done with the users.
#[derive(Subcommand)]
pub(crate) enum ScramCommand {
    /// Adds a user, or changes the password of one; asks for it at the terminal, or reads a line from
    /// standard input
    Add(AddArgs),
}

#[derive(Args)]
pub(crate) struct AddArgs {
    /// The user's name
    user: String,
    /// The file that ringkeeper.scramFile names; made if it is missing
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// How often the password is hashed, by each client when it connects for the first time
    #[arg(long, value_name = "N", default_value_t = ITERATIONS_DEFAULT, value_parser = iterations())]
    iterations: u32,
}

fn iterations() -> RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(i64::from(*ITERATIONS.start())..=i64::from(*ITERATIONS.end()))
}

/// Why a user was not added: one sentence for the user.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScramError {
    #[error(transparent)]
    File(#[from] ConfigError),
    #[error("{0:?} cannot be the name of a user")]
    Name(String),
    #[error("the password is empty, or has a character that is not allowed")]
    Password,
    #[error("the passwords differ")]
    Differ,
    #[error("the password cannot be read: {0}")]
    Unread(io::Error),
    #[error("{} cannot be written: {source}", path.display())]
    Unwritten { path: PathBuf, source: io::Error },
    #[error("no random bytes: {0}")]
    Random(#[from] getrandom::Error),
}

impl ScramCommand {
    /// Does what it says.
    ///
    /// # Errors
    /// One sentence for the user.
    pub(crate) fn run(self) -> Result<(), ScramError> {
        let Self::Add(AddArgs { user, file, iterations }) = self;
        let user = prepared(&user).ok().filter(|user| is_suitable(user)).ok_or(ScramError::Name(user))?;
        let text = if file.exists() { read_scram_file(&file)? } else { String::new() };
        let (mut salt, mut decoy_key) = ([0; SALT_LEN], [0; DECOY_KEY_LEN]);
        getrandom::fill(&mut salt)?;
        getrandom::fill(&mut decoy_key)?;
        let password = password_of(&user)?;
        let keys = Keys::derive(&password, &salt, iterations).map_err(|_| ScramError::Password)?;
        let text = with_scram_user(&text, &user, keys.verifier(), &decoy_key);
        replace(&file, &text).map_err(|source| ScramError::Unwritten { path: file, source })
    }
}

fn password_of(user: &str) -> Result<String, ScramError> {
    let ask = |prompt: String| rpassword::prompt_password(prompt).map_err(ScramError::Unread);
    let password = if io::stdin().is_terminal() {
        let password = ask(format!("Password of {user}: "))?;
        if ask("The same again: ".to_owned())? != password {
            return Err(ScramError::Differ);
        }
        password
    } else {
        let mut line = String::new();
        io::stdin().read_line(&mut line).map_err(ScramError::Unread)?;
        line.trim_end_matches(['\r', '\n']).to_owned()
    };
    if password.is_empty() { Err(ScramError::Password) } else { Ok(password) }
}

/// Writes a file that nobody else can read, so that a server that reads it meanwhile finds the old or the new
/// one.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
    let folder =
        path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    let mut draft_name = name.to_owned();
    draft_name.push(".new");
    let draft = folder.join(draft_name);
    // Left over if the last one was interrupted.
    let _ = std::fs::remove_file(&draft);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    rename(&draft, path)?;
    File::open(folder)?.sync_all()
}
