//! Strangers: connections on the quorum port that are not authenticated yet. Their number is bounded, and a
//! new one may replace an older one. Whoever reaches the port can hold silent connections open, which must
//! not keep the ensemble's servers out.
//!
//! The oldest stranger is replaced first, since a server authenticates within two round trips. The
//! connections from one address are bounded, too. Connections from the servers' own addresses are replaced
//! last.

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::future::poll_fn;
use std::net::IpAddr;
use std::rc::Rc;

use crate::wake::WakeFlag;

/// Number of strangers at one time, in all and from one address.
const STRANGERS_MAX: usize = 64;
const FROM_ONE_ADDRESS_MAX: usize = 16;

/// All strangers, oldest first.
#[derive(Debug, Default)]
pub(super) struct Strangers {
    waiting: RefCell<VecDeque<Rc<Stranger>>>,
    /// Addresses of the ensemble's servers, as resolved last.
    servers: RefCell<BTreeSet<IpAddr>>,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Stranger {
    address: IpAddr,
    displaced: WakeFlag,
}

impl Strangers {
    /// Sets the addresses of the ensemble's servers.
    pub(super) fn set_servers(&self, addresses: BTreeSet<IpAddr>) {
        *self.servers.borrow_mut() = addresses;
    }

    /// Whether the address is one of the ensemble's servers.
    pub(super) fn are_from_server(&self, address: IpAddr) -> bool {
        self.servers.borrow().contains(&address)
    }

    /// Adds a connection. `None` if all others have precedence over it.
    pub(super) fn admit(&self, address: IpAddr) -> Option<Rc<Stranger>> {
        let (mut waiting, servers) = (self.waiting.borrow_mut(), self.servers.borrow());
        let from_here = |stranger: &Rc<Stranger>| stranger.address == address;
        let makes_room = if waiting.iter().filter(|other| from_here(other)).count() >= FROM_ONE_ADDRESS_MAX {
            waiting.iter().position(from_here)
        } else if waiting.len() >= STRANGERS_MAX {
            let unknown = waiting.iter().position(|other| !servers.contains(&other.address));
            Some(unknown.or_else(|| servers.contains(&address).then_some(0))?)
        } else {
            None
        };
        if let Some(oldest) = makes_room.and_then(|index| waiting.remove(index)) {
            oldest.displaced.raise();
        }
        let stranger = Rc::new(Stranger { address, displaced: WakeFlag::default() });
        waiting.push_back(Rc::clone(&stranger));
        Some(stranger)
    }

    /// Removes a connection that was authenticated or has ended.
    pub(super) fn leave(&self, stranger: &Rc<Stranger>) {
        self.waiting.borrow_mut().retain(|other| !Rc::ptr_eq(other, stranger));
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.borrow().is_empty()
    }
}

impl Stranger {
    /// Ready when the connection has to be closed for another one.
    pub(super) async fn displaced(&self) {
        poll_fn(|cx| self.displaced.poll_lower(cx)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn address(number: usize) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(10, 0, 0, u8::try_from(number).expect("a few")))
    }

    fn is_displaced(stranger: &Stranger) -> bool {
        stranger.displaced.poll_lower(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
    }

    #[test]
    fn the_oldest_connection_of_an_address_makes_room_for_its_next_one() {
        let strangers = Strangers::default();
        let other = strangers.admit(address(1)).expect("room");
        let many: Vec<_> = (0..20).map(|_| strangers.admit(address(2)).expect("room")).collect();
        let displaced: Vec<bool> = many.iter().map(|stranger| is_displaced(stranger)).collect();
        assert_eq!(displaced, [vec![true; 4], vec![false; 16]].concat());
        assert!(!is_displaced(&other));
        many.iter().chain([&other]).for_each(|stranger| strangers.leave(stranger));
        assert!(strangers.is_empty());
    }

    #[test]
    fn connections_from_servers_addresses_are_the_last_to_make_room() {
        let strangers = Strangers::default();
        strangers.set_servers(BTreeSet::from([address(1), address(2), address(3), address(4), address(5)]));
        let server = strangers.admit(address(1)).expect("room");
        let first = strangers.admit(address(100)).expect("room");
        for number in 0..STRANGERS_MAX - 2 {
            strangers.admit(address(101 + number)).expect("room");
        }
        strangers.admit(address(200)).expect("the oldest stranger makes room");
        assert!(is_displaced(&first) && !is_displaced(&server));
        for number in 0..STRANGERS_MAX - 1 {
            strangers.admit(address(2 + number % 4)).expect("a server comes first");
        }
        assert!(!is_displaced(&server));
        assert!(strangers.admit(address(200)).is_none(), "all are from servers' addresses");
        strangers.admit(address(5)).expect("the oldest makes room");
        assert!(is_displaced(&server));
    }
}
