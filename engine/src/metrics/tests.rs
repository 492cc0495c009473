use std::collections::BTreeSet;

use super::*;

fn distribution(values: impl IntoIterator<Item = u64>) -> Distribution {
    let mut distribution = Distribution::default();
    values.into_iter().for_each(|value| distribution.record(value));
    distribution
}

/// The lines of the plain form, as `mntr` shows them.
fn plain(samples: &Samples) -> Vec<String> {
    samples.plain().iter().map(|(name, figure)| format!("{name} {figure}")).collect()
}

#[test]
fn every_family_has_one_name_and_one_line_of_help() {
    let names: BTreeSet<_> = FAMILIES.iter().map(|family| family.name).collect();
    assert_eq!(names.len(), FAMILIES.len(), "two families have one name");
    for Family { name, kind, origin, help } in FAMILIES {
        let valid = |letter: u8| matches!(letter, b'a'..=b'z' | b'0'..=b'9' | b'_');
        assert!(name.bytes().all(valid), "{name}");
        assert!(!help.is_empty() && !help.ends_with('.') && !help.contains('\n'), "{name}: {help}");
        assert_eq!(name.starts_with("process_"), *origin == Origin::Process, "{name}");
        assert!(*kind != Kind::Histogram || name.ends_with("_seconds"), "{name}: the unit comes last");
    }
}

#[test]
fn the_manual_says_of_each_family_what_it_counts() {
    let manual = include_str!("../../../docs/metrics.md");
    for family in FAMILIES {
        let line = format!("| `{}` |", family.exposed_name());
        let line = manual.lines().find(|other| other.starts_with(&line));
        assert!(line.is_some_and(|line| line.contains(family.help)), "docs/metrics.md lacks {}", family.name);
    }
}

