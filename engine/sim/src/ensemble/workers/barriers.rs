//! Double barriers: a group passes one together, round after round. Each process counts itself before it
//! enters and before it leaves; one that gets through must find all of them counted.
//!
//! A process whose session ends has left its barrier, even if the others do not know it. So the end of a
//! session in a group ends the barrier, and all move to a new one.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use futures_lite::future;
use ringkeeper_client::Result;
use ringkeeper_client::recipes::{DoubleBarrier, OrderedBarrier, Participation};

use super::cast::Role;
use super::desk::Desk;
use crate::random::Random;

/// Which of the two recipes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    Double,
    Ordered,
}

/// A barrier and a round of it.
type At = (u64, u64);

/// What a group knows about itself.
#[derive(Debug)]
struct Group {
    size: usize,
    variant: Variant,
    muster: RefCell<Muster>,
}

#[derive(Debug, Default)]
struct Muster {
    barrier: u64,
    entered: BTreeMap<u64, usize>,
    left: BTreeMap<u64, usize>,
    /// The round that nobody begins any more, once it is known.
    last: Option<u64>,
}

pub(super) fn barriers(random: &mut Random) -> Vec<Role> {
    let size = [2, 3][random.index(2)];
    let variant = [Variant::Double, Variant::Ordered][random.index(2)];
    let group = Rc::new(Group { size, variant, muster: RefCell::default() });
    let member = |_| {
        let group = Rc::clone(&group);
        // The group would not hear of it.
        Role::new("barrier", move |desk| take_part(desk, Rc::clone(&group))).not_abortable()
    };
    (0..size).map(member).collect()
}

async fn take_part(desk: Desk, group: Rc<Group>) -> Result<()> {
    let (mut barrier, mut round) = (group.barrier(), 0);
    loop {
        let now = group.barrier();
        if now != barrier {
            (barrier, round) = (now, 0);
        }
        if !group.begins((barrier, round), desk.stage.is_healed()) {
            return Ok(());
        }
        let passed = pass(&desk, &group, (barrier, round)).await;
        if passed.is_err() {
            group.end(barrier);
        }
        passed?;
        desk.done();
        round += 1;
    }
}

/// One round. Returns early when the barrier ends.
async fn pass(desk: &Desk, group: &Group, at: At) -> Result<()> {
    let path = format!("/barrier-{}", at.0);
    desk.at(format_args!("enters {path}, round {}", at.1));
    let entering = async { Some(group.enter(desk, &path).await) };
    let Some(inside) = future::or(entering, group.ended(desk, at)).await else { return Ok(()) };
    let inside = inside?;
    group.expect_all(desk, at, "have entered", |muster| &muster.entered).await;
    desk.pause().await;
    if !group.leaves(at) {
        return Ok(());
    }
    desk.at(format_args!("leaves {path}, round {}", at.1));
    let leaving = async { Some(group.leave(desk, &path, inside).await) };
    let Some(left) = future::or(leaving, group.ended(desk, at)).await else { return Ok(()) };
    left?;
    group.expect_all(desk, at, "have left", |muster| &muster.left).await;
    Ok(())
}

impl Group {
    async fn enter(&self, desk: &Desk, path: &str) -> Result<Participation> {
        match self.variant {
            Variant::Double => DoubleBarrier::new(&desk.client, path, self.size).enter("member").await,
            Variant::Ordered => OrderedBarrier::new(&desk.client, path, self.size).enter("member").await,
        }
    }

    async fn leave(&self, desk: &Desk, path: &str, inside: Participation) -> Result<()> {
        match self.variant {
            Variant::Double => DoubleBarrier::new(&desk.client, path, self.size).leave(inside).await,
            Variant::Ordered => OrderedBarrier::new(&desk.client, path, self.size).leave(inside).await,
        }
    }

    fn barrier(&self) -> u64 {
        self.muster.borrow().barrier
    }

    /// Counts a process into a round, unless it is time to stop, which is decided for the whole group. The
    /// first round that begins after healing is the last one.
    fn begins(&self, (_, round): At, is_healed: bool) -> bool {
        let mut muster = self.muster.borrow_mut();
        if is_healed && !muster.entered.contains_key(&round) {
            muster.last.get_or_insert(round + 1);
        }
        if muster.last.is_some_and(|last| round >= last) {
            return false;
        }
        *muster.entered.entry(round).or_default() += 1;
        true
    }

    /// Counts one out; `false` if the barrier has ended.
    fn leaves(&self, (barrier, round): At) -> bool {
        let mut muster = self.muster.borrow_mut();
        if muster.barrier == barrier {
            *muster.left.entry(round).or_default() += 1;
        }
        muster.barrier == barrier
    }

    /// Ends the barrier for all.
    fn end(&self, barrier: u64) {
        let mut muster = self.muster.borrow_mut();
        if muster.barrier == barrier {
            // A process that has finished will not come to another barrier.
            let last = muster.last.map(|_| 0);
            *muster = Muster { barrier: barrier + 1, last, ..Muster::default() };
        }
    }

    async fn ended<T>(&self, desk: &Desk, (barrier, _): At) -> Option<T> {
        desk.until(|| self.barrier() != barrier).await;
        None
    }

    /// Waits until all are counted. If a session has ended, the barrier ends instead, as soon as that is
    /// known.
    async fn expect_all(
        &self,
        desk: &Desk,
        (barrier, round): At,
        what: &str,
        counts: impl Fn(&Muster) -> &BTreeMap<u64, usize>,
    ) {
        let count = || counts(&self.muster.borrow()).get(&round).copied().unwrap_or_default();
        if self.barrier() == barrier && count() < self.size {
            desk.at(format_args!("wonders why {} of {} {what} round {round}", count(), self.size));
            desk.until(|| self.barrier() != barrier).await;
        }
    }
}
