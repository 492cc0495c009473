//! What an experiment measures with: systems in turn, runs repeated, every figure recorded with its
//! objections.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use ringkeeper_testkit::interrupt;

use super::experiment::Plan;
use super::layout;
use super::record::{ERROR, Record, Sample};
use super::service::{Service, Subject};
use crate::creates::{CreateLoad, Creates, create_synchronously};
use crate::driver::thread_cpu;
use crate::etcd;
use crate::generators::Generators;
use crate::machine::{Machine, MachineUse, Servers};
use crate::measure::{Load, Measurement, as_f64};
use crate::progress::Progress;
use crate::server_cpu::ServerProcesses;
use crate::window::{Rate, Surroundings};

/// Figures that several experiments have.
pub(crate) const THROUGHPUT: &str = "throughput";
pub(crate) const SERVER_CPU: &str = "server CPU";
pub(crate) const LATENCY_P50: &str = "latency p50";
pub(crate) const LATENCY_P99: &str = "latency p99";
pub(crate) const GENERATOR_CPU: &str = "generator CPU";

/// How long and how often to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Everything smaller, for a look at the shapes.
    pub(crate) quick: bool,
    pub(crate) runs: usize,
    /// Mixed load on fresh servers, so that a JVM has compiled its code.
    pub(crate) conditioning: Duration,
    pub(crate) warmup: Duration,
    pub(crate) window: Duration,
}

impl Pace {
    /// One of two values.
    pub(crate) const fn pick<T: Copy>(&self, quick: T, full: T) -> T {
        if self.quick { quick } else { full }
    }
}

/// The saturating load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Saturation {
    pub(crate) sessions: usize,
    /// Requests outstanding on each session, if `outstanding_total` allows.
    pub(crate) outstanding: usize,
    /// Requests outstanding in all, at most, where there is such a limit.
    pub(crate) outstanding_total: Option<usize>,
    pub(crate) threads: usize,
    /// Size of every value, in bytes.
    pub(crate) payload_len: usize,
    /// Number of znodes, if not one for each session.
    pub(crate) znodes: Option<usize>,
    /// Decides the order of reads and writes.
    pub(crate) seed: u64,
}

/// Size of values, in bytes, as in the paper.
pub(crate) const PAYLOAD_LEN: usize = 1024;

impl Saturation {
    /// Requests outstanding on each of `sessions`.
    pub(crate) fn outstanding_each(&self) -> usize {
        self.outstanding_on(self.sessions)
    }

    /// Requests outstanding on each of so many sessions.
    pub(crate) fn outstanding_on(&self, sessions: usize) -> usize {
        let share = self.outstanding_total.map_or(usize::MAX, |total| total / sessions);
        self.outstanding.min(share).max(1)
    }

    /// A load of `reads_percent` reads.
    pub(crate) fn load(&self, reads_percent: u8, warmup: Duration, window: Duration) -> Load {
        Load {
            sessions: self.sessions,
            outstanding: self.outstanding_each(),
            threads: self.threads,
            payload_len: self.payload_len,
            znodes: self.znodes.unwrap_or(self.sessions),
            reads_percent,
            per_second: None,
            burst: 1,
            warmup,
            window,
            seed: self.seed,
        }
    }
}

/// What the command line decides for all experiments.
pub(crate) struct Settings {
    pub(crate) subjects: Vec<Subject>,
    /// Sizes of ensembles, and why not more of them.
    pub(crate) sizes: Vec<usize>,
    pub(crate) sizes_note: Option<String>,
    pub(crate) pace: Pace,
    pub(crate) saturation: Saturation,
    /// Shares of reads where they are the question, if not those of the experiment.
    pub(crate) reads: Vec<u8>,
    /// Znodes of the trees whose memory, restart and storage are measured, if not those of the experiments.
    pub(crate) tree_znodes: Option<u32>,
    pub(crate) work_dir: PathBuf,
    pub(crate) port: Option<u16>,
    /// Processes of servers that run already; without any, those that listen on their ports.
    pub(crate) pids: Vec<i32>,
    /// Where there are others than this one.
    pub(crate) generators: Option<Generators>,
}

impl Settings {
    /// Starts an ensemble of `servers`, or takes what runs.
    pub(crate) fn serve(&self, subject: &Subject, servers: usize) -> Result<Service> {
        subject.serve(servers, &self.work_dir, self.port, &self.pids)
    }
}

