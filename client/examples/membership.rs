//! A group of programs that know of one another.
//!
//! ```text
//! cargo run -p ringkeeper-client --example membership -- 127.0.0.1:2181 host-1
//! cargo run -p ringkeeper-client --example membership -- 127.0.0.1:2181 host-2
//! ```

use ringkeeper_client::recipes::Group;
use ringkeeper_client::{Client, Result, Wait};

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let (Some(servers), Some(name)) = (args.next(), args.next()) else {
        eprintln!("usage: membership SERVERS NAME");
        std::process::exit(2);
    };
    let client = Client::connect(&servers).wait()?;
    let group = Group::new(&client, "/example/members");
    let _membership = group.join(&name).wait()?;
    loop {
        let (members, changed) = group.members_and_watch().wait()?;
        let names: Vec<_> = members.iter().map(|member| String::from_utf8_lossy(&member.data)).collect();
        println!("{} members: {}", names.len(), names.join(", "));
        changed.wait()?;
    }
}
