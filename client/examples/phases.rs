//! A job in two phases, as MapReduce has them: nobody reduces before all have mapped.
//!
//! ```text
//! cargo run -p ringkeeper-client --example phases -- 127.0.0.1:2181 4
//! ```

use std::time::Duration;

use ringkeeper_client::recipes::OrderedBarrier;
use ringkeeper_client::{Client, Result, Wait};

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let (Some(servers), Some(Ok(size))) = (args.next(), args.next().map(|size| size.parse())) else {
        eprintln!("usage: phases SERVERS WORKERS");
        std::process::exit(2);
    };
    // Each of these threads could be a program on a machine of its own.
    let workers: Vec<_> = (0..size)
        .map(|number| {
            let servers = servers.clone();
            std::thread::spawn(move || work(&servers, number, size))
        })
        .collect();
    workers.into_iter().try_for_each(|worker| worker.join().expect("a worker does not panic"))
}

fn work(servers: &str, number: u64, size: u64) -> Result<()> {
    let client = Client::connect(servers).wait()?;
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    for phase in ["map", "reduce"] {
        let barrier = OrderedBarrier::new(&client, &format!("/example/job/{phase}"), size);
        let inside = barrier.enter(&format!("worker {number}")).wait()?;
        println!("worker {number}: {phase}");
        std::thread::sleep(Duration::from_millis(100 * number));
        barrier.leave(inside).wait()?;
        println!("worker {number}: all have done their {phase}");
    }
    client.close().wait()
}
