//! How much may be under way to a peer, so that a long line is kept full and a short one is not overfilled.
//!
//! A constant window is carried once each round trip: 4 MiB in 200 ms are 20 MB/s, whatever the line could
//! carry. So beside a constant there is room for what the peer takes in the shortest round trip that was
//! seen: rate times delay, as in BBR (Cardwell and others, 2016). While the line has room, a round trip
//! stays as short, and the window grows by the constant with each. Once the line is full, more bytes only
//! wait, round trips get longer by that, and the window stays at what the line holds and the constant.

use std::collections::VecDeque;

/// What is under way to one peer, and how much may be. `K` is a position in what is sent, which grows.
#[derive(Clone, Debug)]
pub struct SendWindow<K> {
    least: usize,
    most: usize,
    size: usize,
    under_way: VecDeque<Sent<K>>,
    bytes: usize,
    /// Bytes that were acknowledged so far.
    acked: u64,
    shortest_ms: u64,
}

#[derive(Clone, Copy, Debug)]
struct Sent<K> {
    upto: K,
    bytes: usize,
    at_ms: u64,
    /// What had been acknowledged by then.
    acked: u64,
}

impl<K: Copy + Ord> SendWindow<K> {
    /// Nothing is under way. The window is never smaller than `least` bytes, nor greater than `most`.
    #[must_use]
    pub const fn new(least: usize, most: usize) -> Self {
        let under_way = VecDeque::new();
        Self { least, most, size: least, under_way, bytes: 0, acked: 0, shortest_ms: u64::MAX }
    }

    /// Bytes that may be under way, while the whole of what there is has yet to be sent.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.size
    }

    /// Bytes that are.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Pieces that are.
    #[must_use]
    pub fn pieces(&self) -> usize {
        self.under_way.len()
    }

    /// A piece of so many bytes, which ends at `upto`, is sent.
    pub fn sent(&mut self, upto: K, bytes: usize, now_ms: u64) {
        self.under_way.push_back(Sent { upto, bytes, at_ms: now_ms, acked: self.acked });
        self.bytes += bytes;
    }

    /// The peer has taken everything up to there.
    pub fn acknowledged(&mut self, upto: K, now_ms: u64) {
        let mut newest = None;
        while let Some(sent) = self.under_way.pop_front_if(|sent| sent.upto <= upto) {
            self.bytes -= sent.bytes;
            self.acked += sent.bytes as u64;
            newest = Some(sent);
        }
        let Some(sent) = newest else { return };
        let took_ms = (now_ms - sent.at_ms).max(1);
        self.shortest_ms = self.shortest_ms.min(took_ms);
        let on_the_line = (self.acked - sent.acked) * self.shortest_ms / took_ms;
        let on_the_line = usize::try_from(on_the_line).unwrap_or(usize::MAX);
        self.size = self.least.saturating_add(on_the_line).min(self.most);
    }

    /// Whatever is under way is lost, or of no use.
    pub fn give_up(&mut self) {
        self.under_way.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends for `seconds` as much as the window allows over a line that carries `bytes_per_ms` and whose
    /// round trip takes so long; the bytes acknowledged in the last second, and the most that were under way.
    fn run(bytes_per_ms: u64, round_trip_ms: u64, seconds: u64) -> (u64, usize) {
        const PIECE: usize = 10_000;
        let mut window = SendWindow::new(100_000, 50_000_000);
        let mut line = VecDeque::new();
        let (mut position, mut free_at_us, mut most) = (0_u64, 0, 0);
        let mut acked_before = 0;
        for now_ms in 0..seconds * 1000 {
            if now_ms == (seconds - 1) * 1000 {
                acked_before = window.acked;
            }
            while let Some((upto, _)) = line.pop_front_if(|(_, due_us)| *due_us <= now_ms * 1000) {
                window.acknowledged(upto, now_ms);
            }
            while window.bytes() < window.size() {
                position += PIECE as u64;
                window.sent(position, PIECE, now_ms);
                free_at_us = (now_ms * 1000).max(free_at_us) + PIECE as u64 * 1000 / bytes_per_ms;
                line.push_back((position, free_at_us + round_trip_ms * 1000));
            }
            most = most.max(window.bytes());
        }
        (window.acked - acked_before, most)
    }

    #[test]
    fn a_line_is_filled_whatever_its_length() {
        for round_trip_ms in [0, 1, 5, 50, 200] {
            for bytes_per_ms in [1_000, 10_000, 100_000] {
                let (carried, _) = run(bytes_per_ms, round_trip_ms, 60);
                let full = bytes_per_ms * 1000;
                assert!(carried * 10 >= full * 9, "{carried} of {full}, {round_trip_ms} ms");
            }
        }
    }

    #[test]
    fn no_more_waits_than_the_constant_beyond_what_the_line_holds() {
        for round_trip_ms in [5, 50, 200] {
            for bytes_per_ms in [1_000, 10_000, 100_000] {
                let (_, most) = run(bytes_per_ms, round_trip_ms, 60);
                let holds = usize::try_from(bytes_per_ms * round_trip_ms).unwrap();
                assert!(most <= 2 * 100_000 + holds * 11 / 10, "{most} for {holds}, {round_trip_ms} ms");
            }
        }
    }

    #[test]
    fn a_peer_that_takes_nothing_is_sent_the_constant_and_a_lost_window_is_free_again() {
        let mut window = SendWindow::new(100, 1000);
        (1..=10).for_each(|position| window.sent(position, 10, 0));
        assert_eq!((window.bytes(), window.pieces(), window.size()), (100, 10, 100));
        window.acknowledged(3, 7);
        assert_eq!((window.bytes(), window.pieces(), window.size()), (70, 7, 130));
        window.give_up();
        assert_eq!((window.bytes(), window.pieces()), (0, 0));
    }
}
