//! Read-only mode (docs/protocol.md, section 5): a server that has had no leader for a while serves reads to
//! clients that accept that. Its local sessions are resumed in the mode and outlive it. Any other session
//! that it serves is one of the mode, and ends with it.

use ringkeeper_wire::ServerId;

use super::issuer::{Issued, Issuer};
use crate::message::{ConnId, Submitted, ToShard};
use crate::mutation::planted;
use crate::settings::Settings;
use crate::state::State;

/// The beginning of the passwords of this mode's sessions, here and on other servers: who comes back with one
/// is told at once that the session has ended.
const MARK: &[u8] = b"readonly";

/// The read-only mode of a server.
#[derive(Debug)]
pub(super) struct ReadOnly {
    /// Time without a leader after which it begins, milliseconds.
    after_ms: u64,
    issuer: Issuer,
    /// Since when there is no leader; `None` until the first tick without one.
    since_ms: Option<u64>,
    serves: bool,
}

impl ReadOnly {
    pub(super) fn new(after_ms: u64, server: ServerId, random_seed: [u8; 32]) -> Self {
        let issuer = Issuer::new(server, random_seed, Issued::ReadOnly);
        Self { after_ms, issuer, since_ms: None, serves: false }
    }

    pub(super) const fn serves(&self) -> bool {
        self.serves
    }

    /// Time passes without a leader. Returns whether the mode begins now.
    pub(super) fn is_due(&mut self, now_ms: u64) -> bool {
        let since_ms = *self.since_ms.get_or_insert(now_ms);
        let begins = !self.serves && now_ms >= since_ms + self.after_ms;
        self.serves |= begins;
        begins
    }

    /// The mode ends. Returns whether it had begun.
    pub(super) const fn end(&mut self) -> bool {
        self.since_ms = None;
        std::mem::replace(&mut self.serves, false)
    }

    /// The answer to a client without a local session. Of any other session than one of this mode this server
    /// can say neither that it lives nor that it has ended: its client goes on looking for a server that can.
    pub(super) fn answer(
        &mut self,
        settings: &Settings,
        state: &State,
        conn: ConnId,
        asked: &Submitted,
    ) -> Option<ToShard> {
        match asked {
            Submitted::Open { timeout_ms } => {
                let (session, mut password) = self.issuer.issue(|session| state.session(session).is_some());
                password[..MARK.len()].copy_from_slice(MARK);
                Some(ToShard::Attached { conn, session, password, timeout_ms: *timeout_ms })
            }
            Submitted::Reattach { password, .. }
                if password.starts_with(MARK) || planted!(settings, EndForeignSessions) =>
            {
                Some(ToShard::Rejected { conn })
            }
            Submitted::Reattach { .. } => Some(ToShard::Evict { conn }),
            // The shard answers writes and syncs itself in this mode.
            Submitted::Write { .. } | Submitted::Sync | Submitted::Detach | Submitted::Upgrade { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: Submitted = Submitted::Open { timeout_ms: 4000 };

    fn mode() -> ReadOnly {
        ReadOnly::new(2000, ServerId(3), [7; 32])
    }

    #[test]
    fn it_begins_once_after_a_time_without_a_leader() {
        let mut mode = mode();
        let begins: Vec<_> =
            [100, 2099, 2100, 2200].into_iter().filter(|now_ms| mode.is_due(*now_ms)).collect();
        assert_eq!(begins, [2100]);
        assert!(mode.serves());
        assert!(mode.end());
        assert!(!mode.is_due(2300), "the time without a leader is counted anew");
        assert!(!mode.end());
    }

    #[test]
    fn each_new_session_has_an_id_and_a_password_of_its_own_and_no_other_is_called_expired() {
        let (mut mode, state) = (mode(), State::new(1));
        let mut open = || match mode.answer(&Settings::default(), &state, ConnId(1), &ASKED) {
            Some(ToShard::Attached { session, password, timeout_ms: 4000, .. }) => (session, password),
            other => panic!("{other:?}"),
        };
        let (first, second) = (open(), open());
        assert!(first.0 != second.0 && first.1 != second.1);
        assert_eq!(first.0.0 >> 56, 3);
        let mut come_back = |password| {
            let asked = Submitted::Reattach { password, timeout_ms: 4000 };
            mode.answer(&Settings::default(), &state, ConnId(2), &asked)
        };
        assert!(matches!(come_back(first.1), Some(ToShard::Rejected { conn: ConnId(2) })));
        let elsewhere = come_back([7; 16]);
        assert!(matches!(elsewhere, Some(ToShard::Evict { .. })), "this server cannot know whether it lives");
    }
}