/// Latencies of one window, to be written as they are.
pub(crate) struct Latencies {
    pub(crate) tag: String,
    pub(crate) nanoseconds: Histogram<u64>,
    pub(crate) window: Duration,
}

/// The bench of one experiment.
pub(crate) struct Bench<'s> {
    pub(crate) settings: &'s Settings,
    pub(crate) progress: &'s Progress,
    pub(crate) record: Record,
    pub(crate) latencies: Vec<Latencies>,
    /// The experiment takes etcd too.
    etcd: bool,
    /// And bare servers.
    floor: bool,
    /// And nothing but ringkeeper's builds.
    ringkeeper_alone: bool,
}

impl<'s> Bench<'s> {
    /// An empty record.
    pub(crate) fn new(settings: &'s Settings, progress: &'s Progress, record: Record, plan: &Plan) -> Self {
        let Plan { etcd, floor, ringkeeper_alone, .. } = *plan;
        let mut bench =
            Self { settings, progress, record, latencies: Vec::new(), etcd, floor, ringkeeper_alone };
        if settings.subjects.iter().any(Subject::is_etcd) {
            let left_out = "etcd is left out: its API has nothing that compares with what is measured here.";
            bench.record.notes.push(if etcd { etcd::ABOUT } else { left_out }.to_owned());
        }
        bench
    }

    /// The systems that the experiment measures.
    pub(crate) fn subjects(&self) -> impl Iterator<Item = &'s Subject> + use<'s> {
        let (etcd, floor, alone) = (self.etcd, self.floor, self.ringkeeper_alone);
        let takes_part = move |subject: &&Subject| {
            (etcd || !subject.is_etcd())
                && (floor || !subject.is_floor())
                && (!alone || subject.is_ringkeeper())
        };
        self.settings.subjects.iter().filter(takes_part)
    }

    pub(crate) const fn pace(&self) -> Pace {
        self.settings.pace
    }

    /// Says what is left out and why.
    pub(crate) fn note(&mut self, note: impl Into<String>) {
        let note = note.into();
        self.progress.line(&note);
        self.record.notes.push(note);
    }

    /// Says what is different where etcd is measured, if it is.
    pub(crate) fn note_on_etcd(&mut self, note: &str) {
        if self.subjects().any(Subject::is_etcd) {
            self.record.notes.push(note.to_owned());
        }
    }

    /// The first of the sizes that the machine is fit for: the one to measure where size is not the question.
    pub(crate) fn first_size(&self) -> usize {
        self.settings.sizes.first().copied().unwrap_or(3)
    }

    /// All sizes that the machine is fit for, with a note on the others.
    pub(crate) fn sizes(&mut self) -> Vec<usize> {
        if let Some(note) = self.settings.sizes_note.clone() {
            self.note(note);
        }
        self.settings.sizes.clone()
    }

    /// Has `each` measure every system on fresh ensembles of these sizes, as often as there are runs.
    ///
    /// The systems take turns, so that whatever else the machine does falls on both alike. At the quick pace
    /// the runs of a system follow each other on the same servers, unless ringkeeper is compared with itself:
    /// builds differ by less than this machine does from one minute to the next.
    pub(crate) fn turns(
        &mut self,
        sizes: &[usize],
        mut each: impl FnMut(&mut Turn<'_, 's>) -> Result<()>,
    ) -> Result<()> {
        let setups: Vec<_> = sizes.iter().map(|size| (*size, ())).collect();
        let serve = |settings: &Settings, subject: &Subject, size, ()| settings.serve(subject, size);
        self.turns_on(&setups, serve, |turn, ()| each(turn))
    }

    /// The same on ensembles that `serve` starts: so many servers each, in a setup of the experiment's own.
    pub(crate) fn turns_on<T: Copy>(
        &mut self,
        setups: &[(usize, T)],
        serve: impl Fn(&Settings, &Subject, usize, T) -> Result<Service>,
        mut each: impl FnMut(&mut Turn<'_, 's>, T) -> Result<()>,
    ) -> Result<()> {
        let runs = self.pace().runs;
        let with_itself = self.subjects().filter(|subject| subject.is_ringkeeper()).count() > 1;
        let (starts, runs_a_start) =
            if with_itself { (runs, 1) } else { self.pace().pick((1, runs), (runs, 1)) };
        for start in 0..starts {
            for (size, setup) in setups.iter().copied() {
                for subject in in_order(self.subjects().collect(), start) {
                    let first_run = start * runs_a_start + 1;
                    let runs = first_run..first_run + runs_a_start;
                    self.progress.at(&format!("{}, {size} servers: starting", subject.name()));
                    let served = serve(self.settings, subject, size, setup);
                    self.on_fresh_servers(subject, size, served, runs, &mut |turn| each(turn, setup))?;
                }
            }
        }
        Ok(())
    }

