//! reconfig: who is to belong to the ensemble.

use ringkeeper_wire::{ErrorCode, Perms, ReconfigRequest, ServerId, Zxid};

use super::{Context, check_session};
use crate::level::Level;
use crate::limits::Refusal;
use crate::members::{Members, Membership, PeerRole, ServerSpec};
use crate::mutation::planted;
use crate::path;
use crate::settings::Settings;
use crate::state::State;
use crate::txn::{SetData, Update};
use crate::zab::{Quorum, ServerSet};

/// What a leader knows of its ensemble.
#[derive(Clone, Copy, Debug)]
pub struct Ensemble<'a> {
    /// The leader.
    pub leader: ServerId,
    /// Learners that have its whole log, but for what is under way.
    pub up_to_date: &'a ServerSet,
    /// Everything up to here is committed.
    pub committed: Zxid,
}

/// The change of `/zookeeper/config` that makes the members those that `request` asks for, in the transaction
/// `zxid`.
///
/// The order of the checks is ZooKeeper's, but for the ACL: ZooKeeper looks at it last, and so tells anybody
/// which servers are up to date.
pub(super) fn prepare(
    head: &State,
    context: &Context<'_>,
    request: &ReconfigRequest<'_>,
    zxid: Zxid,
) -> Result<Update, ErrorCode> {
    if !context.settings.reconfig_enabled {
        return Err(ErrorCode::ReconfigDisabled);
    }
    check_session(head, context)?;
    // A server alone has none.
    let membership = head.membership().ok_or(ErrorCode::Unimplemented)?;
    let wanted = wanted(membership, context.settings, request)?;
    head.reach(path::CONFIG, Perms::WRITE, context.caller())?;
    check_level(head, membership, &wanted, context.settings)
        .map_err(|refusal| context.meter.refuse(refusal))?;
    change(membership, &wanted, &context.ensemble, zxid)
}

/// Whether these may be the members at the ensemble's feature level. What those before use already, they may
/// use: their log may be from before there were levels.
pub(crate) fn check_level(
    head: &State,
    membership: &Membership,
    wanted: &Members,
    settings: &Settings,
) -> Result<(), Refusal> {
    let (level, needed) = (head.feature_level(), Level::needed_by(wanted));
    if needed <= level.level.max(membership.need) || planted!(settings, IgnoreLevel) {
        return Ok(());
    }
    Err(Refusal::Level { needed, level })
}

/// The members that a request asks for.
pub(crate) fn wanted(
    membership: &Membership,
    settings: &Settings,
    request: &ReconfigRequest<'_>,
) -> Result<Members, ErrorCode> {
    let version = membership.quorums.since.to_wire();
    if request.cur_config_id != -1 && request.cur_config_id != version {
        return Err(ErrorCode::BadVersion);
    }
    let wanted = match &request.new_members {
        Some(text) => Members::parse(text).map(|(members, _)| members),
        None => {
            let leaving = request.leaving_servers.as_deref().unwrap_or_default();
            membership.members.changed(leaving, request.joining_servers.as_deref().unwrap_or_default())
        }
    };
    let wanted = wanted.map_err(|_| ErrorCode::BadArguments)?;
    let stays = |server: &ServerSpec| membership.members.get(ServerId(server.id)) == Some(server);
    if !settings.multi_address_enabled && wanted.iter().any(|it| it.has_several_addresses() && !stays(it)) {
        return Err(ErrorCode::BadArguments);
    }
    if wanted.iter().any(|it| it.names_a_port_twice() && !stays(it)) {
        return Err(ErrorCode::BadArguments);
    }
    let least = if settings.standalone_enabled { 2 } else { 1 };
    match wanted.with_role(PeerRole::Participant).len() < least {
        true => Err(ErrorCode::BadArguments),
        false => Ok(wanted),
    }
}

/// The transaction `zxid` that makes these the members, if enough of them can decide at once.
pub(crate) fn change(
    membership: &Membership,
    wanted: &Members,
    ensemble: &Ensemble<'_>,
    zxid: Zxid,
) -> Result<Update, ErrorCode> {
    if membership.quorums.since > ensemble.committed {
        return Err(ErrorCode::ReconfigInProgress);
    }
    // ZooKeeper has no such bound, so nobody learns it who may not change the members.
    if wanted.iter().any(|server| server.id >= ServerSet::ID_MAX) {
        return Err(ErrorCode::BadArguments);
    }
    let ready = ensemble.up_to_date.union(&[ensemble.leader].into_iter().collect());
    if !wanted.quorums().is_quorum(&ready) {
        return Err(ErrorCode::NewConfigNoQuorum);
    }
    let text = wanted.describe(zxid.0).into_bytes();
    Ok(Update::SetData(SetData { path: path::CONFIG.into(), data: Some(text.into()), version: -1 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_gets_no_port_for_two_purposes_and_keeps_the_line_that_it_has() {
        let text = b"server.1=a:1:1:participant;3\nserver.2=b:1:2:participant;3\nversion=9";
        let membership = Membership::read_committed(text, Zxid(9)).expect("named");
        let change = |joining: &'static str| {
            let joining_servers = Some(joining.into());
            let request = ReconfigRequest {
                joining_servers,
                leaving_servers: None,
                new_members: None,
                cur_config_id: -1,
            };
            wanted(&membership, &Settings::default(), &request).map(|_| ())
        };
        for refused in
            ["server.3=c:5:5;6", "server.3=c:5:6;5", "server.3=c:5:6;0.0.0.0:6", "server.1=a:1:1;4"]
        {
            assert_eq!(change(refused), Err(ErrorCode::BadArguments), "{refused}");
        }
        for made in ["server.3=c:5:6;7", "server.3=c:5:6;d:5", "server.1=a:1:1;3"] {
            assert_eq!(change(made), Ok(()), "{made}");
        }
    }
}
