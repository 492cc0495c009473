//! Pictures: curves with error bars, as SVG.

use std::ops::RangeInclusive;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint};
use plotters::element::PathElement;
use plotters::prelude::*;

use super::record::Point;
use super::scale::{Axis, Ruler};

const WIDTH: u32 = 960;

/// Of title, plot and axes; the legend comes below, however long it is.
const PLOT_HEIGHT: u32 = 520;

/// Above the curves, for the numbers of marks.
const HEADROOM: f64 = 1.08;

/// As many as a ruler may have: it has chosen them.
const TICKS: usize = 20;

/// How a curve is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stroke {
    Solid,
    Dashed,
    Dotted,
    LongDashed,
    /// Published figures, which are not ours.
    Published,
    /// A line without marks, for what changes all the time.
    Bare,
}

impl Stroke {
    /// Lengths of dashes and of the gaps between them, where there are any.
    const fn dashes(self) -> Option<(u32, u32)> {
        match self {
            Self::Solid | Self::Bare => None,
            Self::Dashed => Some((7, 5)),
            Self::Dotted => Some((2, 3)),
            Self::LongDashed => Some((16, 6)),
            Self::Published => Some((2, 4)),
        }
    }

    const fn width(self) -> u32 {
        match self {
            Self::Solid | Self::Dashed | Self::Dotted => 2,
            Self::LongDashed | Self::Published | Self::Bare => 1,
        }
    }
}

/// One curve.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) name: String,
    /// Which of the palette.
    pub(crate) colour: usize,
    pub(crate) stroke: Stroke,
    pub(crate) points: Vec<Point>,
}

/// A picture before it is drawn.
#[derive(Clone, Debug)]
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) series: Vec<Series>,
    /// Moments, drawn as lines with numbers, with their meaning below the legend.
    pub(crate) marks: Vec<(f64, String)>,
}

/// Colours that colour-blind readers can tell apart (Okabe and Ito), dark ones first.
const PALETTE: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(90, 90, 90),
];

const MARK_COLOUR: RGBColor = RGBColor(120, 120, 120);

impl Chart {
    /// Whether there is anything to see.
    pub(crate) fn is_empty(&self) -> bool {
        self.series.iter().all(|series| series.points.is_empty())
    }

    /// Draws the picture.
    pub(crate) fn draw(&self, path: &Path) -> Result<()> {
        let mut chart = self.clone();
        let (x, y) = (self.x.scale, self.y.scale);
        chart.series.iter_mut().for_each(|series| {
            series.points.retain(|point| x.fits(point.x) && y.fits(point.least));
        });
        chart.series.retain(|series| !series.points.is_empty());
        let x_range = range(chart.points().map(|point| point.x)).context("nothing to draw")?;
        let y_range = range(chart.points().flat_map(|point| [point.least, point.greatest]));
        let (least, greatest) = y_range.context("nothing to draw")?.into_inner();
        let headroom = if self.marks.is_empty() { 1.0 } else { HEADROOM };
        let (x, y) = (x.ruler(x_range), y.ruler(least..=greatest * headroom));
        chart.draw_on(path, x, y).map_err(|error| anyhow!("drawing {}: {error}", path.display()))
    }

    fn points(&self) -> impl Iterator<Item = &Point> {
        self.series.iter().flat_map(|series| &series.points)
    }

