//! Workers that are started before anybody knows where their master will run.
//!
//! ```text
//! cargo run -p ringkeeper-client --example rendezvous -- 127.0.0.1:2181 worker
//! cargo run -p ringkeeper-client --example rendezvous -- 127.0.0.1:2181 master host-1:9000
//! ```

use ringkeeper_client::recipes::Rendezvous;
use ringkeeper_client::{Client, CreateMode, Result, Wait};

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let (Some(servers), Some(role)) = (args.next(), args.next()) else {
        eprintln!("usage: rendezvous SERVERS worker | master ADDRESS");
        std::process::exit(2);
    };
    let client = Client::connect(&servers).wait()?;
    let meeting = Rendezvous::new(&client, "/example/master");
    match (role.as_str(), args.next()) {
        ("master", Some(address)) => {
            // Ephemeral: when this program ends, its workers know.
            meeting.announce(&address, CreateMode::Ephemeral).wait()?;
            println!("announced {address}; press Enter to end");
            // Any end of input is as good as a line.
            let _ = std::io::stdin().read_line(&mut String::new());
            client.close().wait()
        }
        _ => {
            let address = meeting.meet().wait()?;
            println!("the master is at {}", String::from_utf8_lossy(&address));
            meeting.parted().wait()?;
            println!("the master is gone");
            Ok(())
        }
    }
}