    /// Has `measure` look at each of `subjects` so many times, in turns. It starts what it needs itself;
    /// `describe` gives the system's name, how many servers it has, and what is measured.
    pub(crate) fn alternate<T>(
        &mut self,
        runs: usize,
        subjects: &[T],
        describe: impl Fn(&T) -> (&'static str, usize, String),
        mut measure: impl FnMut(&mut Self, &T, Origin<'_>) -> Result<()>,
    ) -> Result<()> {
        for run in 1..=runs {
            for subject in in_order(subjects.iter().collect(), run - 1) {
                let (system, servers, what) = describe(subject);
                self.progress.at(&format!("run {run}/{runs}, {system}, {what}"));
                if let Err(error) = measure(self, subject, Origin { system, servers, run }) {
                    interrupt::check()?;
                    self.fail(system, servers, run, &error, None);
                }
            }
        }
        Ok(())
    }

    fn on_fresh_servers(
        &mut self,
        subject: &Subject,
        size: usize,
        served: Result<Service>,
        runs: std::ops::Range<usize>,
        each: &mut impl FnMut(&mut Turn<'_, 's>) -> Result<()>,
    ) -> Result<()> {
        let system = subject.name();
        let mut run = runs.start;
        let (service, error) = match served {
            Err(error) => (None, Some(error)),
            Ok(mut service) => {
                let servers = service.addresses().len();
                let conditioned = condition(&service, &self.settings.saturation, self.pace().conditioning);
                let mut error = conditioned.context("conditioning").err();
                while error.is_none() && run < runs.end {
                    let mut turn = Turn { bench: self, service: &mut service, system, servers, run };
                    error = each(&mut turn).err();
                    run += 1;
                }
                if matches!(subject, Subject::Running(_)) && error.is_none() {
                    error = layout::sweep(service.addresses()).context("removing what was laid out").err();
                }
                (Some(service), error)
            }
        };
        let Some(error) = error else { return Ok(()) };
        interrupt::check()?;
        if self.settings.generators.is_some() {
            // The others are at another place by now: there is no way to go on together.
            return Err(error);
        }
        let tails = service.and_then(|service| service.log_tails());
        self.fail(system, size, run.saturating_sub(1).max(runs.start), &error, tails.as_deref());
        Ok(())
    }

    /// Records figures, none of which counts if `invalid` says why.
    pub(crate) fn push(
        &mut self,
        origin: Origin<'_>,
        place: Place<'_>,
        figures: &[Figure<'_>],
        invalid: &str,
    ) {
        if !invalid.is_empty() {
            let Origin { system, servers, run } = origin;
            let line = format!("{system}, {servers} servers, run {run}: does not count: {invalid}");
            self.progress.line(&line);
        }
        let samples = figures.iter().map(|(figure, unit, value)| Sample {
            system: origin.system.to_owned(),
            servers: origin.servers,
            series: place.series.to_owned(),
            x: place.x,
            run: origin.run,
            figure: (*figure).to_owned(),
            unit: (*unit).to_owned(),
            value: Some(*value),
            invalid: invalid.to_owned(),
        });
        self.record.samples.extend(samples);
    }

    /// Records a run that is an error and no result.
    pub(crate) fn fail(
        &mut self,
        system: &str,
        servers: usize,
        run: usize,
        error: &anyhow::Error,
        tails: Option<&str>,
    ) {
        let error = format!("an error, not a result: {error:#}");
        self.progress.line(&format!("{system}, run {run}: {error}"));
        if let Some(tails) = tails.filter(|tails| !tails.trim().is_empty()) {
            self.progress.line(&format!("the servers' outputs end with:\n{tails}"));
        }
        self.record.samples.push(Sample {
            system: system.to_owned(),
            servers,
            series: String::new(),
            x: 0.0,
            run,
            figure: ERROR.to_owned(),
            unit: String::new(),
            value: None,
            invalid: error.replace('\n', " / "),
        });
    }
}

/// What is measured in this turn: forwards in the first one, backwards in the next, so that nobody is
/// always the first.
fn in_order<T>(mut subjects: Vec<T>, turn: usize) -> Vec<T> {
    if turn % 2 == 1 {
        subjects.reverse();
    }
    subjects
}

/// A mixed load on fresh servers, so that a JVM has compiled its code.
pub(crate) fn condition(service: &Service, saturation: &Saturation, length: Duration) -> Result<()> {
    if length.is_zero() {
        return Ok(());
    }
    let load = saturation.load(50, Duration::ZERO, length);
    service.measure(service.addresses(), Surroundings::default(), &load).map(drop)
}

/// What synchronous clients create.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CreateShape {
    pub(crate) payload_len: usize,
    /// Each is deleted while the next one is created.
    pub(crate) delete: bool,
}

/// One run of one system.
pub(crate) struct Turn<'b, 's> {
    pub(crate) bench: &'b mut Bench<'s>,
    pub(crate) service: &'b mut Service,
    pub(crate) system: &'static str,
    servers: usize,
    /// From 1.
    pub(crate) run: usize,
}

/// Whose a figure is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin<'o> {
    pub(crate) system: &'o str,
    pub(crate) servers: usize,
    /// From 1.
    pub(crate) run: usize,
}

/// What servers, machine and this thread did while something was done on it.
pub(crate) struct Around {
    server_cpu: Option<Duration>,
    machine: MachineUse,
    /// Time of this thread on the CPU, as a share of all.
    busy: f64,
}

impl Around {
    /// CPU time of the servers for a million of `operations`, where it can be seen.
    pub(crate) fn server_cpu_figure(&self, operations: u64) -> Option<Figure<'static>> {
        let seconds = self.server_cpu?.as_secs_f64() * 1e6 / as_f64(operations.max(1));
        Some((SERVER_CPU, "s per million operations", seconds))
    }

