//! Who the clients are, and what the rules of authorisation let them do.
//!
//! The naive twin of `ringkeeper_engine::authorisation`: the rules are read from the model's znodes each
//! time, line by line. The ACLs of the workload grant everybody everything, or nobody anything.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use ringkeeper_engine::acl::DigestAlgorithm;
use ringkeeper_engine::authorisation::{self, Bounds, Subject};
use ringkeeper_engine::state::State;
use ringkeeper_wire::Identity;

use super::model::Tree;

/// Where the rules are.
pub(crate) const PLACE: &str = "/zookeeper/authorisation";

const ADMINISTRATOR: &str = "administrator:a";
const USERS: [&str; 2] = ["user:u", "other:o"];

/// The znodes with the rules of [`USERS`] and, at last, of those whom no other rule binds.
static RULES: LazyLock<[Arc<str>; 3]> = LazyLock::new(|| {
    let subjects = [digest(USERS[0]), digest(USERS[1]), "world:anyone".to_owned()];
    subjects.map(|subject| {
        let subject = Subject::parse(&subject).unwrap_or_else(|error| unreachable!("{subject}: {error}"));
        authorisation::rule_path(&subject).into()
    })
});

/// The identity that a login gives, as rules name it.
fn digest(login: &str) -> String {
    format!("digest:{}", DigestAlgorithm::default().id(login))
}

/// What makes the administrator a super user.
pub(crate) fn super_digest() -> String {
    DigestAlgorithm::default().id(ADMINISTRATOR)
}

/// The znodes that rules may be.
pub(crate) fn paths() -> &'static [Arc<str>] {
    &*RULES
}

/// Whether only super users may see or change a znode, once there can be rules.
pub(crate) fn is_place(path: &str) -> bool {
    covers(PLACE, path)
}

/// The identities of a client, which it shows on every connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Who {
    /// None.
    #[default]
    Nobody,
    /// The first of the users.
    User,
    /// Both users at once.
    Both,
    /// A super user.
    Administrator,
}

/// What rules say to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Forbidden,
    Granted,
    AsAclSays,
}

/// What a request does at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Does {
    Read,
    Change,
}

impl Who {
    /// Client `number` of `clients`: the last one is the administrator.
    pub(crate) const fn of(number: u64, clients: u64) -> Self {
        match number {
            _ if number + 1 == clients => Self::Administrator,
            0 => Self::User,
            1 => Self::Both,
            _ => Self::Nobody,
        }
    }

    /// What the client logs in with, as `user:password`.
    pub(crate) const fn logins(self) -> &'static [&'static str] {
        match self {
            Self::Nobody => &[],
            Self::User => USERS.first_chunk::<1>().expect("two users"),
            Self::Both => &USERS,
            Self::Administrator => &[ADMINISTRATOR],
        }
    }

    /// The texts of the rules that bind the client, if rules can.
    fn bounds(self, tree: &Tree) -> Option<Vec<&str>> {
        if self == Self::Administrator || !tree.znodes.contains_key(PLACE) {
            return None;
        }
        let text = |path: &Arc<str>| str::from_utf8(&tree.znodes.get(path)?.data).ok();
        let own: Vec<&str> = RULES[..self.logins().len()].iter().filter_map(text).collect();
        Some(if own.is_empty() { RULES.last().and_then(text).into_iter().collect() } else { own })
    }

    /// What the rules in this tree say.
    fn verdict(self, does: Does, path: &str, tree: &Tree) -> Verdict {
        let Some(rules) = self.bounds(tree) else { return Verdict::AsAclSays };
        let accesses: Vec<&str> = rules.into_iter().map(|rule| access(rule, path)).collect();
        let permits = |access: &&str| *access != "none" && (*access != "read" || does == Does::Read);
        let grants = |access: &&str| *access == "all" || *access == "read";
        match accesses.iter().all(permits) && !is_place(path) {
            false => Verdict::Forbidden,
            true if accesses.iter().any(grants) => Verdict::Granted,
            true => Verdict::AsAclSays,
        }
    }

    /// Whether the rules in this tree leave it to the ACL, or grant it.
    pub(crate) fn may(self, does: Does, path: &str, tree: &Tree) -> bool {
        self.verdict(does, path, tree) != Verdict::Forbidden
    }

    /// Whether rules and ACL permit it, with a znode whose ACL grants nobody anything if `closed`.
    pub(crate) fn may_with(self, does: Does, path: &str, closed: bool, tree: &Tree) -> bool {
        match self.verdict(does, path, tree) {
            Verdict::Forbidden => false,
            Verdict::Granted => true,
            Verdict::AsAclSays => !closed || self == Self::Administrator,
        }
    }

    /// Whether the client may ask whether a znode exists: also on the way to a subtree that is not closed, as
    /// the ACL says.
    pub(crate) fn may_look(self, path: &str, closed: bool, tree: &Tree) -> bool {
        let leads_on = |rule: &str| {
            access(rule, path) != "none"
                || lines(rule)
                    .any(|(word, subtree)| word != "none" && path != subtree && covers(path, subtree))
        };
        let is_on_the_way =
            || !is_place(path) && self.bounds(tree).unwrap_or_default().into_iter().all(leads_on);
        match self.verdict(Does::Read, path, tree) {
            Verdict::Granted => true,
            Verdict::Forbidden if !is_on_the_way() => false,
            Verdict::Forbidden | Verdict::AsAclSays => !closed || self == Self::Administrator,
        }
    }
}

