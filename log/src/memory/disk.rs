//! The state behind a [`super::MemoryDisk`]: what is seen, what is durable, and the changes between the two.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::rc::Rc;
use std::task::Waker;

use super::powered_off;
use crate::storage::{BLOCK, BLOCK_LEN};

/// The unit in which a write survives a power loss: devices write a sector whole or not at all.
pub(super) const SECTOR: usize = 512;

/// Names one operation of a disk, in the order of their beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OpId(u64);

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the method of the same name")]
pub enum OpKind {
    List,
    Create,
    Open,
    Rename,
    Remove,
    SyncDir,
    Free,
    Write,
    Read,
    Sync,
    Size,
    Allocate,
}

impl OpKind {
    /// Whether it changes what is seen or what is durable.
    const fn is_change(self) -> bool {
        !matches!(self, Self::List | Self::Open | Self::Free | Self::Read | Self::Size)
    }
}

/// What a [`Fault`] does to an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It fails with this error and does nothing.
    Fail(io::ErrorKind),
    /// A write takes half of its bytes.
    Short,
    /// A write or a sync says that it has worked, and does nothing: a lost write, a lying sync.
    Ignore,
    /// A write says that it has worked, and lands this many blocks further on in the file, behind its end
    /// going on at its beginning. Where it belongs, everything is as before.
    Misdirect {
        /// How far off.
        blocks: u64,
    },
    /// A file's sync fails, and what it was to make durable is given up: no later sync, although it says that
    /// it has worked, writes it. Linux does so (<https://wiki.postgresql.org/wiki/Fsync_Errors>).
    Drop {
        /// Reads go on showing what was given up, until the power fails; if not, they show the medium's.
        cached: bool,
    },
}

/// A planted fault.
#[derive(Clone, Debug)]
pub struct Fault {
    /// The operations it strikes.
    pub kind: OpKind,
    /// Only files whose name starts so.
    pub prefix: String,
    /// How many fitting operations are spared first.
    pub skip: u64,
    /// How many are struck then.
    pub times: u64,
    /// What happens to them.
    pub effect: Effect,
}

/// One thing that survives a power loss or does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit<'a> {
    /// 512 bytes of a file that were written and not yet synced.
    Sector {
        /// A number for the file, the same through renamings.
        file: u64,
        /// Where they lie.
        offset: u64,
    },
    /// An unsynced growth of a file without writing it.
    Length {
        /// A number for the file, the same through renamings.
        file: u64,
    },
    /// An unsynced creation, renaming or removal.
    Name(&'a str),
}

/// What survives a power loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashMode {
    /// Only what was synced.
    LoseUnsynced,
    /// Everything that was issued.
    KeepAll,
    /// Any sectors and names, as the seed decides.
    Tear {
        /// The same seed on the same disk leaves the same behind.
        seed: u64,
    },
}

impl CrashMode {
    pub(super) fn chooser(self) -> impl FnMut(Unit<'_>) -> bool {
        let mut state = match self {
            Self::Tear { seed } => seed,
            Self::LoseUnsynced | Self::KeepAll => 0,
        };
        move |_| match self {
            Self::LoseUnsynced => false,
            Self::KeepAll => true,
            Self::Tear { .. } => split_mix(&mut state) & 1 == 1,
        }
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): enough for coin tosses.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A change of a file's contents.
#[derive(Clone)]
pub(super) enum Change {
    Write { offset: u64, data: Vec<u8> },
    Grow { len: u64 },
}

impl Change {
    fn end(&self) -> u64 {
        match self {
            Self::Write { offset, data } => offset + data.len() as u64,
            Self::Grow { len } => *len,
        }
    }

    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Write { offset, data } => overwrite(bytes, index(*offset), data),
            Self::Grow { len } => grow(bytes, index(*len)),
        }
    }
}

#[derive(Clone)]
pub(super) struct Pending {
    id: OpId,
    done: bool,
    pub(super) change: Change,
}

