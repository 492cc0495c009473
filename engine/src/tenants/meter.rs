//! What one server measures of a tenant: its token buckets, and what it has used.
//!
//! All states and shards of a server share the meter of a tenant, so a limit holds for the server however
//! its connections are spread over shards. It is no part of a state's value.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Resource, Tenant};

const NS_PER_US: u64 = 1_000;
const NS_PER_S: u64 = 1_000_000_000;

/// For how long one request can use up a bucket in advance, at most. Requests pass as long as anything is
/// left, and are counted in full.
const DEBT_MAX_NS: u64 = 10 * NS_PER_S;

/// A token bucket: the time at which it will be full again, nanoseconds on the server's clock.
#[derive(Debug, Default)]
struct Bucket(AtomicU64);

impl Bucket {
    fn has_tokens(&self, now_ns: u64, burst_ns: u64) -> bool {
        self.0.load(Ordering::Relaxed) < now_ns.saturating_add(burst_ns)
    }

    fn take(&self, now_ns: u64, burst_ns: u64, rate: u64, tokens: u64) {
        let cost_ns = tokens.saturating_mul(NS_PER_S).div_ceil(rate);
        let empty_until_max = now_ns.saturating_add(burst_ns).saturating_add(DEBT_MAX_NS);
        let taken = |full_at: u64| full_at.max(now_ns).saturating_add(cost_ns).min(empty_until_max);
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |full_at| Some(taken(full_at)));
    }
}

/// What this server has measured of a tenant.
#[derive(Debug, Default)]
pub struct Meter {
    operations: Bucket,
    bytes: Bucket,
    operations_counted: AtomicU64,
    bytes_counted: AtomicU64,
    delayed_us: AtomicU64,
    watches: AtomicU64,
    sessions: AtomicU64,
    refused: [AtomicU64; Resource::ALL.len()],
}

/// What a meter shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// Operations executed.
    pub operations: u64,
    /// Bytes received and sent for them.
    pub bytes: u64,
    /// How long requests had to wait, microseconds.
    pub delayed_us: u64,
    /// Watches now.
    pub watches: u64,
    /// Sessions now.
    pub sessions: u64,
    refused: [u64; Resource::ALL.len()],
}

impl Measured {
    /// Requests refused because of the limit on `resource`.
    #[must_use]
    pub const fn refused(&self, resource: Resource) -> u64 {
        self.refused[resource as usize]
    }

    /// Adds those of another tenant.
    pub fn merge(&mut self, other: &Self) {
        self.operations += other.operations;
        self.bytes += other.bytes;
        self.delayed_us += other.delayed_us;
        self.watches += other.watches;
        self.sessions += other.sessions;
        self.refused.iter_mut().zip(other.refused).for_each(|(count, more)| *count += more);
    }
}

impl Meter {
    /// What it shows now.
    #[must_use]
    pub fn measured(&self) -> Measured {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Measured {
            operations: read(&self.operations_counted),
            bytes: read(&self.bytes_counted),
            delayed_us: read(&self.delayed_us),
            watches: read(&self.watches),
            sessions: read(&self.sessions),
            refused: self.refused.each_ref().map(read),
        }
    }

