//! Where answers go: as text for people, or as JSON for programs, one object a line.

use std::io::{self, Write};

use serde_json::Value;

/// The output of commands.
pub(crate) struct Out<'w> {
    writer: &'w mut dyn Write,
    json: bool,
}

impl<'w> Out<'w> {
    /// Text, or JSON lines.
    pub(crate) fn new(writer: &'w mut dyn Write, json: bool) -> Self {
        Self { writer, json }
    }

    /// Whether answers are JSON.
    pub(crate) const fn is_json(&self) -> bool {
        self.json
    }

    /// One answer, or one part of an answer in parts. Empty text is not shown; nor is an object that is null.
    pub(crate) fn put(&mut self, text: &str, json: impl FnOnce() -> Value) -> io::Result<()> {
        if self.json {
            match json() {
                Value::Null => Ok(()),
                value => writeln!(self.writer, "{value}"),
            }
        } else if text.is_empty() {
            Ok(())
        } else {
            writeln!(self.writer, "{text}")
        }
    }

    /// Bytes as they are, and the end of a line. Only for text.
    pub(crate) fn put_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.writer.write_all(bytes)?;
        self.writer.write_all(b"\n")
    }
}
