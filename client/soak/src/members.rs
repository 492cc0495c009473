//! Changes of the ensemble's members all the while: servers leave, come back, become observers and voters
//! again. What the servers say of their members is one history.

use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use ringkeeper_client::{Client, Error, ErrorCode, Reconfiguration, Result, Wait};
use ringkeeper_testkit::Seat;

use crate::soak::Soak;

/// What the servers need for it. The super user may change the members; his password is `test`.
pub(crate) const SETTINGS: &str = "reconfigEnabled=true\n\
                                   DigestAuthenticationProvider.superDigest=super:D/InIHSb7yEEbrWz8b9l71RjZJU=\n";

const CONFIGURATION: &str = "/zookeeper/config";
/// How long an answer may take. Meanwhile a quorum may be down for as long as a fault lasts.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// How long it may take until all servers vote again, in the end.
const RESTORED_WITHIN: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Voter,
    Observer,
    /// No member.
    Absent,
}

/// The members at one time.
struct Members {
    version: u64,
    /// Of each server, by its number from 0.
    roles: Vec<Role>,
}

/// Changes the members until the deadline; then all servers become voters.
pub(crate) fn run(soak: &Soak, deadline: Instant, seed: u64) {
    let mut registrar = Registrar { soak, seen: 0, rng: StdRng::seed_from_u64(seed) };
    let mut client = None;
    while soak.sleep_until(deadline.min(Instant::now() + registrar.pause())) && Instant::now() < deadline {
        registrar.with_client(&mut client, |registrar, client| {
            let members = registrar.read(client)?;
            let Some((server, role)) = registrar.draw(&members.roles) else { return Ok(()) };
            registrar.change(client, server, role)
        });
    }
    let restored_by = Instant::now().max(deadline) + RESTORED_WITHIN;
    let mut restored = false;
    while !restored && soak.sleep_until(Instant::now() + Duration::from_millis(300)) {
        if Instant::now() > restored_by {
            return soak.verdict.violation("not all servers could be made voters again".to_owned());
        }
        registrar.with_client(&mut client, |registrar, client| {
            let members = registrar.read(client)?;
            match members.roles.iter().position(|role| *role != Role::Voter) {
                Some(server) => registrar.change(client, server, Role::Voter),
                None => {
                    restored = true;
                    Ok(())
                }
            }
        });
    }
}

/// Who changes the members.
struct Registrar<'a> {
    soak: &'a Soak,
    /// The newest version of the members so far.
    seen: u64,
    rng: StdRng,
}

impl Registrar<'_> {
    fn pause(&mut self) -> Duration {
        Duration::from_millis(self.rng.random_range(500..4000))
    }

    /// Does something with a client, which is made anew if its session is gone.
    fn with_client(
        &mut self,
        client: &mut Option<Client>,
        work: impl FnOnce(&mut Self, &Client) -> Result<()>,
    ) {
        if client.is_none() {
            let builder = self.soak.client().credential("digest", "super:test");
            *client = builder.connect().wait_timeout(ANSWER_MAX).and_then(Result::ok);
        }
        let Some(connected) = client.as_ref() else { return };
        match work(self, connected) {
            Ok(()) => {}
            Err(Error::SessionExpired | Error::Closed | Error::Unreachable(_)) => *client = None,
            Err(Error::ConnectionLoss(_) | Error::NotSent(_)) => {
                self.soak.verdict.count("reconfigurations: no answer");
            }
            Err(Error::Server(code, _)) if is_refusal(code) => {
                self.soak.verdict.count("reconfigurations: refused");
            }
            Err(error) => self.soak.verdict.violation(format!("the members cannot be changed: {error}")),
        }
    }

    /// The members, whose version never falls behind one that was seen.
    fn read(&mut self, client: &Client) -> Result<Members> {
        let read = async {
            client.sync(CONFIGURATION).await?;
            client.get_data(CONFIGURATION).await
        };
        let Some(read) = read.wait_timeout(ANSWER_MAX) else { return Err(Error::Closed) };
        let text = String::from_utf8_lossy(&read?.0).into_owned();
        Ok(self.understood(&text))
    }

    fn understood(&mut self, text: &str) -> Members {
        let version = text.rsplit_once("version=").and_then(|(_, hex)| u64::from_str_radix(hex, 16).ok());
        let version = version.unwrap_or_default();
        if version < self.seen {
            let before = self.seen;
            self.soak.verdict.violation(format!("the members of version {before:x} have become:\n{text}"));
        }
        self.seen = version.max(self.seen);
        let role = |seat: &Seat| {
            let own = format!("server.{}=", seat.id);
            match text.lines().find(|line| line.starts_with(&own)) {
                Some(line) if line.contains(":observer") => Role::Observer,
                Some(_) => Role::Voter,
                None => Role::Absent,
            }
        };
        Members { version, roles: self.soak.servers.seats().iter().map(role).collect() }
    }

    /// Another role for a server. More than half of the servers stay voters.
    fn draw(&mut self, roles: &[Role]) -> Option<(usize, Role)> {
        let voters = roles.iter().filter(|role| **role == Role::Voter).count();
        let server = self.rng.random_range(0..roles.len());
        let may_leave = roles[server] != Role::Voter || voters > roles.len() / 2 + 1;
        let others = [Role::Voter, Role::Observer, Role::Absent];
        let others = others.into_iter().filter(|role| *role != roles[server] && may_leave);
        others.collect::<Vec<_>>().choose(&mut self.rng).map(|role| (server, *role))
    }

    fn change(&mut self, client: &Client, server: usize, role: Role) -> Result<()> {
        let seat = &self.soak.servers.seats()[server];
        let Seat { id, ip, client_port, quorum_port, election_port, .. } = seat;
        let line =
            |role: &str| format!("server.{id}={ip}:{quorum_port}:{election_port}:{role};{ip}:{client_port}");
        let (joining, leaving) = match role {
            Role::Voter => (Some(line("participant")), None),
            Role::Observer => (Some(line("observer")), None),
            Role::Absent => (None, Some(id.to_string())),
        };
        let change = Reconfiguration {
            joining: joining.as_deref(),
            leaving: leaving.as_deref(),
            ..Reconfiguration::default()
        };
        let Some(changed) = client.reconfigure(&change).wait_timeout(ANSWER_MAX) else {
            self.soak.verdict.count("reconfigurations: no answer");
            return Ok(());
        };
        let before = self.seen;
        let members = self.understood(&String::from_utf8_lossy(&changed?.0));
        self.soak.verdict.count("reconfigurations");
        if members.version <= before || members.roles[server] != role {
            let Members { version, roles } = members;
            self.soak.verdict.violation(format!(
                "server {id} was to become {role:?} after version {before:x}, and the answer says version {version:x}, {roles:?}"
            ));
        }
        Ok(())
    }
}

/// Whether the members could not be changed at that time, and nothing is wrong.
fn is_refusal(code: i32) -> bool {
    let codes = [ErrorCode::NewConfigNoQuorum, ErrorCode::ReconfigInProgress];
    ErrorCode::from_wire(code).is_some_and(|code| codes.contains(&code))
}
