//! The table of authorisation: every request that concerns a znode, from every kind of client, on znodes with
//! every set of permissions, sent to a reference and to a subject. The subject may refuse and hide more than
//! the reference, for a stated reason; it never allows or shows more.

mod case;
mod probe;
mod rules;
mod table;

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use ringkeeper_testkit::{Program, TlsFiles};
use tempfile::NamedTempFile;

use self::case::{Answer, Case, Prober, SASL_ROOT, SASL_USERS, X509_ROOT};
use self::probe::PROBES;
use self::table::Table;
use crate::server::{self, Settings};

/// Between which servers to compare.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Start Apache ZooKeeper from this folder of jars as the reference
    #[arg(long, value_name = "FOLDER", required_unless_present = "rules")]
    start_zookeeper: Option<PathBuf>,
    /// Start this ringkeeper binary as the subject; without it, a second ZooKeeper is the subject
    #[arg(long, value_name = "BINARY")]
    start_ringkeeper: Option<PathBuf>,
    /// Ask the subject under rules, too, or without a reference under rules alone
    #[arg(long, requires = "start_ringkeeper")]
    rules: bool,
    /// Try all 32 sets of permissions; without it, none, each alone, and all
    #[arg(long)]
    all_sets: bool,
}

/// Where the subject is stricter on purpose: a probe, and the reason.
const STRICTER: [(&str, &str); 2] = [
    (
        "deleteContainer",
        "it is the servers' own request; ZooKeeper carries it out for every client without looking at ACLs",
    ),
    ("setWatches, long ago", "events need READ also if they come after a reconnect"),
];

/// Asks both servers everything and prints the subject's table.
///
/// # Errors
/// The subject allows or shows what the reference does not, or differs in another way that has no stated
/// reason; or a server could not be reached.
pub(crate) fn run(options: &Options) -> Result<()> {
    let settings = Settings { enforce_quota: false, force_sync: false, session_timeout_min_ms: 400_000 };
    let files = TlsFiles::new(&[])?;
    let users = users_file()?;
    let jaas = format!("java.security.auth.login.config={}", users.path().display());
    let more = format!(
        "{jaas}\nauthProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n\
         superUser={SASL_ROOT}\nX509AuthenticationProvider.superUser={X509_ROOT}\n{}",
        files.server_settings()
    );
    let zookeeper = |jars| server::zookeeper(jars, &[&format!("-D{jaas}")]);
    let reference = options.start_zookeeper.as_deref().map(zookeeper).transpose()?;
    let subject = match (&options.start_ringkeeper, &reference) {
        (Some(binary), _) => Program::ringkeeper(binary, &[])?,
        (None, Some(zookeeper)) => zookeeper.clone(),
        (None, None) => bail!("there is no server to ask"),
    };
    let start = |program| server::start_ensemble(program, 1, settings, &more);
    let reference = reference.as_ref().map(start).transpose()?;
    let subject = start(&subject)?;
    let mut wrong = Vec::new();
    if let Some(reference) = &reference {
        let sides = [reference, &subject].map(|side| Prober::new(side.server(0).address(), &files, ""));
        wrong.extend(compare(sides, options.all_sets)?);
    }
    if options.rules {
        let (asked, faults) = rules::check(subject.server(0).address(), &files)?;
        println!("{asked} requests under rules, {} answered wrongly", faults.len());
        wrong.extend(faults);
    }
    wrong.iter().take(100).for_each(|line| println!("{line}"));
    ensure!(wrong.is_empty(), "the table of authorisation is not as it has to be");
    Ok(())
}

/// Asks the reference and the subject, prints the subject's table, and returns the differences that have no
/// stated reason.
fn compare([mut reference, mut subject]: [Prober<'_>; 2], all_sets: bool) -> Result<Vec<String>> {
    let (mut table, mut wrong) = (Table::default(), Vec::new());
    for case in Case::all(all_sets) {
        for probe in PROBES {
            let (reference, subject) = (reference.ask(&case, probe)?, subject.ask(&case, probe)?);
            if let Err(fault) = judge(probe.name, &reference, &subject) {
                wrong.push(format!("{fault}: {} by {case}: {reference} here {subject}", probe.name));
            }
            table.add(&case, probe, &subject);
        }
    }
    println!("{table}");
    for (probe, reason) in STRICTER {
        println!("stricter: {probe}: {reason}");
    }
    println!("{} requests, {} differences without a reason", table.asked(), wrong.len());
    Ok(wrong)
}

/// The JAAS file with the users of SASL.
fn users_file() -> Result<NamedTempFile> {
    let mut file = NamedTempFile::new()?;
    let users: String = SASL_USERS.iter().map(|user| format!(" user_{user}=\"secret\"")).collect();
    write!(file, "Server {{ org.apache.zookeeper.server.auth.DigestLoginModule required{users}; }};")?;
    Ok(file)
}

/// Whether the subject's answer is as strict as the reference's.
fn judge(probe: &str, reference: &Answer, subject: &Answer) -> Result<(), &'static str> {
    let excused = STRICTER.iter().any(|(name, _)| *name == probe);
    match (reference.is_allowed(), subject.is_allowed()) {
        _ if reference == subject => Ok(()),
        (false, true) => Err("ALLOWED where the reference refuses"),
        (true, true) if !subject.shows_no_more_than(reference) => Err("SHOWN where the reference hides"),
        _ if excused => Ok(()),
        _ => Err("different"),
    }
}
