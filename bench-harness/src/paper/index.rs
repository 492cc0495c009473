//! The index of the records: a page with their tables and pictures, generated beside them.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::experiment::Experiment;
use super::paths;
use super::record::Record;

/// Facts that belong to the whole machine, shown once if all records agree.
const SHARED: [&str; 15] = [
    "cpu",
    "cores",
    "memory MiB",
    "kernel",
    "commit",
    "ringkeeper",
    "ZooKeeper",
    "java",
    "etcd",
    "etcd settings",
    "file system",
    "ringkeeper settings",
    "ZooKeeper settings",
    "saturating load",
    "other processes",
];

/// Writes the index of what is in `out`.
pub(crate) fn write(out: &Path, experiments: &[Box<dyn Experiment>]) -> Result<()> {
    let mut records = Vec::new();
    for experiment in experiments {
        let csv = paths::csv(out, experiment.plan().id);
        if csv.exists() {
            records.push((experiment.as_ref(), Record::load(&csv)?));
        }
    }
    let path = paths::index(out);
    fs::write(&path, page(out, &records)).with_context(|| format!("writing {}", path.display()))
}

fn page(out: &Path, records: &[(&dyn Experiment, Record)]) -> String {
    let mut text = String::from(
        "# The experiments of the paper, and more\n\n\
         This page is written by `bench-harness paper` from the records beside it; changes are lost.\n\n\
         Medians over the runs, with the least and the greatest in brackets and as error bars. Figures of the paper are of \
         other machines: the shapes are comparable, the heights are not.\n\n",
    );
    let shared = shared_facts(records);
    if !shared.is_empty() {
        text.push_str("| | |\n| --- | --- |\n");
        shared.iter().for_each(|(name, value)| row(&mut text, name, value));
        text.push('\n');
    }
    for (experiment, record) in records {
        text.push_str(&entry(out, *experiment, record, &shared));
    }
    text
}

fn shared_facts(records: &[(&dyn Experiment, Record)]) -> Vec<(String, String)> {
    let Some((_, first)) = records.first() else { return Vec::new() };
    let agreed = |name: &&&str| {
        records.iter().all(|(_, record)| record.fact(name).is_none_or(|fact| Some(fact) == first.fact(name)))
    };
    let fact = |name: &&str| Some(((*name).to_owned(), first.fact(name)?.to_owned()));
    SHARED.iter().filter(agreed).filter_map(fact).collect()
}

fn entry(out: &Path, experiment: &dyn Experiment, record: &Record, shared: &[(String, String)]) -> String {
    let plan = experiment.plan();
    let id = plan.id;
    let mut text = format!("## {id}: {}\n\n{}\n\n", plan.title, plan.about);
    for note in &record.notes {
        let _ = writeln!(text, "- {note}");
    }
    if !record.notes.is_empty() {
        text.push('\n');
    }
    for (suffix, chart) in experiment.pictures(record) {
        let name = paths::picture_name(id, &suffix);
        let _ = writeln!(text, "![{}: {}]({name})\n", chart.title, chart.y.label);
    }
    for table in experiment.tables(record) {
        text.push_str(&table.markdown());
        text.push('\n');
    }
    let objections = record.objections();
    if !objections.is_empty() {
        text.push_str("Runs that do not count:\n\n");
        objections.iter().for_each(|objection| {
            let _ = writeln!(text, "- {objection}");
        });
        text.push('\n');
    }
    let mut files = format!("[{id}.csv]({id}.csv)");
    if paths::histograms(out, id).exists() {
        let _ = write!(files, ", [{id}.hlog]({id}.hlog)");
    }
    let _ = writeln!(text, "<details><summary>How it was measured</summary>\n\n| | |\n| --- | --- |");
    let own = record.facts.iter().filter(|fact| !shared.contains(fact));
    own.for_each(|(name, value)| row(&mut text, name, value));
    let _ = writeln!(text, "| data | {files} |\n\n</details>\n");
    text
}

fn row(text: &mut String, name: &str, value: &str) {
    let value = value.replace('|', "/");
    let value = if name == "command" { format!("`{value}`") } else { value };
    let _ = writeln!(text, "| {name} | {value} |");
}
