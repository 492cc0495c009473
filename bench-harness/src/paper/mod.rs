//! `bench-harness paper`: the experiments of the ZooKeeper paper (USENIX ATC 2010) and more, on ensembles
//! that it starts and ends itself, ringkeeper beside Apache ZooKeeper in one run, or on a service that runs
//! already.
//!
//! An experiment yields a record: every figure of every run, with the machine and the settings. Tables,
//! pictures and the index are made from records alone, and can be made again with `--draw`.

mod barriers;
mod bench;
mod binary;
mod broadcast;
pub(crate) mod chart;
mod churn;
mod creates;
mod distance;
mod experiment;
mod failover;
mod failures;
mod fanout;
mod gaps;
mod histograms;
mod index;
mod latency;
pub(crate) mod layout;
mod members;
mod memory;
mod mixed;
mod model;
mod observers;
mod outstanding;
mod paths;
mod prediction;
mod published;
mod ratios;
mod reconfigure;
mod record;
mod restart;
mod rolling;
mod running;
mod scale;
mod service;
mod storage;
mod storm;
mod table;
mod tenants;
mod writers;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use ringkeeper_testkit::interrupt;

use self::bench::{Bench, PAYLOAD_LEN, Pace, Saturation, Settings, THROUGHPUT};
use self::experiment::{Experiment, Plan};
use self::record::Record;
use self::running::RunningArgs;
use self::service::Subject;
use crate::cores::Division;
use crate::environment::{Environment, file_system_of};
use crate::generators::{Generators, Invitation};
use crate::monitor::Collector;
use crate::progress::Progress;
use crate::session::Session;
use crate::system::{System, seats};
use crate::tls::Tls;
use crate::{args, descriptors, others, pauses};

/// Folder of the records inside the folder of the results.
const FOLDER: &str = "paper";

/// The paper's sizes of ensembles.
const SIZES: [usize; 5] = [3, 5, 7, 9, 13];

/// Servers for each core, at most: with more of them the scheduler is measured.
const SERVERS_A_CORE: usize = 3;

/// The most sessions that an experiment has open at once.
const SESSIONS_MAX: usize = 1200;

/// What is the first generator's to say: one that joins takes it from there, or has no use for it.
const JOINED_HAVE_NOT: [&str; 20] = [
    "generators",
    "quick",
    "only",
    "list",
    "draw",
    "runs",
    "sessions",
    "outstanding",
    "outstanding_total",
    "seconds",
    "warmup",
    "conditioning",
    "reads",
    "payload",
    "znodes",
    "tree_znodes",
    "seed",
    "server_pid",
    "work_dir",
    "out",
];

