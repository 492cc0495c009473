//! One program at a time, the others waiting in line.
//!
//! ```text
//! cargo run -p ringkeeper-client --example lock -- 127.0.0.1:2181 host-1   # several of these
//! ```

use std::time::Duration;

use ringkeeper_client::recipes::Lock;
use ringkeeper_client::{Client, Result, Wait};

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let (Some(servers), Some(name)) = (args.next(), args.next()) else {
        eprintln!("usage: lock SERVERS NAME");
        std::process::exit(2);
    };
    let client = Client::connect(&servers).wait()?;
    let lock = Lock::new(&client, "/example/lock").with_id(&name);
    let Some(holding) = lock.acquire().wait_timeout(Duration::from_secs(60)) else {
        println!("{name} has waited long enough");
        return client.close().wait();
    };
    let holding = holding?;
    for step in 1..=5 {
        // What the lock protects must refuse tokens smaller than one it has seen: a program that is
        // suspended here does not know that its session has expired.
        if !holding.is_certain() {
            println!("{name} can no longer be sure of the lock");
            break;
        }
        println!("{name} works, step {step}, fenced by {}", holding.fencing_token());
        std::thread::sleep(Duration::from_millis(500));
    }
    holding.release().wait()?;
    client.close().wait()
}
