//! Transaction logs: `log.<first zxid, hex>`.
//!
//! ```text
//! file     int "ZKLG", int version 2, long dbid, records, zeros
//! record   long Adler-32 of the payload, int length, payload, byte 'B'
//! payload  TxnHeader, the transaction's record, from 3.6 int digest version, long digest of the tree
//! ```
//!
//! Apache allocates files ahead and fills them with zeros, so a length of 0 ends one. It writes the 'B' last:
//! a record without it was being written when the server died, was acknowledged to nobody, and ends the file
//! as well. What has its 'B' and a wrong checksum was changed afterwards: that is an error.

mod txn;

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use ringkeeper_wire::Fault as RecordFault;
use simd_adler32::adler32;

pub use txn::{Create, Txn, TxnDigest, TxnHeader};

use crate::error::{Fault, Flaw, ReadError};
use crate::input::Input;

const MAGIC: [u8; 4] = *b"ZKLG";
const VERSION: i32 = 2;
/// Ends each record.
const END_OF_RECORD: u8 = b'B';

/// One transaction of a log.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Who asked for it, its zxid and its time.
    pub header: TxnHeader,
    /// What it does.
    pub txn: Txn,
    /// What Apache's digest of the tree was after it.
    pub digest: Option<TxnDigest>,
}

/// How a log ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// After a whole record.
    Whole,
    /// In a record that was being written when the server died.
    Torn {
        /// Where it begins.
        offset: u64,
    },
}

/// Reads a log from its beginning.
pub struct TxnLog {
    file: PathBuf,
    input: Input<BufReader<File>>,
    tail: Option<Tail>,
}

impl TxnLog {
    /// Opens a log. An empty file, which a server leaves that died while it was beginning one, has no
    /// transactions.
    ///
    /// # Errors
    /// The file cannot be read, or is no such log.
    pub fn open(file: impl Into<PathBuf>) -> Result<Self, ReadError> {
        let file = file.into();
        let opened = File::open(&file).and_then(|opened| Ok((opened.metadata()?.len(), opened)));
        let (len, opened) =
            opened.map_err(|error| Flaw { offset: 0, what: Fault::Io(error) }.in_file(&file))?;
        let mut input = Input::new(BufReader::with_capacity(1 << 16, opened));
        let mut tail = None;
        if len == 0 {
            tail = Some(Tail::Whole);
        } else {
            let header = input.file_header("transaction log", MAGIC, VERSION);
            header.map_err(|flaw| flaw.in_file(&file))?;
        }
        Ok(Self { file, input, tail })
    }

    /// The file.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The next transaction; `None` at the end.
    ///
    /// # Errors
    /// What comes next is damaged, or of no known kind.
    pub fn read(&mut self) -> Result<Option<Entry>, ReadError> {
        if self.tail.is_some() {
            return Ok(None);
        }
        let start = self.input.offset();
        let step = next(&mut self.input).map_err(|flaw| flaw.in_file(&self.file))?;
        match step {
            Step::Record { payload_at, payload } => Entry::decode(&payload).map(Some).map_err(|flaw| {
                Flaw { offset: payload_at + flaw.offset, what: flaw.what }.in_file(&self.file)
            }),
            Step::End => {
                self.tail = Some(Tail::Whole);
                Ok(None)
            }
            Step::Torn => {
                self.tail = Some(Tail::Torn { offset: start });
                Ok(None)
            }
        }
    }

    /// How it ended; `None` before the end.
    #[must_use]
    pub const fn tail(&self) -> Option<Tail> {
        self.tail
    }
}

enum Step {
    Record { payload_at: u64, payload: Vec<u8> },
    End,
    Torn,
}

fn next(input: &mut Input<impl std::io::Read>) -> Result<Step, Flaw> {
    let start = input.offset();
    let checksum = match input.i64() {
        Err(Flaw { what: Fault::EndOfFile, .. }) if input.offset() == start => return Ok(Step::End),
        checksum => checksum,
    };
    let read = checksum.and_then(|checksum| {
        let len_at = input.offset();
        let len = input.i32()?;
        if len == 0 {
            return Ok(None);
        }
        let claimed = u64::try_from(len)
            .map_err(|_| Flaw { offset: len_at, what: RecordFault::NegativeLength(len).into() })?;
        let payload_at = input.offset();
        let payload = input.bytes(claimed)?;
        let [end] = input.array()?;
        Ok(Some((checksum, payload_at, payload, end)))
    });
    let (checksum, payload_at, payload, end) = match read {
        Ok(Some(record)) => record,
        Ok(None) => return Ok(Step::End),
        Err(Flaw { what: Fault::EndOfFile, .. }) => return Ok(Step::Torn),
        Err(flaw) => return Err(flaw),
    };
    if end != END_OF_RECORD {
        return Ok(Step::Torn);
    }
    if checksum != i64::from(adler32(&payload.as_slice())) {
        return Err(Flaw { offset: start, what: Fault::Checksum });
    }
    Ok(Step::Record { payload_at, payload })
}
