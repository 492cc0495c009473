//! `ringkeeper import`: a data folder of Apache ZooKeeper becomes one of ours.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use ringkeeper_apache::{Converted, Epochs, Folder, Loaded, load};
use ringkeeper_engine::acl::DigestAlgorithm;
use ringkeeper_engine::state::State;
use ringkeeper_engine::zab::leaves_epochs;
use ringkeeper_log::frame::Checksum;
use ringkeeper_wire::{Epoch, Zxid};

use super::draft::{Draft, id_in, write_durably};
use super::target::{History, Target};
use super::{ALONE, MY_ID, MigrateError, random, run, say};

#[derive(Args)]
pub(crate) struct ImportArgs {
    /// The dataDir of a stopped server of Apache ZooKeeper, 3.4 to 3.9
    #[arg(long, value_name = "FOLDER")]
    from: PathBuf,
    /// Its dataLogDir, if it has one
    #[arg(long, value_name = "FOLDER")]
    from_log: Option<PathBuf>,
    /// The folder to make: dataDir of the server to be started; empty or missing
    #[arg(long, value_name = "FOLDER")]
    to: PathBuf,
    /// Its dataLogDir, if it has one; empty or missing
    #[arg(long, value_name = "FOLDER")]
    to_log: Option<PathBuf>,
    /// The server's number in its ensemble [default: what FROM/myid says, else a server alone]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=255))]
    myid: Option<u64>,
    /// The hash in ids of the scheme digest, as in DigestAuthenticationProvider.digestAlg
    #[arg(long, value_name = "NAME", default_value = "SHA1", value_parser = digest_algorithm)]
    digest_alg: DigestAlgorithm,
    /// Keeps rules and tenants' limits that are in the folder. Only for one that `ringkeeper export` has made
    /// and in which nobody else could write: with Apache ZooKeeper any client may write them
    #[arg(long)]
    keep_rules: bool,
    /// Imports what is there even though transactions are missing that clients may have seen
    #[arg(long)]
    accept_gap: bool,
}

fn digest_algorithm(name: &str) -> Result<DigestAlgorithm, String> {
    DigestAlgorithm::named(name).ok_or_else(|| format!("it is none of {}", DigestAlgorithm::names()))
}

/// Does what `ringkeeper import` is asked.
///
/// # Errors
/// The source is no sound folder, or the target cannot be made. Nothing is left of the target then.
pub(crate) fn import(args: &ImportArgs) -> Result<(), MigrateError> {
    let source = Folder::open(&args.from, args.from_log.as_deref())?;
    let my_id = args.my_id()?;
    let from = [&*args.from, args.from_log.as_deref().unwrap_or(&args.from)];
    let mut drafts = vec![Draft::begin(&args.to, &from, my_id)?];
    if let Some(to) = args.to_log.as_deref().filter(|&to| to != args.to) {
        // Dropped first, since it may be in a folder that was made for the other one.
        drafts.insert(0, Draft::begin(to, &from, None)?);
    }
    let mut loaded = load(&source)?;
    if loaded.zxid == 0 {
        return Err(MigrateError::Blank(args.from.clone()));
    }
    let epochs = loaded.epochs;
    let newest = Zxid::from_wire(loaded.zxid).epoch().max(Epoch(epochs.accepted));
    if !leaves_epochs(newest) {
        return Err(MigrateError::Epoch { folder: args.from.clone(), epoch: newest.0 });
    }
    if let Some(gap) = loaded.gap().filter(|_| !args.accept_gap) {
        return Err(MigrateError::Gap { folder: args.from.clone(), gap: gap.to_string() });
    }
    loaded.leave_out_ours(args.keep_rules);
    let basis = basis(&loaded);
    let without_log = !loaded.has_logs && args.from_log.is_none();
    let unsatisfiable = loaded.unsatisfiable(args.digest_alg);
    let Converted { state, dead_ephemerals, notes } = loaded.into_state(random()?)?;
    let state = Arc::new(state);
    let (data, log) = (drafts[drafts.len() - 1].path(), drafts[0].path());
    let target = Target { data, log, server_id: my_id.unwrap_or(ALONE), salt: random()? };
    run(target.write(&state, history(&state, epochs)))?;
    if let Some(my_id) = my_id {
        let file = data.join(MY_ID);
        write_durably(&file, &format!("{my_id}\n"))
            .map_err(|source| MigrateError::Target { folder: file, source })?;
    }
    Draft::finish(&mut drafts)?;
    if without_log {
        say(format_args!(
            "note: there is no transaction log in {}, so what was written after the snapshot, if anything, is missing: if \
             zoo.cfg has dataLogDir, empty {} and import again with --from-log",
            args.from.display(),
            args.to.display()
        ));
    }
    for note in notes.into_iter().chain(unsatisfiable) {
        say(format_args!("note: {note}"));
    }
    say(format_args!(
        "imported {} znodes and {} sessions with {} ephemerals ({dead_ephemerals} of dead sessions left out) as of zxid \
         {}, from {basis}",
        state.tree().len(),
        state.sessions().len(),
        state.ephemeral_count(),
        state.last_zxid(),
    ));
    Ok(())
}

/// What the state was made from, in words.
fn basis(loaded: &Loaded) -> String {
    let snapshot = match &loaded.snapshot {
        Some(file) => format!("{} and", file.display()),
        None => "the logs alone,".to_owned(),
    };
    let (transactions, digests) = (loaded.transactions, loaded.digests_equal);
    format!(
        "{snapshot} {transactions} transactions; {digests} of Apache ZooKeeper's digests compared and found equal"
    )
}

impl ImportArgs {
    fn my_id(&self) -> Result<Option<u64>, MigrateError> {
        let file = self.from.join(MY_ID);
        if self.myid.is_some() || !file.exists() {
            return Ok(self.myid);
        }
        id_in(&file).map(Some).ok_or(MigrateError::MyId(file))
    }
}

/// There is no frame before the first that the log will have, so a number stands for its checksum; and no
/// election has named the ensemble. Both come from the state: servers that import the same folder agree
/// in them, and those that do not take each other for strangers instead of mixing two histories.
fn history(state: &State, epochs: Epochs) -> History {
    let [a, b, c, d, ..] = state.digest().to_le_bytes();
    History {
        cluster: (state.digest() ^ state.last_zxid().0).max(1),
        chain: Checksum(u32::from_le_bytes([a, b, c, d])),
        accepted: Epoch(epochs.accepted),
        current: Epoch(epochs.current),
    }
}
