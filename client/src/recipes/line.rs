//! A waiting line: numbered ephemeral znodes, each of which waits for one before it. Locks and elections
//! are lines that differ in who waits for whom.

use super::claim::{Claim, OwnNode};
use super::holding::Holding;
use super::retried;
use crate::mutation::planted;
use crate::{Call, Client, Error, Result, path};

/// Whose names the znodes of a lock or an election have. All clients of one must agree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NodeNames {
    /// kazoo's: `<uuid>__lock__<number>`. kazoo's locks and ours exclude one another.
    #[default]
    Kazoo,
    /// Curator's: `_c_<uuid>-lock-<number>`, `latch-` in elections, `__READ__` and `__WRIT__` in
    /// read/write locks.
    Curator,
}

/// A class of contenders in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Waits for all before it.
    Exclusive,
    /// Waits for all before it; its line has readers.
    Writer,
    /// Waits for the writers before it.
    Reader,
    /// As `Exclusive`, in an election.
    Candidate,
}

impl Class {
    /// What stands between the unique word and the number.
    const fn marker(self, names: NodeNames) -> &'static str {
        match (names, self) {
            (NodeNames::Kazoo, Self::Reader) => "__rlock__",
            (NodeNames::Kazoo, _) => "__lock__",
            (NodeNames::Curator, Self::Exclusive) => "-lock-",
            (NodeNames::Curator, Self::Writer) => "-__WRIT__",
            (NodeNames::Curator, Self::Reader) => "-__READ__",
            (NodeNames::Curator, Self::Candidate) => "-latch-",
        }
    }

    /// Whether this one waits for `earlier`.
    const fn waits_for(self, earlier: Self) -> bool {
        !matches!((self, earlier), (Self::Reader, Self::Reader))
    }

    /// Those that stand in one line with this.
    const fn line(self) -> &'static [Self] {
        match self {
            Self::Exclusive => &[Self::Exclusive],
            Self::Candidate => &[Self::Candidate],
            Self::Writer | Self::Reader => &[Self::Writer, Self::Reader],
        }
    }
}

/// A znode's place in the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place<'a> {
    number: i64,
    class: Class,
    name: &'a str,
}

/// Where we stand.
#[derive(Debug, PartialEq, Eq)]
enum Turn<'a> {
    Ours,
    /// Behind this znode.
    After(&'a str),
    /// Our own znode is not in the line.
    Gone,
}

/// A line at a path.
#[derive(Clone, Debug)]
pub(super) struct Line {
    client: Client,
    path: String,
    names: NodeNames,
    data: Vec<u8>,
}

impl Line {
    pub(super) fn new(client: &Client, path: &str) -> Self {
        Self { client: client.clone(), path: path.to_owned(), names: NodeNames::default(), data: Vec::new() }
    }

    pub(super) const fn set_names(&mut self, names: NodeNames) {
        self.names = names;
    }

    pub(super) fn set_data(&mut self, data: Vec<u8>) {
        self.data = data;
    }

    /// Stands in line until it is our turn.
    pub(super) async fn enter(&self, class: Class) -> Result<Holding> {
        loop {
            let (mut claim, node) = self.stand(class).await?;
            let children = claim.take_beside();
            if self.wait(class, &node, children).await?
                && let Some(holding) = Holding::new(claim)
            {
                return Ok(holding);
            }
            // Somebody deleted our znode: to the end of the line.
        }
    }

    /// As [`Line::enter`], and writes `request` into the znodes that it waits for. Who comes later stands
    /// behind us, so that nobody is left out.
    pub(super) async fn enter_asking(&self, class: Class, request: &[u8]) -> Result<Holding> {
        loop {
            let (claim, node) = self.stand(class).await?;
            for path in self.ahead(class, node.name()).await? {
                self.ask(&path, request).await?;
            }
            if self.wait(class, &node, None).await?
                && let Some(holding) = Holding::new(claim)
            {
                return Ok(holding);
            }
        }
    }

