//! Reads the log while it is being written, for followers.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use ringkeeper_wire::Zxid;

use crate::error::{Corruption, ReadError};
use crate::frame::{self, Frame};
use crate::group::{Home, Tip};
use crate::scan::{self, Window};
use crate::segment::file_name;
use crate::storage::StorageFile;
use crate::wal::{Live, Mark};

/// Frames in order, from [`crate::wal::Wal::read_from`].
pub struct Reader<F: StorageFile> {
    /// Segments not begun yet.
    segments: VecDeque<Source<F>>,
    current: Option<Current<F>>,
    /// Frames that end before this zxid are skipped.
    from_zxid: Zxid,
    /// Bytes of groups read in the segments before the current one.
    scanned: u64,
}

/// The part of a segment that is to be read.
struct Source<F> {
    file: Rc<F>,
    home: Home,
    start: Mark,
    file_len: u64,
    /// The last zxid to be read.
    until: Zxid,
}

struct Current<F: StorageFile> {
    window: Window<F>,
    home: Home,
    until: Zxid,
    tip: Tip,
    /// Start and length of the group whose frames are handed out.
    group: (u64, usize),
    /// Offset in it of the next frame; past its end when the next group is due.
    at: usize,
    /// Offset in the file of the next group.
    next: u64,
    /// Bytes of groups read here.
    scanned: u64,
}

impl<F: StorageFile> Reader<F> {
    /// A reader of `segments` as they are now.
    pub(crate) fn new<'a>(segments: impl Iterator<Item = &'a Live<F>>, from_zxid: Zxid) -> Self
    where
        F: 'a,
    {
        let segments = segments.map(|segment| Source::new(segment, from_zxid)).collect();
        Self { segments, current: None, from_zxid, scanned: 0 }
    }

    /// Bytes of the medium that were read and verified so far.
    #[must_use]
    pub fn scanned_bytes(&self) -> u64 {
        self.scanned + self.current.as_ref().map_or(0, |current| current.scanned)
    }

    /// The next frame, or `None` at the end that the log had when the reader was made.
    ///
    /// # Errors
    /// When the file is not what was written, or the disk fails.
    pub async fn next(&mut self) -> Result<Option<Frame<'_>>, ReadError> {
        loop {
            let Some(mut current) = self.current.take() else {
                match self.segments.pop_front() {
                    Some(source) => self.current = Some(source.begin()),
                    None => return Ok(None),
                }
                continue;
            };
            let found = current.step(self.from_zxid).await?;
            match found {
                Step::Frame { at, len } => {
                    let current = self.current.insert(current);
                    let group = current.window.current(current.group.1);
                    // Checked when the group was read.
                    return Ok(frame::parse_trusted(&group[at..at + len]).ok());
                }
                Step::Again => self.current = Some(current),
                Step::End => self.scanned += current.scanned,
            }
        }
    }
}

enum Step {
    Frame { at: usize, len: usize },
    Again,
    End,
}

impl<F: StorageFile> Source<F> {
    fn new(segment: &Live<F>, from_zxid: Zxid) -> Self {
        let begin = Mark { offset: crate::storage::BLOCK, before: segment.start() };
        let start = segment.marks.iter().rev().find(|mark| mark.before.zxid < from_zxid);
        Self {
            file: segment.file.clone(),
            home: segment.header.home(),
            start: start.copied().unwrap_or(begin),
            file_len: segment.end,
            until: segment.tip.zxid,
        }
    }

    fn begin(self) -> Current<F> {
        Current {
            window: Window::new(self.file, self.file_len),
            home: self.home,
            until: self.until,
            tip: self.start.before,
            group: (self.start.offset, 0),
            at: 0,
            next: self.start.offset,
            scanned: 0,
        }
    }
}

impl<F: StorageFile> Current<F> {
    async fn step(&mut self, from_zxid: Zxid) -> Result<Step, ReadError> {
        let group = self.window.current(self.group.1);
        let next = scan::frames(group, Some(self.until)).find(|(at, _)| *at >= self.at);
        if let Some((at, frame)) = next {
            let len = frame.bytes().len();
            let wanted = frame.meta().last_zxid >= from_zxid;
            self.at = at + len;
            return Ok(if wanted { Step::Frame { at, len } } else { Step::Again });
        }
        if self.tip.zxid >= self.until {
            return Ok(Step::End);
        }
        self.read_group().await?;
        Ok(Step::Again)
    }

    async fn read_group(&mut self) -> Result<(), ReadError> {
        let offset = self.next;
        let read = scan::read_group(&mut self.window, self.home, offset, self.tip, Some(self.until)).await;
        let file = || file_name(self.home.segment);
        let read = read.map_err(|source| ReadError::Io { file: file(), offset, source: Arc::new(source) })?;
        let group = read.map_err(|_| Corruption {
            file: file(),
            offset,
            after_zxid: self.tip.zxid,
            until_zxid: self.until,
        })?;
        self.group = (offset, group.len);
        self.at = 0;
        self.scanned += group.end - offset;
        self.next = group.end;
        self.tip = group.tip;
        Ok(())
    }
}
