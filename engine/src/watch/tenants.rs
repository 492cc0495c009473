//! The watches of each tenant. When tenants change, they are counted anew, in slices: until that is done, a
//! watch with a number from `counted_to` on is counted only when its turn comes.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::tenants::{Tenant, Tenants};

#[derive(Debug)]
pub(super) struct TenantWatches {
    tenants: Tenants,
    /// What this shard has added to the tenants' meters.
    counted: BTreeMap<Arc<str>, (Arc<Tenant>, u64)>,
    counted_to: u32,
}

impl TenantWatches {
    pub(super) fn new() -> Self {
        Self { tenants: Tenants::default(), counted: BTreeMap::new(), counted_to: u32::MAX }
    }

    pub(super) fn is_counting(&self) -> bool {
        self.counted_to < u32::MAX
    }

    /// Takes back what was counted; everything is to be counted from the first watch on.
    pub(super) fn replace(&mut self, tenants: Tenants) {
        for (tenant, watches) in std::mem::take(&mut self.counted).into_values() {
            tenant.meter().subtract_watches(watches);
        }
        self.counted_to = if tenants.is_empty() { u32::MAX } else { 0 };
        self.tenants = tenants;
    }

    /// The watches that are counted next: at most `max` of all `end`.
    pub(super) fn next(&mut self, end: u32, max: u32) -> std::ops::Range<u32> {
        let from = self.counted_to;
        let to = end.min(from.saturating_add(max)).max(from);
        self.counted_to = if to >= end { u32::MAX } else { to };
        from..to
    }

    pub(super) fn covering(&self, path: &str) -> Option<&Arc<Tenant>> {
        self.tenants.covering(path)
    }

    /// The watch `number` on `path` was added.
    pub(super) fn added(&mut self, number: u32, path: &str) {
        if number < self.counted_to {
            self.count(path);
        }
    }

    pub(super) fn count(&mut self, path: &str) {
        let Some(tenant) = self.tenants.covering(path) else { return };
        tenant.meter().add_watches(1);
        let new = || (Arc::clone(tenant), 0);
        self.counted.entry(Arc::clone(tenant.path())).or_insert_with(new).1 += 1;
    }

    /// The watch `number` on `path` is being removed.
    pub(super) fn removed(&mut self, number: u32, path: &str) {
        if number >= self.counted_to {
            return;
        }
        let Some(tenant) = self.tenants.covering(path) else { return };
        if let Some((tenant, watches)) = self.counted.get_mut(tenant.path()) {
            *watches -= 1;
            tenant.meter().subtract_watches(1);
        }
    }
}