    /// Writes `request` into a contender's znode, if it is still there. Twice is as good as once.
    pub(super) async fn ask(&self, path: &str, request: &[u8]) -> Result<()> {
        match retried(&self.client, || self.client.set_data(path, request, None)).await {
            Ok(_) | Err(Error::NoNode(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Stands in line, and leaves it again if it is not our turn at once.
    pub(super) async fn try_enter(&self, class: Class) -> Result<Option<Holding>> {
        let (mut claim, node) = self.stand(class).await?;
        let children = match claim.take_beside() {
            Some(children) => children,
            None => self.children().await?,
        };
        if turn(&children, node.name(), class, self.names) == Turn::Ours {
            return Ok(Holding::new(claim));
        }
        claim.release().await?;
        Ok(None)
    }

    async fn stand(&self, class: Class) -> Result<(Claim, OwnNode)> {
        let marker = class.marker(self.names);
        let prefix = match self.names {
            NodeNames::Kazoo => format!("{}{marker}", self.client.unique_name().simple()),
            NodeNames::Curator => format!("_c_{}{marker}", self.client.unique_name()),
        };
        let mut claim = Claim::numbered(&self.client, &self.path, prefix);
        claim.make(&self.data).await?;
        // A numbered name is never taken by another.
        let node = claim.node().cloned().ok_or_else(|| Error::NodeExists(Call::new("create", &self.path)))?;
        Ok((claim, node))
    }

    /// `false` if our znode is gone from the line. `seen` is the line as it was lately, if that is known.
    async fn wait(&self, class: Class, node: &OwnNode, mut seen: Option<Vec<String>>) -> Result<bool> {
        loop {
            let children = match seen.take() {
                Some(children) => children,
                None => self.children().await?,
            };
            match turn(&children, node.name(), class, self.names) {
                Turn::After(_) if class == Class::Reader && planted!(self.client, ReadersDoNotWait) => {
                    return Ok(true);
                }
                Turn::Ours => return Ok(true),
                Turn::Gone => return Ok(false),
                Turn::After(name) => wait_until_gone(&self.client, &path::join(&self.path, name)).await?,
            }
            if planted!(self.client, TakeTurnWhenWoken) {
                return Ok(true);
            }
        }
    }

    async fn children(&self) -> Result<Vec<String>> {
        Ok(retried(&self.client, || self.client.get_children(&self.path)).await?.0)
    }

    /// The znodes in line with their data, the next one first.
    pub(super) async fn contenders(&self, class: Class) -> Result<Vec<(String, Vec<u8>)>> {
        let children = match self.children().await {
            Err(Error::NoNode(_)) => return Ok(Vec::new()),
            children => children?,
        };
        let paths: Vec<_> = places(&children, class, self.names)
            .iter()
            .map(|place| path::join(&self.path, place.name))
            .collect();
        read_all(&self.client, paths).await
    }

    /// The znodes before `node` that a contender of its class waits for.
    async fn ahead(&self, class: Class, node: &str) -> Result<Vec<String>> {
        let children = self.children().await?;
        let places = places(&children, class, self.names);
        let before = places.iter().take_while(|place| place.name != node);
        let waited_for = before.filter(|place| class.waits_for(place.class));
        Ok(waited_for.map(|place| path::join(&self.path, place.name)).collect())
    }
}

/// Reads znodes in one round trip; those that are gone are left out.
pub(super) async fn read_all(client: &Client, paths: Vec<String>) -> Result<Vec<(String, Vec<u8>)>> {
    retried(client, || async {
        let replies: Vec<_> = paths.iter().map(|path| client.get_data(path)).collect();
        let mut found = Vec::new();
        for (path, reply) in paths.iter().zip(replies) {
            match reply.await {
                Ok((data, _)) => found.push((path.clone(), data)),
                Err(Error::NoNode(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    })
    .await
}

/// Waits until a znode is deleted. Only whoever waits for this very znode is woken by that.
pub(super) async fn wait_until_gone(client: &Client, path: &str) -> Result<()> {
    loop {
        // getData leaves no watch behind on a znode that is gone, as exists would.
        let watched = retried(client, || client.get_data_and_watch(path)).await;
        match watched {
            Ok((_, changed)) => drop(changed.await?),
            Err(Error::NoNode(_)) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Those in the line, by number.
fn places(children: &[String], class: Class, names: NodeNames) -> Vec<Place<'_>> {
    let mut places: Vec<_> = children
        .iter()
        .filter_map(|name| {
            class.line().iter().find_map(|class| {
                let number = number(name, class.marker(names))?;
                Some(Place { number, class: *class, name })
            })
        })
        .collect();
    places.sort_unstable_by_key(|place| place.number);
    places
}

/// The number behind the marker: ten digits; after 2^31 znodes negative, since the counter wraps.
fn number(name: &str, marker: &str) -> Option<i64> {
    let (front, digits) = name.split_at_checked(name.len().checked_sub(10)?)?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: i64 = digits.parse().ok()?;
    if front.ends_with(marker) {
        return Some(number);
    }
    front.strip_suffix('-').filter(|front| front.ends_with(marker)).map(|_| -number)
}

fn turn<'a>(children: &'a [String], own: &str, class: Class, names: NodeNames) -> Turn<'a> {
    let places = places(children, class, names);
    let Some(at) = places.iter().position(|place| place.name == own) else { return Turn::Gone };
    match places[..at].iter().rfind(|place| class.waits_for(place.class)) {
        Some(place) => Turn::After(place.name),
        None => Turn::Ours,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn each_waits_for_the_one_just_before_it() {
        let line = names(&["c__lock__0000000009", "a__lock__0000000010", "b__lock__0000000002", "other"]);
        let turn = |own| turn(&line, own, Class::Exclusive, NodeNames::Kazoo);
        assert_eq!(turn("b__lock__0000000002"), Turn::Ours);
        assert_eq!(turn("c__lock__0000000009"), Turn::After("b__lock__0000000002"));
        assert_eq!(turn("a__lock__0000000010"), Turn::After("c__lock__0000000009"));
        assert_eq!(turn("d__lock__0000000011"), Turn::Gone);
    }

    #[test]
    fn readers_wait_for_writers_alone() {
        let line = names(&[
            "a__rlock__0000000001",
            "b__lock__0000000002",
            "c__rlock__0000000003",
            "d__rlock__0000000004",
        ]);
        let turn = |own, class| turn(&line, own, class, NodeNames::Kazoo);
        assert_eq!(turn("a__rlock__0000000001", Class::Reader), Turn::Ours);
        assert_eq!(turn("b__lock__0000000002", Class::Writer), Turn::After("a__rlock__0000000001"));
        assert_eq!(turn("d__rlock__0000000004", Class::Reader), Turn::After("b__lock__0000000002"));
    }

    #[test]
    fn names_of_curator_are_told_apart() {
        let line = names(&["_c_x-lock-0000000003", "_c_y-lock-0000000001", "_c_z-__READ__0000000002"]);
        let turn = turn(&line, "_c_x-lock-0000000003", Class::Exclusive, NodeNames::Curator);
        assert_eq!(turn, Turn::After("_c_y-lock-0000000001"));
    }

    #[test]
    fn numbers_are_the_last_ten_digits() {
        assert_eq!(number("x__lock__0000000012", "__lock__"), Some(12));
        assert_eq!(number("x__lock__-2147483648", "__lock__"), Some(-2_147_483_648));
        assert_eq!(number("x-lock-0000000012", "-lock-"), Some(12));
        assert_eq!(number("x__rlock__0000000012", "__lock__"), None);
        assert_eq!(number("x__lock__12", "__lock__"), None);
        assert_eq!(number("\u{e9}00000000\u{e9}", "__lock__"), None);
    }
}
