//! The comparison as a table: medians and their ratio, as Markdown to read and CSV to calculate with.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::metric::{Better, Metric};
use crate::environment::{Environment, Fact};
use crate::statistics::median;

/// One figure of one workload, over all runs of each system.
#[derive(Debug)]
struct Row {
    workload: String,
    metric: String,
    unit: &'static str,
    better: Better,
    /// Of each system, in the table's order, one value a run.
    values: Vec<Vec<f64>>,
}

/// All figures, and the runs that were errors.
#[derive(Debug)]
pub(crate) struct Table {
    systems: Vec<&'static str>,
    rows: Vec<Row>,
    errors: Vec<String>,
}

impl Table {
    /// An empty table for these systems; ratios are of the first to the second.
    pub(crate) const fn new(systems: Vec<&'static str>) -> Self {
        Self { systems, rows: Vec::new(), errors: Vec::new() }
    }

    /// Adds what one run of `workload` on the system with index `system` has yielded.
    pub(crate) fn add(&mut self, workload: &str, system: usize, metrics: Vec<Metric>) {
        for Metric { name, unit, better, value } in metrics {
            let is_row = |row: &Row| row.workload == workload && row.metric == name;
            let place = self.rows.iter().position(is_row).unwrap_or(self.rows.len());
            if place == self.rows.len() {
                let values = vec![Vec::new(); self.systems.len()];
                self.rows.push(Row { workload: workload.to_owned(), metric: name, unit, better, values });
            }
            self.rows[place].values[system].push(value);
        }
    }

    /// Adds a run that is an error.
    pub(crate) fn add_error(&mut self, error: String) {
        self.errors.push(error);
    }

    /// Number of runs that were errors.
    pub(crate) const fn error_count(&self) -> usize {
        self.errors.len()
    }

    /// The rows of one workload, as Markdown.
    pub(crate) fn markdown_of(&self, workload: &str) -> String {
        self.markdown_rows(self.rows.iter().filter(|row| row.workload == workload))
    }

    fn markdown_rows<'r>(&self, rows: impl Iterator<Item = &'r Row>) -> String {
        let mut header = ["workload", "figure", "unit", "better"].map(str::to_owned).to_vec();
        header.extend(self.systems.iter().map(|&name| name.to_owned()));
        if let [first, second, ..] = self.systems.as_slice() {
            header.push(format!("{first} / {second}"));
        }
        let mut text = markdown_line(&header) + &markdown_line(&vec!["---".to_owned(); header.len()]);
        rows.for_each(|row| text.push_str(&markdown_line(&row.cells())));
        text
    }

    fn markdown(&self, environment: &Environment) -> String {
        let mut text = String::from(
            "# Comparison\n\nMedians over the runs; in brackets the least and the greatest.\n\n",
        );
        text.push_str(&self.markdown_rows(self.rows.iter()));
        if !self.errors.is_empty() {
            text.push_str("\nRuns that were errors, and count for nothing:\n\n");
            let item = |error: &String| format!("- {}\n", one_line(error));
            text.extend(self.errors.iter().map(item));
        }
        text.push_str("\n| environment | |\n| --- | --- |\n");
        let line = |fact: &Fact| markdown_line(&[fact.name.to_owned(), fact.value.replace('|', "/")]);
        text.extend(environment.facts().iter().map(line));
        text
    }

    fn csv(&self, environment: &Environment) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let facts = environment.facts().iter().map(|fact| (fact.name, &fact.value));
        for (name, value) in facts.chain(self.errors.iter().map(|error| ("error", error))) {
            bytes.extend_from_slice(format!("# {name}: {}\n", one_line(value)).as_bytes());
        }
        let mut csv = csv::Writer::from_writer(bytes);
        let per_system =
            |suffix: &str| self.systems.iter().map(move |name| format!("{name}_{suffix}")).collect();
        let (medians, runs): (Vec<String>, Vec<String>) = (per_system("median"), per_system("runs"));
        let mut header: Vec<String> = ["workload", "figure", "unit", "better"].map(str::to_owned).to_vec();
        header.extend(medians);
        header.push("ratio".to_owned());
        header.extend(runs);
        csv.write_record(&header)?;
        for row in &self.rows {
            csv.write_record(row.csv())?;
        }
        csv.into_inner().map_err(|error| error.into_error().into())
    }

    /// Writes `<stem>.md` and `<stem>.csv`.
    pub(crate) fn write(&self, stem: &Path, environment: &Environment) -> Result<()> {
        if let Some(folder) = stem.parent() {
            fs::create_dir_all(folder).with_context(|| format!("no folder {}", folder.display()))?;
        }
        let markdown = with_extension(stem, "md");
        fs::write(&markdown, self.markdown(environment)).with_context(|| format!("writing {markdown}"))?;
        let csv = with_extension(stem, "csv");
        fs::write(&csv, self.csv(environment)?).with_context(|| format!("writing {csv}"))?;
        Ok(())
    }
}

