//! The median: the figure that one disturbed run cannot move.

/// The middle value; of an even number of values, the mean of the two in the middle. `None` without values.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    let lower = values[(values.len() - 1) / 2];
    Some(lower.midpoint(upper))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_value() {
        assert_eq!(median([3.0, 100.0, 1.0]), Some(3.0));
        assert_eq!(median([4.0, 1.0, 2.0, 100.0]), Some(3.0));
        assert_eq!(median([7.0]), Some(7.0));
        assert_eq!(median([]), None);
    }
}
