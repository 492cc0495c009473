//! Rules: which subtrees an identity may use, and how, whatever the ACLs of their znodes say
//! (docs/decisions/0043-authorised-subtrees.md).
//!
//! A rule is a znode below `/zookeeper/authorisation`. Its name is the identity ([`Subject`]), its data are
//! the subtrees ([`Rule`]). So rules are replicated, logged, restored and ordered among the other writes as
//! znodes are. [`Authorisation`] has them in a form that is fast to look up, and changes with the znodes.
//!
//! A client is bound by the rules of all its identities, and may do what each of them lets it do: another
//! identity never frees it. An identity without a rule binds nobody, and nothing binds super users.

mod rule;
mod subject;

pub use rule::{Access, Fault, InvalidRule, Rule};
pub use subject::{InvalidSubject, Subject};

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use imbl::OrdMap;
use ringkeeper_wire::{ErrorCode, Identity, Perms};

use crate::acl;
use crate::steps;
use crate::tree::Tree;

/// Where the rules are. Super users alone see or change anything there.
pub const PLACE: &str = "/zookeeper/authorisation";

/// Whether `path` is [`PLACE`] or below.
#[must_use]
pub fn is_place(path: &str) -> bool {
    path.strip_prefix(PLACE).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The path of a subject's rule.
#[must_use]
pub fn rule_path(subject: &Subject) -> String {
    format!("{PLACE}/{}", subject.name())
}

/// The rule that a znode of [`PLACE`] holds; `None` for [`PLACE`] itself.
///
/// # Errors
/// The path or the data are not those of a rule.
pub fn parse(path: &str, data: &[u8]) -> Result<Option<Rule>, InvalidRuleZnode> {
    let Some(name) = name(path) else { return Ok(None) };
    Ok(Some(Rule::parse(Subject::of_name(name)?, data)?))
}

/// Why a znode holds no rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRuleZnode {
    /// Its name says no identity.
    #[error("its name is {0}")]
    Name(#[from] InvalidSubject),
    /// Its data are no rule.
    #[error(transparent)]
    Text(#[from] InvalidRule),
    /// It would not last.
    #[error("rules are persistent znodes")]
    NotPersistent,
}

fn name(path: &str) -> Option<&str> {
    path.strip_prefix(PLACE)?.strip_prefix('/')
}

/// All rules; a part of the replicated state. Without rules there is nothing to look up: neither is there
/// after [`PLACE`] was deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Authorisation(Option<Arc<Rules>>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Rules(OrdMap<Subject, Arc<Rule>>);

impl Authorisation {
    /// These rules.
    #[must_use]
    pub fn of_rules(rules: impl IntoIterator<Item = Rule>) -> Self {
        let rules = rules.into_iter().map(|rule| (rule.subject().clone(), Arc::new(rule)));
        Self(Some(Arc::new(Rules(rules.collect()))))
    }

    /// The rules in a tree.
    pub(crate) fn of(tree: &Tree) -> Self {
        let mut authorisation = Self::default();
        if tree.get(PLACE).is_some() {
            authorisation.put(PLACE, None);
            for (_, znode) in tree.children(PLACE) {
                authorisation.put(&znode.path(), znode.data());
            }
        }
        authorisation
    }

    /// Whether [`PLACE`] exists, so that rules can.
    #[must_use]
    pub const fn is_active(&self) -> bool {
        self.0.is_some()
    }

    /// Number of rules.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |rules| rules.0.len())
    }

    /// Whether there is no rule.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Records the data of a new or changed znode. Data that are no rule bind nobody; a client's write of
    /// such is refused, so they come from elsewhere.
    pub(crate) fn put(&mut self, path: &str, data: Option<&[u8]>) {
        if !is_place(path) {
            return;
        }
        let rules = Arc::make_mut(self.0.get_or_insert_default());
        match parse(path, data.unwrap_or_default()) {
            Ok(Some(rule)) => {
                rules.0.insert(rule.subject().clone(), Arc::new(rule));
            }
            _ => rules.forget(path),
        }
    }

    /// Records the deletion of a znode.
    pub(crate) fn remove(&mut self, path: &str) {
        match &mut self.0 {
            Some(_) if path == PLACE => self.0 = None,
            Some(rules) if is_place(path) => Arc::make_mut(rules).forget(path),
            _ => {}
        }
    }
}

impl Rules {
    fn forget(&mut self, path: &str) {
        if let Some(Ok(subject)) = name(path).map(Subject::of_name) {
            self.0.remove(&subject);
        }
    }

    /// The rules that bind a client: for each identity the one of its nearest subject.
    fn binding(&self, identities: &[Identity]) -> Vec<Arc<Rule>> {
        let rule = |subject: &Subject| {
            steps::count(1);
            self.0.get(subject).cloned()
        };
        let own: Vec<_> =
            identities.iter().filter_map(|identity| Subject::of(identity).find_map(|it| rule(&it))).collect();
        if own.is_empty() { rule(&Subject::Others).into_iter().collect() } else { own }
    }
}

/// What rules say to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No, whatever the ACL says.
    Forbidden,
    /// Yes, whatever the ACL says.
    Granted,
    /// The ACL decides.
    AsAclSays,
}

