//! The table of servers and their roles.

use std::fmt::Write;

use super::members::{Condition, Row};

/// What the user sees.
#[derive(Default)]
pub(super) struct Shown {
    rows: Vec<Row>,
    lines: usize,
}

impl Shown {
    /// The text to print now. With `in_place` it overwrites the table shown before, at every change;
    /// otherwise a new table is printed when a server's role changes, and not at each transaction.
    pub(super) fn update(&mut self, rows: &[Row], in_place: bool) -> String {
        let changed = if in_place { self.rows != rows } else { parts(&self.rows) != parts(rows) };
        if !changed {
            return String::new();
        }
        let mut text = String::new();
        if in_place && self.lines > 0 {
            // Up to the table's first line, and clear from there.
            let _ = write!(text, "\x1b[{}A\x1b[J", self.lines);
        }
        let table = table(rows);
        self.lines = table.lines().count();
        self.rows = rows.to_vec();
        text + &table
    }
}

fn part(condition: &Condition) -> String {
    match condition {
        Condition::Serving { mode, .. } => mode.clone(),
        Condition::NotServing => "no quorum".to_owned(),
        Condition::Silent => "no answer".to_owned(),
        Condition::Ended(status) => format!("ended ({status})"),
    }
}

fn parts(rows: &[Row]) -> Vec<String> {
    rows.iter().map(|row| part(&row.condition)).collect()
}

fn table(rows: &[Row]) -> String {
    let mut text = format!(
        "{:<7} {:<16} {:<8} {:<12} {:<16} connections\n",
        "server", "clients at", "pid", "part", "zxid"
    );
    for row in rows {
        let (zxid, connections) = match &row.condition {
            Condition::Serving { zxid, connections, .. } => (zxid.as_str(), connections.as_str()),
            _ => ("", ""),
        };
        let part = part(&row.condition);
        let line = format!(
            "{:<7} {:<16} {:<8} {part:<12} {zxid:<16} {connections}",
            row.id,
            row.client.to_string(),
            row.pid
        );
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: u64, mode: &str, zxid: &str) -> Row {
        let client = "127.0.0.1:2181".parse().expect("an address");
        let (mode, zxid, connections) = (mode.to_owned(), zxid.to_owned(), "0".to_owned());
        Row { id, client, pid: 77, condition: Condition::Serving { mode, zxid, connections } }
    }

    #[test]
    fn a_log_gets_a_table_when_a_part_changes_and_a_terminal_whenever_anything_does() {
        let (before, later) = ([row(1, "leader", "0x1")], [row(1, "leader", "0x2")]);
        let (mut log, mut terminal) = (Shown::default(), Shown::default());
        assert!(log.update(&before, false).contains("leader"));
        assert_eq!(log.update(&later, false), "");
        assert!(log.update(&[row(1, "follower", "0x2")], false).contains("follower"));

        assert!(!terminal.update(&before, true).contains('\x1b'));
        assert!(terminal.update(&later, true).starts_with("\x1b[2A\x1b[J"));
        assert_eq!(terminal.update(&later, true), "");
    }
}
