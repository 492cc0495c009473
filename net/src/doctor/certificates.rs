//! The server's own certificates and its lists of revoked ones: whether they are valid, and for how long yet.

use jiff::Timestamp;

use super::Finding;
use crate::config::Config;
use crate::server::{Found, State};

const CHECK: &str = "certificates";

pub(super) fn check(config: &Config) -> impl Iterator<Item = Finding> {
    Found::all(config).map(|found| match found.judge(Timestamp::now()) {
        (State::Valid, says) => Finding::fine(CHECK, says),
        (State::Expiring, says) => Finding::warning(CHECK, says),
        (State::Invalid, says) => Finding::failure(CHECK, says),
    })
}
