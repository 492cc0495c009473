//! Reads a history from beginning to end, across damage.

use std::rc::Rc;

use ringkeeper_wire::Zxid;

use super::chain::Link;
use super::{Damage, Examination, Fault, Fragment, Observer, Place, Role, Segment, home, io_error};
use crate::error::OpenError;
use crate::frame::LogPosition;
use crate::frame::{self, Frame};
use crate::group::{self, GroupHeader, Tip, padded};
use crate::recover::Recovered;
use crate::scan::{self, Remains, Window};
use crate::segment::{Identity, file_name};
use crate::storage::{BLOCK, BLOCK_LEN, StorageFile, whole_blocks};

/// The progress of reading a history.
pub(super) struct Walk<'a, O, F> {
    observer: &'a mut O,
    /// The observer has returned a `Break`.
    stopped: bool,
    identity: Identity,
    /// Files behind the newest header; some may be segments of the history whose headers are damaged.
    headless: Vec<Link<F>>,
    /// The history so far; `None` before its beginning is known.
    tip: Option<Tip>,
    segments: Vec<Segment>,
    damages: Vec<Damage>,
    /// Number of the latest entries of `damages`, behind the last sound place: what they lose is not known
    /// yet.
    open: usize,
    fragments: Vec<Fragment>,
    last_known_zxid: Zxid,
}

/// The result of reading a group.
enum Sight {
    /// A sound group that continues the history. Its length on the medium.
    Sound(u64),
    /// No group of the history, and no evidence that there was one.
    End,
    /// Harmed, after so many bytes that are sound.
    Harmed { fault: Fault, offset: u64, next: u64 },
}

impl<'a, O: Observer, F: StorageFile> Walk<'a, O, F> {
    pub(super) fn new(observer: &'a mut O, identity: Identity, headless: Vec<Link<F>>) -> Self {
        Self {
            observer,
            stopped: false,
            identity,
            headless,
            tip: None,
            segments: Vec::new(),
            damages: Vec::new(),
            open: 0,
            fragments: Vec::new(),
            last_known_zxid: Zxid::ZERO,
        }
    }

    /// A file that was continued here is not there.
    pub(super) fn missing(&mut self, sequence: u64) {
        self.harmed(sequence, 0, Fault::Missing);
    }

    /// Reads a link of the history. `next` is what the link after it continues, as far as that is known;
    /// `None` for the newest one.
    pub(super) async fn link(
        &mut self,
        link: &Link<F>,
        next: Option<Option<LogPosition>>,
    ) -> Result<(), OpenError> {
        let role = if link.header.is_some() { Role::Live } else { Role::Headless };
        self.segments.push(link.segment(role));
        match link.tip() {
            Some(tip) => self.enter(tip),
            None => self.harmed(link.sequence, 0, Fault::SegmentHeader),
        }
        let result = self.groups(link, next.is_none(), next.flatten()).await;
        result.map_err(|source| io_error(link.sequence, source))
    }

    async fn groups(
        &mut self,
        link: &Link<F>,
        newest: bool,
        limit: Option<LogPosition>,
    ) -> std::io::Result<()> {
        let mut window = Window::new(Rc::clone(&link.file), link.len);
        let mut at = BLOCK;
        let mut searching = link.header.is_none();
        loop {
            if limit.is_some_and(|limit| self.tip.is_some_and(|tip| tip.zxid >= limit.zxid)) {
                return Ok(());
            }
            if at + BLOCK > link.len {
                if limit.is_some() && !searching {
                    self.harmed(link.sequence, at, Fault::Short);
                }
                return Ok(());
            }
            if searching {
                match self.regain(&mut window, link.sequence, at, limit).await? {
                    Some(true) => searching = false,
                    Some(false) => return Ok(()),
                    None => {
                        at += BLOCK;
                        continue;
                    }
                }
            }
            match self.group(&mut window, link, at, newest, limit).await? {
                Sight::Sound(len) => {
                    at += len;
                    self.note_group(at);
                }
                Sight::End => return Ok(()),
                Sight::Harmed { fault, offset, next } => {
                    self.harmed(link.sequence, offset, fault);
                    searching = true;
                    at = next;
                }
            }
        }
    }

