//! What a store has, by the names of its objects.

use ringkeeper_frame::{Checksum, LogPosition};
use ringkeeper_wire::Zxid;
use serde_json::{Value, json};

use crate::store::{Store, StoreError};

const MANIFEST: &str = "manifest";
const FORMAT: u64 = 2;
/// Of builds whose states have no [`TakenFull::upload`].
const FORMAT_BEFORE: u64 = 1;

/// Frames from behind one position up to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its first frame continues this.
    pub after: LogPosition,
    /// Its last frame ends here.
    pub last: LogPosition,
}

/// A state in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenFull {
    /// Where the log goes on behind it.
    pub position: LogPosition,
    /// Tells its parts from those of other uploads of a state at this position, which are cut elsewhere and
    /// may come from a server whose znodes have another order; 0 in a state of a build before.
    pub upload: u64,
    /// Number of its parts.
    pub parts: u32,
    /// Version of the blocks' contents.
    pub state_version: u32,
    /// Time of its last transaction, milliseconds since the Unix epoch.
    pub time_ms: i64,
    /// When it was taken, likewise.
    pub taken_ms: i64,
}

/// What a store has.
#[derive(Debug, Default)]
pub struct Catalog {
    /// Number of the ensemble; nothing in an empty store.
    pub ensemble: Option<u64>,
    /// States, the oldest first.
    pub fulls: Vec<TakenFull>,
    /// Parts of the log, by their beginnings.
    pub segments: Vec<Segment>,
}

impl Catalog {
    /// Lists a store.
    ///
    /// # Errors
    /// The store refuses, or has damaged objects.
    pub async fn read(store: &Store) -> Result<Self, StoreError> {
        let manifest = founded(store).await?;
        let mut catalog = Self { ensemble: manifest.map(|manifest| manifest.ensemble), ..Self::default() };
        for name in store.list().await? {
            if let Some(Kind::Segment(segment)) = Kind::of(&name) {
                catalog.segments.push(segment);
            } else if let Some(Kind::FullEnd(position)) = Kind::of(&name) {
                let about = object(&name, &store.need(&name).await?)?;
                let malformed =
                    || StoreError::Malformed { name: name.clone(), reason: "numbers are missing".into() };
                let number = |key: &str| about[key].as_i64().ok_or_else(malformed);
                let small = |key: &str| number(key).and_then(|n| u32::try_from(n).map_err(|_| malformed()));
                let (parts, state_version) = (small("parts")?, small("state_version")?);
                let (time_ms, taken_ms) = (number("time_ms")?, number("taken_ms")?);
                let upload = match &about["upload"] {
                    Value::Null => 0,
                    upload => hex(upload).ok_or_else(malformed)?,
                };
                catalog.fulls.push(TakenFull { position, upload, parts, state_version, time_ms, taken_ms });
            }
        }
        catalog.segments.sort_unstable_by_key(|segment| (segment.after.zxid, segment.last.zxid));
        catalog.fulls.sort_unstable_by_key(|full| full.position.zxid);
        Ok(catalog)
    }

    /// The segments that lead from a position as far as the store goes without a gap.
    #[must_use]
    pub fn from(&self, position: LogPosition) -> Vec<Segment> {
        let mut chain = Vec::new();
        let mut end = position;
        // Of those that have the frame behind `end`, the one that goes furthest.
        let mut best: Option<Segment> = None;
        for segment in &self.segments {
            if segment.after.zxid > end.zxid {
                let Some(next) = best.take() else { break };
                end = next.last;
                chain.push(next);
            }
            let continues = segment.after == end || segment.after.zxid < end.zxid;
            let furthest = best.map_or(end, |best| best.last);
            if continues && segment.last.zxid > furthest.zxid {
                best = Some(*segment);
            }
        }
        chain.extend(best);
        chain
    }

    /// Where the log that continues the newest state ends.
    #[must_use]
    pub fn end(&self) -> Option<LogPosition> {
        let newest = self.fulls.last()?.position;
        Some(self.from(newest).last().map_or(newest, |segment| segment.last))
    }

    /// The greatest zxid of all.
    #[must_use]
    pub fn greatest(&self) -> Zxid {
        let fulls = self.fulls.iter().map(|full| full.position.zxid);
        fulls.chain(self.segments.iter().map(|segment| segment.last.zxid)).max().unwrap_or_default()
    }
}

/// What the store's first object says.
pub(crate) struct Manifest {
    /// Whose history the store has.
    pub(crate) ensemble: u64,
    /// Whether the format is the newest, so that older builds refuse the store.
    pub(crate) is_newest: bool,
}

/// Whose history the store has; nothing in an empty one.
pub(crate) async fn founded(store: &Store) -> Result<Option<Manifest>, StoreError> {
    let Some(manifest) = store.get(MANIFEST).await? else { return Ok(None) };
    let manifest = object(MANIFEST, &manifest)?;
    let malformed = |reason| StoreError::Malformed { name: MANIFEST.into(), reason };
    let is_newest = match manifest["format"].as_u64() {
        Some(FORMAT) => true,
        Some(FORMAT_BEFORE) => false,
        _ => {
            let format = &manifest["format"];
            return Err(malformed(format!("format {format}, this program reads up to {FORMAT}")));
        }
    };
    let ensemble = hex(&manifest["ensemble"]).ok_or_else(|| malformed("it names no ensemble".into()))?;
    Ok(Some(Manifest { ensemble, is_newest }))
}