#[test]
fn alert_rules_name_metrics_that_exist() {
    let rules = include_str!("../../../docs/alerts.yml");
    let expressions = rules.lines().filter(|line| !line.contains("annotations:") && !line.starts_with('#'));
    let words = expressions.flat_map(|line| line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
    let names = words.filter(|word| word.contains('_') && *word != "histogram_quantile");
    let mut count = 0;
    for name in names {
        let family = name.strip_suffix("_bucket").unwrap_or(name);
        assert!(FAMILIES.iter().any(|known| known.exposed_name() == family), "no metric {name}");
        count += 1;
    }
    assert!(count > 10, "{count} names were found");
}

#[test]
fn numbers_stand_in_the_order_of_the_table_whatever_the_order_in_which_they_came() {
    let mut out = Samples::default();
    samples!(out, { "shards": 2_u64, "avg_latency": 0.0, "disk_full": true, "max_latency": Value::Time(3_999) });
    assert_eq!(plain(&out), ["avg_latency 0.0", "max_latency 3", "disk_full 1", "shards 2"]);
}

#[test]
fn a_summary_is_several_figures_with_whole_extremes_and_fractions_of_milliseconds_elsewhere() {
    let mut out = Samples::default();
    samples!(out, {
        "readlatency": Summary::times(&distribution([500, 1_000, 1_500, 10_000])),
        "sync_processor_batch_size": Summary::amounts(distribution([1, 4]).totals()),
    });
    let expected = "avg_readlatency 3.25|min_readlatency 0|max_readlatency 10|cnt_readlatency 4|sum_readlatency 13\
        |p50_readlatency 1.003|p95_readlatency 10.047|p99_readlatency 10.047|p999_readlatency 10.047\
        |avg_sync_processor_batch_size 2.5|min_sync_processor_batch_size 1|max_sync_processor_batch_size 4\
        |cnt_sync_processor_batch_size 2|sum_sync_processor_batch_size 5";
    assert_eq!(plain(&out).join("|"), expected);
}

#[test]
fn labels_stand_before_the_name_in_the_plain_form_and_process_is_left_out() {
    let mut out = Samples::default();
    let refused = const { Metric::named("limit_exceeded") };
    out.add_labelled(refused, vec![("key", "watches".to_owned())], 3_u64);
    samples!(out, { "process_resident_memory_bytes": 10_u64 });
    assert_eq!(plain(&out), ["watches_limit_exceeded 3", "resident_memory_bytes 10"]);
}

#[test]
fn prometheus_is_told_name_type_and_meaning_once_for_each_family() {
    let mut out = Samples::default();
    let refused = const { Metric::named("limit_exceeded") };
    for (key, count) in [("watches", 1_u64), ("sessions", 2)] {
        out.add_labelled(refused, vec![("key", key.to_owned())], count);
    }
    samples!(out, { "znode_count": 5_u64, "max_latency": Value::Time(1_250) });
    let text = out.prometheus();
    let expected = "# HELP max_latency Longest time from a request's arrival to its reply in ms, since the start\n\
        # TYPE max_latency gauge\n\
        max_latency 1.25\n\
        # HELP ringkeeper_limit_exceeded_total Requests and connections refused because of a bound, by bound\n\
        # TYPE ringkeeper_limit_exceeded_total counter\n\
        ringkeeper_limit_exceeded_total{key=\"watches\"} 1\n\
        ringkeeper_limit_exceeded_total{key=\"sessions\"} 2\n\
        # HELP znode_count Znodes; the root counts twice, as in ZooKeeper\n\
        # TYPE znode_count gauge\n\
        znode_count 5\n";
    assert_eq!(text, expected);
}

#[test]
fn a_summary_has_quantiles_for_prometheus_and_none_of_nothing() {
    let summary = |values: &[u64]| {
        let mut out = Samples::default();
        samples!(out, { "readlatency": Summary::times(&distribution(values.iter().copied())) });
        let text = out.prometheus();
        text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n")
    };
    let expected = "readlatency{quantile=\"0.5\"} 0.501\n\
        readlatency{quantile=\"0.9\"} 2.511\n\
        readlatency{quantile=\"0.95\"} 2.511\n\
        readlatency{quantile=\"0.99\"} 2.511\n\
        readlatency{quantile=\"0.999\"} 2.511\n\
        readlatency_count 2\n\
        readlatency_sum 3";
    assert_eq!(summary(&[500, 2_500]), expected);
    assert!(summary(&[]).starts_with("readlatency{quantile=\"0.5\"} NaN\n"));
}

#[test]
fn a_median_alone_is_for_prometheus() {
    let mut out = Samples::default();
    samples!(out, { "dbinittime": Summary::time_totals(distribution([7_000]).totals()).with_median(7_000) });
    assert!(out.prometheus().contains("\ndbinittime{quantile=\"0.5\"} 7\ndbinittime_count 1\n"));
    assert!(!out.plain().iter().any(|(name, _)| name.starts_with("p50")));
}

#[test]
fn a_histogram_counts_everything_up_to_each_bound_in_seconds() {
    let mut out = Samples::default();
    let times = distribution([10, 11, 999, 20_000_000]);
    let family = const { Metric::named("stage_seconds") };
    out.add_labelled(family, vec![("stage", "log".to_owned())], Value::Histogram(times));
    assert!(out.plain().is_empty(), "ZooKeeper's form has no histograms");
    let text = out.prometheus();
    for line in [
        "# TYPE ringkeeper_stage_seconds histogram",
        "ringkeeper_stage_seconds_bucket{stage=\"log\",le=\"0.00001\"} 1",
        "ringkeeper_stage_seconds_bucket{stage=\"log\",le=\"0.000025\"} 2",
        "ringkeeper_stage_seconds_bucket{stage=\"log\",le=\"0.001\"} 3",
        "ringkeeper_stage_seconds_bucket{stage=\"log\",le=\"10\"} 3",
        "ringkeeper_stage_seconds_bucket{stage=\"log\",le=\"+Inf\"} 4",
        "ringkeeper_stage_seconds_count{stage=\"log\"} 4",
        "ringkeeper_stage_seconds_sum{stage=\"log\"} 20.00102",
    ] {
        assert!(text.lines().any(|other| other == line), "{line}\n{text}");
    }
}

#[test]
fn what_clients_choose_cannot_break_out_of_a_label() {
    let mut out = Samples::default();
    let refused = const { Metric::named("limit_exceeded") };
    out.add_labelled(refused, vec![("key", "a\"} 7\n\\".to_owned())], 1_u64);
    let text = out.prometheus();
    assert!(text.ends_with("ringkeeper_limit_exceeded_total{key=\"a\\\"} 7\\n\\\\\"} 1\n"), "{text}");
}

#[test]
fn distributions_of_shards_add_up() {
    let mut all = distribution([1, 2]);
    all.merge(&distribution([]));
    all.merge(&distribution([9]));
    assert_eq!(all, distribution([1, 2, 9]));
    assert_eq!(all.totals(), Totals { count: 3, sum: 12, min: 1, max: 9 });
    let mut many = Distribution::default();
    many.record_n(100_000_000, 3);
    assert_eq!((many.totals().sum, many.count_upto(1_000_000)), (300_000_000, 0));
}
