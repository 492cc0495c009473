//! A group whose members come and go: who is in it is seen there, who has left is not.

use std::sync::Arc;
use std::time::Duration;

use ringkeeper_client::recipes::Group;
use ringkeeper_client::{Result, Wait};

use crate::soak::{Soak, Team};
use crate::worker::Worker;

const PATH: &str = "/group";
const MEMBERS: usize = 3;

/// Three workers.
pub(crate) fn start(soak: &Arc<Soak>, team: &mut Team) {
    for number in 0..MEMBERS {
        team.spawn(soak, format!("{PATH}#{number}"), |worker| worker.run(visit));
    }
}

fn visit(worker: &mut Worker) -> Result<()> {
    let group = Group::new(&worker.client, PATH);
    worker.at("joins the group");
    let membership = group.join(worker.name.as_bytes()).wait()?;
    worker.count("memberships");
    for _ in 0..worker.random(1..10) {
        worker.at("looks who is in the group");
        let (members, changed) = group.members_and_watch().wait()?;
        let own = members.iter().find(|member| member.path == membership.path());
        match own {
            Some(own) if own.data == worker.name.as_bytes() => {}
            Some(own) => worker.violation(format_args!("joined as {:?}", own.data)),
            None => {
                worker.at("waits to be told that its membership is lost");
                membership.lost().wait();
                return Ok(());
            }
        }
        let patience = Duration::from_millis(worker.random(1..200));
        if let Some(event) = changed.wait_timeout(patience) {
            event?;
            worker.count("changes of a group told");
        }
    }
    worker.at("leaves the group");
    let path = membership.path().to_owned();
    membership.leave().wait()?;
    if group.members().wait()?.iter().any(|member| member.path == path) {
        worker.violation(format_args!("{path} has left the group, and is in it"));
    }
    Ok(())
}
