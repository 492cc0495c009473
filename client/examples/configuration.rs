//! A configuration that its readers follow.
//!
//! ```text
//! cargo run -p ringkeeper-client --example configuration -- 127.0.0.1:2181 read
//! cargo run -p ringkeeper-client --example configuration -- 127.0.0.1:2181 write 'threads = 8'
//! ```

use ringkeeper_client::recipes::Configuration;
use ringkeeper_client::{Client, Result, Wait};

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let (Some(servers), Some(command)) = (args.next(), args.next()) else {
        eprintln!("usage: configuration SERVERS read | write TEXT");
        std::process::exit(2);
    };
    let client = Client::connect(&servers).wait()?;
    let configuration = Configuration::new(&client, "/example/configuration");
    match (command.as_str(), args.next()) {
        ("write", Some(text)) => {
            let stat = configuration.write(text, None).wait()?;
            println!("written as version {}", stat.version);
        }
        _ => {
            let mut updates = configuration.updates();
            loop {
                match updates.next().wait()? {
                    Some((text, stat)) => {
                        println!("version {}: {}", stat.version, String::from_utf8_lossy(&text));
                    }
                    None => println!("no configuration yet"),
                }
            }
        }
    }
    Ok(())
}
