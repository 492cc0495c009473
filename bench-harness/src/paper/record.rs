//! What an experiment has yielded: every figure of every run, with the machine and the settings, as one CSV
//! file. Pictures, tables and the index are made from it, and can be made again later.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::statistics::median;

/// Figure of a moment that something happened at, which the series names; `x` is when.
pub(crate) const EVENT: &str = "event";

/// Figure of a run that failed.
pub(crate) const ERROR: &str = "error";

/// One figure of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sample {
    pub(crate) system: String,
    pub(crate) servers: usize,
    /// Tells curves of one system apart, such as `reads` and `writes`; may be empty.
    pub(crate) series: String,
    /// Where on the experiment's axis.
    pub(crate) x: f64,
    /// From 1.
    pub(crate) run: usize,
    pub(crate) figure: String,
    pub(crate) unit: String,
    /// Missing where the run failed.
    pub(crate) value: Option<f64>,
    /// Why it does not count; empty if it does.
    pub(crate) invalid: String,
}

/// All of an experiment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Record {
    /// Machine, software, settings.
    pub(crate) facts: Vec<(String, String)>,
    /// What was left out, and why.
    pub(crate) notes: Vec<String>,
    pub(crate) samples: Vec<Sample>,
}

/// One curve: a system, a size of the ensemble (0: all sizes), a series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Curve {
    pub(crate) system: String,
    pub(crate) servers: usize,
    pub(crate) series: String,
}

/// The runs at one place of a curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) least: f64,
    pub(crate) median: f64,
    pub(crate) greatest: f64,
}

const NOTE: &str = "note";

impl Record {
    /// The curves that have `figure`, in the order of measuring.
    pub(crate) fn curves(&self, figure: &str) -> Vec<Curve> {
        let mut curves = Vec::new();
        for sample in self.samples.iter().filter(|sample| sample.figure == figure) {
            let curve = sample.curve();
            if !curves.contains(&curve) {
                curves.push(curve);
            }
        }
        curves
    }

    /// The points of a curve from the runs that count, by rising x.
    pub(crate) fn points(&self, curve: &Curve, figure: &str) -> Vec<Point> {
        let counted = self.samples.iter().filter(|sample| {
            sample.figure == figure && sample.invalid.is_empty() && sample.curve() == *curve
        });
        let mut values: Vec<(f64, f64)> =
            counted.filter_map(|sample| Some((sample.x, sample.value?))).collect();
        values.sort_by(|one, other| one.0.total_cmp(&other.0));
        let same_place = values.chunk_by(|one, other| one.0.total_cmp(&other.0).is_eq());
        same_place.map(|runs| Point::of(runs[0].0, runs.iter().map(|(_, value)| *value))).collect()
    }

    /// The same with one curve over all sizes of ensembles.
    pub(crate) fn over_servers(&self) -> Self {
        let mut record = self.clone();
        record.samples.iter_mut().for_each(|sample| sample.servers = 0);
        record
    }

    /// What happened to a system in one run, and when.
    pub(crate) fn events(&self, system: &str, run: usize) -> Vec<(f64, &str)> {
        let of_run = self
            .samples
            .iter()
            .filter(|sample| sample.figure == EVENT && sample.system == system && sample.run == run);
        of_run.map(|sample| (sample.x, sample.series.as_str())).collect()
    }

    /// The runs that do not count, each reason once.
    pub(crate) fn objections(&self) -> Vec<String> {
        let mut objections = Vec::new();
        for sample in self.samples.iter().filter(|sample| !sample.invalid.is_empty()) {
            let Sample { system, servers, series, x, run, invalid, .. } = sample;
            let series = if series.is_empty() { String::new() } else { format!(", {series}") };
            let objection = format!("{system}, {servers} server(s){series}, at {x}, run {run}: {invalid}");
            if !objections.contains(&objection) {
                objections.push(objection);
            }
        }
        objections
    }

    /// The value of a fact.
    pub(crate) fn fact(&self, name: &str) -> Option<&str> {
        self.facts.iter().find(|(fact, _)| fact == name).map(|(_, value)| value.as_str())
    }