impl Pending {
    /// What is left of this change when a newer one is durable: the parts beside it.
    fn without(self, newer: &Self) -> Vec<Self> {
        let (Change::Write { offset, data }, Change::Write { offset: from, .. }) =
            (&self.change, &newer.change)
        else {
            return vec![self];
        };
        let (from, to) = (*from, newer.change.end());
        if self.id > newer.id || self.change.end() <= from || to <= *offset {
            return vec![self];
        }
        let part = |range: Range<u64>| {
            let bytes = data.get(index(range.start - offset)..index(range.end - offset))?;
            let change = Change::Write { offset: range.start, data: bytes.to_vec() };
            (!bytes.is_empty()).then_some(Self { change, ..self })
        };
        let before = part(*offset..from.max(*offset));
        let behind = part(to.min(self.change.end())..self.change.end());
        before.into_iter().chain(behind).collect()
    }
}

#[derive(Clone, Default)]
pub(super) struct Node {
    /// Shared where they are equal, and between copies of a disk.
    seen: Rc<Vec<u8>>,
    pub(super) durable: Rc<Vec<u8>>,
    pub(super) pending: Vec<Pending>,
}

impl Node {
    /// All of it is durable.
    pub(super) fn settled(contents: Rc<Vec<u8>>) -> Self {
        Self { seen: Rc::clone(&contents), durable: contents, pending: Vec::new() }
    }

    /// Splits off the pending changes of these operations.
    fn take(&mut self, changes: &[OpId]) -> Vec<Pending> {
        let pending = std::mem::take(&mut self.pending);
        let (taken, rest) = pending.into_iter().partition(|pending| changes.contains(&pending.id));
        self.pending = rest;
        taken
    }

    /// Shows what the medium holds, under what was written since, and at its old length, which a file keeps.
    fn look_again(&mut self) {
        let len = self.seen.len();
        let mut seen = Vec::clone(&self.durable);
        for pending in &self.pending {
            pending.change.apply(&mut seen);
        }
        grow(&mut seen, len);
        self.seen = Rc::new(seen);
    }
}

/// Names and the files behind them.
pub(super) type Names = BTreeMap<String, u64>;

#[derive(Clone)]
pub(super) enum NameChange {
    Create { name: String, inode: u64 },
    Rename { from: String, to: String, inode: u64 },
    Remove { name: String, inode: u64 },
}

impl NameChange {
    fn name(&self) -> &str {
        match self {
            Self::Create { name, .. } | Self::Remove { name, .. } => name,
            Self::Rename { from, .. } => from,
        }
    }

    /// Writes the entries of the folder that it changes. Each stands on its own: a renaming may survive the
    /// loss of the creation before it, and a removal takes only the file that it was meant for.
    pub(super) fn apply(&self, names: &mut Names) {
        match self {
            Self::Create { name, inode } => {
                names.insert(name.clone(), *inode);
            }
            Self::Rename { from, to, inode } => {
                names.remove(from);
                names.insert(to.clone(), *inode);
            }
            Self::Remove { name, inode } => {
                if names.get(name) == Some(inode) {
                    names.remove(name);
                }
            }
        }
    }
}

struct Held {
    kind: OpKind,
    waker: Option<Waker>,
}

#[derive(Default)]
pub(super) struct Disk {
    pub(super) life: u64,
    pub(super) begun: u64,
    pub(super) halt_at: Option<u64>,
    /// Changes that are still carried out before the power fails in the middle of the next.
    pub(super) changes_left: Option<u64>,
    pub(super) hold: bool,
    pub(super) faults: Vec<Fault>,
    pub(super) struck: u64,
    pub(super) capacity: Option<u64>,
    held: BTreeMap<OpId, Held>,
    newly_held: Vec<(OpId, OpKind)>,
    /// Files and where in them something has become durable by a write or a sync, if anybody wants to know.
    pub(super) newly_durable: Option<Vec<(u64, Range<u64>)>>,
    pub(super) nodes: BTreeMap<u64, Node>,
    names: Names,
    pub(super) durable_names: Names,
    pub(super) pending_names: Vec<(OpId, NameChange)>,
}

