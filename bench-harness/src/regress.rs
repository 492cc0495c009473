//! `bench-harness regress`: what `cargo bench` has measured at two commits, as ratios.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

/// File of a benchmark's estimates, inside the folder of its baseline.
const ESTIMATES: &str = "estimates.json";

/// Compares two baselines of `cargo bench -p bench-harness --bench hot -- --save-baseline NAME`.
#[derive(Debug, clap::Args)]
pub(crate) struct RegressArgs {
    /// The baseline that was
    #[arg(long)]
    before: String,
    /// The baseline that is
    #[arg(long)]
    after: String,
    /// Folder in which the baselines are
    #[arg(long, default_value = "target/criterion")]
    folder: PathBuf,
    /// Ratio from which on a benchmark counts as slower, if the two confidence intervals are also apart
    #[arg(long, default_value_t = 1.10)]
    limit: f64,
}

/// What criterion estimates of one benchmark; nanoseconds.
#[derive(Clone, Debug, Deserialize)]
struct Estimates {
    median: Estimate,
}

#[derive(Clone, Debug, Deserialize)]
struct Estimate {
    point_estimate: f64,
    confidence_interval: Interval,
}

#[derive(Clone, Debug, Deserialize)]
struct Interval {
    lower_bound: f64,
    upper_bound: f64,
}

impl Estimate {
    fn ratio_to(&self, before: &Self) -> f64 {
        self.point_estimate / before.point_estimate
    }

    fn is_slower_than(&self, before: &Self, limit: f64) -> bool {
        self.ratio_to(before) > limit
            && self.confidence_interval.lower_bound > before.confidence_interval.upper_bound
    }
}

/// Runs the subcommand.
pub(crate) fn run(args: &RegressArgs) -> Result<()> {
    let mut names = Vec::new();
    find(&args.folder, &args.after, &mut names)
        .with_context(|| format!("no benchmarks in {}", args.folder.display()))?;
    names.sort_unstable();
    ensure!(!names.is_empty(), "no baseline {:?} in {}", args.after, args.folder.display());
    println!("{:<52} {:>12} {:>12} {:>7}", "benchmark", "before ns", "after ns", "ratio");
    let (mut slower, mut compared) = (0, 0);
    for folder in &names {
        let name = folder.strip_prefix(&args.folder).unwrap_or(folder).display().to_string();
        if !folder.join(&args.before).join(ESTIMATES).exists() {
            println!("{name:<52} {:>12}", "new");
            continue;
        }
        let (before, after) = (median(folder, &args.before)?, median(folder, &args.after)?);
        let is_slower = after.is_slower_than(&before, args.limit);
        (slower, compared) = (slower + usize::from(is_slower), compared + 1);
        let (was, is, ratio) = (before.point_estimate, after.point_estimate, after.ratio_to(&before));
        let verdict = if is_slower { "  slower" } else { "" };
        println!("{name:<52} {was:>12.1} {is:>12.1} {ratio:>7.2}{verdict}");
    }
    ensure!(compared > 0, "no benchmark has both baselines, {:?} and {:?}", args.before, args.after);
    if slower > 0 {
        bail!(
            "{slower} of {compared} benchmarks are slower by more than {:.0} %",
            (args.limit - 1.0) * 100.0
        );
    }
    Ok(())
}

/// Folders of benchmarks that have this baseline.
fn find(folder: &Path, baseline: &str, found: &mut Vec<PathBuf>) -> Result<()> {
    if folder.join(baseline).join(ESTIMATES).exists() {
        found.push(folder.to_owned());
        return Ok(());
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            find(&path, baseline, found)?;
        }
    }
    Ok(())
}

fn median(folder: &Path, baseline: &str) -> Result<Estimate> {
    let path = folder.join(baseline).join(ESTIMATES);
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let estimates: Estimates =
        serde_json::from_str(&text).with_context(|| format!("in {}", path.display()))?;
    Ok(estimates.median)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn baseline(root: &Path, benchmark: &str, name: &str, median: f64) {
        let folder = root.join(benchmark).join(name);
        fs::create_dir_all(&folder).unwrap();
        let (low, high) = (median * 0.99, median * 1.01);
        let text = format!(
            r#"{{"median":{{"confidence_interval":{{"confidence_level":0.95,"lower_bound":{low},"upper_bound":{high}}},"point_estimate":{median},"standard_error":1.0}}}}"#
        );
        fs::write(folder.join(ESTIMATES), text).unwrap();
    }

    fn args(folder: &Path) -> RegressArgs {
        RegressArgs { before: "a".into(), after: "b".into(), folder: folder.to_owned(), limit: 1.1 }
    }

    #[test]
    fn a_benchmark_beyond_the_limit_fails_the_check() {
        let folder = tempfile::tempdir().unwrap();
        baseline(folder.path(), "tree/read", "a", 100.0);
        baseline(folder.path(), "tree/read", "b", 108.0);
        assert!(run(&args(folder.path())).is_ok());
        baseline(folder.path(), "wire/decode", "a", 100.0);
        baseline(folder.path(), "wire/decode", "b", 120.0);
        let error = run(&args(folder.path())).unwrap_err().to_string();
        assert_eq!(error, "1 of 2 benchmarks are slower by more than 10 %");
    }

    #[test]
    fn a_baseline_that_is_not_there_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let error = run(&args(folder.path())).unwrap_err().to_string();
        assert!(error.contains("no baseline \"b\""), "{error}");
    }
}