    /// Writes the file.
    pub(crate) fn save(&self, path: &Path) -> Result<()> {
        let mut bytes = Vec::new();
        let notes = self.notes.iter().map(|note| (NOTE, note.as_str()));
        let facts = self.facts.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in facts.chain(notes) {
            bytes.extend_from_slice(format!("# {name}: {}\n", value.replace('\n', " / ")).as_bytes());
        }
        let mut csv = csv::Writer::from_writer(bytes);
        self.samples.iter().try_for_each(|sample| csv.serialize(sample))?;
        let bytes = csv.into_inner().map_err(csv::IntoInnerError::into_error)?;
        // Whole or not at all: the harness may be killed at any moment.
        let draft = path.with_extension("csv.new");
        fs::write(&draft, bytes).with_context(|| format!("writing {}", draft.display()))?;
        fs::rename(&draft, path).with_context(|| format!("writing {}", path.display()))
    }

    /// Reads a file that [`Record::save`] has written.
    pub(crate) fn load(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        let mut record = Self::default();
        for line in text.lines().map_while(|line| line.strip_prefix("# ")) {
            let (name, value) = line.split_once(": ").context("a line that names no fact")?;
            match name {
                NOTE => record.notes.push(value.to_owned()),
                _ => record.facts.push((name.to_owned(), value.to_owned())),
            }
        }
        let mut csv = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(text.as_bytes());
        for sample in csv.deserialize() {
            record.samples.push(sample.with_context(|| format!("in {}", path.display()))?);
        }
        ensure!(!record.facts.is_empty(), "{} says nothing of where it was measured", path.display());
        Ok(record)
    }
}

impl Sample {
    fn curve(&self) -> Curve {
        Curve { system: self.system.clone(), servers: self.servers, series: self.series.clone() }
    }
}

impl Curve {
    /// As a legend names it.
    pub(crate) fn name(&self) -> String {
        let Self { system, servers, series } = self;
        let size = match servers {
            0 => String::new(),
            1 => ", 1 server".to_owned(),
            servers => format!(", {servers} servers"),
        };
        if series.is_empty() { format!("{system}{size}") } else { format!("{system}{size}, {series}") }
    }
}

impl Point {
    /// # Panics
    /// Without values.
    fn of(x: f64, values: impl Iterator<Item = f64> + Clone) -> Self {
        Self {
            x,
            least: values.clone().fold(f64::INFINITY, f64::min),
            median: median(values.clone()).expect("a place on a curve has a run"),
            greatest: values.fold(f64::NEG_INFINITY, f64::max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(x: f64, run: usize, value: f64, invalid: &str) -> Sample {
        Sample {
            system: "ringkeeper".into(),
            servers: 3,
            series: String::new(),
            x,
            run,
            figure: "throughput".into(),
            unit: "operations/s".into(),
            value: Some(value),
            invalid: invalid.into(),
        }
    }

    fn record() -> Record {
        Record {
            facts: vec![("cpu".into(), "two of them: fast".into())],
            notes: vec!["7 servers left out".into()],
            samples: vec![
                sample(50.0, 1, 30.0, ""),
                sample(0.0, 1, 10.0, ""),
                sample(0.0, 2, 14.0, ""),
                sample(0.0, 3, 11.0, ""),
                sample(0.0, 4, 900.0, "the machine swapped 3 pages, and more"),
            ],
        }
    }

    #[test]
    fn a_saved_record_is_read_back_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fig.csv");
        record().save(&path).unwrap();
        assert_eq!(Record::load(&path).unwrap(), record());
    }

    #[test]
    fn points_are_medians_with_their_range_and_leave_out_what_does_not_count() {
        let record = record();
        let [curve] = &record.curves("throughput")[..] else { panic!("one curve") };
        let points = record.points(curve, "throughput");
        assert_eq!(points[0], Point { x: 0.0, least: 10.0, median: 11.0, greatest: 14.0 });
        assert_eq!(points[1].median, 30.0);
        assert_eq!(record.objections().len(), 1);
    }
}
