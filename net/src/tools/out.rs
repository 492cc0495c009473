//! What a tool says: lines and tables for people, or JSON for programs, one object a line.

use std::fmt::Display;
use std::io::{self, BufWriter, StdoutLock, Write};

use serde_json::Value;

use super::ToolError;

/// The output of a tool.
pub(super) struct Out {
    writer: BufWriter<StdoutLock<'static>>,
    json: bool,
}

impl Out {
    /// Text, or JSON lines.
    pub(super) fn new(json: bool) -> Self {
        Self { writer: BufWriter::new(io::stdout().lock()), json }
    }

    /// A line for people; nothing in JSON.
    pub(super) fn line(&mut self, line: impl Display) -> Result<(), ToolError> {
        if self.json {
            return Ok(());
        }
        writeln!(self.writer, "{line}").map_err(ToolError::Output)
    }

    /// An object for programs; nothing in text.
    pub(super) fn object(&mut self, object: impl FnOnce() -> Value) -> Result<(), ToolError> {
        if !self.json {
            return Ok(());
        }
        writeln!(self.writer, "{}", object()).map_err(ToolError::Output)
    }

    /// Rows under a heading, each column as wide as it needs; columns whose heading begins with `>` are
    /// aligned to the right. Only for people.
    pub(super) fn table<const N: usize>(
        &mut self,
        heading: [&str; N],
        rows: &[[String; N]],
    ) -> Result<(), ToolError> {
        let right = heading.map(|name| name.starts_with('>'));
        let heading = heading.map(|name| name.trim_start_matches('>').to_owned());
        let mut widths = [0; N];
        for row in std::iter::once(&heading).chain(rows) {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        for row in std::iter::once(&heading).chain(rows) {
            let cells = row.iter().zip(widths).zip(right).map(|((cell, width), right)| match right {
                true => format!("{cell:>width$}"),
                false => format!("{cell:<width$}"),
            });
            self.line(cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        Ok(())
    }

    /// Shows what was said so far.
    pub(super) fn flush(&mut self) -> Result<(), ToolError> {
        self.writer.flush().map_err(ToolError::Output)
    }
}

/// Text from a client, which may hold anything, on a line of a terminal.
pub(crate) fn printable(text: &str) -> String {
    if text.chars().any(char::is_control) { text.escape_debug().to_string() } else { text.to_owned() }
}

/// A zxid as everything here prints it.
pub(super) fn hex(zxid: u64) -> String {
    format!("{zxid:#x}")
}
