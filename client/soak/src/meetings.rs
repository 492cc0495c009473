//! A rendezvous: one worker leaves a word and takes it back, another waits for it, and for its end.

use std::sync::Arc;
use std::time::Duration;

use ringkeeper_client::recipes::Rendezvous;
use ringkeeper_client::{CreateMode, Error, Result, Wait};

use crate::soak::{Soak, Team};
use crate::worker::Worker;

const PATH: &str = "/meetings/one";

/// How long the guest waits for a host that may be gone.
const PATIENCE: Duration = Duration::from_secs(2);

/// Two workers.
pub(crate) fn start(soak: &Arc<Soak>, team: &mut Team) {
    team.spawn(soak, format!("{PATH}#host"), |worker| worker.run(receive));
    team.spawn(soak, format!("{PATH}#guest"), |worker| worker.run(come));
}

fn receive(worker: &mut Worker) -> Result<()> {
    worker.at("leaves a word");
    let word = worker.client.session_id().to_string();
    match Rendezvous::new(&worker.client, PATH).announce(word.as_bytes(), CreateMode::Ephemeral).wait() {
        // An earlier session's, until it expires.
        Err(Error::NodeExists(_)) => return Ok(()),
        outcome => outcome?,
    }
    worker.count("words left");
    let pause = worker.random(0..200);
    worker.sleep(pause);
    worker.at("takes its word back");
    worker.retried(|client| match client.delete(PATH, None).wait() {
        Err(Error::NoNode(_)) => Ok(()),
        outcome => outcome,
    })
}

fn come(worker: &mut Worker) -> Result<()> {
    worker.at("comes to meet");
    let meeting = Rendezvous::new(&worker.client, PATH);
    let Some(word) = meeting.meet().wait_timeout(PATIENCE) else { return Ok(()) };
    // It is the name of the session that left it, as long as that is there.
    let word = String::from_utf8_lossy(&word?).into_owned();
    let stat = worker.retried(|client| client.get_data(PATH).wait().map(Some).or_else(none_if_gone))?;
    if let Some((now, stat)) = stat {
        let owner = stat.ephemeral_owner.map(|session| session.to_string());
        if owner.as_deref().map(str::as_bytes) != Some(&now) {
            worker.violation(format_args!("{owner:?} has left {now:?}, before it was {word}"));
        }
    }
    worker.count("words heard");
    if let Some(parted) = meeting.parted().wait_timeout(PATIENCE) {
        parted?;
        worker.count("partings told");
    }
    Ok(())
}

fn none_if_gone<T>(error: Error) -> Result<Option<T>> {
    if matches!(error, Error::NoNode(_)) { Ok(None) } else { Err(error) }
}