impl Verdict {
    /// Whether the request is allowed; `acl` tells what the ACL says.
    pub(crate) fn resolve(self, acl: impl FnOnce() -> bool) -> bool {
        match self {
            Self::Forbidden => false,
            Self::Granted => true,
            Self::AsAclSays => acl(),
        }
    }
}

/// What binds a client, if rules can: the rules of its identities, and that the rules themselves are hidden
/// from it.
#[derive(Debug)]
pub struct Bounds {
    rules: Vec<Arc<Rule>>,
    /// One more than the index of the rule that has refused a request, until this is taken.
    refused: AtomicUsize,
}

impl Bounds {
    /// `None` if nothing binds a client with these identities: there are no rules, or it is a super user.
    #[must_use]
    pub fn of(authorisation: &Authorisation, identities: &[Identity]) -> Option<Self> {
        let rules = authorisation.0.as_ref()?;
        if acl::is_super(identities) {
            return None;
        }
        Some(Self { rules: rules.binding(identities), refused: AtomicUsize::new(0) })
    }

    /// The rules that bind the client.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter().map(|rule| &**rule)
    }

    /// What the rules say to any of `wanted` at `path`. Each has to permit it; one is enough to grant it,
    /// since the client could do it with the identity of that rule alone.
    #[must_use]
    pub fn verdict(&self, wanted: Perms, path: &str) -> Verdict {
        let (mut permitted, mut granted) = (wanted.0, 0);
        for rule in self.rules() {
            let (access, _) = rule.access(path);
            permitted &= access.permitted().0;
            granted |= access.granted().0;
        }
        match permitted {
            0 => Verdict::Forbidden,
            _ if is_place(path) => Verdict::Forbidden,
            permitted if permitted & granted == 0 => Verdict::AsAclSays,
            _ => Verdict::Granted,
        }
    }

    /// What the rules say to exists. On the way to a subtree that it may use, a client may look whether the
    /// znodes exist, as clients with a chroot do.
    pub(crate) fn verdict_on_stat(&self, path: &str) -> Verdict {
        let leads_on =
            |rule: &Rule| rule.access(path).0.permitted().intersects(Perms::READ) || rule.leads_on(path);
        match self.verdict(Perms::READ, path) {
            Verdict::Forbidden if !is_place(path) && self.rules().all(leads_on) => Verdict::AsAclSays,
            verdict => verdict,
        }
    }

    /// Notes which rule forbids any of `wanted` at `path`, for the operator; returns the error for the
    /// client.
    pub(crate) fn refuse(&self, wanted: Perms, path: &str) -> ErrorCode {
        let forbids = |rule: &Rule| !rule.access(path).0.permitted().intersects(wanted);
        let refusing = self.rules().position(forbids);
        self.refused.store(refusing.map_or(0, |index| index + 1), Ordering::Relaxed);
        ErrorCode::NoAuth
    }

    /// The subject of the rule that has refused a request since the last call.
    pub(crate) fn take_refusal(&self) -> Option<String> {
        let refused = self.refused.swap(0, Ordering::Relaxed);
        Some(self.rules.get(refused.checked_sub(1)?)?.subject().to_string())
    }
}