impl Disk {
    pub(super) fn copy(&self) -> Self {
        Self {
            life: self.life,
            begun: self.begun,
            capacity: self.capacity,
            nodes: self.nodes.clone(),
            names: self.names.clone(),
            durable_names: self.durable_names.clone(),
            pending_names: self.pending_names.clone(),
            ..Self::default()
        }
    }

    // The life of an operation.

    pub(super) fn begin(&mut self, life: u64, kind: OpKind) -> io::Result<OpId> {
        self.check_life(life)?;
        let id = OpId(self.begun);
        self.begun += 1;
        if let Some(left) = &mut self.changes_left
            && kind.is_change()
        {
            match left.checked_sub(1) {
                Some(fewer) => *left = fewer,
                None => {
                    self.changes_left = None;
                    self.halt_at = Some(id.0);
                }
            }
        }
        if self.hold {
            self.held.insert(id, Held { kind, waker: None });
            self.newly_held.push((id, kind));
        }
        Ok(id)
    }

    pub(super) fn check_life(&self, life: u64) -> io::Result<()> {
        if life == self.life { Ok(()) } else { Err(powered_off()) }
    }

    pub(super) fn halted(&self) -> bool {
        self.halt_at.is_some_and(|at| self.begun > at)
    }

    /// Whether the power was off already when the operation was begun.
    pub(super) fn halted_before(&self, id: OpId) -> bool {
        self.halt_at.is_some_and(|at| id.0 > at)
    }

    pub(super) fn is_done(&self, life: u64, id: OpId) -> bool {
        let halted = self.halt_at.is_some_and(|at| id.0 >= at);
        life != self.life || !(halted || self.held.contains_key(&id))
    }

    pub(super) fn wait(&mut self, id: OpId, waker: &Waker) {
        if let Some(held) = self.held.get_mut(&id) {
            held.waker = Some(waker.clone());
        }
    }

    pub(super) fn held(&self) -> Vec<(OpId, OpKind)> {
        self.held.iter().map(|(id, held)| (*id, held.kind)).collect()
    }

    pub(super) fn take_newly_held(&mut self) -> Vec<(OpId, OpKind)> {
        std::mem::take(&mut self.newly_held)
    }

    pub(super) fn release(&mut self, id: OpId) -> Option<Waker> {
        self.held.remove(&id).and_then(|held| held.waker)
    }

    pub(super) fn release_all(&mut self) -> Vec<Waker> {
        self.newly_held.clear();
        std::mem::take(&mut self.held).into_values().filter_map(|held| held.waker).collect()
    }

    pub(super) fn fault(&mut self, kind: OpKind, name: &str) -> Option<Effect> {
        let fault = self.faults.iter_mut().find(|fault| fault.times > 0 && fits(fault, kind, name))?;
        if fault.skip > 0 {
            fault.skip -= 1;
            return None;
        }
        fault.times -= 1;
        self.struck += 1;
        Some(fault.effect)
    }

    // Names.

    pub(super) fn names(&self) -> Vec<String> {
        self.names.keys().cloned().collect()
    }

