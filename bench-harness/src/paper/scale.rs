//! Scales of a picture: from where to where, and which values are written.

use std::ops::RangeInclusive;

/// A scale with its name and unit.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Axis {
    pub(crate) label: &'static str,
    pub(crate) scale: Scale,
}

/// How values are placed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Scale {
    /// From zero.
    #[default]
    Linear,
    /// For values of several magnitudes; those that are not above zero are left out.
    Log,
    /// For a few whole numbers, such as servers.
    Whole,
}

/// The ends of a scale and what is written at it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ruler {
    pub(crate) from: f64,
    pub(crate) to: f64,
    pub(crate) ticks: Vec<f64>,
    log: bool,
}

impl Ruler {
    /// Where a value is, as a share of the length.
    pub(crate) fn share(&self, value: f64) -> f64 {
        let place = |value: f64| if self.log { value.ln() } else { value };
        (place(value) - place(self.from)) / (place(self.to) - place(self.from))
    }
}

/// More ticks than this overlap.
const TICKS_MAX: usize = 12;

impl Scale {
    /// Whether a value has a place.
    pub(crate) fn fits(self, value: f64) -> bool {
        self != Self::Log || value > 0.0
    }

    /// The ruler for values between these two, which fit.
    pub(crate) fn ruler(self, values: RangeInclusive<f64>) -> Ruler {
        let (least, greatest) = (*values.start(), *values.end());
        match self {
            Self::Linear => linear(greatest),
            Self::Log => log(least, greatest),
            Self::Whole => whole(least, greatest),
        }
    }
}

fn linear(greatest: f64) -> Ruler {
    let greatest = if greatest > 0.0 { greatest } else { 1.0 };
    let step = steps(greatest / 10.0).find(|step| *step >= greatest / 10.0).unwrap_or(greatest);
    let to = (greatest / step).ceil() * step;
    Ruler { from: 0.0, to, ticks: multiples(step, 0.0, to), log: false }
}

fn log(least: f64, greatest: f64) -> Ruler {
    let from = steps(least / 10.0).take_while(|step| *step <= least * 1.000_001).last().unwrap_or(least);
    let to = steps(greatest / 10.0).find(|step| *step >= greatest * 0.999_999).unwrap_or(greatest);
    // One value alone still needs a length to stand on.
    let (from, to) = if from < to { (from, to) } else { (from / 2.0, to * 2.0) };
    let within = |step: &f64| *step <= to * 1.000_001;
    let mut ticks: Vec<f64> =
        steps(from).skip_while(|step| *step < from * 0.999_999).take_while(within).collect();
    if ticks.len() > TICKS_MAX {
        ticks.retain(|tick| (tick.log10() - tick.log10().round()).abs() < 1e-6);
    }
    Ruler { from, to, ticks, log: true }
}

fn whole(least: f64, greatest: f64) -> Ruler {
    let (from, to) = ((least - 0.5).floor(), (greatest + 0.5).ceil());
    let step = ((to - from) / 12.0).ceil().max(1.0);
    Ruler { from, to, ticks: multiples(step, from, to), log: false }
}

fn multiples(step: f64, from: f64, to: f64) -> Vec<f64> {
    let mut ticks = vec![from];
    while let Some(last) = ticks.last().filter(|last| **last + step <= to + step / 1000.0) {
        ticks.push(last + step);
    }
    ticks
}

/// 1, 2 and 5 times the powers of ten, from the power not above `from` on.
fn steps(from: f64) -> impl Iterator<Item = f64> {
    let power = 10_f64.powf(from.log10().floor());
    (0_i32..).flat_map(move |exponent| [1.0, 2.0, 5.0].map(|factor| factor * power * 10_f64.powi(exponent)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: &[f64], expected: &[f64]) -> bool {
        found.len() == expected.len()
            && found
                .iter()
                .zip(expected)
                .all(|(found, expected)| (found / expected - 1.0).abs() < 1e-6 || found == expected)
    }

    #[test]
    fn a_log_scale_begins_and_ends_with_a_tick() {
        let ruler = Scale::Log.ruler(23.0..=430.0);
        assert!(close(&ruler.ticks, &[20.0, 50.0, 100.0, 200.0, 500.0]), "{ruler:?}");
        assert!(close(&[ruler.from, ruler.to], &[20.0, 500.0]), "{ruler:?}");
        assert!((ruler.share(100.0) - 0.5).abs() < 1e-9, "{ruler:?}");
        let ruler = Scale::Log.ruler(1.0..=1_000_000.0);
        assert!(close(&ruler.ticks, &[1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6]), "{ruler:?}");
        let ruler = Scale::Log.ruler(1.0..=1.0);
        assert!(ruler.from < 1.0 && ruler.to > 1.0, "{ruler:?}");
    }

    #[test]
    fn a_linear_scale_begins_at_zero() {
        let ruler = Scale::Linear.ruler(37.0..=95.0);
        assert!(
            close(&ruler.ticks, &[0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 100.0]),
            "{ruler:?}"
        );
    }

    #[test]
    fn whole_numbers_have_room_on_both_sides() {
        let ruler = Scale::Whole.ruler(3.0..=5.0);
        assert!(close(&ruler.ticks, &[2.0, 3.0, 4.0, 5.0, 6.0]), "{ruler:?}");
    }
}