/// The bounds of one connection's client, computed again when rules or identities have changed.
#[derive(Clone, Debug, Default)]
pub(crate) struct BoundsCache(Option<Box<Known>>);

#[derive(Clone, Debug)]
struct Known {
    /// The rules that the bounds are of; compared by address, which no other rules can have as long as these
    /// are kept.
    rules: Arc<Rules>,
    identities: usize,
    bounds: Option<Arc<Bounds>>,
}

impl BoundsCache {
    /// What [`Bounds::of`] gives. The identities of a connection are only appended to, so their number tells
    /// them apart.
    pub(crate) fn bounds(
        &mut self,
        authorisation: &Authorisation,
        identities: &[Identity],
    ) -> Option<&Arc<Bounds>> {
        let rules = authorisation.0.as_ref()?;
        let count = identities.len();
        let is = |known: &Known| Arc::ptr_eq(&known.rules, rules) && known.identities == count;
        if !self.0.as_deref().is_some_and(is) {
            let bounds = Bounds::of(authorisation, identities).map(Arc::new);
            self.0 = Some(Box::new(Known { rules: Arc::clone(rules), identities: count, bounds }));
        }
        self.last()
    }

    /// What [`Self::bounds`] has found last, whatever has changed since; for a planted fault.
    pub(crate) fn last(&self) -> Option<&Arc<Bounds>> {
        self.0.as_ref()?.bounds.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_thousand_rules_cost_a_request_a_few_steps() {
        let subtrees: String = (0..2_000).map(|number| format!("none /t/{number}\n")).collect();
        let long = "/long".repeat(1_000);
        let rule = |number: i32| {
            let subject = Subject::parse(&format!("sasl:user{number}")).expect("a subject");
            let text = if number == 7 { format!("acl {long}\n{subtrees}") } else { "acl /t".to_owned() };
            Rule::parse(subject, text.as_bytes()).expect("a rule")
        };
        let authorisation = Authorisation::of_rules((0..10_000).map(rule));
        let identity = |scheme: &str, id: &str| Identity { scheme: scheme.to_owned(), id: id.to_owned() };
        let identities = [identity("ip", "10.0.0.1"), identity("sasl", "user7")];
        let (bounds, steps) = steps::of(|| Bounds::of(&authorisation, &identities).expect("bound"));
        assert!(steps <= 40, "{steps} steps for the bounds of a connection");
        for path in ["/", "/t", "/t/1000/x", "/u", &long, &long[..long.len() - 5]] {
            let (_, steps) = steps::of(|| bounds.verdict_on_stat(path));
            assert!(steps <= 20, "{steps} steps for {path}");
        }
    }

    #[test]
    fn bounds_are_kept_until_rules_or_identities_change() {
        let who = ["a", "b"].map(|id| Identity { scheme: "sasl".to_owned(), id: id.to_owned() });
        let mut authorisation = Authorisation::default();
        let mut cache = BoundsCache::default();
        assert!(cache.bounds(&authorisation, &who[..1]).is_none());
        let path = |subject: &str| rule_path(&Subject::parse(subject).expect(subject));
        authorisation.put(&path("sasl:a"), Some(b"acl /a"));
        let first = Arc::clone(cache.bounds(&authorisation, &who[..1]).expect("bound"));
        assert!(Arc::ptr_eq(&first, cache.bounds(&authorisation, &who[..1]).expect("bound")));
        assert_eq!(cache.bounds(&authorisation, &who).expect("bound").rules().count(), 1);
        authorisation.put(&path("sasl:b"), Some(b"acl /b"));
        assert_eq!(cache.bounds(&authorisation, &who).expect("bound").rules().count(), 2);
        authorisation.remove(&path("sasl:a"));
        assert_eq!(cache.bounds(&authorisation, &who).expect("bound").rules().count(), 1);
        authorisation.remove(PLACE);
        assert!(cache.bounds(&authorisation, &who).is_none());
    }
}
