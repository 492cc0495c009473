//! What an experiment is, and all there are.

use anyhow::Result;

use super::bench::Bench;
use super::chart::{Chart, Series, Stroke};
use super::published::Published;
use super::record::{Curve, Point, Record};
use super::scale::{Axis, Scale};
use super::table::Table;

/// One experiment: what it measures, how, and how its figures are shown.
pub(crate) trait Experiment {
    /// What it is and how to read it.
    fn plan(&self) -> Plan;

    /// Measures; what it measures goes into the bench's record.
    fn run(&self, bench: &mut Bench) -> Result<()>;

    /// Pictures of its record, with a suffix of the file's name each.
    fn pictures(&self, record: &Record) -> Vec<(String, Chart)> {
        let plan = self.plan();
        let record = &plan.regard(record);
        let charts = plan.views.iter().map(|view| (view.suffix.to_owned(), plan.chart(view, record)));
        charts.filter(|(_, chart)| !chart.is_empty()).collect()
    }

    /// Tables of its record.
    fn tables(&self, record: &Record) -> Vec<Table> {
        let plan = self.plan();
        let record = &plan.regard(record);
        plan.figures
            .iter()
            .map(|figure| {
                let curves = record.curves(figure);
                let beside = plan.published_beside(figure, &curves);
                let published: Vec<&Published> = beside.iter().map(|(published, _)| *published).collect();
                Table::of(record, plan.x.label, figure, &published)
            })
            .filter(|table| !table.is_empty())
            .collect()
    }
}

/// What an experiment says of itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    /// On the command line and in names of files.
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    /// What is measured and with what settings, in sentences.
    pub(crate) about: &'static str,
    pub(crate) x: Axis,
    /// One picture for each.
    pub(crate) views: Vec<View>,
    /// One table for each.
    pub(crate) figures: Vec<&'static str>,
    /// Figures that others have published for it.
    pub(crate) published: Vec<Published>,
    /// The axis is that of servers: a curve goes over all sizes.
    pub(crate) over_servers: bool,
    /// It starts, kills or looks into servers, so it needs its own.
    pub(crate) own_servers: bool,
    /// etcd's API has what compares.
    pub(crate) etcd: bool,
    /// So do bare servers.
    pub(crate) floor: bool,
    /// It is about how ringkeeper is made: no other system takes part.
    pub(crate) ringkeeper_alone: bool,
    /// More than one generator is of use: they go through the same windows together.
    pub(crate) many_generators: bool,
}

/// One figure as a picture.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) figure: &'static str,
    /// Of the file's name; empty for the first picture of an experiment.
    pub(crate) suffix: &'static str,
    pub(crate) y: Axis,
}

impl View {
    /// On a logarithmic scale.
    pub(crate) const fn log(figure: &'static str, suffix: &'static str, label: &'static str) -> Self {
        Self { figure, suffix, y: Axis { label, scale: Scale::Log } }
    }
}

impl Plan {
    /// The record as it is shown.
    fn regard(&self, record: &Record) -> Record {
        if self.over_servers { record.over_servers() } else { record.clone() }
    }

    /// What was published of a figure for a size and series that were measured here, with a curve that it
    /// belongs beside. The others would have nothing beside them.
    fn published_beside<'c>(&self, figure: &str, curves: &'c [Curve]) -> Vec<(&Published, &'c Curve)> {
        let of_figure = self.published.iter().filter(|published| published.figure == figure);
        let beside = |published: &Published| {
            curves.iter().find(|curve| {
                published.servers.is_none_or(|servers| servers == curve.servers)
                    && curve.series == published.series
            })
        };
        of_figure.filter_map(|published| Some((published, beside(published)?))).collect()
    }

    fn chart(&self, view: &View, record: &Record) -> Chart {
        let mut curves = record.curves(view.figure);
        // The sizes of one system beside each other, in whatever order they were measured.
        let systems: Vec<String> = curves.iter().map(|curve| curve.system.clone()).collect();
        curves.sort_by_key(|curve| systems.iter().position(|system| *system == curve.system));
        let palette = Palette::of(&curves);
        let mut series: Vec<Series> = Vec::new();
        for curve in &curves {
            let points = record.points(curve, view.figure);
            series.push(Series {
                name: curve.name(),
                colour: palette.colour(curve),
                stroke: stroke(curve),
                points,
            });
        }
        for (published, curve) in self.published_beside(view.figure, &curves) {
            let point =
                |(x, value): &(f64, f64)| Point { x: *x, least: *value, median: *value, greatest: *value };
            series.push(Series {
                name: published.name(),
                colour: palette.published(curve),
                stroke: Stroke::Published,
                points: published.points.iter().map(point).collect(),
            });
        }
        Chart { title: self.title.to_owned(), x: self.x, y: view.y, series, marks: Vec::new() }
    }
}

/// Colours tell sizes and series apart, strokes systems; with one size and series only, colours tell systems
/// apart.
struct Palette<'c> {
    curves: &'c [Curve],
    kinds: Vec<(usize, &'c str)>,
}

impl<'c> Palette<'c> {
    fn of(curves: &'c [Curve]) -> Self {
        let mut kinds = Vec::new();
        for curve in curves {
            let kind = (curve.servers, curve.series.as_str());
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        Self { curves, kinds }
    }

    fn colour(&self, curve: &Curve) -> usize {
        if self.kinds.len() > 1 {
            let kind = (curve.servers, curve.series.as_str());
            return self.kinds.iter().position(|other| *other == kind).unwrap_or_default();
        }
        self.curves.iter().position(|other| other == curve).unwrap_or_default()
    }

    fn published(&self, curve: &Curve) -> usize {
        if self.kinds.len() > 1 { self.colour(curve) } else { self.curves.len() }
    }
}

fn stroke(curve: &Curve) -> Stroke {
    match curve.system.as_str() {
        "ZooKeeper" => Stroke::Dashed,
        "etcd" => Stroke::Dotted,
        "floor" => Stroke::LongDashed,
        _ => Stroke::Solid,
    }
}

/// All experiments, those of the paper first.
pub(crate) fn all() -> Vec<Box<dyn Experiment>> {
    use super::*;
    vec![
        Box::new(ratios::Ratios::SPREAD),
        Box::new(ratios::Ratios::AT_LEADER),
        Box::new(broadcast::BroadcastAlone),
        Box::new(failures::Failures),
        Box::new(creates::PaperCreates),
        Box::new(barriers::Barriers),
        Box::new(reconfigure::Reconfigure),
        Box::new(outstanding::Depths),
        Box::new(mixed::Mixed),
        Box::new(creates::ManyCreators),
        Box::new(latency::LatencyUnderLoad),
        Box::new(storm::SessionStorm),
        Box::new(churn::SessionChurn),
        Box::new(fanout::WatchFanout),
        Box::new(tenants::NoisyTenant),
        Box::new(memory::Memory),
        Box::new(restart::Restart),
        Box::new(failover::Failover),
        Box::new(rolling::Rolling),
        Box::new(observers::Observers),
        Box::new(distance::Distance),
        Box::new(storage::Storage),
        Box::new(model::Model),
    ]
}