fn lines(rule: &str) -> impl Iterator<Item = (&str, &str)> {
    rule.lines().filter_map(|line| line.split_once(' '))
}

/// The word of the longest subtree with this path.
fn access<'r>(rule: &'r str, path: &str) -> &'r str {
    let covering = lines(rule).filter(|(_, subtree)| covers(subtree, path));
    covering.max_by_key(|(_, subtree)| subtree.len()).map_or("none", |(word, _)| word)
}

fn covers(subtree: &str, path: &str) -> bool {
    let rest = path.strip_prefix(subtree.trim_end_matches('/'));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether a znode of the place may have these data.
pub(crate) fn is_rule(path: &str, data: &[u8]) -> bool {
    if path == PLACE {
        return true;
    }
    let text = String::from_utf8_lossy(data);
    let subtrees: Vec<&str> = lines(&text).map(|(_, subtree)| subtree).collect();
    let distinct: BTreeSet<&str> = subtrees.iter().copied().collect();
    let is_whole = !text.is_empty() && subtrees.len() == text.lines().count();
    let are_known = lines(&text).all(|(word, _)| matches!(word, "none" | "read" | "acl" | "all"));
    is_whole && are_known && distinct.len() == subtrees.len() && !subtrees.iter().any(|path| is_place(path))
}

/// How a server's rules differ from those of the model at the same zxid, if they do.
pub(crate) fn difference(tree: &Tree, state: &State) -> Option<String> {
    let authorisation = state.authorisation();
    let can_bind = tree.znodes.contains_key(PLACE);
    if authorisation.is_active() != can_bind {
        return Some(format!("rules can bind: {}, by the model: {can_bind}", authorisation.is_active()));
    }
    if !can_bind {
        return None;
    }
    let count = RULES.iter().filter(|path| tree.znodes.contains_key(&***path)).count();
    if authorisation.len() != count {
        return Some(format!("{} rules, the model has {count}", authorisation.len()));
    }
    [Who::Nobody, Who::User, Who::Both].into_iter().find_map(|who| {
        let identity =
            |login: &&str| Identity { scheme: "digest".to_owned(), id: DigestAlgorithm::default().id(login) };
        let identities: Vec<Identity> = who.logins().iter().map(identity).collect();
        let sorted = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
        let found = Bounds::of(authorisation, &identities)
            .map(|bounds| bounds.rules().map(|rule| sorted(&rule.to_string())).collect::<Vec<_>>());
        let expected = who.bounds(tree).map(|rules| rules.into_iter().map(sorted).collect::<Vec<_>>());
        (found != expected).then(|| format!("{who:?} is bound by {found:?}, by the model {expected:?}"))
    })
}
