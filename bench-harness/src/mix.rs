//! The paper's read/write mix: getData and setData of whole values, in a given proportion.
//!
//! Requests of a session execute in the order sent, so a session that is alone on its znodes knows the
//! exact value that each of its reads must return: the one it sent last before the read.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use ringkeeper_wire::{GetDataResponse, Record, Stat};

use crate::lane::Source;
use crate::payload;
use crate::request::{self, Template};

/// What the reply to one request of the mix must be.
pub(crate) enum Expected {
    /// The data of a znode; with `sequence`, exactly that value of it.
    Data { znode: u32, sequence: Option<u64> },
    /// The Stat after a setData.
    Stat,
}

struct Znode {
    number: u32,
    get: Template,
    set: Template,
    /// Of the value sent last.
    sequence: u64,
}

/// One session's requests.
pub(crate) struct Mix {
    znodes: Vec<Znode>,
    alone: bool,
    reads_percent: u8,
    payload_len: usize,
    rng: StdRng,
}

impl Mix {
    /// Requests to `znodes` (number and path each), `reads_percent` of them reads, chosen by `seed`.
    /// `alone`: no other session writes them.
    pub(crate) fn new(
        znodes: impl IntoIterator<Item = (u32, String)>,
        alone: bool,
        reads_percent: u8,
        payload_len: usize,
        seed: u64,
    ) -> Self {
        let znodes = znodes.into_iter().map(|(number, path)| Znode {
            number,
            get: Template::new(|out| request::get_data(out, 0, &path, false)),
            set: Template::new(|out| request::set_data(out, 0, &path, &payload::first(number, payload_len))),
            sequence: 0,
        });
        Self { znodes: znodes.collect(), alone, reads_percent, payload_len, rng: StdRng::seed_from_u64(seed) }
    }

    fn next_is_read(&mut self) -> bool {
        match self.reads_percent {
            0 => false,
            100 => true,
            percent => self.rng.random_range(0..100) < percent,
        }
    }

    fn pick(&mut self) -> usize {
        if self.znodes.len() == 1 { 0 } else { self.rng.random_range(0..self.znodes.len()) }
    }

    fn check_data(&self, znode: u32, sequence: Option<u64>, body: &[u8]) -> Result<(), String> {
        let expected_len = size_of::<i32>() + self.payload_len + Stat::LEN;
        if body.len() != expected_len {
            return Err(format!("a getData body of {} bytes instead of {expected_len}", body.len()));
        }
        let reply = GetDataResponse::from_bytes(body).map_err(|error| error.to_string())?;
        let data = reply.data.unwrap_or_default();
        if data.len() != self.payload_len {
            return Err(format!("data of {} bytes instead of {}", data.len(), self.payload_len));
        }
        let Some(found) = payload::sequence_of(data, znode) else {
            return Err(format!("data that is no whole value of znode {znode}"));
        };
        match sequence {
            Some(expected) if found != expected => {
                Err(format!("value {found} of znode {znode} instead of {expected}"))
            }
            _ => self.check_length(&reply.stat),
        }
    }

    fn check_stat(&self, body: &[u8]) -> Result<(), String> {
        if body.len() != Stat::LEN {
            return Err(format!("a setData body of {} bytes instead of {}", body.len(), Stat::LEN));
        }
        let stat = Stat::from_bytes(body).map_err(|error| error.to_string())?;
        self.check_length(&stat)
    }

    fn check_length(&self, stat: &Stat) -> Result<(), String> {
        if usize::try_from(stat.data_length) == Ok(self.payload_len) {
            Ok(())
        } else {
            Err(format!("a Stat with dataLength {} instead of {}", stat.data_length, self.payload_len))
        }
    }
}

impl Source for Mix {
    type Expected = Expected;

    fn issue(&mut self, out: &mut Vec<u8>, xid: i32) -> Option<Expected> {
        let read = self.next_is_read();
        let picked = self.pick();
        let znode = &mut self.znodes[picked];
        if read {
            znode.get.append(out, xid);
            return Some(Expected::Data {
                znode: znode.number,
                sequence: self.alone.then_some(znode.sequence),
            });
        }
        znode.sequence += 1;
        payload::stamp(znode.set.payload_mut(self.payload_len), znode.sequence);
        znode.set.append(out, xid);
        Some(Expected::Stat)
    }

    fn check(&self, expected: &Expected, body: &[u8]) -> Result<(), String> {
        match *expected {
            Expected::Data { znode, sequence } => self.check_data(znode, sequence, body),
            Expected::Stat => self.check_stat(body),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = 64;

    fn mix(reads_percent: u8) -> Mix {
        Mix::new([(5, "/r/5".to_owned())], true, reads_percent, LEN, 1)
    }

    fn data_reply(payload: &[u8]) -> Vec<u8> {
        let mut body = Vec::new();
        let stat = Stat { data_length: i32::try_from(payload.len()).unwrap(), ..Stat::default() };
        GetDataResponse { data: Some(payload), stat }.encode(&mut body);
        body
    }

    fn value(znode: u32, sequence: u64) -> Vec<u8> {
        let mut payload = payload::first(znode, LEN);
        payload::stamp(&mut payload, sequence);
        payload
    }

    #[test]
    fn a_read_must_return_the_value_sent_before_it() {
        let mut mix = mix(0);
        let mut out = Vec::new();
        assert!(matches!(mix.issue(&mut out, 1), Some(Expected::Stat)));
        mix.reads_percent = 100;
        let expected = mix.issue(&mut out, 2).unwrap();
        assert_eq!(mix.check(&expected, &data_reply(&value(5, 1))), Ok(()));
        assert_eq!(
            mix.check(&expected, &data_reply(&value(5, 0))).unwrap_err(),
            "value 0 of znode 5 instead of 1"
        );
        assert!(mix.check(&expected, &data_reply(&value(6, 1))).is_err());
        assert!(mix.check(&expected, &data_reply(&value(5, 1)[..LEN - 1])).is_err());
    }

    #[test]
    fn values_of_other_sessions_are_fine_where_znodes_are_shared() {
        let mut mix = Mix::new([(5, "/r/5".to_owned())], false, 100, LEN, 1);
        let expected = mix.issue(&mut Vec::new(), 1).unwrap();
        assert_eq!(mix.check(&expected, &data_reply(&value(5, 99))), Ok(()));
    }

    #[test]
    fn a_write_must_return_a_stat_of_its_length() {
        let mix = mix(0);
        let mut body = Vec::new();
        Stat { data_length: 64, ..Stat::default() }.encode(&mut body);
        assert_eq!(mix.check(&Expected::Stat, &body), Ok(()));
        assert!(mix.check(&Expected::Stat, &body[1..]).is_err());
        body.clear();
        Stat::default().encode(&mut body);
        assert!(mix.check(&Expected::Stat, &body).is_err());
    }

    #[test]
    fn the_proportion_of_reads_is_the_one_asked_for() {
        for percent in [0, 30, 90, 100] {
            let mut mix = mix(percent);
            let reads = (0..10_000).filter(|_| mix.next_is_read()).count();
            assert!(reads.abs_diff(usize::from(percent) * 100) < 200, "{reads} of 10000 at {percent} %");
        }
    }
}
