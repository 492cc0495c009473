//! Writes groups and segment headers to the disk.

use super::*;

impl<S: Storage> Wal<S> {
    /// Bytes left in the active segment.
    pub(super) fn room(&self) -> u64 {
        match self.segments.back() {
            Some(segment) if !self.cut_due => segment.header.size_bytes.saturating_sub(segment.end),
            _ => 0,
        }
    }

    /// Divides frames into groups, and groups among segments.
    pub(super) fn plan<B: AsRef<[u8]>>(&self, frames: &[B]) -> Vec<Part> {
        let mut room = self.room();
        let mut plan: Vec<Part> = Vec::with_capacity(1);
        let mut rest = frames.iter().map(|bytes| padded(bytes.as_ref().len())).peekable();
        while let Some(first) = rest.next() {
            let mut part = Part { frames: 1, rolls: None };
            if on_disk(first) > room {
                let len = self.upkeep.segment_len().max(BLOCK + on_disk(first));
                part.rolls = Some(len);
                room = len - BLOCK;
            }
            let mut len = first;
            while let Some(next) =
                rest.next_if(|next| len + next <= self.write_len_max && on_disk(len + next) <= room)
            {
                len += next;
                part.frames += 1;
            }
            room -= on_disk(len);
            plan.push(part);
        }
        plan
    }

    /// Gets as many spares as an append will need, so that a full disk is found before anything is written.
    pub(super) async fn reserve(
        &self,
        lens: impl IntoIterator<Item = u64>,
    ) -> Result<VecDeque<Spare<S::File>>, SegmentError> {
        let mut spares = VecDeque::new();
        for len in lens {
            let last = spares.back().map(|spare: &Spare<_>| spare.sequence);
            let above = last.unwrap_or_else(|| self.active_sequence());
            match self.upkeep.take_of(above, len).await {
                Ok(spare) => spares.push_back(spare),
                Err(error) => {
                    spares.into_iter().for_each(|spare| self.upkeep.give_back(spare));
                    return Err(error);
                }
            }
        }
        Ok(spares)
    }

