//! What a writer's part of the tree must look like after any number of its writes.

use std::collections::BTreeMap;

use anyhow::{Result, bail};

/// A write. Numbers grow with every write, so that a value tells which write it is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Write {
    /// Sets one of a few values.
    Set { key: u32, number: u64 },
    /// Makes a sequential znode in the shared directory.
    Sequential { number: u64 },
    /// Makes an ephemeral.
    Ephemeral { number: u64 },
    /// Deletes an ephemeral made earlier.
    DeleteEphemeral { number: u64 },
    /// Sets two values and makes a znode, all or nothing.
    Multi { number: u64 },
}

/// A writer's part of the tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    /// Znodes in the writer's directory: data by name.
    pub(super) nodes: BTreeMap<String, Vec<u8>>,
    /// Numbers of the writer's znodes in the shared directory, in the order of their names.
    pub(super) sequential: Vec<u64>,
}

/// Names of the two values that only a multi sets.
pub(super) const PAIR: [&str; 2] = ["pair-a", "pair-b"];
/// How many names [`Write::Multi`] makes in turn; making one that exists replaces nothing, so it is set.
pub(super) const KEYS: u32 = 8;

impl State {
    /// The state with the znodes that are only ever set.
    pub(super) fn initial() -> Self {
        let names = (0..KEYS).map(key_name).chain(PAIR.map(str::to_owned));
        Self { nodes: names.map(|name| (name, b"0".to_vec())).collect(), sequential: Vec::new() }
    }

    /// The state after one more write.
    pub(super) fn apply(&mut self, write: &Write) {
        let mut put = |name: String, number: u64| self.nodes.insert(name, number.to_string().into_bytes());
        match *write {
            Write::Set { key, number } => drop(put(key_name(key), number)),
            Write::Sequential { number } => self.sequential.push(number),
            Write::Ephemeral { number } => drop(put(ephemeral_name(number), number)),
            Write::DeleteEphemeral { number } => drop(self.nodes.remove(&ephemeral_name(number))),
            Write::Multi { number } => {
                PAIR.iter().for_each(|name| drop(put((*name).to_owned(), number)));
                put(multi_name(number), number);
            }
        }
    }
}

/// Name of a value.
pub(super) fn key_name(key: u32) -> String {
    format!("key-{key}")
}

/// Name of an ephemeral.
pub(super) fn ephemeral_name(number: u64) -> String {
    format!("ephemeral-{number}")
}

/// Name of the znode that a multi makes.
pub(super) fn multi_name(number: u64) -> String {
    format!("multi-{number}")
}

/// How many of `writes` are in `found`: no fewer than were acknowledged, and each whole. `before` is the
/// state before the first of them.
///
/// # Errors
/// No prefix of the writes leads to what was found.
pub(super) fn durable_prefix(
    before: &State,
    writes: &[Write],
    acknowledged: usize,
    found: &State,
) -> Result<usize> {
    let mut state = before.clone();
    writes[..acknowledged].iter().for_each(|write| state.apply(write));
    let after_acknowledged = state.clone();
    for len in acknowledged..=writes.len() {
        if state == *found {
            return Ok(len);
        }
        if let Some(write) = writes.get(len) {
            state.apply(write);
        }
    }
    bail!(
        "{} writes, {acknowledged} acknowledged, and what is there is after none of their prefixes:\n{}",
        writes.len(),
        difference(&after_acknowledged, found)
    )
}

fn difference(wanted: &State, found: &State) -> String {
    let text = |data: Option<&Vec<u8>>| {
        data.map_or_else(|| "nothing".into(), |d| String::from_utf8_lossy(d).into_owned())
    };
    let names: std::collections::BTreeSet<&String> = wanted.nodes.keys().chain(found.nodes.keys()).collect();
    let mut lines: Vec<String> = names
        .into_iter()
        .filter(|name| wanted.nodes.get(*name) != found.nodes.get(*name))
        .map(|name| {
            let (wanted, found) = (wanted.nodes.get(name), found.nodes.get(name));
            format!("  {name}: {} after the acknowledged ones, found {}", text(wanted), text(found))
        })
        .collect();
    if wanted.sequential != found.sequential {
        lines.push(format!("  sequential: {:?}, found {:?}", wanted.sequential, found.sequential));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITES: [Write; 4] = [
        Write::Set { key: 1, number: 1 },
        Write::Sequential { number: 2 },
        Write::Multi { number: 3 },
        Write::Ephemeral { number: 4 },
    ];

    fn after(count: usize) -> State {
        let mut state = State::initial();
        WRITES[..count].iter().for_each(|write| state.apply(write));
        state
    }

    #[test]
    fn unacknowledged_writes_may_or_may_not_be_there() {
        for count in 1..=4 {
            assert_eq!(durable_prefix(&State::initial(), &WRITES, 1, &after(count)).unwrap(), count);
        }
    }

    #[test]
    fn a_lost_acknowledged_write_is_found() {
        assert!(durable_prefix(&State::initial(), &WRITES, 2, &after(1)).is_err());
    }

    #[test]
    fn half_a_multi_is_found() {
        let mut found = after(3);
        found.nodes.insert(PAIR[1].to_owned(), b"0".to_vec());
        assert!(durable_prefix(&State::initial(), &WRITES, 1, &found).is_err());
    }

    #[test]
    fn a_write_out_of_order_is_found() {
        let mut found = after(2);
        found.apply(&WRITES[3]);
        assert!(durable_prefix(&State::initial(), &WRITES, 1, &found).is_err());
    }

    #[test]
    fn a_lost_ephemeral_is_found() {
        let mut found = after(4);
        found.nodes.remove(&ephemeral_name(4));
        assert!(durable_prefix(&State::initial(), &WRITES, 4, &found).is_err());
    }
}
