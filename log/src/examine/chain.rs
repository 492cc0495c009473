//! The chain of a log's files, even if some are missing or have lost their headers.

use std::rc::Rc;

use ringkeeper_wire::Zxid;

use super::{Role, Segment, home, io_error};
use crate::error::OpenError;
use crate::frame;
use crate::frame::LogPosition;
use crate::group::{self, GroupHeader, Tip};
use crate::recover::Found;
use crate::scan::Window;
use crate::segment::{Identity, SegmentHeader, file_name};
use crate::storage::{BLOCK, BLOCK_LEN, StorageFile};

/// A file of the history.
pub(super) struct Link<F> {
    pub(super) sequence: u64,
    pub(super) file: Rc<F>,
    pub(super) len: u64,
    pub(super) header: Option<SegmentHeader>,
    /// What it continues, as far as that is known.
    pub(super) start: Option<LogPosition>,
}

/// The files of a log.
pub(super) struct Chain<F> {
    /// The history, oldest first.
    pub(super) links: Vec<Link<F>>,
    /// Where a file is missing: the index of the link behind it, and its sequence.
    pub(super) missing: Option<(usize, u64)>,
    /// Files without a header that are newer than the history: spares, or damaged segments.
    pub(super) headless: Vec<Link<F>>,
    /// The other files.
    pub(super) others: Vec<Segment>,
}

impl<F> Link<F> {
    pub(super) fn segment(&self, role: Role) -> Segment {
        let after_zxid = self.start.map_or(Zxid::ZERO, |start| start.zxid);
        Segment {
            file: file_name(self.sequence),
            sequence: self.sequence,
            size_bytes: self.len,
            used_bytes: 0,
            role,
            after_zxid,
            last_zxid: after_zxid,
            groups: 0,
            frames: 0,
        }
    }

    /// The beginning of the history, from its header.
    pub(super) fn tip(&self) -> Option<Tip> {
        let header = self.header.as_ref()?;
        Some(Tip { zxid: header.after_zxid, checksum: header.chain, number: header.number })
    }
}

/// Builds the chain by following the headers back from the newest. Where a header is missing, the newest
/// segment that begins early enough is taken as the predecessor.
pub(super) async fn arrange<F: StorageFile>(
    files: Vec<Found<F>>,
    identity: Identity,
) -> Result<Chain<F>, OpenError> {
    let mut files = links(files, identity).await?;
    let newest = files.iter().rposition(|file| file.header.is_some());
    let headless = files.split_off(newest.map_or(0, |newest| newest + 1));
    let mut links = Vec::new();
    let mut lost = None;
    let mut bound = Zxid(u64::MAX);
    let mut next = newest;
    while let Some(index) = next {
        let link = files.remove(index);
        bound = link.start.map_or(bound, |start| start.zxid);
        let (sequence, previous) = (link.sequence, link.header.as_ref().map(|header| header.previous));
        links.push(link);
        let named = files.iter().position(|file| Some(file.sequence) == previous);
        let likely = files.iter().rposition(|file| {
            file.sequence < sequence
                && file.header.is_some()
                && file.start.is_some_and(|start| start.zxid <= bound)
        });
        next = match previous {
            Some(0) => None,
            None => likely,
            Some(_) if named.is_some() => named,
            Some(missing) => {
                if likely.is_some() {
                    lost = Some((links.len(), missing));
                }
                likely
            }
        };
    }
    links.reverse();
    let missing = lost.map(|(newer, sequence)| (links.len() - newer, sequence));
    let role = |file: &Link<F>| if file.header.is_some() { Role::Void } else { Role::Waiting };
    let others = files.iter().map(|file| file.segment(role(file))).collect();
    Ok(Chain { links, missing, headless, others })
}

async fn links<F: StorageFile>(files: Vec<Found<F>>, identity: Identity) -> Result<Vec<Link<F>>, OpenError> {
    let mut links = Vec::with_capacity(files.len());
    for Found { sequence, file, len, header } in files {
        let start = match &header {
            Some(header) => Some(LogPosition { zxid: header.after_zxid, checksum: header.chain }),
            None => first_continues(&file, sequence, len, identity).await?,
        };
        links.push(Link { sequence, file, len, header, start });
    }
    Ok(links)
}

/// What the first group of a file without a header continues.
async fn first_continues<F: StorageFile>(
    file: &Rc<F>,
    sequence: u64,
    len: u64,
    identity: Identity,
) -> Result<Option<LogPosition>, OpenError> {
    let mut window = Window::new(Rc::clone(file), len);
    let block = window.get(BLOCK, BLOCK_LEN).await.map_err(|error| io_error(sequence, error))?;
    let Some(header) = GroupHeader::decode(block, home(sequence, identity)) else { return Ok(None) };
    let len = usize::try_from(header.len()).unwrap_or(usize::MAX);
    let bytes = window.get(BLOCK, len).await.map_err(|error| io_error(sequence, error))?;
    let first = bytes.get(group::HEADER_LEN..).and_then(|body| frame::parse(body).ok());
    Ok(first.map(|first| LogPosition { zxid: header.after_zxid, checksum: first.previous() }))
}