/// Reproduces the paper's experiments: tables, CSV, latencies, pictures, and an index of them.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PaperArgs {
    /// Everything smaller: fewer points, shorter windows
    #[arg(long)]
    quick: bool,
    /// Experiments, separated by commas [default: all]
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// List the experiments
    #[arg(long)]
    list: bool,
    /// Measure nothing: make pictures and index again from the records
    #[arg(long)]
    draw: bool,
    /// ringkeeper's server binary [default: the one beside this program, built if it is not there]
    #[arg(long)]
    ringkeeper: Option<PathBuf>,
    /// One more argument for ringkeeper's servers; may be repeated
    #[arg(long, allow_hyphen_values = true)]
    ringkeeper_arg: Vec<String>,
    /// An older server binary of ringkeeper, to measure it beside the newer one
    #[arg(long)]
    before: Option<PathBuf>,
    /// Folder with Apache ZooKeeper's jar and those it needs, to measure it too
    #[arg(long)]
    zookeeper: Option<PathBuf>,
    /// ZooKeeper's greatest heap, as -Xmx takes it
    #[arg(long, default_value = "1g")]
    zookeeper_heap: String,
    /// etcd's server binary, to measure it too where its API has what compares with what is measured
    #[arg(long)]
    etcd: Option<PathBuf>,
    /// Measure bare servers too where they can take part: what machine, kernel, disk and generator leave
    /// possible
    #[arg(long)]
    floor: bool,
    /// Measure ringkeeper and ZooKeeper with TLS, too, each beside itself in the clear
    #[arg(long)]
    tls: bool,
    /// Measure ringkeeper with metrics scraped each second, a dashboard open and one request in 1,000 traced,
    /// too, beside itself without
    #[arg(long, conflicts_with = "port")]
    monitored: bool,
    #[command(flatten)]
    running: RunningArgs,
    /// Generators of load in all, this one included: the others join with --join, on machines of their own
    #[arg(long, default_value = "1", value_parser = args::count, requires = "servers")]
    generators: usize,
    /// Join the run of another generator on the same servers, under this name; what to measure, and where
    /// results go, is the other's to say
    #[arg(long, value_name = "NAME", requires = "servers", conflicts_with_all = JOINED_HAVE_NOT)]
    join: Option<String>,
    /// Sizes of ensembles, of which 1 is a server alone [default: 3,5,7,9,13, as far as there are three
    /// servers a core at most]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u8).range(1..=13))]
    sizes: Vec<u8>,
    /// Runs of everything
    #[arg(long, default_value = "3", value_parser = args::count)]
    runs: usize,
    /// Length of a window in seconds [default: 10, or 1 with --quick]
    #[arg(long, value_parser = args::window, conflicts_with = "generators")]
    seconds: Option<Duration>,
    /// Load before each window, in seconds [default: 3, or 0.5 with --quick]
    #[arg(long, value_parser = args::seconds, conflicts_with = "generators")]
    warmup: Option<Duration>,
    /// Mixed load on fresh servers, in seconds: a JVM compiles its code meanwhile [default: 5, or 2 with
    /// --quick]
    #[arg(long, value_parser = args::seconds, conflicts_with = "generators")]
    conditioning: Option<Duration>,
    /// Sessions of the saturating load
    #[arg(long, default_value = "250", value_parser = args::count)]
    sessions: usize,
    /// Requests outstanding on each of them
    #[arg(long, default_value = "100", value_parser = args::count)]
    outstanding: usize,
    /// Requests outstanding in all, at most [default: no such limit; servers that are started have one of
    /// 2,000 in process]
    #[arg(long, value_parser = args::count)]
    outstanding_total: Option<usize>,
    /// Shares of reads in percent, separated by commas, where they are the question (fig5, fig6) [default:
    /// theirs]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u8).range(0..=100))]
    #[arg(conflicts_with = "generators")]
    reads: Vec<u8>,
    /// Size of every value of the saturating load, in bytes [default: 1024]
    #[arg(long, value_parser = args::payload_len, conflicts_with = "generators")]
    payload: Option<usize>,
    /// Znodes of the saturating load [default: one for each session]
    #[arg(long, value_parser = args::count, conflicts_with = "generators")]
    znodes: Option<usize>,
    /// Znodes of the trees whose memory, restart and storage are measured [default: those of the experiments]
    #[arg(long, value_parser = clap::value_parser!(u32).range(6400..), conflicts_with = "generators")]
    tree_znodes: Option<u32>,
    /// Seed of the order of reads and writes [default: 1]
    #[arg(long, conflicts_with = "generators")]
    seed: Option<u64>,
    /// Processes of the servers that run, whose CPU time counts [default: those that listen on their ports,
    /// on loopback]
    #[arg(long, value_delimiter = ',', requires = "servers")]
    server_pid: Vec<i32>,
    /// Load-generating threads [default: half of the cores]
    #[arg(long, value_parser = args::count)]
    threads: Option<usize>,
    /// Percent of this machine's processor time that other processes, and that its host, may take before a
    /// window counts for nothing
    #[arg(long, default_value_t = others::PERCENT_MAX, value_parser = clap::value_parser!(u8).range(0..=100))]
    others_max: u8,
    /// Folder in which the servers keep their data [default: the system's temporary folder]
    #[arg(long)]
    work_dir: Option<PathBuf>,
    /// First of the ports for the servers, three for each [default: any that are free]
    #[arg(long)]
    port: Option<u16>,
    /// Where the results go
    #[arg(long, default_value = "results")]
    out: PathBuf,
}