    fn draw_on(&self, path: &Path, x: Ruler, y: Ruler) -> Result<(), Box<dyn std::error::Error>> {
        let legend_height =
            18 * u32::try_from(self.series.len().div_ceil(2) + self.marks.len().div_ceil(3))? + 14;
        let area = SVGBackend::new(path, (WIDTH, PLOT_HEIGHT + legend_height)).into_drawing_area();
        area.fill(&WHITE)?;
        let (plot, legend) = area.split_vertically(PLOT_HEIGHT);
        let mut chart = ChartBuilder::on(&plot)
            .caption(&self.title, ("sans-serif", 20))
            .margin(12)
            .margin_right(28)
            .x_label_area_size(44)
            .y_label_area_size(84)
            .build_cartesian_2d(x, y)?;
        chart
            .configure_mesh()
            .x_desc(self.x.label)
            .y_desc(self.y.label)
            .x_labels(TICKS)
            .y_labels(TICKS)
            .x_label_formatter(&|value| number(*value))
            .y_label_formatter(&|value| number(*value))
            .label_style(("sans-serif", 14))
            .axis_desc_style(("sans-serif", 15))
            .light_line_style(WHITE)
            .bold_line_style(RGBColor(225, 225, 225))
            .draw()?;
        let inside = chart.plotting_area();
        for (index, (at, _)) in self.marks.iter().enumerate() {
            draw_mark(inside, *at, index + 1)?;
        }
        for series in &self.series {
            series.draw(inside)?;
        }
        self.draw_legend(&legend)?;
        area.present()?;
        Ok(())
    }

    /// Two columns of curves, then three of marks.
    fn draw_legend(
        &self,
        area: &DrawingArea<SVGBackend<'_>, Shift>,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let text = ("sans-serif", 14).into_font();
        for (index, series) in self.series.iter().enumerate() {
            let (x, y) = (96 + i32::try_from(index % 2)? * 440, 4 + i32::try_from(index / 2)? * 18);
            series.draw_sample(area, x, y + 6)?;
            area.draw(&Text::new(series.name.clone(), (x + 40, y), text.clone()))?;
        }
        let below = 8 + i32::try_from(self.series.len().div_ceil(2))? * 18;
        for (index, (_, meaning)) in self.marks.iter().enumerate() {
            let (x, y) = (40 + i32::try_from(index % 3)? * 305, below + i32::try_from(index / 3)? * 18);
            area.draw(&Text::new(format!("{} {meaning}", index + 1), (x, y), ("sans-serif", 13)))?;
        }
        Ok(())
    }
}

type Plot<'a> = DrawingArea<SVGBackend<'a>, Cartesian2d<Ruler, Ruler>>;

/// A vertical line over the whole height, with its number.
fn draw_mark(plot: &Plot<'_>, at: f64, number: usize) -> Result<(), Box<dyn std::error::Error>> {
    let y = plot.as_coord_spec().get_y_range();
    plot.draw(&PathElement::new(vec![(at, y.start), (at, y.end)], MARK_COLOUR.stroke_width(1)))?;
    let label = EmptyElement::at((at, y.end)) + Text::new(number.to_string(), (3, 2), ("sans-serif", 14));
    plot.draw(&label)?;
    Ok(())
}

impl Series {
    fn colour(&self) -> RGBColor {
        PALETTE[self.colour % PALETTE.len()]
    }

    fn draw(&self, plot: &Plot<'_>) -> Result<(), Box<dyn std::error::Error>> {
        let colour = self.colour();
        let line = self.points.iter().map(|point| (point.x, point.median));
        match self.stroke.dashes() {
            None => {
                let style = colour.stroke_width(self.stroke.width());
                plot.draw(&PathElement::new(line.collect::<Vec<_>>(), style))?;
            }
            Some((on, off)) => DashedLineSeries::new(line, on, off, colour.stroke_width(self.stroke.width()))
                .into_iter()
                .try_for_each(|dash| plot.draw(&dash))?,
        }
        if self.stroke == Stroke::Bare {
            return Ok(());
        }
        for point in &self.points {
            if point.least < point.greatest {
                let (low, high) = ((point.x, point.least), (point.x, point.greatest));
                plot.draw(&PathElement::new(vec![low, high], colour.stroke_width(1)))?;
                for end in [low, high] {
                    let whisker = PathElement::new(vec![(-4, 0), (4, 0)], colour.stroke_width(1));
                    plot.draw(&(EmptyElement::at(end) + whisker))?;
                }
            }
            let at = (point.x, point.median);
            match self.stroke {
                Stroke::Published => plot.draw(&TriangleMarker::new(at, 6, colour.stroke_width(1)))?,
                Stroke::Dashed => plot.draw(&Circle::new(at, 4, colour.stroke_width(2)))?,
                Stroke::LongDashed => plot.draw(&Circle::new(at, 2, colour.filled()))?,
                Stroke::Dotted => plot.draw(&Cross::new(at, 4, colour.stroke_width(2)))?,
                Stroke::Solid | Stroke::Bare => plot.draw(&Circle::new(at, 4, colour.filled()))?,
            }
        }
        Ok(())
    }

