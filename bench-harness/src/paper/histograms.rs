//! Latencies of every window as they are, in the log format of HdrHistogram, which its tools read.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, anyhow};
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};

use super::bench::Latencies;

/// Maxima are printed in milliseconds; values in the histograms are nanoseconds.
const NANOSECONDS_A_MILLISECOND: f64 = 1e6;

/// Writes one histogram for each window, tagged `system/servers/series/x/run`.
pub(crate) fn write(path: &Path, latencies: &[Latencies]) -> Result<()> {
    let mut file = BufWriter::new(File::create(path).with_context(|| format!("writing {}", path.display()))?);
    let mut serializer = V2DeflateSerializer::new();
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment("values in nanoseconds; tags are system/servers/series/x/run")
        .with_start_time(SystemTime::now())
        .with_max_value_divisor(NANOSECONDS_A_MILLISECOND)
        .begin_log_with(&mut file, &mut serializer)?;
    let mut from = Duration::ZERO;
    for Latencies { tag, nanoseconds, window } in latencies {
        let tag = Tag::new(tag).with_context(|| format!("{tag:?} is no tag"))?;
        log.write_histogram(nanoseconds, from, *window, Some(tag)).map_err(|error| anyhow!("{error:?}"))?;
        from += *window;
    }
    file.flush().with_context(|| format!("writing {}", path.display()))
}
