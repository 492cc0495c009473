//! A configuration of several znodes: nobody reads half a change.

use std::cell::Cell;
use std::rc::Rc;

use ringkeeper_client::Result;
use ringkeeper_client::recipes::ReadyConfiguration;

use super::cast::Role;
use super::desk::Desk;
use super::examiner::Fact;
use crate::random::Random;

const CONFIGURATION: &str = "/configuration";
const ENTRIES: [&str; 3] = ["x", "y", "z"];
/// What its entries say in the end.
const LAST: &[u8] = b"last";

pub(super) fn configurations(random: &mut Random) -> Vec<Role> {
    let changes = Rc::new(Cell::new(0));
    let mut roles = vec![Role::new("configurer", move |desk| configure(desk, Rc::clone(&changes)))];
    roles.extend((0..random.between(1, 2)).map(|_| Role::new("configured", be_configured)));
    roles
}

async fn configure(desk: Desk, changes: Rc<Cell<u64>>) -> Result<()> {
    let configuration = ReadyConfiguration::new(&desk.client, CONFIGURATION);
    loop {
        let is_last = desk.stage.is_healed();
        let number = changes.replace(changes.get() + 1).to_string();
        desk.at(format_args!("makes change {number}"));
        let data = if is_last { LAST } else { number.as_bytes() };
        configuration.change(&ENTRIES.map(|entry| (entry, data)), None).await?;
        desk.done();
        if is_last {
            return Ok(());
        }
        desk.pause().await;
    }
}

async fn be_configured(desk: Desk) -> Result<()> {
    let configuration = ReadyConfiguration::new(&desk.client, CONFIGURATION);
    // Without the znode, nobody can be told of its child.
    desk.lay(CONFIGURATION, b"").await?;
    loop {
        desk.at("reads the configuration");
        let (entries, changing) = configuration.read().await?;
        let is_last = entries.values().all(|data| data == LAST);
        desk.state(Fact::ReadWhole { entries });
        desk.done();
        if is_last {
            return Ok(());
        }
        desk.at("waits for another configuration");
        drop(changing.await?);
    }
}