    /// What the legend shows before the name.
    fn draw_sample(
        &self,
        area: &DrawingArea<SVGBackend<'_>, Shift>,
        x: i32,
        y: i32,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let colour = self.colour();
        let middle = (x + 16, y);
        let style = colour.stroke_width(self.stroke.width());
        let (on, off) = self.stroke.dashes().unwrap_or((32, 0));
        let (on, period) = (i32::try_from(on)?, usize::try_from(on + off)?);
        for from in (x..x + 32).step_by(period) {
            area.draw(&PathElement::new([(from, y), ((from + on).min(x + 32), y)], style))?;
        }
        match self.stroke {
            Stroke::Solid => area.draw(&Circle::new(middle, 4, colour.filled()))?,
            Stroke::Dashed => area.draw(&Circle::new(middle, 4, colour.stroke_width(2)))?,
            Stroke::LongDashed => area.draw(&Circle::new(middle, 2, colour.filled()))?,
            Stroke::Dotted => area.draw(&Cross::new(middle, 4, colour.stroke_width(2)))?,
            Stroke::Published => area.draw(&TriangleMarker::new(middle, 6, colour.stroke_width(1)))?,
            Stroke::Bare => {}
        }
        Ok(())
    }
}

impl Ranged for Ruler {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (low, high): (i32, i32)) -> i32 {
        let length = f64::from(high - low);
        // The area has fewer pixels than an i32 has values.
        #[expect(clippy::cast_possible_truncation, reason = "shares are from 0 to 1, or little beyond")]
        let offset = (length * self.share(*value)).round() as i32;
        low + offset
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.from..self.to
    }
}

/// The least and the greatest, if there are any.
fn range(values: impl Iterator<Item = f64>) -> Option<RangeInclusive<f64>> {
    values
        .map(|value| value..=value)
        .reduce(|range, value| range.start().min(*value.start())..=range.end().max(*value.end()))
}

/// A number as people write it: 460,000 or 0.25.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => grouped(value),
        size if size >= 10.0 => trimmed(format!("{value:.1}")),
        0.0 => "0".to_owned(),
        size if size >= 0.1 => trimmed(format!("{value:.2}")),
        _ => trimmed(format!("{value:.4}")),
    }
}

fn trimmed(text: String) -> String {
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let sign = if value < 0.0 { "-" } else { "" };
    let groups: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .map(|group| std::str::from_utf8(group).expect("digits are text"))
        .collect();
    format!("{sign}{}", groups.join(","))
}

#[cfg(test)]
mod tests {
    use super::super::scale::Scale;
    use super::*;

    #[test]
    fn numbers_are_short() {
        let written = [460_000.0, 1234.5, 999.0, 12.50, 0.25, 0.004, 0.0].map(number);
        assert_eq!(written, ["460,000", "1,234", "999", "12.5", "0.25", "0.004", "0"]);
    }

    #[test]
    fn a_log_axis_leaves_out_what_is_not_above_zero() {
        let folder = tempfile::tempdir().unwrap();
        let point = |x, y| Point { x, least: y, median: y, greatest: y };
        let chart = Chart {
            title: "title".into(),
            x: Axis { label: "clients", scale: Scale::Log },
            y: Axis { label: "creates/s", scale: Scale::Log },
            series: vec![Series {
                name: "ringkeeper".into(),
                colour: 0,
                stroke: Stroke::Solid,
                points: vec![point(0.0, 5.0), point(1.0, 0.0), point(10.0, 100.0)],
            }],
            marks: Vec::new(),
        };
        let path = folder.path().join("chart.svg");
        chart.draw(&path).unwrap();
        let svg = std::fs::read_to_string(path).unwrap();
        for text in ["title", "clients", "creates/s", "ringkeeper"] {
            assert!(svg.contains(text), "{text}");
        }
    }
}
