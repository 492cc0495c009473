//! Searches of long queues whose newest elements are the ones that are asked for.

use std::collections::VecDeque;

/// How many elements of `queue` there are before the first for which `holds` is false, as `partition_point`
/// says. Looks at the newest ones first, since older ones are in no cache: the steps grow with the logarithm of
/// the distance to the end.
pub(crate) fn count_while<T>(queue: &VecDeque<T>, holds: impl Fn(&T) -> bool) -> usize {
    let len = queue.len();
    let mut distance = 1;
    while distance < len && !holds(&queue[len - distance]) {
        distance *= 2;
    }
    let (mut low, mut high) = (len.saturating_sub(distance), len - distance / 2);
    while low < high {
        let middle = low.midpoint(high);
        if holds(&queue[middle]) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_of_a_queue_is_found() {
        for len in 0..70 {
            let queue: VecDeque<usize> = (0..len).collect();
            for place in 0..=len {
                assert_eq!(count_while(&queue, |number| *number < place), place, "of {len}");
            }
        }
    }
}
