//! `ringkeeper backup`: ships the history of a running ensemble to a store, and reads a store back.

mod metrics;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};
use jiff::{Span, SpanRelativeTo};
use ringkeeper_backup::http::{Http, HttpError};
use ringkeeper_backup::{
    Key, KeyError, PendingFull, RebuildError, ShipError, Shipper, Source, SourceError, Store, StoreError,
    StoreSettings, prune, time, verify,
};
use ringkeeper_tls::{ClientSettings, StoreKind};
use ringkeeper_wire::Zxid;
use tokio::time::sleep;

use crate::admin::listener::{ListenerError, SourceArgs, runtime};
use metrics::Metrics;

/// The certificate authorities that this machine trusts, where Debian and its kin have them.
const SYSTEM_AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct BackupArgs {
    #[command(subcommand)]
    command: Option<BackupCommand>,
    #[command(flatten)]
    ship: ShipArgs,
}

#[derive(Subcommand)]
enum BackupCommand {
    /// Reads all of a store, and replays its log from each state to the next one
    Verify(VerifyArgs),
}

#[derive(Args)]
struct VerifyArgs {
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    tells: MetricsArgs,
}

#[derive(Args)]
struct MetricsArgs {
    /// Keeps metrics of the backup in this file, for the textfile collector of Prometheus' node_exporter
    #[arg(long, value_name = "FILE")]
    metrics_file: Option<PathBuf>,
}

impl MetricsArgs {
    fn earlier(&self) -> Metrics {
        self.metrics_file.as_deref().map_or_else(Metrics::default, Metrics::of_earlier_run)
    }

    fn write(&self, metrics: &Metrics) -> Result<(), BackupError> {
        self.metrics_file.as_deref().map_or(Ok(()), |file: &Path| metrics.write(file))
    }
}

/// Which store, and how it is opened.
#[derive(Args)]
pub(crate) struct StoreArgs {
    /// The store: a folder, or s3://BUCKET/PREFIX with keys, region and endpoint in the environment
    /// (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT)
    #[arg(long, value_name = "STORE")]
    from: String,
    #[command(flatten)]
    access: AccessArgs,
}

#[derive(Args)]
struct AccessArgs {
    /// A file with the key that encrypts the store: 64 hexadecimal digits
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// The authorities that the certificate of an object store is verified by, as PEM
    #[arg(long, value_name = "FILE", default_value = SYSTEM_AUTHORITIES)]
    store_authorities: PathBuf,
}

#[derive(Args)]
struct ShipArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// The store: a folder, or s3://BUCKET/PREFIX with keys, region and endpoint in the environment
    /// (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT); - writes one state to standard
    /// output, as a tar file of a store
    #[arg(long, value_name = "STORE", required = true)]
    to: Option<String>,
    #[command(flatten)]
    access: AccessArgs,
    /// Ships what was committed this often, such as 10s
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    every: Duration,
    /// Ends when everything that is committed was shipped
    #[arg(long)]
    once: bool,
    /// Takes another state when the newest one is older than this
    #[arg(long, value_name = "TIME", default_value = "1d", value_parser = duration)]
    full_every: Duration,
    /// Removes what no moment of this time before now needs, such as 7d [default: keep everything]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    keep: Option<Duration>,
    #[command(flatten)]
    tells: MetricsArgs,
}

