//! What a recipe holds: until when that is certain, and how its loss is told.

use std::pin::{Pin, pin};
use std::task::Poll;

use futures_core::Stream;
use ringkeeper_wire::Zxid;

use super::claim::{Claim, OwnNode};
use crate::mutation::planted;
use crate::{Client, Error, Result, SessionState, Watch};

/// Something that is held by an ephemeral znode: a lock, a leadership.
///
/// Dropping it gives it up in the background; [`Holding::release`] says when that is done.
///
/// # When to stop
/// A holder must stop when it can no longer be sure: watch [`Holding::lost`], or ask
/// [`Holding::is_certain`] before each step. Neither helps a program that is suspended between asking and
/// acting; only the [fencing token](Holding::fencing_token) does.
#[derive(Debug)]
#[must_use = "dropped, it is given up"]
pub struct Holding {
    claim: Claim,
    node: OwnNode,
}

/// How a [`Holding`] was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loss {
    /// The znode was deleted: the session has expired, or somebody took the holding away.
    Deleted,
    /// No server has confirmed the session for as long as its timeout: it may have expired.
    Lapsed,
    /// The session has ended.
    SessionEnded(Error),
}

impl Holding {
    pub(super) fn new(claim: Claim) -> Option<Self> {
        let node = claim.node()?.clone();
        Some(Self { claim, node })
    }

    /// Greater than that of every earlier holder of the same thing.
    #[must_use]
    pub const fn fencing_token(&self) -> Zxid {
        self.node.czxid
    }

    /// The holder's znode.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.node.path
    }

    pub(super) const fn client(&self) -> &Client {
        self.claim.client()
    }

    /// Whether the servers are certain to keep the session, and with it the holding, for some time yet.
    #[must_use]
    pub fn is_certain(&self) -> bool {
        !self.claim.client().lease().is_zero()
    }

    /// Ready when the holding is lost, or may be: from then on another client may hold it.
    ///
    /// The word comes from the thread that also resolves the servers' names: where a resolver may hang for
    /// longer than the session lasts, give addresses, or ask [`Holding::is_certain`], which needs nobody.
    pub async fn lost(&self) -> Loss {
        let client = self.claim.client();
        let mut states = pin!(client.state_changes());
        let mut watch: Option<Watch> = None;
        loop {
            if let Some(loss) = self.loss_by_state() {
                return loss;
            }
            if watch.is_none() && client.state().is_connected() {
                match client.get_data_and_watch(self.path()).await {
                    Err(Error::NoNode(_)) if planted!(client, KeepLossQuiet) => {}
                    Ok((_, new)) => watch = Some(new),
                    Err(Error::NoNode(_)) => return Loss::Deleted,
                    Err(error) if error.is_session_end() => return Loss::SessionEnded(error),
                    // The connection: its state tells more. Anything else is no sign of a loss, but
                    // without a watch only the state is left to wait for.
                    Err(_) => {}
                }
            }
            // Whatever changes is looked at anew above; a znode that was only written to is still there.
            let fired = std::future::poll_fn(|cx| {
                let fired = watch.as_mut().map_or(Poll::Pending, |watch| Pin::new(watch).poll(cx));
                if fired.is_ready() {
                    return Poll::Ready(true);
                }
                states.as_mut().poll_next(cx).map(|_| false)
            });
            if fired.await {
                watch = None;
            }
        }
    }

    fn loss_by_state(&self) -> Option<Loss> {
        let client = self.claim.client();
        match client.state() {
            SessionState::Lapsed => Some(Loss::Lapsed),
            state if state.is_ended() => {
                Some(Loss::SessionEnded(client.end_reason().unwrap_or(Error::Closed)))
            }
            _ => None,
        }
    }

    /// Gives the holding up.
    ///
    /// # Errors
    /// The server refuses to delete the znode. That the session has ended is no error.
    pub async fn release(self) -> Result<()> {
        self.claim.release().await
    }
}