/// Appended, since a stem such as `v0.1` has what looks like an extension.
fn with_extension(stem: &Path, extension: &str) -> String {
    format!("{}.{extension}", stem.display())
}

fn markdown_line(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

fn one_line(text: &str) -> String {
    text.replace('\n', " / ")
}

impl Row {
    /// As a table shows it; the ratio of the first two systems comes last.
    fn cells(&self) -> Vec<String> {
        let Self { workload, metric, unit, better, values } = self;
        let mut cells = [workload, metric.as_str(), unit, better.word()].map(str::to_owned).to_vec();
        cells.extend(values.iter().map(|values| cell(values)));
        if values.len() >= 2 {
            cells.push(self.ratio().map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")));
        }
        cells
    }

    /// Of the first system's median to the second's.
    fn ratio(&self) -> Option<f64> {
        let [first, second, ..] = self.values.as_slice() else { return None };
        let second = median(second.iter().copied()).filter(|second| *second != 0.0)?;
        Some(median(first.iter().copied())? / second)
    }

    fn csv(&self) -> Vec<String> {
        let mut fields = vec![
            self.workload.clone(),
            self.metric.clone(),
            self.unit.to_owned(),
            self.better.word().to_owned(),
        ];
        let medians = self.values.iter().map(|values| median(values.iter().copied()));
        fields.extend(medians.map(|median| median.map_or_else(String::new, |median| median.to_string())));
        fields.push(self.ratio().map_or_else(String::new, |ratio| ratio.to_string()));
        let joined = |values: &Vec<f64>| values.iter().map(f64::to_string).collect::<Vec<_>>().join(";");
        fields.extend(self.values.iter().map(joined));
        fields
    }
}

fn cell(values: &[f64]) -> String {
    let Some(median) = median(values.iter().copied()) else { return "-".to_owned() };
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let greatest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    format!("{} ({} .. {})", figure(median), figure(least), figure(greatest))
}

/// Three digits or so: more are noise.
fn figure(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(vec!["ringkeeper", "ZooKeeper"]);
        for value in [300.0, 100.0, 200.0] {
            table.add("reads", 0, vec![Metric::higher("throughput", "operations/s", value)]);
            table.add("reads", 1, vec![Metric::higher("throughput", "operations/s", value / 4.0)]);
        }
        table
    }

    #[test]
    fn a_row_shows_medians_ranges_and_their_ratio() {
        let text = table().markdown_of("reads");
        let row =
            "| reads | throughput | operations/s | higher | 200 (100 .. 300) | 50.0 (25.0 .. 75.0) | 4.00 |";
        assert!(text.lines().any(|line| line == row), "{text}");
    }

    #[test]
    fn a_system_without_a_good_run_has_no_figure() {
        let mut table = Table::new(vec!["ringkeeper", "ZooKeeper"]);
        table.add("reads", 1, vec![Metric::higher("throughput", "operations/s", 5.0)]);
        let text = table.markdown_of("reads");
        assert!(text.contains("| - | 5.00 (5.00 .. 5.00) | - |"), "{text}");
    }

    #[test]
    fn the_csv_holds_every_run() {
        let mut environment = Environment::of_this_run();
        environment.add("note", "a test");
        let csv = String::from_utf8(table().csv(&environment).unwrap()).unwrap();
        assert!(csv.contains("# note: a test\n"), "{csv}");
        assert!(
            csv.ends_with("reads,throughput,operations/s,higher,200,50,4,300;100;200,75;25;50\n"),
            "{csv}"
        );
    }
}
