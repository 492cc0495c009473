//! Locks: two without herd effect, a simple one, one with readers, and one whose holders are asked for it.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use ringkeeper_client::recipes::{Holding, Lock, Revocable, RevocableLock, RwLock, SimpleLock};
use ringkeeper_client::{Client, Result, Wait};

use crate::fence::{Fence, Step};
use crate::soak::{Soak, Team};
use crate::worker::Worker;

/// Where the locks are.
pub(crate) const PATHS: [&str; 5] =
    ["/locks/a", "/locks/b", "/locks/simple", "/locks/rw", "/locks/revocable"];

/// How long a reader keeps what nobody asks for.
const KEEP_MAX: Duration = Duration::from_secs(1);

/// How a worker comes to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Line,
    Simple,
    Writer,
    Reader,
    /// Writes when its turn comes.
    PatientWriter,
    /// Asks those before it to give the lock up.
    RevokingWriter,
    /// Reads until it is asked.
    RevocableReader,
}

/// What a worker holds.
enum Held {
    Firmly(Holding),
    OnDemand(Revocable),
}

impl Held {
    async fn release(self) -> Result<()> {
        match self {
            Self::Firmly(holding) => holding.release().await,
            Self::OnDemand(holding) => holding.release().await,
        }
    }
}

impl Deref for Held {
    type Target = Holding;

    fn deref(&self) -> &Holding {
        match self {
            Self::Firmly(holding) => holding,
            Self::OnDemand(holding) => holding,
        }
    }
}

/// Twenty workers on five locks.
pub(crate) fn start(soak: &Arc<Soak>, client: &Client, team: &mut Team) -> Result<Vec<Arc<Fence>>> {
    let crews = [
        vec![Kind::Line; 4],
        vec![Kind::Line; 4],
        vec![Kind::Simple; 3],
        vec![Kind::Writer, Kind::Writer, Kind::Writer, Kind::Reader, Kind::Reader],
        vec![Kind::PatientWriter, Kind::RevokingWriter, Kind::RevocableReader, Kind::RevocableReader],
    ];
    let mut fences = Vec::new();
    for (path, crew) in PATHS.into_iter().zip(crews) {
        let fence = Arc::new(Fence::new(client, path.rsplit('/').next().unwrap_or(path))?);
        for (number, kind) in crew.into_iter().enumerate() {
            let fence = Arc::clone(&fence);
            team.spawn(soak, format!("{path}#{number}"), move |worker| {
                worker.run(|worker| turn(worker, path, kind, &fence));
            });
        }
        fences.push(fence);
    }
    Ok(fences)
}

/// Acquires, does a few steps, releases. Now and then it gives up waiting.
fn turn(worker: &mut Worker, path: &str, kind: Kind, fence: &Fence) -> Result<()> {
    // Long enough for most, and too short for some.
    let patience = (worker.random(0..5) == 0).then(|| Duration::from_millis(worker.random(1..60)));
    worker.at(format_args!("waits for {path} as {kind:?}"));
    let Some(holding) = acquire(worker, path, kind, patience)? else {
        worker.count("lock waits given up");
        return Ok(());
    };
    if let (Kind::RevocableReader, Held::OnDemand(holding)) = (kind, &holding) {
        worker.at(format_args!("keeps {} until it is asked for it", holding.path()));
        if let Some(asked) = holding.revoked().wait_timeout(KEEP_MAX) {
            asked?;
            worker.count("locks asked for and given up");
        }
    }
    if matches!(kind, Kind::Reader | Kind::RevocableReader) {
        read(worker, &holding, fence)?
    } else {
        write(worker, &holding, fence)?
    }
    worker.at(format_args!("releases {path}"));
    holding.release().wait()
}

fn acquire(worker: &Worker, path: &str, kind: Kind, patience: Option<Duration>) -> Result<Option<Held>> {
    let client = &worker.client;
    let waiting = async {
        let revocable = RevocableLock::new(client, path);
        let holding = match kind {
            Kind::Line => Lock::new(client, path).with_id(&worker.name).acquire().await,
            Kind::Simple => SimpleLock::new(client, path).acquire().await,
            Kind::Writer => RwLock::new(client, path).write().await,
            Kind::Reader => RwLock::new(client, path).read().await,
            Kind::PatientWriter => return revocable.write().await.map(Held::OnDemand),
            Kind::RevokingWriter => return revocable.write_revoking().await.map(Held::OnDemand),
            Kind::RevocableReader => return revocable.read().await.map(Held::OnDemand),
        };
        holding.map(Held::Firmly)
    };
    match patience {
        Some(patience) => waiting.wait_timeout(patience).transpose(),
        None => waiting.wait().map(Some),
    }
}

fn write(worker: &mut Worker, holding: &Holding, fence: &Fence) -> Result<()> {
    worker.count("locks held");
    for _ in 0..=worker.random(0..4) {
        worker.at(format_args!("writes under {}", holding.path()));
        if fence.step(worker, holding)? == Step::Lost {
            worker.at(format_args!("waits to be told that {} is lost", holding.path()));
            drop(holding.lost().wait());
            worker.count("locks lost while held, and the holder told");
            return Ok(());
        }
        let pause = worker.random(0..20);
        worker.sleep(pause);
    }
    Ok(())
}

/// While a reader holds, nobody writes.
fn read(worker: &mut Worker, holding: &Holding, fence: &Fence) -> Result<()> {
    worker.count("locks held for reading");
    worker.at(format_args!("reads under {}", holding.path()));
    let (_, _, before) = fence.read(worker)?;
    let pause = worker.random(0..20);
    worker.sleep(pause);
    let (_, token, after) = fence.read(worker)?;
    let own = worker.retried(|client| client.exists(holding.path()).wait())?;
    let still_held = own.is_some_and(|stat| stat.czxid == holding.fencing_token());
    if still_held && before.version != after.version {
        worker.violation(format_args!(
            "{}: {token:#x} wrote while a reader held, fenced by {}",
            holding.path(),
            holding.fencing_token()
        ));
    }
    Ok(())
}
