//! What one generator has counted in a window, as the others read it: a line of JSON, then the latencies as
//! HdrHistogram writes them (V2, deflated).

use std::io::Cursor;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use serde::{Deserialize, Serialize};

use crate::driver::Tally;
use crate::measure::Measurement;

#[derive(Debug, Serialize, Deserialize)]
struct Counts {
    operations: u64,
    late: u64,
    generator_cpu_ns: u64,
    window_ns: u64,
    objections: Vec<String>,
    disturbed: bool,
}

/// What others need to add it to theirs.
pub(super) fn encode(own: &Measurement) -> Result<Vec<u8>> {
    let Measurement { tally, window, objections, disturbed, .. } = own;
    let counts = Counts {
        operations: tally.operations,
        late: tally.late,
        generator_cpu_ns: u64::try_from(tally.generator_cpu.as_nanos())?,
        window_ns: u64::try_from(window.as_nanos())?,
        objections: objections.clone(),
        disturbed: *disturbed,
    };
    let mut bytes = serde_json::to_vec(&counts)?;
    bytes.push(b'\n');
    let mut serializer = V2DeflateSerializer::new();
    serializer.serialize(&tally.latencies_ns, &mut bytes).map_err(|error| anyhow!("{error:?}"))?;
    Ok(bytes)
}

/// Adds what generator `name` has counted.
pub(super) fn add(all: &mut Measurement, name: &str, report: &[u8]) -> Result<()> {
    let end = report.iter().position(|byte| *byte == b'\n').context("no line")?;
    let counts: Counts = serde_json::from_slice(&report[..end])?;
    let window = Duration::from_nanos(counts.window_ns);
    ensure!(window == all.window, "a window of {window:?} instead of {:?}", all.window);
    let latencies: Histogram<u64> = Deserializer::new()
        .deserialize(&mut Cursor::new(&report[end + 1..]))
        .map_err(|error| anyhow!("{error:?}"))?;
    let mut theirs = Tally::new();
    theirs.operations = counts.operations;
    theirs.late = counts.late;
    theirs.generator_cpu = Duration::from_nanos(counts.generator_cpu_ns);
    theirs.latencies_ns.add(&latencies).map_err(|error| anyhow!("{error:?}"))?;
    all.tally.add(&theirs);
    let objections = counts.objections.iter().map(|objection| format!("generator {name}: {objection}"));
    all.objections.extend(objections);
    all.disturbed |= counts.disturbed;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn measured(latencies_us: &[u64], objections: &[&str]) -> Measurement {
        let mut tally = Tally::new();
        let at = Instant::now();
        latencies_us.iter().for_each(|latency| tally.record(at, Duration::from_micros(*latency)));
        tally.generator_cpu = Duration::from_millis(30);
        let disturbed = !objections.is_empty();
        let objections = objections.iter().map(|text| (*text).to_owned()).collect();
        Measurement {
            tally,
            window: Duration::from_secs(1),
            server_cpu: None,
            stood_still: None,
            objections,
            disturbed,
        }
    }

    #[test]
    fn what_two_generators_have_counted_is_added_with_what_speaks_against_it() {
        let mut all = measured(&[100, 200], &[]);
        let report = encode(&measured(&[300, 400, 500], &["it swapped"])).unwrap();
        add(&mut all, "b", &report).unwrap();
        assert_eq!((all.tally.operations, all.tally.latencies_ns.len()), (5, 5));
        assert_eq!(all.tally.generator_cpu, Duration::from_millis(60));
        assert!((all.latency_us(100.0) - 500.0).abs() < 1.0);
        assert_eq!(all.objections, ["generator b: it swapped"]);
        assert!(all.disturbed, "all measure again together");
    }

    #[test]
    fn a_report_of_another_window_is_refused() {
        let other = Measurement { window: Duration::from_secs(2), ..measured(&[100], &[]) };
        let error = add(&mut measured(&[100], &[]), "b", &encode(&other).unwrap()).unwrap_err();
        assert!(error.to_string().contains("2s instead of 1s"), "{error}");
    }
}
