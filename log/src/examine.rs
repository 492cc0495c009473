//! Examines all files of a log, damaged or not: for the tools of a stopped server.
//!
//! Recovery stops at the first damage, and decides whether there is any ([`Examination::verdict`]). An
//! examination continues behind the damage. The chain of the frames' checksums tells whether readable frames
//! there belong to the same history:
//!
//! ```text
//! frames    1 2 3 4   . . .   8 9 10        one fragment ends with 4, the next one begins after 7: 5 to 7 are lost
//! frames    1 2 3 4  (group)  5 6  7        a harmed group header: 5 continues 4, nothing is lost, one fragment
//! ```
//!
//! Nothing is written.

mod chain;
mod walk;

use std::fmt;
use std::ops::ControlFlow;

use ringkeeper_wire::Zxid;

use crate::error::OpenError;
use crate::frame::LogPosition;
use crate::frame::{Frame, FrameError};
use crate::group::Home;
use crate::recover::{self, Recovered};
use crate::segment::{Identity, file_name};
use crate::storage::Storage;
use crate::wal::Options;
use walk::Walk;

/// The role of a file in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A part of the history.
    Live,
    /// A part of the history whose first block is damaged.
    Headless,
    /// Formerly a part of the history; a later segment has truncated it.
    Void,
    /// A spare for a later segment.
    Waiting,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Live => "live",
            Self::Headless => "headless",
            Self::Void => "void",
            Self::Waiting => "waiting",
        })
    }
}

/// A file of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its name.
    pub file: String,
    /// The number in its name.
    pub sequence: u64,
    /// Its length in bytes.
    pub size_bytes: u64,
    /// Bytes from its beginning to the end of the last group of the history.
    pub used_bytes: u64,
    /// What it is.
    pub role: Role,
    /// The last zxid before it, as far as that is known.
    pub after_zxid: Zxid,
    /// The last zxid in it that can be read; `after_zxid` if there is none.
    pub last_zxid: Zxid,
    /// Groups that can be read.
    pub groups: u64,
    /// Frames that can be read.
    pub frames: u64,
}

/// The kind of damage at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The file's first block is not a segment's header.
    SegmentHeader,
    /// A group is expected, and there is no valid group header.
    GroupHeader,
    /// A group of another segment or of an earlier use of the file.
    Stray,
    /// A frame is harmed.
    Frame(FrameError),
    /// A frame does not continue the one before it.
    Chain,
    /// The group's count of frames or bytes does not fit its frames.
    Count,
    /// The file, which a later one continues, is missing.
    Missing,
    /// The history ends before the place where the next segment continues it.
    Short,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SegmentHeader => f.write_str("the segment's header is not as it was written"),
            Self::GroupHeader => f.write_str("a group's header is not as it was written"),
            Self::Stray => f.write_str("a group that belongs elsewhere"),
            Self::Frame(error) => write!(f, "{error}"),
            Self::Chain => f.write_str("a frame that does not continue the one before it"),
            Self::Count => f.write_str("a group that does not end with its last frame"),
            Self::Missing => f.write_str("the file is missing"),
            Self::Short => f.write_str("the history ends before the next segment continues it"),
        }
    }
}

/// A damaged place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Name of the file.
    pub file: String,
    /// Where in it, in bytes.
    pub offset: u64,
    /// What is wrong there.
    pub fault: Fault,
    /// The last sound zxid in front of it.
    pub after_zxid: Zxid,
    /// The last zxid that is lost by it; `after_zxid` if none is.
    pub until_zxid: Zxid,
}

impl Damage {
    /// Whether transactions are lost by it.
    #[must_use]
    pub fn loses(&self) -> bool {
        self.until_zxid > self.after_zxid
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, offset, fault, after_zxid, until_zxid } = self;
        write!(f, "{file} at offset {offset}, after zxid {after_zxid}: {fault}; ")?;
        if self.loses() {
            write!(f, "transactions after zxid {after_zxid} up to {until_zxid} are lost here")
        } else {
            f.write_str("no transaction is lost here")
        }
    }
}

/// A part of the history in which each frame continues the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// What its first frame continues.
    pub after: LogPosition,
    /// Its end.
    pub last: LogPosition,
}

/// The result of an examination.
#[derive(Debug)]
pub struct Examination {
    /// All files of the log, by their numbers.
    pub segments: Vec<Segment>,
    /// All damage, in the order of the history.
    pub damages: Vec<Damage>,
    /// The history, without what is lost. The first begins where the log begins.
    pub fragments: Vec<Fragment>,
    /// The last zxid of which there is any trace.
    pub last_known_zxid: Zxid,
    /// What recovery finds, or why it refuses the log.
    pub verdict: Result<Recovered, OpenError>,
}

impl Examination {
    /// Where the log begins.
    #[must_use]
    pub fn base(&self) -> LogPosition {
        self.fragments.first().map(|first| first.after).unwrap_or_default()
    }
}

/// Where a frame lies.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// Name of the file.
    pub file: &'a str,
    /// Where in it, in bytes.
    pub offset: u64,
}

/// Is called with the frames and the damage of a log during its examination.
#[expect(async_fn_in_trait, reason = "log and caller live on one thread")]
pub trait Observer {
    /// Called with the next sound frame. After a `Break` it is not called any more.
    async fn frame(&mut self, place: Place<'_>, frame: Frame<'_>) -> ControlFlow<()>;

    /// Called with damage, before the frames that can be read behind it.
    fn damage(&mut self, damage: &Damage);
}

/// An observer that ignores everything.
pub struct Unobserved;

impl Observer for Unobserved {
    async fn frame(&mut self, _: Place<'_>, _: Frame<'_>) -> ControlFlow<()> {
        ControlFlow::Break(())
    }

    fn damage(&mut self, _: &Damage) {}
}

/// Reads all of the log in `storage`. The log is not to be in use.
///
/// # Errors
/// A file belongs to another log or another version, or the disk fails. Damage is no error.
pub async fn examine<S: Storage>(
    storage: &S,
    identity: Identity,
    observer: &mut impl Observer,
) -> Result<Examination, OpenError> {
    let options = Options::new(identity);
    let verdict = match recover::recover(storage, &options, &mut |_| Ok(())).await {
        Ok(history) => Ok(history.recovered),
        Err(refused @ (OpenError::Corrupt(_) | OpenError::MissingSegment { .. })) => Err(refused),
        Err(error) => return Err(error),
    };
    let files = recover::survey(storage, &options).await?;
    let chain::Chain { links, missing, headless, others } = chain::arrange(files, identity).await?;
    let mut walk = Walk::new(observer, identity, headless);
    let missing_before = |index| missing.filter(|(newer, _)| *newer == index).map(|(_, sequence)| sequence);
    for (index, link) in links.iter().enumerate() {
        if let Some(sequence) = missing_before(index) {
            walk.missing(sequence);
        }
        let continued = |next: &chain::Link<_>| next.start.filter(|_| missing_before(index + 1).is_none());
        walk.link(link, links.get(index + 1).map(continued)).await?;
    }
    let mut examination = walk.finish(verdict).await?;
    examination.segments.extend(others);
    examination.segments.sort_unstable_by_key(|segment| segment.sequence);
    Ok(examination)
}

/// The home of the groups of a file.
const fn home(sequence: u64, identity: Identity) -> Home {
    Home { segment: sequence, salt: identity.salt }
}

fn io_error(sequence: u64, source: std::io::Error) -> OpenError {
    OpenError::Io { action: "reading", file: file_name(sequence), source }
}