    /// Why it counts for nothing; empty if it counts.
    pub(crate) fn objections(&self) -> Vec<String> {
        let servers = if self.server_cpu.is_some() { Servers::Here } else { Servers::Elsewhere };
        self.machine.objections(self.busy, servers)
    }
}

/// Where a figure belongs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'p> {
    /// May be empty.
    pub(crate) series: &'p str,
    pub(crate) x: f64,
}

/// A figure's name, unit and value.
pub(crate) type Figure<'f> = (&'f str, &'f str, f64);

impl Turn<'_, '_> {
    pub(crate) const fn pace(&self) -> Pace {
        self.bench.settings.pace
    }

    pub(crate) const fn saturation(&self) -> Saturation {
        self.bench.settings.saturation
    }

    pub(crate) const fn system(&self) -> &'static str {
        self.system
    }

    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        self.service.addresses()
    }

    pub(crate) const fn processes(&self) -> Option<&ServerProcesses> {
        self.service.processes()
    }

    /// How many generators of load there are.
    pub(crate) fn generators(&self) -> usize {
        self.bench.settings.generators.as_ref().map_or(1, Generators::count)
    }

    /// Servers, other generators, and whoever watches.
    pub(crate) fn surroundings(&self) -> Surroundings<'_> {
        Surroundings {
            processes: self.processes(),
            generators: self.bench.settings.generators.as_ref(),
            spectator: Some(self.bench.progress),
        }
    }

    /// Tells whoever watches how much of something is done, and how fast it goes on.
    pub(crate) fn rate(&self, of: &'static str) -> Rate<'_> {
        Rate::new(self.surroundings().spectator, of)
    }

    /// Runs `load` against these of the servers once, through the system's own API.
    pub(crate) fn measure(&self, servers: &[SocketAddr], load: &Load) -> Result<Measurement> {
        // Every run comes at other moments, and reads and writes in another order; those of all systems do
        // alike.
        let load = Load { seed: load.seed.wrapping_add(self.run as u64), ..load.clone() };
        self.undisturbed(|| self.service.measure(servers, self.surroundings(), &load))
    }

    /// Measures again, some times at most, where something else than the load disturbed it. Several
    /// generators do so together: what disturbed one of them, all of them know of.
    pub(crate) fn undisturbed(&self, measure: impl Fn() -> Result<Measurement>) -> Result<Measurement> {
        let mut measured = measure()?;
        for _ in 0..self.pace().pick(1, 2) {
            if !measured.disturbed {
                break;
            }
            let Self { system, servers, run, .. } = self;
            let why = measured.objections.join("; ");
            let line = format!("{system}, {servers} servers, run {run}: measured once more: {why}");
            self.bench.progress.line(&line);
            measured = measure()?;
        }
        Ok(measured)
    }

    /// `clients` of them, each with one create outstanding.
    pub(crate) fn create_synchronously(&self, clients: usize, shape: CreateShape) -> Result<Measurement> {
        let Pace { warmup, window, .. } = self.pace();
        let CreateShape { payload_len, delete } = shape;
        let (servers, around) = (self.addresses(), self.surroundings());
        if self.service.is_etcd() {
            let what = (clients, payload_len, delete);
            return self.undisturbed(|| etcd::create(servers, around, what, (warmup, window)));
        }
        let load = CreateLoad { servers, around, warmup, window };
        let source = |parent: &str| {
            let creates = Creates::new(parent, u32::MAX, payload_len);
            if delete { creates.deleting() } else { creates }
        };
        self.undisturbed(|| create_synchronously(&load, clients, source))
    }

    /// What is measured now, for whoever watches.
    pub(crate) fn at(&self, what: &str) {
        let (run, runs) = (self.run, self.pace().runs);
        let Self { system, servers, .. } = self;
        self.bench.progress.at(&format!("run {run}/{runs}, {system}, {servers} servers, {what}"));
    }

    /// Does something on this thread and looks at servers and machine before and after.
    pub(crate) fn around<T>(&self, act: impl FnOnce(&[SocketAddr]) -> Result<T>) -> Result<(T, Around)> {
        let cpu_time = || self.processes().map(ServerProcesses::cpu_time).transpose();
        let (cpu_before, machine_before) = (cpu_time()?, Machine::now(self.processes()));
        let (began, own_before) = (Instant::now(), thread_cpu());
        let done = act(self.addresses())?;
        let busy = (thread_cpu() - own_before).as_secs_f64() / began.elapsed().as_secs_f64();
        let (cpu_after, machine_after) = (cpu_time()?, Machine::now(self.processes()));
        let server_cpu = cpu_after.zip(cpu_before).map(|(after, before)| after.saturating_sub(before));
        Ok((done, Around { server_cpu, machine: machine_after.since(&machine_before), busy }))
    }

    /// Records figures, none of which counts if there are objections.
    pub(crate) fn record(&mut self, place: Place<'_>, figures: &[Figure<'_>], objections: &[String]) {
        let (system, servers, run) = (self.system, self.servers, self.run);
        self.bench.push(Origin { system, servers, run }, place, figures, &objections.join("; "));
    }

    /// Records throughput, latencies and CPU times of a window, and its latencies as they are.
    pub(crate) fn record_measurement(&mut self, place: Place<'_>, measured: &Measurement) {
        let mut figures = vec![
            (THROUGHPUT, "operations/s", measured.throughput()),
            (LATENCY_P50, "us", measured.latency_us(50.0)),
            ("latency p90", "us", measured.latency_us(90.0)),
            (LATENCY_P99, "us", measured.latency_us(99.0)),
            ("latency p99.9", "us", measured.latency_us(99.9)),
            ("latency p99.99", "us", measured.latency_us(99.99)),
            ("latency max", "us", measured.latency_us(100.0)),
            (GENERATOR_CPU, "% of a core", measured.generator_share() * 100.0),
        ];
        if let Some(cpu) = measured.server_cpu_per_million() {
            figures.push((SERVER_CPU, "s per million operations", cpu));
        }
        self.record(place, &figures, &measured.objections);
        self.log(place, &measured.tally.latencies_ns, measured.window);
        let throughput = super::chart::number(measured.throughput());
        self.bench.progress.result(&format!("{throughput} operations/s"));
    }

    /// Keeps latencies as they are.
    pub(crate) fn log(&mut self, place: Place<'_>, nanoseconds: &Histogram<u64>, window: Duration) {
        let Self { system, servers, run, .. } = self;
        let series = place.series.replace([' ', ','], "_");
        let tag = format!("{system}/{servers}/{series}/{}/run{run}", place.x);
        self.bench.latencies.push(Latencies { tag, nanoseconds: nanoseconds.clone(), window });
    }
}

#[cfg(test)]
mod tests {
    use super::in_order;

    #[test]
    fn nobody_is_always_the_first_in_a_turn() {
        let turns = [0, 1, 2].map(|turn| in_order(vec!["now", "before"], turn));
        assert_eq!(turns, [["now", "before"], ["before", "now"], ["now", "before"]]);
    }
}