/// Why there is no backup: one sentence for the user.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BackupError {
    #[error(transparent)]
    Source(#[from] ListenerError),
    #[error(transparent)]
    Server(#[from] SourceError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Ship(#[from] ShipError),
    #[error(transparent)]
    Rebuild(#[from] RebuildError),
    #[error("{file}: {source}")]
    KeyFile { file: PathBuf, source: io::Error },
    #[error("{file}: {source}")]
    Key { file: PathBuf, source: KeyError },
    #[error("{file}: {source}")]
    MetricsFile { file: PathBuf, source: io::Error },
    #[error("the certificates by which the store is verified: {0}")]
    Authorities(HttpError),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A time such as 10s, 5m, 2h or 7d.
fn duration(text: &str) -> Result<Duration, String> {
    let span = text.parse::<Span>().and_then(|span| span.to_duration(SpanRelativeTo::days_are_24_hours()));
    let time = span.ok().and_then(|time| Duration::try_from(time).ok());
    time.ok_or_else(|| format!("{text} is no time, such as 10s, 5m, 2h or 7d"))
}

/// Does what `ringkeeper backup` is asked.
///
/// # Errors
/// One sentence for the user.
pub(crate) fn run(args: BackupArgs) -> Result<(), BackupError> {
    match args.command {
        Some(BackupCommand::Verify(args)) => runtime()?.block_on(verify_all(&args)),
        None => {
            let source = args.ship.source.source()?;
            let store = args.ship.to.clone().unwrap_or_default();
            runtime()?.block_on(args.ship.run(&source, &store))
        }
    }
}

impl StoreArgs {
    pub(crate) fn open(&self) -> Result<Store, BackupError> {
        self.access.open(&self.from, false)
    }

    /// How the user names it.
    pub(crate) fn name(&self) -> &str {
        &self.from
    }
}

impl AccessArgs {
    fn open(&self, name: &str, makes: bool) -> Result<Store, BackupError> {
        let key = self.key_file.as_ref().map(|file| {
            let failed = |source| BackupError::KeyFile { file: file.clone(), source };
            let text = std::fs::read_to_string(file).map_err(failed)?;
            text.parse::<Key>().map_err(|source| BackupError::Key { file: file.clone(), source })
        });
        let trusts = name.starts_with("s3://") && self.store_authorities.exists();
        let authorities = trusts.then(|| {
            let mut settings = ClientSettings::trusting(&self.store_authorities);
            settings.trust_store.kind = Some(StoreKind::Pem);
            settings
        });
        let http = Http::new(authorities.as_ref()).map_err(BackupError::Authorities)?;
        let settings = StoreSettings { name: name.to_owned(), key: key.transpose()?, http };
        Ok(Store::open(settings, makes)?)
    }
}

async fn verify_all(args: &VerifyArgs) -> Result<(), BackupError> {
    let verified = verify(&args.store.open()?).await?;
    let (from, to) = verified.range;
    for (after, next) in &verified.gaps {
        say(format_args!("gap: the transactions behind {after}, before {next}, cannot be restored"))?;
    }
    let (fulls, segments, txns) = (verified.fulls, verified.segments, verified.txns);
    say(format_args!(
        "sound: {fulls} states, {segments} parts of the log, {txns} transactions replayed; every moment from zxid \
         {from} to {to}{}",
        if verified.gaps.is_empty() { "" } else { " but for the gaps" }
    ))?;
    args.tells.write(&Metrics::of_verification(now_ms(), to, verified.gaps.len()))
}

impl ShipArgs {
    async fn run(&self, source: &Source, store: &str) -> Result<(), BackupError> {
        if store == "-" {
            return self.write_to_stdout(source).await;
        }
        let mut metrics = self.tells.earlier();
        // A file that cannot be written is found before the first round.
        self.tells.write(&metrics)?;
        let mut shipper = Shipper::open(self.access.open(store, true)?).await?;
        let mut pending = None;
        loop {
            let shipped = self.round(source, &mut shipper, &mut pending, &mut metrics).await;
            metrics.state_ms = shipper.newest_full_ms();
            metrics.end = shipper.end().map(|end| end.zxid);
            match &shipped {
                Ok(()) => metrics.complete_ms = Some(now_ms()),
                Err(_) => metrics.failures += 1,
            }
            self.tells.write(&metrics)?;
            match shipped {
                Ok(()) => {}
                // What cannot pass would be the same in the next round.
                Err(error) if self.once || !error.may_pass() => return Err(error),
                Err(error) => {
                    let _ = writeln!(io::stderr(), "ringkeeper: {error}; trying again");
                    // Whatever of a state is not whole begins anew.
                    pending = None;
                }
            }
            if self.once {
                return Ok(());
            }
            sleep(self.every).await;
        }
    }

    /// Ships everything that is committed, a state first if one is due.
    async fn round(
        &self,
        source: &Source,
        shipper: &mut Shipper,
        pending: &mut Option<PendingFull>,
        metrics: &mut Metrics,
    ) -> Result<(), BackupError> {
        let before = shipper.newest_full_ms();
        if pending.is_none() && shipper.is_full_due(now_ms(), self.full_every) {
            *pending = Some(shipper.take_full(source.full().await?, now_ms()).await?);
        }
        if shipper.end().is_none() {
            finish(shipper, pending).await?;
        }
        loop {
            let after = shipper.end().map(|end| end.zxid);
            let part = match source.feed(after, false).await {
                Ok(part) => part,
                Err(SourceError::Purged { after }) => {
                    metrics.gaps += 1;
                    let end = shipper.end().map(|end| end.zxid).unwrap_or_default();
                    say(format_args!(
                        "gap: the server's log begins after {after}, the store ends at {end}: moments between them \
                         cannot be restored; back up more often, or have the server keep more \
                         (autopurge.snapRetainCount)"
                    ))?;
                    *pending = Some(shipper.take_full(source.full().await?, now_ms()).await?);
                    finish(shipper, pending).await?;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let (committed, txns) =
                (part.committed, part.batches.iter().map(|batch| batch.txns()).sum::<u64>());
            let time_ms = shipper.ship(&part).await?;
            let end = shipper.end().map(|end| end.zxid).unwrap_or_default();
            if let Some(time_ms) = time_ms {
                metrics.transactions += txns;
                metrics.transaction_ms = Some(time_ms);
                say(format_args!(
                    "shipped {txns} transactions up to zxid {end} of {}; committed is {committed}",
                    time(time_ms)
                ))?;
            }
            if part.batches.is_empty() || end >= committed {
                break;
            }
        }
        if pending.as_ref().is_some_and(|pending| shipper.reaches(pending)) {
            finish(shipper, pending).await?;
        }
        // Another state is what makes older ones unneeded.
        if let Some(keep) = self.keep
            && shipper.newest_full_ms() != before
        {
            let keep_ms = i64::try_from(keep.as_millis()).unwrap_or(i64::MAX);
            let removed = prune(shipper.store(), now_ms().saturating_sub(keep_ms)).await?;
            if removed > 0 {
                say(format_args!("removed {removed} objects of older moments"))?;
            }
        }
        Ok(())
    }

    /// A store with one state, made in a temporary folder, as a tar file.
    async fn write_to_stdout(&self, source: &Source) -> Result<(), BackupError> {
        let folder = tempfile::tempdir()?;
        let name = folder.path().to_string_lossy().into_owned();
        let mut shipper = Shipper::open(self.access.open(&name, true)?).await?;
        let pending = shipper.take_full(source.full().await?, now_ms()).await?;
        shipper.finish_full(pending).await?;
        let mut out = tar::Builder::new(io::stdout().lock());
        out.append_dir_all(".", folder.path())?;
        out.into_inner()?.flush()?;
        Ok(())
    }
}

async fn finish(shipper: &mut Shipper, pending: &mut Option<PendingFull>) -> Result<(), BackupError> {
    if let Some(pending) = pending.take() {
        let zxid = shipper.finish_full(pending).await?;
        say(format_args!("stored the state as of zxid {zxid}"))?;
    }
    Ok(())
}

impl BackupError {
    /// Whether it may pass by itself.
    fn may_pass(&self) -> bool {
        match self {
            Self::Server(error) | Self::Ship(ShipError::Source(error)) => error.may_pass(),
            Self::Ship(ShipError::Vanished) => true,
            Self::Store(error) | Self::Ship(ShipError::Store(error)) => {
                matches!(error, StoreError::Store(_) | StoreError::NotKept(_))
            }
            _ => false,
        }
    }
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

fn say(line: std::fmt::Arguments<'_>) -> io::Result<()> {
    writeln!(io::stdout(), "{line}")
}

/// The greatest zxid that is committed at a server.
pub(crate) async fn committed(source: &Source) -> Result<Zxid, SourceError> {
    Ok(source.feed(None, false).await?.committed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_unit() {
        let seconds = |text| duration(text).map(|time| time.as_secs());
        assert_eq!((seconds("10s"), seconds("2h"), seconds("7d")), (Ok(10), Ok(7200), Ok(604_800)));
        for text in ["", "10", "s", "-1s", "1x"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
