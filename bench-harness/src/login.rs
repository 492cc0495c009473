//! Who logs in to the servers that run already, on every connection, by the client library's own exchange.

use std::sync::{Mutex, PoisonError};

use ringkeeper_client::core::{Login, User};

use crate::measure::run_id;

/// Where the logins of new connections come from.
static LOGIN: Mutex<Option<Login>> = Mutex::new(None);

/// From now on, every connection logs in as `user`.
pub(crate) fn install(user: User) {
    remember(Login::new(user, run_id()));
}

/// The login of a new connection, if there is to be one.
pub(crate) fn next() -> Option<Login> {
    LOGIN.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map(Login::fork)
}

/// Takes back a login that has succeeded: those that follow use again what it has derived from the password,
/// which takes a thousand times as long as the rest of a login by SCRAM.
pub(crate) fn remember(login: Login) {
    *LOGIN.lock().unwrap_or_else(PoisonError::into_inner) = Some(login);
}
