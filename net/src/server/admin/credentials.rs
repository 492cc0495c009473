//! Who may use the commands that change the server or show all of it: who has every permission on `/`, as
//! ZooKeeper asks for its snapshots.

use hyper::header::AUTHORIZATION;
use hyper::{Request, StatusCode};
use ringkeeper_engine::acl::{Caller, authenticate};
use ringkeeper_engine::authorisation::Bounds;
use ringkeeper_engine::path::ROOT;
use ringkeeper_engine::settings::Settings;
use ringkeeper_engine::state::State;
use ringkeeper_wire::{Identity, Perms};

use super::service::Client;

/// Every permission.
const WANTED: [Perms; 5] = [Perms::READ, Perms::WRITE, Perms::CREATE, Perms::DELETE, Perms::ADMIN];

/// Status and message of a refusal.
pub(super) type Refused = (StatusCode, &'static str);

/// Whether whoever sends this request may do everything, by the ACLs of this state.
///
/// # Errors
/// There are no credentials, they are wrong, or they do not suffice.
pub(super) fn check<B>(
    request: &Request<B>,
    client: Client,
    settings: &Settings,
    state: &State,
) -> Result<(), Refused> {
    let identities = of(request, client, settings)?;
    if may(&identities, settings, state) { Ok(()) } else { Err((StatusCode::FORBIDDEN, "Not authorized")) }
}

/// Who sends this request.
///
/// # Errors
/// There are no credentials, or they are wrong.
pub(super) fn of<B>(
    request: &Request<B>,
    client: Client,
    settings: &Settings,
) -> Result<Vec<Identity>, Refused> {
    let header = request.headers().get(AUTHORIZATION).and_then(|header| header.to_str().ok());
    let header = header.ok_or((StatusCode::UNAUTHORIZED, "Auth info is missing for the command"))?;
    identities(header, client, settings).ok_or((StatusCode::UNAUTHORIZED, "Not authenticated"))
}

/// `Authorization: digest user:password`, or a scheme that needs no more than the connection.
fn identities(header: &str, client: Client, settings: &Settings) -> Option<Vec<Identity>> {
    let (scheme, data) = header.split_once(' ').map_or((header, None), |(scheme, data)| (scheme, Some(data)));
    if data.is_some_and(|data| data.contains(' ')) {
        return None;
    }
    let mut identities = authenticate(scheme, data.map(str::as_bytes), settings).ok()?;
    if identities.is_empty() {
        identities.push(Identity { scheme: scheme.to_owned(), id: client.peer.to_canonical().to_string() });
    }
    Some(identities)
}

fn may(identities: &[Identity], settings: &Settings, state: &State) -> bool {
    // A snapshot has the rules, too, which those whom rules can bind must not see.
    if Bounds::of(state.authorisation(), identities).is_some() {
        return false;
    }
    let caller = Caller { identities, skip_acl: settings.skip_acl, bounds: None };
    let acl = state.znode(ROOT).map(|root| state.acl_of(root));
    acl.is_some_and(|acl| WANTED.into_iter().all(|wanted| caller.may(wanted, ROOT, acl)))
}