    /// Whether a group behind damage begins here, with which the history continues. False if it is in a part
    /// that a later segment has truncated.
    async fn regain(
        &mut self,
        window: &mut Window<F>,
        sequence: u64,
        at: u64,
        limit: Option<LogPosition>,
    ) -> std::io::Result<Option<bool>> {
        let tip = self.tip.unwrap_or_default();
        let block = window.get(at, BLOCK_LEN).await?;
        let header = GroupHeader::decode(block, home(sequence, self.identity));
        let Some(header) = header.filter(|header| header.number > tip.number) else { return Ok(None) };
        if limit.is_some_and(|limit| header.after_zxid >= limit.zxid) {
            return Ok(Some(false));
        }
        self.last_known_zxid = self.last_known_zxid.max(header.after_zxid);
        let bytes = window.get(at, usize::try_from(header.len()).unwrap_or(usize::MAX)).await?;
        let first = bytes.get(group::HEADER_LEN..).and_then(|body| frame::parse(body).ok());
        let checksum = match first {
            Some(first) => first.previous(),
            // A seal has no frame, and so no checksum to compare.
            None if header.frames == 0 && header.after_zxid == tip.zxid => tip.checksum,
            None => return Ok(None),
        };
        self.enter(Tip { zxid: header.after_zxid, checksum, number: header.number - 1 });
        Ok(Some(true))
    }

    /// Reads the group at `at`, and shows its frames as far as they are sound.
    async fn group(
        &mut self,
        window: &mut Window<F>,
        link: &Link<F>,
        at: u64,
        newest: bool,
        limit: Option<LogPosition>,
    ) -> std::io::Result<Sight> {
        let tip = self.tip.unwrap_or_default();
        let until = limit.map(|limit| limit.zxid);
        let home = home(link.sequence, self.identity);
        let damage = match scan::read_group(window, home, at, tip, until).await? {
            Ok(group) => {
                for (offset, frame) in scan::frames(window.current(group.len), until) {
                    self.frame(link.sequence, at + offset as u64, &frame).await;
                }
                self.tip = Some(group.tip);
                return Ok(Sight::Sound(group.end - at));
            }
            Err(damage) => damage,
        };
        if limit.is_none() && !self.is_proven(window, link, at, tip, newest).await? {
            return Ok(Sight::End);
        }
        let header = GroupHeader::decode(window.get(at, BLOCK_LEN).await?, home);
        let mut end = at + group::HEADER_LEN as u64;
        while let Some(frame) = read_frame(window, at, end, link.len).await? {
            let Some(tip) = self.tip.unwrap_or_default().after(&frame) else { break };
            if until.is_some_and(|until| tip.zxid > until) {
                break;
            }
            let offset = end;
            end += padded(frame.bytes().len()) as u64;
            self.frame(link.sequence, offset, &frame).await;
            self.tip = Some(tip);
        }
        let (fault, offset) = match damage {
            group::Damage::NoHeader => (Fault::GroupHeader, at),
            group::Damage::Stray => (Fault::Stray, at),
            group::Damage::Frame(error) => (Fault::Frame(error), end),
            group::Damage::Chain => (Fault::Chain, end),
            group::Damage::Count => (Fault::Count, at),
        };
        let next = header.map_or(end, |header| at + header.len());
        let next = (next - at).next_multiple_of(BLOCK).max(BLOCK) + at;
        Ok(Sight::Harmed { fault, offset, next })
    }

    /// Whether there is evidence that the data expected at `at` was durable. Without any, the history ends
    /// there.
    async fn is_proven(
        &self,
        window: &mut Window<F>,
        link: &Link<F>,
        at: u64,
        tip: Tip,
        newest: bool,
    ) -> std::io::Result<bool> {
        let mut behind = scan::remains(window, home(link.sequence, self.identity), at, tip).await?;
        for other in self.headless.iter().filter(|_| newest) {
            behind = behind.join(self.remains(other, tip).await?);
        }
        Ok(behind.proof_after(tip).is_some())
    }

    async fn remains(&self, headless: &Link<F>, tip: Tip) -> std::io::Result<Remains> {
        let mut window = Window::new(Rc::clone(&headless.file), headless.len);
        scan::remains(&mut window, home(headless.sequence, self.identity), 0, tip).await
    }

