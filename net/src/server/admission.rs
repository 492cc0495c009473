//! Admission of clients: limits on connections in all and from one address, and the choice of the shard with
//! the fewest connections.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// Counts the connections of the whole server. Used when a connection opens and closes, never for a request.
#[derive(Debug)]
pub(crate) struct Admission {
    per_address_max: u32,
    total_max: u32,
    /// Connections for which the limit of open files leaves descriptors.
    descriptors_max: u32,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    total: u32,
    per_address: HashMap<IpAddr, u32>,
    per_shard: Vec<u32>,
    refused: u64,
}

/// An admitted connection; counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Admitted {
    admission: Arc<Admission>,
    address: IpAddr,
    shard: usize,
}

impl Admission {
    /// The limits (0 means none), the connections for which the limit of open files leaves room, and the
    /// number of shards, at least one.
    pub(crate) fn new(per_address_max: u32, total_max: u32, descriptors_max: u32, shards: u16) -> Arc<Self> {
        let open = Open { per_shard: vec![0; usize::from(shards.max(1))], ..Open::default() };
        Arc::new(Self { per_address_max, total_max, descriptors_max, open: Mutex::new(open) })
    }

    /// Admits a connection to the shard with the fewest connections, or says why not.
    ///
    /// # Errors
    /// The limit that was reached, as a text for the log.
    pub(crate) fn admit(self: &Arc<Self>, address: IpAddr) -> Result<Admitted, String> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let from_here = open.per_address.get(&address).copied().unwrap_or(0);
        let refusal = if self.total_max != 0 && open.total >= self.total_max {
            Some(format!("{} connections are open, maxCnxns allows no more", open.total))
        } else if open.total >= self.descriptors_max {
            Some(format!(
                "{} connections are open, and the other files that the system allows are kept for log, \
                 snapshots and peers: raise it with `ulimit -Hn`, or LimitNOFILE= in the systemd unit",
                open.total
            ))
        } else if self.per_address_max != 0 && from_here >= self.per_address_max {
            Some(format!("{from_here} connections are open from {address}, maxClientCnxns allows no more"))
        } else {
            None
        };
        if let Some(refusal) = refusal {
            open.refused += 1;
            return Err(refusal);
        }
        open.total += 1;
        open.per_address.insert(address, from_here + 1);
        let shard = (0..open.per_shard.len()).min_by_key(|&shard| open.per_shard[shard]).unwrap_or(0);
        open.per_shard[shard] += 1;
        Ok(Admitted { admission: Arc::clone(self), address, shard })
    }

    /// Connections refused so far.
    pub(crate) fn refused(&self) -> u64 {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).refused
    }
}

impl Admitted {
    /// The shard that the connection belongs to.
    pub(crate) fn shard(&self) -> usize {
        self.shard
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut open = self.admission.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.total -= 1;
        open.per_shard[self.shard] -= 1;
        if let Some(count) = open.per_address.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                open.per_address.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 1));
    const ANY: u32 = u32::MAX;
    const B: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 2));

    #[test]
    fn one_address_cannot_take_more_than_its_share() {
        let admission = Admission::new(2, 0, ANY, 1);
        let first = admission.admit(A).expect("room");
        let _second = admission.admit(A).expect("room");
        assert!(admission.admit(A).is_err());
        let _other = admission.admit(B).expect("another address");
        drop(first);
        let _third = admission.admit(A).expect("room again");
        assert_eq!(admission.refused(), 1);
    }

    #[test]
    fn descriptors_are_left_for_others() {
        let admission = Admission::new(0, 0, 1, 1);
        let _first = admission.admit(A).expect("room");
        assert!(admission.admit(B).expect_err("kept").contains("LimitNOFILE"));
    }

    #[test]
    fn the_total_is_limited() {
        let admission = Admission::new(0, 1, ANY, 1);
        let first = admission.admit(A).expect("room");
        assert!(admission.admit(B).is_err());
        drop(first);
        let _second = admission.admit(B).expect("room again");
    }

    #[test]
    fn the_emptiest_shard_takes_the_next_connection() {
        let admission = Admission::new(0, 0, ANY, 2);
        let admit = || admission.admit(A).expect("room");
        let (first, second, third) = (admit(), admit(), admit());
        assert_eq!((first.shard(), second.shard(), third.shard()), (0, 1, 0));
        drop((first, third));
        assert_eq!(admit().shard(), 0);
    }
}