    /// Writes the planned groups and makes them durable.
    pub(super) async fn write<B: AsRef<[u8]>>(
        &mut self,
        frames: &[B],
        plan: &[Part],
        mut spares: VecDeque<Spare<S::File>>,
    ) -> Result<(), AppendError> {
        let before = self.segments.back().map(|segment| (segment.end, segment.tip, segment.marks.len()));
        let mut rolled = false;
        let mut rest = frames;
        for part in plan {
            if part.rolls.is_some() {
                self.sync().await?;
                let spare = spares.pop_front().expect("one spare was reserved for each roll");
                let (previous, tip) = (self.active_sequence(), self.tip());
                self.push_segment(spare, previous, tip);
                rolled = true;
            }
            let (group, later) = rest.split_at(part.frames);
            match self.write_group(group).await {
                Ok(()) => rest = later,
                // The file system did not reserve space, although asked to. The groups of this append that
                // were written are not durable and will be overwritten; their numbers are not reused.
                Err(error) if error.is_no_space() && !rolled => {
                    if let (Some(segment), Some((end, tip, marks))) = (self.segments.back_mut(), before) {
                        (segment.end, segment.tip) = (end, tip);
                        segment.marks.truncate(marks);
                    }
                    return Err(AppendError::NoSpace { needed_bytes: needed(frames) });
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.sync().await?;
        Ok(())
    }

    /// Begins a segment that continues `tip` in segment `previous`, durably. For the first segment of a log.
    pub(super) async fn begin_segment(&mut self, previous: u64, tip: Tip) -> Result<(), SegmentError> {
        let spare = self.upkeep.take(self.active_sequence()).await?;
        self.push_segment(spare, previous, tip);
        self.state = State::Busy;
        let result = self.write_header().await;
        self.state = match &result {
            Ok(()) => State::Ready,
            Err(error) => State::Failed(error.clone()),
        };
        Ok(result?)
    }

    /// Cuts the history and continues in a new segment, whose durable header is the cut. A seal follows in a
    /// write of its own: if the header is damaged later, the seal proves that there was one, and the
    /// truncated frames are not taken for the log's end.
    pub(crate) async fn continue_after(&mut self, cut: Cut) -> Result<(), SegmentError> {
        let active = self.active_sequence();
        let spare = self.upkeep.take(active).await?;
        let dropped = self.segments.split_off(cut.kept);
        if let Some(segment) = self.segments.back_mut() {
            segment.tip = cut.tip;
            segment.marks.retain(|mark| mark.before.zxid < cut.tip.zxid);
        }
        self.push_segment(spare, cut.previous, cut.tip);
        self.state = State::Busy;
        let result = if planted!(CutUnwritten) { Ok(()) } else { self.write_cut().await };
        self.state = match &result {
            Ok(()) => State::Ready,
            Err(error) => State::Failed(error.clone()),
        };
        result?;
        dropped.into_iter().for_each(|segment| self.upkeep.retire(retired(segment)));
        Ok(())
    }

    async fn write_cut(&mut self) -> Result<(), FatalError> {
        self.write_header().await?;
        self.write_group::<&[u8]>(&[]).await?;
        self.sync().await?;
        self.sealed = self.tip().number;
        Ok(())
    }

    fn active_sequence(&self) -> u64 {
        self.segments.back().map_or(0, |segment| segment.header.sequence)
    }

    fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    fn push_segment(&mut self, spare: Spare<S::File>, previous: u64, tip: Tip) {
        let header = SegmentHeader {
            sequence: spare.sequence,
            previous,
            after_zxid: tip.zxid,
            chain: tip.checksum,
            number: self.next_number(),
            size_bytes: spare.len,
            identity: self.identity,
        };
        self.segments.push_back(Live::new(header, spare.file, false));
        self.cut_due = false;
    }

    async fn write_header(&mut self) -> Result<(), FatalError> {
        let Some(segment) = self.segments.back_mut() else { return Ok(()) };
        let header = segment.header.encode();
        let pieces = [&header[..], &ZEROS[header.len()..]];
        write_pieces(segment.file.as_ref(), &segment.name(), 0, self.write_len_max, &pieces).await?;
        segment.header_written = true;
        self.sync().await
    }

    /// Writes one group to the active segment, preceded by the segment's header if that is not written yet.
    async fn write_group<B: AsRef<[u8]>>(&mut self, frames: &[B]) -> Result<(), FatalError> {
        let (number, durable) = (self.next_number(), self.durable);
        let Some(segment) = self.segments.back_mut() else { return Ok(()) };
        let body_len: usize = frames.iter().map(|bytes| padded(bytes.as_ref().len())).sum();
        let header = GroupHeader {
            home: segment.header.home(),
            number,
            durable,
            after_zxid: segment.tip.zxid,
            frames: u32::try_from(frames.len()).expect("a group of at most 1 MiB has fewer frames"),
            body_len: u32::try_from(body_len).expect("a group fits into a segment of at most 1 GiB"),
        };
        let group_header = header.encode();
        let segment_header = segment.header.encode();
        let mut pieces: Vec<&[u8]> = Vec::with_capacity(2 * frames.len() + 4);
        let mut offset = segment.end;
        if !segment.header_written {
            pieces.extend([&segment_header[..], &ZEROS[segment::HEADER_LEN..]]);
            offset = 0;
        }
        pieces.push(&group_header);
        for bytes in frames {
            let bytes = bytes.as_ref();
            pieces.extend([bytes, &ZEROS[..padded(bytes.len()) - bytes.len()]]);
        }
        let len = group::HEADER_LEN + body_len;
        pieces.push(&ZEROS[..whole_blocks(len) - len]);
        write_pieces(segment.file.as_ref(), &segment.name(), offset, self.write_len_max, &pieces).await?;
        segment.header_written = true;
        let last = frames.last().and_then(|bytes| frame::parse_trusted(bytes.as_ref()).ok());
        let mut tip = Tip { number, ..segment.tip };
        if let Some(last) = last {
            (tip.zxid, tip.checksum) = (last.meta().last_zxid, last.checksum());
        }
        segment.grow(segment.end + whole_blocks(len) as u64, tip);
        Ok(())
    }

    /// Makes everything written so far durable.
    async fn sync(&mut self) -> Result<(), FatalError> {
        let Some(segment) = self.segments.back() else { return Ok(()) };
        if self.upkeep.mode() != WriteMode::Through
            && self.durable < segment.tip.number
            && !planted!(AppendUnsynced)
        {
            let synced = segment.file.datasync().await;
            synced.map_err(|source| FatalError::io("syncing", segment.name(), 0, source))?;
        }
        self.durable = segment.tip.number;
        self.upkeep.advanced(segment.end);
        Ok(())
    }
}

/// Bytes that frames of `body_len` bytes take in a segment.
fn on_disk(body_len: usize) -> u64 {
    whole_blocks(group::HEADER_LEN + body_len) as u64
}

fn needed<B: AsRef<[u8]>>(frames: &[B]) -> u64 {
    on_disk(frames.iter().map(|bytes| padded(bytes.as_ref().len())).sum())
}

/// Writes pieces (whole blocks together) one after the other, in writes of at most `len_max` bytes.
async fn write_pieces<F: StorageFile>(
    file: &F,
    name: &str,
    offset: u64,
    len_max: usize,
    pieces: &[&[u8]],
) -> Result<(), FatalError> {
    let mut left: usize = pieces.iter().map(|piece| piece.len()).sum();
    let mut at = offset;
    let mut source = pieces.iter().copied();
    let mut piece: &[u8] = &[];
    while left > 0 {
        let len = left.min(len_max);
        let mut buffer = file.buffer(len);
        fill(buffer.as_mut(), &mut piece, &mut source);
        let written = file.write_at(buffer, at).await;
        let wrote = written.map_err(|error| FatalError::io("writing", name.to_owned(), at, error))?;
        if wrote != len {
            return Err(FatalError::ShortWrite { file: name.to_owned(), offset: at, len, wrote });
        }
        at += len as u64;
        left -= len;
    }
    Ok(())
}

/// Fills `out` from the rest of `piece` and the pieces after it; `piece` is then what is left over.
fn fill<'a>(mut out: &mut [u8], piece: &mut &'a [u8], source: &mut impl Iterator<Item = &'a [u8]>) {
    while !out.is_empty() {
        if piece.is_empty() {
            match source.next() {
                Some(next) => *piece = next,
                None => return,
            }
            continue;
        }
        let len = out.len().min(piece.len());
        let (head, tail) = std::mem::take(&mut out).split_at_mut(len);
        head.copy_from_slice(&piece[..len]);
        *piece = &piece[len..];
        out = tail;
    }
}
