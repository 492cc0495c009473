//! Figures as a table, for the terminal and for the index: medians over the runs, with their range.

use super::chart::number;
use super::published::Published;
use super::record::{Curve, ERROR, Record};

/// Rows of cells under a header.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) title: String,
    pub(crate) header: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

impl Table {
    /// One figure of a record: a row for each place on the axis, a column for each curve, for the ratio of
    /// the first two systems, and for each published curve.
    pub(crate) fn of(record: &Record, axis: &str, figure: &str, published: &[&Published]) -> Self {
        let unit = record.samples.iter().find(|sample| sample.figure == figure);
        let unit = unit.map_or("", |sample| sample.unit.as_str());
        let columns = columns(record, figure, published);
        let mut places: Vec<f64> =
            columns.iter().flat_map(|column| column.cells.iter().map(|(x, _)| *x)).collect();
        places.sort_by(f64::total_cmp);
        places.dedup();
        let row = |x: &f64| {
            let cell = |column: &Column| {
                let cell = column.cells.iter().find(|(place, _)| place == x);
                cell.map_or_else(|| "-".to_owned(), |(_, text)| text.clone())
            };
            std::iter::once(number(*x)).chain(columns.iter().map(cell)).collect()
        };
        let header = std::iter::once(axis.to_owned()).chain(columns.iter().map(|column| column.name.clone()));
        Self {
            title: format!("{figure}, {unit}"),
            header: header.collect(),
            rows: places.iter().map(row).collect(),
        }
    }

    /// All figures of a record of one place: a row for each, a column for each curve, and for the ratio of
    /// the first two systems.
    pub(crate) fn of_figures(record: &Record) -> Self {
        let mut figures: Vec<(&str, &str)> = Vec::new();
        for sample in record.samples.iter().filter(|sample| sample.figure != ERROR) {
            if !figures.iter().any(|(figure, _)| *figure == sample.figure) {
                figures.push((&sample.figure, &sample.unit));
            }
        }
        let columns_of: Vec<Vec<Column>> =
            figures.iter().map(|(figure, _)| columns(record, figure, &[])).collect();
        let mut names: Vec<&str> = Vec::new();
        for column in columns_of.iter().flatten() {
            if !names.contains(&column.name.as_str()) {
                names.push(&column.name);
            }
        }
        let row = |((figure, unit), columns): (&(&str, &str), &Vec<Column>)| {
            let cell = |name: &&str| {
                let cell = columns.iter().find(|column| column.name == **name);
                cell.and_then(|column| column.cells.first())
                    .map_or_else(|| "-".to_owned(), |(_, text)| text.clone())
            };
            [*figure, *unit].map(str::to_owned).into_iter().chain(names.iter().map(cell)).collect()
        };
        Self {
            title: "All figures".to_owned(),
            header: ["figure", "unit"].iter().chain(&names).map(|&name| name.to_owned()).collect(),
            rows: figures.iter().zip(&columns_of).map(row).collect(),
        }
    }

    /// Whether it has no rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// As Markdown.
    pub(crate) fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let rule = vec!["---".to_owned(); self.header.len()];
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        format!("{}:\n\n{}{}{rows}", self.title, line(&self.header), line(&rule))
    }

    /// In columns, for a terminal.
    pub(crate) fn text(&self) -> String {
        let all = || std::iter::once(&self.header).chain(&self.rows);
        let width = |column: usize| all().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.header.len()).map(width).collect();
        let line = |row: &Vec<String>| {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}"));
            cells.collect::<Vec<_>>().join("  ") + "\n"
        };
        format!("{}\n{}", self.title, all().map(line).collect::<String>())
    }
}

struct Column {
    name: String,
    cells: Vec<(f64, String)>,
}

fn columns(record: &Record, figure: &str, published: &[&Published]) -> Vec<Column> {
    let curves = record.curves(figure);
    let mut columns = Vec::new();
    for (index, curve) in curves.iter().enumerate() {
        columns.push(of_curve(record, figure, curve));
        let is_other = |other: &&Curve| {
            other.servers == curve.servers && other.series == curve.series && other.system != curve.system
        };
        // Behind the second system of a pair: the first one's as a multiple of it.
        if let Some(first) = curves[..index].iter().find(is_other) {
            columns.push(ratio(record, figure, first, curve));
        }
    }
    columns.extend(published.iter().map(|published| Column {
        name: published.name(),
        cells: published.points.iter().map(|(x, value)| (*x, number(*value))).collect(),
    }));
    columns.retain(|column| !column.cells.is_empty());
    columns
}

fn of_curve(record: &Record, figure: &str, curve: &Curve) -> Column {
    let cells = record.points(curve, figure).into_iter().map(|point| {
        let range =
            format!("{} ({} .. {})", number(point.median), number(point.least), number(point.greatest));
        (point.x, if point.least < point.greatest { range } else { number(point.median) })
    });
    Column { name: curve.name(), cells: cells.collect() }
}

fn ratio(record: &Record, figure: &str, first: &Curve, second: &Curve) -> Column {
    let firsts = record.points(first, figure);
    let pair = |point: super::record::Point| {
        let first = firsts.iter().find(|first| first.x.total_cmp(&point.x).is_eq())?;
        (point.median != 0.0).then(|| (point.x, format!("{:.2}", first.median / point.median)))
    };
    Column {
        name: format!("{} / {}", first.system, second.system),
        cells: record.points(second, figure).into_iter().filter_map(pair).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::Sample;
    use super::*;

    #[test]
    fn systems_stand_beside_each_other_with_their_ratio() {
        let sample = |system: &str, run, value| Sample {
            system: system.into(),
            servers: 3,
            series: String::new(),
            x: 50.0,
            run,
            figure: "throughput".into(),
            unit: "operations/s".into(),
            value: Some(value),
            invalid: String::new(),
        };
        let samples = vec![
            sample("ringkeeper", 1, 300.0),
            sample("ZooKeeper", 1, 60.0),
            sample("ringkeeper", 2, 100.0),
            sample("ZooKeeper", 2, 40.0),
        ];
        let record = Record { samples, ..Record::default() };
        let text = Table::of(&record, "reads", "throughput", &[]).markdown();
        let row = "| 50 | 200 (100 .. 300) | 50 (40 .. 60) | 4.00 |";
        assert!(text.lines().any(|line| line == row), "{text}");
    }
}
