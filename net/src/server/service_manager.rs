//! Tells systemd how the server is (`Type=notify`): that it starts, serves, waits, lives and stops.
//!
//! Without a service manager (`$NOTIFY_SOCKET`) nothing is sent.

use std::time::Duration;

use sd_notify::NotifyState;

use super::reactor;

/// How often a start that takes long asks for more time, and for how much.
const EXTEND_EVERY: Duration = Duration::from_secs(10);
const EXTENDED_US: u32 = 30_000_000;

/// Asks for more time, for as long as recovery takes. A recovery that stands still stops asking, since both
/// run on the core's executor.
pub(crate) async fn starting() {
    loop {
        notify(&[NotifyState::ExtendTimeoutUsec(EXTENDED_US)]);
        reactor::sleep(EXTEND_EVERY).await;
    }
}

/// Clients can connect. A member of an ensemble may not serve them yet: it needs the others, whose start must
/// not wait for this one's.
pub(crate) fn ready() {
    notify(&[NotifyState::Ready]);
}

/// What `systemctl status` shows.
pub(crate) fn status(text: &str) {
    notify(&[NotifyState::Status(text)]);
}

/// The server ends, as it was told to.
pub(crate) fn stopping() {
    notify(&[NotifyState::Stopping]);
}

/// Shows that the core's executor lives, twice in the time that the service manager allows (`WatchdogSec`).
pub(crate) async fn keep_alive() {
    let Some(allowed) = sd_notify::watchdog_enabled() else { return };
    loop {
        notify(&[NotifyState::Watchdog]);
        reactor::sleep(allowed / 2).await;
    }
}

fn notify(states: &[NotifyState<'_>]) {
    // Who does not listen misses nothing that the log does not say.
    let _ = sd_notify::notify(states);
}