/// An end that nothing should come near.
const HOUR: Duration = Duration::from_secs(3600);

/// Runs the subcommand.
pub(crate) fn run(args: &PaperArgs) -> Result<()> {
    let all = experiment::all();
    if args.list {
        all.iter()
            .for_each(|experiment| println!("{:<10} {}", experiment.plan().id, experiment.plan().title));
        return Ok(());
    }
    let chosen = args.chosen(&all)?;
    if args.draw {
        let measured = |experiment: &&&dyn Experiment| paths::csv(&args.out, experiment.plan().id).exists();
        let measured: Vec<_> = chosen.iter().filter(measured).collect();
        ensure!(!measured.is_empty(), "no records to draw from in {}", args.out.join(FOLDER).display());
        writable(&args.out)?;
        for experiment in measured {
            draw(&args.out, *experiment, &Record::load(&paths::csv(&args.out, experiment.plan().id))?)?;
        }
        return index::write(&args.out, &all);
    }
    measure(args, &all)
}

fn measure(args: &PaperArgs, all: &[Box<dyn Experiment>]) -> Result<()> {
    others::tolerate(args.others_max);
    descriptors::reserve(SESSIONS_MAX.max(args.sessions))?;
    args.running.secure()?;
    let progress = Progress::new();
    let (generators, args) = args.meet(&progress)?;
    let chosen = args.chosen(all)?;
    let keeps = generators.as_ref().is_none_or(Generators::is_first);
    if keeps {
        writable(&args.out)?;
    }
    let mut settings = args.settings()?;
    settings.generators = generators;
    if let Err(error) = pauses::watch() {
        progress.line(&format!("pauses of the machine are not watched: {error:#}"));
    }
    let facts = args.facts(&settings)?;
    let mut failed = 0;
    for (index, experiment) in (1..).zip(&chosen) {
        let plan = experiment.plan();
        if let Some(why) = args.leaves_out(&plan, &settings) {
            progress.line(&format!("{}: left out: {why}", plan.id));
            continue;
        }
        progress.experiment(&format!("{index}/{} {}", chosen.len(), plan.id));
        let record = Record { facts: facts.clone(), ..Record::default() };
        let mut bench = Bench::new(&settings, &progress, record, &plan);
        let done = experiment.run(&mut bench);
        if keeps {
            keep(&args.out, *experiment, &bench)?;
            // After each experiment: what is measured is not lost if a later one is interrupted.
            index::write(&args.out, all)?;
        }
        interrupt::check()?;
        done.with_context(|| format!("experiment {}", plan.id))?;
        failed += bench.record.samples.iter().filter(|sample| sample.figure == record::ERROR).count();
    }
    if let Some(generators) = settings.generators {
        generators.part()?;
    }
    if keeps {
        progress.line(&format!("written: {}", args.out.join(FOLDER).display()));
    }
    match failed {
        0 => Ok(()),
        failed => bail!("runs that were errors: {failed}"),
    }
}

/// Makes the folder of the records, and surely can write there: hours later would be too late to find out.
fn writable(out: &Path) -> Result<()> {
    let records = out.join(FOLDER);
    fs::create_dir_all(&records)
        .with_context(|| format!("cannot make the folder {} (--out)", records.display()))?;
    tempfile::tempfile_in(&records)
        .with_context(|| format!("cannot write into {} (--out)", records.display()))?;
    let index = paths::index(out);
    if index.exists() {
        let open = fs::File::options().append(true).open(&index);
        open.with_context(|| format!("cannot write {} (--out)", index.display()))?;
    }
    Ok(())
}

/// Writes and shows what an experiment has yielded.
fn keep(out: &Path, experiment: &dyn Experiment, bench: &Bench<'_>) -> Result<()> {
    let id = experiment.plan().id;
    if bench.record.samples.is_empty() {
        return Ok(());
    }
    bench.record.save(&paths::csv(out, id))?;
    if !bench.latencies.is_empty() {
        histograms::write(&paths::histograms(out, id), &bench.latencies)?;
    }
    bench.progress.line(&format!("{id}: {}", experiment.plan().title));
    experiment.tables(&bench.record).iter().for_each(|table| println!("{}", table.text()));
    draw(out, experiment, &bench.record)
}