/// Writes whose history the store has.
pub(crate) async fn found(store: &Store, ensemble: u64) -> Result<(), StoreError> {
    let manifest = json!({ "format": FORMAT, "ensemble": format!("{ensemble:x}") });
    store.put(MANIFEST, manifest.to_string().as_bytes()).await
}

fn hex(value: &Value) -> Option<u64> {
    value.as_str().and_then(|text| u64::from_str_radix(text, 16).ok())
}

fn object(name: &str, bytes: &[u8]) -> Result<Value, StoreError> {
    serde_json::from_slice(bytes)
        .map_err(|error| StoreError::Malformed { name: name.to_owned(), reason: error.to_string() })
}

impl Segment {
    /// Its object.
    pub(crate) fn name(&self) -> String {
        format!("log/{}-{}", name_of(self.after), name_of(self.last))
    }
}

impl TakenFull {
    /// One of its parts.
    pub(crate) fn part_name(&self, part: u32) -> String {
        let folder = name_of(self.position);
        match self.upload {
            0 => format!("full/{folder}/{part:08}"),
            upload => format!("full/{folder}/{upload:016x}-{part:08}"),
        }
    }

    /// Its last object.
    pub(crate) fn end_name(position: LogPosition) -> String {
        format!("full/{}.end", name_of(position))
    }

    /// What the last object says.
    pub(crate) fn about(&self) -> Value {
        let Self { upload, parts, state_version, time_ms, taken_ms, .. } = self;
        json!({
            "upload": format!("{upload:x}"),
            "parts": parts,
            "state_version": state_version,
            "time_ms": time_ms,
            "taken_ms": taken_ms,
        })
    }
}

/// What an object is, by its name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    FullPart(LogPosition),
    FullEnd(LogPosition),
    Segment(Segment),
}

impl Kind {
    pub(crate) fn of(name: &str) -> Option<Self> {
        let (folder, name) = name.split_once('/')?;
        match folder {
            "log" => {
                let (after, last) = name.split_at_checked(POSITION_LEN)?;
                let (after, last) = (position(after)?, position(last.strip_prefix('-')?)?);
                Some(Self::Segment(Segment { after, last }))
            }
            "full" => match name.split_once('/') {
                Some((at, _)) => Some(Self::FullPart(position(at)?)),
                None => Some(Self::FullEnd(position(name.strip_suffix(".end")?)?)),
            },
            _ => None,
        }
    }
}

const POSITION_LEN: usize = 16 + 1 + 8;

fn name_of(position: LogPosition) -> String {
    format!("{:016x}-{}", position.zxid.0, position.checksum)
}

fn position(text: &str) -> Option<LogPosition> {
    let (zxid, checksum) = text.split_once('-')?;
    if text.len() != POSITION_LEN || zxid.len() != 16 {
        return None;
    }
    let zxid = Zxid(u64::from_str_radix(zxid, 16).ok()?);
    Some(LogPosition { zxid, checksum: Checksum(u32::from_str_radix(checksum, 16).ok()?) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(zxid: u64) -> LogPosition {
        LogPosition { zxid: Zxid(zxid), checksum: Checksum(u32::try_from(zxid).expect("small") + 7) }
    }

    #[test]
    fn a_name_says_what_an_object_has() {
        let segment = Segment { after: at(0x1_0000), last: at(0x2_0000) };
        assert_eq!(segment.name(), "log/0000000000010000-00010007-0000000000020000-00020007");
        assert_eq!(Kind::of(&segment.name()), Some(Kind::Segment(segment)));
        assert_eq!(Kind::of(&TakenFull::end_name(at(9))), Some(Kind::FullEnd(at(9))));
        for (upload, name) in [(0, "00000003"), (0xa, "000000000000000a-00000003")] {
            let full =
                TakenFull { position: at(9), upload, parts: 4, state_version: 1, time_ms: 0, taken_ms: 0 };
            assert_eq!(full.part_name(3), format!("full/0000000000000009-00000010/{name}"));
            assert_eq!(Kind::of(&full.part_name(3)), Some(Kind::FullPart(at(9))));
        }
        for name in ["manifest", "log/1-2-3-4", "full/0000000000000009-00000010", "log/", "x"] {
            assert_eq!(Kind::of(name), None, "{name}");
        }
    }

    #[test]
    fn segments_lead_on_as_far_as_there_is_no_gap() {
        let segment = |after, last| Segment { after: at(after), last: at(last) };
        let all = vec![segment(2, 5), segment(2, 7), segment(5, 9), segment(12, 14)];
        let catalog = Catalog { segments: all, ..Catalog::default() };
        assert_eq!(catalog.from(at(2)), [segment(2, 7), segment(5, 9)]);
        assert_eq!(catalog.from(at(9)), []);
        let fork = LogPosition { checksum: Checksum(1), ..at(2) };
        assert_eq!(catalog.from(fork), [], "another history");
        assert_eq!(catalog.from(at(13)), [segment(12, 14)]);
        assert_eq!(catalog.greatest(), Zxid(14));
    }
}