    /// Counts a request that is refused.
    pub(crate) fn refuse(&self, resource: Resource) {
        self.refused[resource as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the time that a request had to wait.
    pub(crate) fn delayed(&self, us: u64) {
        self.delayed_us.fetch_add(us, Ordering::Relaxed);
    }

    pub(crate) fn add_watches(&self, number: u64) {
        self.watches.fetch_add(number, Ordering::Relaxed);
    }

    pub(crate) fn subtract_watches(&self, number: u64) {
        self.watches.fetch_sub(number, Ordering::Relaxed);
    }
}

impl Tenant {
    /// The rate that leaves no room for a request now.
    pub(crate) fn exhausted(&self, now_us: u64) -> Option<Resource> {
        let (now_ns, burst_ns) = self.times(now_us);
        self.rates().into_iter().find_map(|(resource, bucket)| {
            let is_empty = self.limits.of(resource).is_some() && !bucket.has_tokens(now_ns, burst_ns);
            is_empty.then_some(resource)
        })
    }

    /// Counts operations and bytes.
    pub(crate) fn charge(&self, now_us: u64, operations: u64, bytes: u64) {
        let (now_ns, burst_ns) = self.times(now_us);
        self.meter.operations_counted.fetch_add(operations, Ordering::Relaxed);
        self.meter.bytes_counted.fetch_add(bytes, Ordering::Relaxed);
        for ((resource, bucket), tokens) in self.rates().into_iter().zip([operations, bytes]) {
            if let Some(rate) = self.limits.of(resource).filter(|_| tokens > 0) {
                bucket.take(now_ns, burst_ns, rate, tokens);
            }
        }
    }

    fn rates(&self) -> [(Resource, &Bucket); 2] {
        [(Resource::Operations, &self.meter.operations), (Resource::Bytes, &self.meter.bytes)]
    }

    fn times(&self, now_us: u64) -> (u64, u64) {
        (now_us.saturating_mul(NS_PER_US), self.limits.burst_s() * NS_PER_S)
    }

    /// Whether it may have another watch; if not, the refusal is counted.
    pub(crate) fn has_room_for_watch(&self) -> bool {
        let watches = self.meter.watches.load(Ordering::Relaxed);
        let has_room = self.limits.of(Resource::Watches).is_none_or(|limit| watches < limit);
        if !has_room {
            self.meter.refuse(Resource::Watches);
        }
        has_room
    }

    /// Counts one more session; `None` if there may be no more.
    pub(crate) fn join(self: &Arc<Self>) -> Option<Membership> {
        let limit = self.limits.of(Resource::Sessions).unwrap_or(u64::MAX);
        let more = |sessions: u64| (sessions < limit).then_some(sessions + 1);
        self.meter.sessions.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Membership(Arc::clone(self)))
    }
}

/// A session that counts for a tenant until this is dropped.
#[derive(Debug)]
pub(crate) struct Membership(Arc<Tenant>);

impl Membership {
    /// Whether it counts for `tenant`, maybe under earlier limits.
    pub(crate) fn is_of(&self, tenant: &Tenant) -> bool {
        Arc::ptr_eq(&self.0.meter, &tenant.meter)
    }

    /// Whose it is.
    pub(crate) fn path(&self) -> &str {
        &self.0.path
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.0.meter.sessions.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::TenantLimits;
    use super::*;

    const US_PER_S: u64 = 1_000_000;

    fn tenant(text: &str) -> Arc<Tenant> {
        let limits = TenantLimits::parse(text.as_bytes()).expect(text);
        Arc::new(Tenant { path: "/t".into(), limits, meter: Arc::default() })
    }

    #[test]
    fn a_large_request_is_paid_for_afterwards_but_not_for_ever() {
        let tenant = tenant("bytes=100");
        tenant.charge(0, 1, 350);
        assert_eq!(tenant.exhausted(2_499_999), Some(Resource::Bytes));
        assert_eq!(tenant.exhausted(2_500_001), None);
        tenant.charge(0, 1, u64::MAX);
        assert_eq!(tenant.exhausted(10 * US_PER_S), Some(Resource::Bytes));
        assert_eq!(tenant.exhausted(10 * US_PER_S + 1), None);
    }

    #[test]
    fn sessions_count_until_they_end() {
        let tenant = tenant("sessions=2");
        let first = tenant.join().expect("room");
        let second = tenant.join().expect("room");
        assert!(tenant.join().is_none());
        drop(first);
        assert!(tenant.join().is_some());
        drop(second);
        assert_eq!(tenant.meter.measured().sessions, 0);
    }

    proptest! {
        /// Whoever asks whenever it likes gets no more than rate and burst allow, and a bit of one request;
        /// who always asks gets no less.
        #[test]
        fn the_rate_holds_over_any_time(
            rate in 1_u64..2_000,
            burst in 1_u64..4,
            pauses_us in prop::collection::vec(0_u64..400_000, 1..200),
        ) {
            let tenant = tenant(&format!("ops={rate} burst={burst}"));
            let (mut now_us, mut passed) = (0, 0);
            for pause_us in pauses_us {
                now_us += pause_us;
                while tenant.exhausted(now_us).is_none() {
                    tenant.charge(now_us, 1, 0);
                    passed += 1;
                }
                let allowed = rate * burst + rate * now_us / US_PER_S;
                prop_assert!(passed <= allowed + 1, "{passed} of {allowed}");
                prop_assert!(passed >= rate * burst, "{passed}");
            }
        }
    }
}
