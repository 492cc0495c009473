//! Configurations: in one znode, and in several that change as a whole. One worker changes each, two read it.

use std::sync::Arc;
use std::time::Duration;

use ringkeeper_client::recipes::{Configuration, ReadyConfiguration};
use ringkeeper_client::{Result, Wait, Zxid};

use crate::soak::{Soak, Team};
use crate::worker::Worker;

const ONE: &str = "/configurations/one";
const WHOLE: &str = "/configurations/whole";
const ENTRIES: [&str; 3] = ["a", "b", "c"];
const READERS: usize = 2;

/// How long a reader waits for what may not come: nobody changes anything, or who changed it is gone.
const PATIENCE: Duration = Duration::from_millis(500);

/// Six workers.
pub(crate) fn start(soak: &Arc<Soak>, team: &mut Team) {
    let mut number = 0;
    team.spawn(soak, format!("{ONE}#writer"), move |worker| {
        worker.run(|worker| write(worker, &mut number));
    });
    let mut number = 0;
    team.spawn(soak, format!("{WHOLE}#writer"), move |worker| {
        worker.run(|worker| change(worker, &mut number));
    });
    for reader in 0..READERS {
        team.spawn(soak, format!("{ONE}#reader-{reader}"), |worker| worker.run(follow));
        team.spawn(soak, format!("{WHOLE}#reader-{reader}"), |worker| worker.run(read));
    }
}

fn write(worker: &mut Worker, number: &mut u64) -> Result<()> {
    *number += 1;
    worker.at(format_args!("writes {ONE}"));
    Configuration::new(&worker.client, ONE).write(number.to_string().as_bytes(), None).wait()?;
    worker.count("configurations written");
    Ok(())
}

/// Follows the updates, and compares them with reads: what a read has shown is told, too.
fn follow(worker: &mut Worker) -> Result<()> {
    let configuration = Configuration::new(&worker.client, ONE);
    let mut updates = configuration.updates();
    let mut told = Told::default();
    for _ in 0..worker.random(5..50) {
        worker.at(format_args!("waits for an update of {ONE}"));
        if let Some(update) = updates.next().wait_timeout(PATIENCE) {
            told.check(worker, update?);
        }
        let read = configuration.read().wait()?;
        while read.as_ref().is_some_and(|(_, stat)| Some(stat.mzxid) > told.zxid) {
            worker.at(format_args!("waits for an update of {ONE} that it has read already"));
            told.check(worker, updates.next().wait()?);
        }
    }
    Ok(())
}

#[derive(Default)]
struct Told {
    zxid: Option<Zxid>,
    number: u64,
}

impl Told {
    /// Nobody deletes it, and the numbers grow.
    fn check(&mut self, worker: &Worker, update: Option<(Vec<u8>, ringkeeper_client::Stat)>) {
        let Some((text, stat)) = update else {
            // Before the first write, or on a server that does not have it yet.
            if self.zxid.is_some() {
                worker.violation(format_args!("{ONE} was told to be gone"));
            }
            return;
        };
        let number = String::from_utf8_lossy(&text).parse().unwrap_or_default();
        if Some(stat.mzxid) <= self.zxid || number <= self.number {
            worker.violation(format_args!(
                "{ONE}: {number} of {} was told after {} of {:?}",
                stat.mzxid, self.number, self.zxid
            ));
        }
        (self.zxid, self.number) = (Some(stat.mzxid), number);
        worker.count("configurations told");
    }
}

fn change(worker: &mut Worker, number: &mut u64) -> Result<()> {
    *number += 1;
    let text = number.to_string();
    let entries = ENTRIES.map(|name| (name, text.as_bytes()));
    worker.at(format_args!("changes {WHOLE}"));
    ReadyConfiguration::new(&worker.client, WHOLE).change(&entries, None).wait()?;
    worker.count("whole configurations changed");
    // So that readers find it whole now and then.
    let pause = worker.random(0..50);
    worker.sleep(pause);
    Ok(())
}

fn read(worker: &mut Worker) -> Result<()> {
    worker.at(format_args!("reads {WHOLE}"));
    let configuration = ReadyConfiguration::new(&worker.client, WHOLE);
    let mut last = 0;
    for _ in 0..worker.random(5..50) {
        let Some(read) = configuration.read().wait_timeout(PATIENCE) else { continue };
        let (entries, _) = read?;
        let numbers: Vec<u64> =
            entries.values().filter_map(|text| String::from_utf8_lossy(text).parse().ok()).collect();
        if numbers.len() != ENTRIES.len() || numbers.iter().any(|number| *number != numbers[0]) {
            worker.violation(format_args!("{WHOLE} is half changed: {entries:?}"));
        } else if numbers[0] < last {
            worker.violation(format_args!("{WHOLE}: {} was read after {last}", numbers[0]));
        } else {
            last = numbers[0];
        }
        worker.count("whole configurations read");
        let pause = worker.random(0..20);
        worker.sleep(pause);
    }
    Ok(())
}