    pub(super) fn lookup(&self, name: &str) -> io::Result<u64> {
        self.names.get(name).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    pub(super) fn create(&mut self, id: OpId, name: &str) -> io::Result<u64> {
        if self.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.nodes.insert(id.0, Node::default());
        self.change_name(id, NameChange::Create { name: name.to_owned(), inode: id.0 });
        Ok(id.0)
    }

    pub(super) fn rename(&mut self, id: OpId, from: &str, to: &str) -> io::Result<()> {
        let inode = self.lookup(from)?;
        self.change_name(id, NameChange::Rename { from: from.to_owned(), to: to.to_owned(), inode });
        Ok(())
    }

    pub(super) fn remove(&mut self, id: OpId, name: &str) -> io::Result<()> {
        let inode = self.lookup(name)?;
        self.change_name(id, NameChange::Remove { name: name.to_owned(), inode });
        Ok(())
    }

    fn change_name(&mut self, id: OpId, change: NameChange) {
        change.apply(&mut self.names);
        self.pending_names.push((id, change));
    }

    /// A sync of the folder, begun as operation `issued`, ends.
    pub(super) fn sync_dir(&mut self, issued: OpId, effect: Option<Effect>) -> io::Result<()> {
        match effect {
            Some(Effect::Ignore) => return Ok(()),
            // Names are journalled: nothing is given up, and nothing known.
            Some(Effect::Drop { .. }) => return Err(input_output()),
            _ => {}
        }
        let (covered, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.pending_names).into_iter().partition(|(id, _)| *id < issued);
        self.pending_names = rest;
        covered.iter().for_each(|(_, change)| change.apply(&mut self.durable_names));
        Ok(())
    }

    // Contents.

    fn node(&mut self, inode: u64) -> io::Result<&mut Node> {
        self.nodes.get_mut(&inode).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    pub(super) fn change(&mut self, id: OpId, inode: u64, change: Change) -> io::Result<()> {
        let free = self.free();
        let node = self.node(inode)?;
        if change.end().saturating_sub(node.seen.len() as u64) > free {
            self.struck += 1;
            return Err(io::ErrorKind::StorageFull.into());
        }
        change.apply(Rc::make_mut(&mut node.seen));
        node.pending.push(Pending { id, done: false, change });
        Ok(())
    }

    pub(super) fn finish_change(&mut self, inode: u64, id: OpId, durable: bool) {
        if let Some(node) = self.nodes.get_mut(&inode) {
            node.pending
                .iter_mut()
                .filter(|pending| pending.id == id)
                .for_each(|pending| pending.done = true);
        }
        if durable {
            self.make_durable(inode, &[id]);
        }
    }

    pub(super) fn finished_changes(&self, inode: u64) -> Vec<OpId> {
        let pending = self.nodes.get(&inode).map_or(&[][..], |node| &node.pending);
        pending.iter().filter(|pending| pending.done).map(|pending| pending.id).collect()
    }

    fn make_durable(&mut self, inode: u64, changes: &[OpId]) {
        let Some(node) = self.nodes.get_mut(&inode) else { return };
        for newer in node.take(changes) {
            newer.change.apply(Rc::make_mut(&mut node.durable));
            if let (Some(places), Change::Write { offset, .. }) = (&mut self.newly_durable, &newer.change) {
                places.push((inode, *offset..newer.change.end()));
            }
            // What was written there before cannot come back over it.
            let older = std::mem::take(&mut node.pending);
            node.pending = older.into_iter().flat_map(|older| older.without(&newer)).collect();
        }
    }

    /// A sync of these changes ends.
    pub(super) fn sync(&mut self, inode: u64, changes: &[OpId], effect: Option<Effect>) -> io::Result<()> {
        match effect {
            Some(Effect::Ignore) => {}
            Some(Effect::Drop { cached }) => {
                let node = self.node(inode)?;
                node.take(changes);
                if !cached {
                    node.look_again();
                }
                return Err(input_output());
            }
            _ => self.make_durable(inode, changes),
        }
        Ok(())
    }

    /// Where a write lands that misses its place.
    pub(super) fn misdirected(
        &mut self,
        inode: u64,
        offset: u64,
        len: usize,
        blocks: u64,
    ) -> io::Result<u64> {
        let places = (self.len(inode)?.max(offset + len as u64) - len as u64) / BLOCK + 1;
        Ok((offset / BLOCK + blocks) % places * BLOCK)
    }

    pub(super) fn read(&mut self, inode: u64, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let seen = &self.node(inode)?.seen;
        let start = index(offset).min(seen.len());
        Ok(seen[start..seen.len().min(start + len)].to_vec())
    }

    pub(super) fn len(&mut self, inode: u64) -> io::Result<u64> {
        Ok(self.node(inode)?.seen.len() as u64)
    }

    pub(super) fn used(&self) -> u64 {
        let used = self.names.values().filter_map(|inode| self.nodes.get(inode));
        used.map(|node| node.seen.len() as u64).sum()
    }

    pub(super) fn free(&self) -> u64 {
        self.capacity.map_or(u64::MAX, |capacity| capacity.saturating_sub(self.used()))
    }

    pub(super) fn rot(&mut self, name: &str, offset: u64, mask: u8) -> bool {
        let inode = self.names.get(name).copied();
        let Some(node) = inode.and_then(|inode| self.nodes.get_mut(&inode)) else { return false };
        for bytes in [&mut node.seen, &mut node.durable] {
            match Rc::make_mut(bytes).get_mut(index(offset)) {
                Some(byte) => *byte ^= mask,
                None => return false,
            }
        }
        true
    }

    pub(super) fn contents(&self, name: &str) -> Option<Vec<u8>> {
        let inode = self.names.get(name)?;
        self.nodes.get(inode).map(|node| Vec::clone(&node.seen))
    }

    /// What is durable of each file that has a durable name.
    pub(super) fn durable_files(&self) -> Vec<(u64, Rc<Vec<u8>>)> {
        let files = self.durable_names.values().filter_map(|file| Some((*file, self.durable(*file)?)));
        files.collect()
    }

    pub(super) fn durable(&self, file: u64) -> Option<Rc<Vec<u8>>> {
        self.nodes.get(&file).map(|node| Rc::clone(&node.durable))
    }

    pub(super) fn has_durable_name(&self, file: u64) -> bool {
        self.durable_names.values().any(|named| *named == file)
    }

    // Power loss.

    pub(super) fn crash(&mut self, survives: &mut dyn FnMut(Unit<'_>) -> bool) {
        for (file, node) in &mut self.nodes {
            for pending in std::mem::take(&mut node.pending) {
                survive(*file, &pending.change, Rc::make_mut(&mut node.durable), survives);
            }
            node.seen.clone_from(&node.durable);
        }
        for (_, change) in std::mem::take(&mut self.pending_names) {
            if survives(Unit::Name(change.name())) {
                change.apply(&mut self.durable_names);
            }
        }
        self.names.clone_from(&self.durable_names);
        let reachable: Vec<u64> = self.names.values().copied().collect();
        self.nodes.retain(|inode, _| reachable.contains(inode));
        self.cut_off();
    }

    pub(super) fn end_process(&mut self) {
        for node in self.nodes.values_mut() {
            node.pending.iter_mut().for_each(|pending| pending.done = true);
        }
        self.cut_off();
    }

    fn cut_off(&mut self) {
        self.life += 1;
        (self.halt_at, self.changes_left) = (None, None);
        self.hold = false;
        self.faults.clear();
        self.release_all().into_iter().for_each(Waker::wake);
    }

    /// A disk with these names and files, all of them durable.
    pub(super) fn settled(&self, names: Names, nodes: BTreeMap<u64, Node>) -> Self {
        Self {
            begun: self.begun,
            capacity: self.capacity,
            nodes,
            durable_names: names.clone(),
            names,
            ..Self::default()
        }
    }
}

fn input_output() -> io::Error {
    io::Error::other("the simulated medium fails")
}

fn survive(file: u64, change: &Change, durable: &mut Vec<u8>, survives: &mut dyn FnMut(Unit<'_>) -> bool) {
    match change {
        Change::Grow { len } if survives(Unit::Length { file }) => grow(durable, index(*len)),
        Change::Grow { .. } => {}
        Change::Write { offset, data } => {
            for (nth, sector) in data.chunks(SECTOR).enumerate() {
                let offset = offset + (nth * SECTOR) as u64;
                if survives(Unit::Sector { file, offset }) {
                    overwrite(durable, index(offset), sector);
                    grow(durable, durable.len().next_multiple_of(BLOCK_LEN));
                }
            }
        }
    }
}

fn fits(fault: &Fault, kind: OpKind, name: &str) -> bool {
    fault.kind == kind && name.starts_with(&fault.prefix)
}

pub(super) fn overwrite(bytes: &mut Vec<u8>, at: usize, data: &[u8]) {
    grow(bytes, at + data.len());
    bytes[at..at + data.len()].copy_from_slice(data);
}

pub(super) fn grow(bytes: &mut Vec<u8>, len: usize) {
    if bytes.len() < len {
        bytes.resize(len, 0);
    }
}

/// A file offset as an index; the files are in memory, so it fits.
pub(super) fn index(offset: u64) -> usize {
    usize::try_from(offset).expect("a file in memory has no larger offset")
}
