//! A master with workers, as Katta has it: any node may become the master; the master gives shards to the
//! workers that are alive, and when it fails, another takes over.
//!
//! ```text
//! cargo run -p ringkeeper-client --example master_workers -- 127.0.0.1:2181 node-1   # several of these
//! ```

use std::pin::{Pin, pin};
use std::task::Poll;

use ringkeeper_client::recipes::{Configuration, Election, Group, Holding, Member};
use ringkeeper_client::{Client, Error, Result, Wait};

const SHARDS: usize = 12;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let (Some(servers), Some(name)) = (args.next(), args.next()) else {
        eprintln!("usage: master_workers SERVERS NAME");
        std::process::exit(2);
    };
    let client = Client::connect(&servers).wait()?;
    let candidate = client.clone();
    let election_name = name.clone();
    let master = std::thread::spawn(move || run_master(&candidate, &election_name).wait());
    let worked = run_worker(&client, &name).wait();
    client.close().wait()?;
    // The worker's end is the session's, and so the master's.
    drop(master.join());
    worked
}

/// A worker shows that it is alive, and follows the assignment.
async fn run_worker(client: &Client, name: &str) -> Result<()> {
    let _membership = Group::new(client, "/example/workers").join(name).await?;
    let mut updates = Configuration::new(client, "/example/assignment").updates();
    loop {
        let Some((text, _)) = updates.next().await? else { continue };
        let text = String::from_utf8_lossy(&text);
        let mine = text.lines().filter_map(|line| line.split_once(' ')).filter(|(_, worker)| *worker == name);
        println!("{name} serves shards {:?}", mine.map(|(shard, _)| shard).collect::<Vec<_>>());
    }
}

/// Waits to become the master, and is one until it is no longer sure to be.
async fn run_master(client: &Client, name: &str) -> Result<()> {
    loop {
        let leadership = Election::new(client, "/example/election", name).lead().await?;
        println!("{name} is the master, fenced by {}", leadership.fencing_token());
        let mut lost = pin!(leadership.lost());
        let mut assigning = pin!(assign(client, &leadership));
        // Whichever ends first; a runtime's `select!` does the same.
        let ended = std::future::poll_fn(|cx| match lost.as_mut().poll(cx) {
            Poll::Ready(loss) => Poll::Ready(Ok(loss)),
            Poll::Pending => Pin::new(&mut assigning)
                .poll(cx)
                .map(|assigned: Result<()>| Err(assigned.err().unwrap_or(Error::Closed))),
        });
        match ended.await {
            Ok(loss) => println!("{name} is no longer the master: {loss:?}"),
            Err(error) if error.is_session_end() => return Err(error),
            Err(error) => println!("{name} resigns: {error}"),
        }
    }
}

/// Gives the shards to whoever is alive, again and again.
async fn assign(client: &Client, leadership: &Holding) -> Result<()> {
    let workers = Group::new(client, "/example/workers");
    let assignment = "/example/assignment";
    client.ensure_path(assignment).await?;
    loop {
        let (members, changed) = workers.members_and_watch().await?;
        let text = assignment_of(&members);
        // Written only as long as this one leads.
        let transaction = client.transaction().check(leadership.path(), None);
        match transaction.set_data(assignment, text, None).commit().await {
            Ok(_) => drop(changed.await?),
            // Written or not: the next attempt writes the same, or what is right by then.
            Err(error) if error.is_connection() => client.connected().await?,
            Err(error) => return Err(error),
        }
    }
}

fn assignment_of(members: &[Member]) -> String {
    let mut names: Vec<_> = members.iter().map(|member| String::from_utf8_lossy(&member.data)).collect();
    names.sort();
    let workers = names.iter().cycle().take(if names.is_empty() { 0 } else { SHARDS });
    workers.enumerate().map(|(shard, worker)| format!("{shard} {worker}\n")).collect()
}