fn draw(out: &Path, experiment: &dyn Experiment, record: &Record) -> Result<()> {
    for (suffix, chart) in experiment.pictures(record) {
        chart.draw(&out.join(FOLDER).join(paths::picture_name(experiment.plan().id, &suffix)))?;
    }
    Ok(())
}

impl PaperArgs {
    fn chosen<'e>(&self, all: &'e [Box<dyn Experiment>]) -> Result<Vec<&'e dyn Experiment>> {
        let known: Vec<&str> = all.iter().map(|experiment| experiment.plan().id).collect();
        for id in &self.only {
            ensure!(known.contains(&id.as_str()), "no experiment {id:?}; there are {}", known.join(", "));
        }
        let is_chosen = |id: &str| self.only.is_empty() || self.only.iter().any(|only| only == id);
        Ok(all.iter().map(AsRef::as_ref).filter(|experiment| is_chosen(experiment.plan().id)).collect())
    }

    /// Other generators, if there are to be any, and what all of them do.
    fn meet(&self, progress: &Progress) -> Result<(Option<Generators>, Self)> {
        if self.running.is_there() {
            let addresses = self.running.addresses();
            let sessions = Session::open_all(&addresses, addresses.len())?;
            crate::session::close_all(sessions)?;
        }
        if let Some(name) = &self.join {
            let waiting = || progress.line("waiting for a first generator on these servers (--generators)");
            let (generators, invitation) = Generators::join(&self.running.addresses(), name, waiting)?;
            return Ok((Some(generators), self.share_of(invitation)));
        }
        if self.generators == 1 {
            return Ok((None, self.clone()));
        }
        // What would be refused later is refused before others come.
        self.chosen(&experiment::all())?;
        writable(&self.out)?;
        let invitation = Invitation {
            root: Invitation::fresh_root(),
            count: self.generators,
            only: self.only.clone(),
            quick: self.quick,
            runs: self.runs,
            sessions: self.sessions,
            outstanding: self.outstanding,
            outstanding_total: self.outstanding_total,
        };
        let waiting = |missing| {
            progress
                .line(&format!("waiting for {missing} more generator(s): paper --servers ... --join NAME"));
        };
        let generators = Generators::invite(&self.running.addresses(), &invitation, waiting)?;
        Ok((Some(generators), self.share_of(invitation)))
    }

    /// What one of several generators does.
    fn share_of(&self, invitation: Invitation) -> Self {
        let Invitation { count, only, quick, runs, sessions, outstanding, outstanding_total, .. } =
            invitation;
        let share = |total: usize| (total / count).max(1);
        let (sessions, outstanding_total) = (share(sessions), outstanding_total.map(share));
        Self {
            generators: count,
            only,
            quick,
            runs,
            sessions,
            outstanding,
            outstanding_total,
            ..self.clone()
        }
    }

    /// Why an experiment is left out, if it is.
    fn leaves_out(&self, plan: &Plan, settings: &Settings) -> Option<&'static str> {
        if plan.own_servers && self.running.is_there() {
            return Some("it starts and ends servers, and those of --servers are not its own");
        }
        if !plan.many_generators && settings.generators.is_some() {
            return Some("its load is that of one generator");
        }
        None
    }

    fn subjects(&self) -> Result<Vec<Subject>> {
        if self.running.is_there() {
            return Ok(vec![Subject::Running(self.running.addresses())]);
        }
        // First what can be wrong on the command line, then what may take a while.
        let zookeeper = self.zookeeper.as_deref().map(|jars| System::zookeeper(jars, &self.zookeeper_heap));
        let zookeeper = zookeeper.transpose()?;
        let etcd = self.etcd.as_deref().map(System::etcd).transpose()?;
        let ringkeeper = match &self.ringkeeper {
            Some(binary) => System::ringkeeper(binary, &self.ringkeeper_arg)?,
            None => System::ringkeeper(&binary::beside_this_program()?, &self.ringkeeper_arg)?,
        };
        let before = self.before.as_deref().map(|binary| System::before(binary, &self.ringkeeper_arg));
        let others = [before.transpose()?, zookeeper, etcd, self.floor.then_some(System::FLOOR)];
        let tls = self.tls.then(Tls::new).transpose()?;
        let collector = self.monitored.then(Collector::open).transpose()?;
        let beside_itself = |system: System| {
            let secured = tls.as_ref().and_then(|tls| system.secured(tls));
            let monitored = collector.as_ref().and_then(|collector| system.monitored(collector));
            [Some(system), secured, monitored].into_iter().flatten()
        };
        let systems = std::iter::once(ringkeeper).chain(others.into_iter().flatten());
        Ok(systems.flat_map(beside_itself).map(Subject::Own).collect())
    }

    fn settings(&self) -> Result<Settings> {
        let work_dir = self.work_dir.clone().unwrap_or_else(std::env::temp_dir);
        ensure!(work_dir.is_dir(), "no folder {} (--work-dir)", work_dir.display());
        let cores = std::thread::available_parallelism()?.get();
        let threads = self.threads.unwrap_or_else(|| (cores / 2).max(1));
        let (sizes, sizes_note) = self.sizes(cores);
        if self.port.is_some() && !self.running.is_there() {
            let most = sizes.iter().copied().max().unwrap_or_default().max(failures::SERVERS);
            seats(most, self.port).context("choose others with --port, or leave it to the system without")?;
        }
        let seconds = Duration::from_secs_f64;
        let (conditioning, warmup, window) = if self.quick {
            (seconds(2.0), seconds(0.5), seconds(1.0))
        } else {
            (seconds(5.0), seconds(3.0), seconds(10.0))
        };
        let pace = Pace {
            quick: self.quick,
            runs: self.runs,
            conditioning: self.conditioning.unwrap_or(conditioning),
            warmup: self.warmup.unwrap_or(warmup),
            window: self.seconds.unwrap_or(window),
        };
        Ok(Settings {
            subjects: self.subjects()?,
            sizes,
            sizes_note,
            pace,
            saturation: Saturation {
                sessions: self.sessions,
                outstanding: self.outstanding,
                outstanding_total: self.outstanding_total,
                threads,
                payload_len: self.payload.unwrap_or(PAYLOAD_LEN),
                znodes: self.znodes,
                seed: self.seed.unwrap_or(1),
            },
            reads: self.reads.clone(),
            tree_znodes: self.tree_znodes,
            work_dir,
            port: self.port,
            pids: self.server_pid.clone(),
            generators: None,
        })
    }

    fn sizes(&self, cores: usize) -> (Vec<usize>, Option<String>) {
        if self.running.is_there() {
            return (vec![self.running.addresses().len()], None);
        }
        if !self.sizes.is_empty() {
            return (self.sizes.iter().map(|size| usize::from(*size)).collect(), None);
        }
        let fits = |size: &usize| *size <= (cores * SERVERS_A_CORE).max(SIZES[0]);
        let (sizes, left_out): (Vec<_>, Vec<_>) = SIZES.into_iter().partition(fits);
        let left_out: Vec<String> = left_out.iter().map(ToString::to_string).collect();
        let note = (!left_out.is_empty()).then(|| {
            let left_out = left_out.join(", ");
            format!("Ensembles of {left_out} servers are left out: on {cores} cores, more than {SERVERS_A_CORE} servers a core would measure the scheduler (--sizes measures them all the same).")
        });
        (sizes, note)
    }

    /// Where load is generated; from here on, it is.
    fn place_of_generator(&self, threads: usize) -> Result<String> {
        if self.generators > 1 {
            return Ok(format!("on each of {} machines or processes", self.generators));
        }
        if self.running.is_there() {
            return Ok("on the machine of the harness, wherever the servers are".to_owned());
        }
        let division = Division::of_this_machine(threads)?;
        let place = division.to_string();
        division.install()?;
        Ok(place)
    }

    fn facts(&self, settings: &Settings) -> Result<Vec<(String, String)>> {
        let mut environment = Environment::of_this_run();
        for subject in &settings.subjects {
            match subject.system() {
                Some(system) => system.describe(&mut environment)?,
                None => environment.add("servers", self.running.describe()),
            }
        }
        let Pace { runs, conditioning, warmup, window, quick } = settings.pace;
        environment
            .add("file system", file_system_of(&settings.work_dir).unwrap_or_else(|| "unknown".into()));
        environment.add("pace", if quick { "quick" } else { "full" });
        environment.add("runs", runs);
        let [window, warmup, conditioning] =
            [window, warmup, conditioning].map(|length| length.as_secs_f64());
        environment
            .add("lengths", format!("window {window} s, warm-up {warmup} s, conditioning {conditioning} s"));
        let Saturation { sessions, threads, .. } = settings.saturation;
        let outstanding = settings.saturation.outstanding_each();
        let each = if settings.generators.is_some() { " on each generator" } else { "" };
        environment
            .add("saturating load", format!("{sessions} sessions with {outstanding} outstanding each{each}"));
        let others = format!("each up to {} % of the processors' time", self.others_max);
        environment.add("host and other processes", others);
        environment.add("generator", format!("{threads} thread(s) {}", self.place_of_generator(threads)?));
        Ok(environment.facts().iter().map(|fact| (fact.name.to_owned(), fact.value.clone())).collect())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: PaperArgs,
    }

    fn args(text: &str) -> PaperArgs {
        Cli::parse_from(std::iter::once("paper").chain(text.split_whitespace())).args
    }

    #[test]
    fn small_machines_leave_large_ensembles_out_and_say_so() {
        let (sizes, note) = args("").sizes(2);
        assert_eq!(sizes, [3, 5]);
        assert!(note.unwrap().starts_with("Ensembles of 7, 9, 13 servers are left out: on 2 cores"));
        assert_eq!(args("").sizes(16), (SIZES.to_vec(), None));
        assert_eq!(args("--sizes 7").sizes(2), (vec![7], None));
    }

    #[test]
    fn what_a_generator_that_joins_has_no_say_in_is_refused_by_name() {
        let mut command = <Cli as clap::CommandFactory>::command();
        command.build();
        // Threads, files, and who else computes, are matters of its own machine.
        let own = [
            "servers",
            "join",
            "threads",
            "others_max",
            "tls_trust_store",
            "tls_key_store",
            "tls_password_file",
            "login_file",
            "login_mechanism",
            "help",
        ];
        let others = command.get_arguments().filter(|argument| !own.contains(&argument.get_id().as_str()));
        for argument in others {
            let option = format!("--{}", argument.get_long().unwrap());
            let mut line = vec!["paper", "--servers", "127.0.0.1:2181", "--join", "b", &option];
            let value =
                if matches!(argument.get_id().as_str(), "payload" | "tree_znodes") { "10000" } else { "3" };
            line.extend(argument.get_action().takes_values().then_some(value));
            let error = Cli::try_parse_from(line).map(|cli| cli.args).unwrap_err();
            assert_eq!(error.kind(), clap::error::ErrorKind::ArgumentConflict, "{option}");
            assert!(error.to_string().contains(&option), "{option}: {error}");
        }
    }

    #[test]
    fn an_unknown_experiment_is_refused_with_those_there_are() {
        let error = args("--only fig5,fig99").chosen(&experiment::all()).err().unwrap().to_string();
        assert!(error.contains("\"fig99\"") && error.contains("table2"), "{error}");
    }

    #[test]
    fn experiments_have_ids_of_their_own() {
        let mut ids: Vec<_> = experiment::all().iter().map(|experiment| experiment.plan().id).collect();
        ids.sort_unstable();
        assert!(ids.windows(2).all(|pair| pair[0] != pair[1]), "{ids:?}");
    }
}