    async fn frame(&mut self, sequence: u64, offset: u64, frame: &Frame<'_>) {
        let last = LogPosition { zxid: frame.meta().last_zxid, checksum: frame.checksum() };
        if let Some(fragment) = self.fragments.last_mut() {
            fragment.last = last;
        }
        self.last_known_zxid = self.last_known_zxid.max(last.zxid);
        if let Some(segment) = self.segments.last_mut() {
            segment.frames += 1;
            segment.last_zxid = last.zxid;
        }
        if !self.stopped {
            let file = file_name(sequence);
            self.stopped = self.observer.frame(Place { file: &file, offset }, *frame).await.is_break();
        }
    }

    fn note_group(&mut self, end: u64) {
        if let Some(segment) = self.segments.last_mut() {
            segment.groups += 1;
            segment.used_bytes = end;
        }
    }

    /// Continues the history at `tip`.
    fn enter(&mut self, tip: Tip) {
        let before = self.tip.replace(tip);
        self.last_known_zxid = self.last_known_zxid.max(tip.zxid);
        let goes_on = before.is_some_and(|before| (before.zxid, before.checksum) == (tip.zxid, tip.checksum));
        if !goes_on {
            let position = LogPosition { zxid: tip.zxid, checksum: tip.checksum };
            self.fragments.push(Fragment { after: position, last: position });
        }
        // What was before the first readable data is unknown; it may have been purged.
        let lost = if before.is_some() { tip.zxid } else { Zxid::ZERO };
        self.settle(lost);
    }

    /// Sets what the damage since the last sound place has lost.
    fn settle(&mut self, until_zxid: Zxid) {
        for damage in self.damages.iter_mut().skip(self.open) {
            damage.until_zxid = until_zxid.max(damage.after_zxid);
            self.observer.damage(damage);
        }
        self.open = self.damages.len();
    }

    fn harmed(&mut self, sequence: u64, offset: u64, fault: Fault) {
        let after_zxid = self.tip.map_or(Zxid::ZERO, |tip| tip.zxid);
        self.damages.push(Damage {
            file: file_name(sequence),
            offset,
            fault,
            after_zxid,
            until_zxid: after_zxid,
        });
    }

    /// Reads the files without headers behind the newest header.
    pub(super) async fn finish(
        mut self,
        verdict: Result<Recovered, OpenError>,
    ) -> Result<Examination, OpenError> {
        let mut headless = std::mem::take(&mut self.headless);
        while !headless.is_empty() {
            let link = headless.remove(0);
            let tip = self.tip.unwrap_or_default();
            let found = self.remains(&link, tip).await;
            let proof = found.map_err(|source| io_error(link.sequence, source))?.proof_after(tip);
            if proof.is_some() {
                self.link(&link, None).await?;
            } else {
                self.segments.push(link.segment(Role::Waiting));
            }
        }
        if let Err(OpenError::Corrupt(corruption)) = &verdict {
            self.last_known_zxid = self.last_known_zxid.max(corruption.until_zxid);
        }
        self.settle(self.last_known_zxid);
        if self.fragments.is_empty() {
            self.fragments.push(Fragment { after: LogPosition::default(), last: LogPosition::default() });
        }
        Ok(Examination {
            segments: self.segments,
            damages: self.damages,
            fragments: self.fragments,
            last_known_zxid: self.last_known_zxid,
            verdict,
        })
    }
}

/// The frame at `offset` of the file, if it is sound; `group` is where its group begins, from which reading
/// goes on.
async fn read_frame<F: StorageFile>(
    window: &mut Window<F>,
    group: u64,
    offset: u64,
    len: u64,
) -> std::io::Result<Option<Frame<'_>>> {
    let at = usize::try_from(offset - group).unwrap_or(usize::MAX);
    let room = usize::try_from(len.saturating_sub(group)).unwrap_or(usize::MAX);
    let wanted = at.saturating_add(frame::HEADER_LEN).min(room);
    let head = window.get(group, wanted).await?;
    let Some(Ok(frame_len)) = head.get(at..).map(frame::encoded_len) else { return Ok(None) };
    let Some(end) = at.checked_add(frame_len).filter(|end| *end <= room) else { return Ok(None) };
    let bytes = window.get(group, whole_blocks(end).min(room)).await?;
    Ok(bytes.get(at..).and_then(|bytes| frame::parse(bytes).ok()))
}
