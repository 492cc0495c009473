//! An ephemeral znode of our own that is found again when nobody knows whether it was created.
//!
//! The trick is Curator's: the name, or the contents, begin with a unique word. After a lost connection
//! the client looks for that word before it creates a second znode.

use ringkeeper_wire::Zxid;

use super::retried;
use crate::mutation::planted;
use crate::{Client, CreateMode, Error, Result, Stat, path};

/// Where a claim's znode is.
#[derive(Clone, Debug)]
enum Place {
    /// A child of `parent` that the server numbers: its name begins with `prefix`.
    Numbered { parent: String, prefix: String },
    /// At this path, and nobody else's if its data is `token`.
    Fixed { path: String, token: Vec<u8> },
}

/// A znode that was created for a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OwnNode {
    pub(super) path: String,
    pub(super) czxid: Zxid,
}

impl OwnNode {
    pub(super) fn name(&self) -> &str {
        path::name(&self.path)
    }
}

/// Owns the znode: dropped without [`Claim::release`], it has the driver thread delete it, whether or not
/// the create was answered by then.
#[derive(Debug)]
pub(super) struct Claim {
    client: Client,
    place: Place,
    node: Option<OwnNode>,
    /// The names beside a numbered znode just after its creation, if they are known.
    beside: Option<Vec<String>>,
    /// Whether a create was sent.
    is_made: bool,
}

impl Claim {
    /// A claim to a child of `parent` whose name is `prefix`, which nobody else uses, and a number.
    pub(super) fn numbered(client: &Client, parent: &str, prefix: String) -> Self {
        Self::new(client, Place::Numbered { parent: parent.to_owned(), prefix })
    }

    /// A claim to the znode at `path` alone, with the data `token`, which nobody else uses.
    pub(super) fn fixed(client: &Client, path: &str, token: Vec<u8>) -> Self {
        Self::new(client, Place::Fixed { path: path.to_owned(), token })
    }

    fn new(client: &Client, place: Place) -> Self {
        Self { client: client.clone(), place, node: None, beside: None, is_made: false }
    }

    pub(super) const fn client(&self) -> &Client {
        &self.client
    }

    /// The znode, once [`Claim::make`] has succeeded.
    pub(super) const fn node(&self) -> Option<&OwnNode> {
        self.node.as_ref()
    }

    /// The names of the siblings of a numbered znode when it was created, its own among them, once.
    /// `None` if a lost connection has taken them.
    pub(super) const fn take_beside(&mut self) -> Option<Vec<String>> {
        self.beside.take()
    }

    /// Creates the znode, and its parents if need be; `data` is that of a numbered one. `false` if the
    /// place is taken by another.
    pub(super) async fn make(&mut self, data: &[u8]) -> Result<bool> {
        loop {
            self.is_made = true;
            match self.create(data).await {
                Ok(created) => {
                    self.node = Some(created);
                    return Ok(true);
                }
                Err(Error::NoNode(_)) => self.client.ensure_path(self.parent()).await?,
                // Ours, if an earlier attempt of ours has succeeded unseen.
                Err(Error::NodeExists(_)) => {
                    self.node = self.find().await?;
                    self.is_made = self.node.is_some();
                    return Ok(self.is_made);
                }
                Err(Error::NotSent(_)) => self.client.connected().await?,
                Err(Error::ConnectionLoss(_)) => {
                    self.client.connected().await?;
                    if planted!(self.client, CreateBlindly) {
                        continue;
                    }
                    self.node = self.find().await?;
                    if self.node.is_some() {
                        return Ok(true);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn parent(&self) -> &str {
        match &self.place {
            Place::Numbered { parent, .. } => parent,
            Place::Fixed { path, .. } => path::parent(path),
        }
    }

    async fn create(&mut self, data: &[u8]) -> Result<OwnNode> {
        let created = match &self.place {
            Place::Numbered { parent, prefix } => {
                let path = path::join(parent, prefix);
                let created = self.client.create(&path, data, CreateMode::EphemeralSequential);
                // Whoever stands in a line looks at it next: executed after the create, in its round trip.
                let beside = self.client.get_children(parent);
                let created = created.await?;
                // Without it, it is asked for again.
                self.beside = beside.await.ok().map(|(names, _)| names);
                created
            }
            Place::Fixed { path, token } => self.client.create(path, token, CreateMode::Ephemeral).await?,
        };
        Ok(OwnNode { path: created.path, czxid: created.stat.czxid })
    }

    async fn find(&self) -> Result<Option<OwnNode>> {
        find(&self.client, &self.place).await
    }

    /// Deletes the znode. `Ok` also if it is gone already, with its session or otherwise.
    pub(super) async fn release(mut self) -> Result<()> {
        let outcome = delete_own(&self.client, &self.place, self.node.as_ref()).await;
        // If the session has ended, there is nothing left that the driver thread could do.
        self.is_made = false;
        match outcome {
            Err(error) if error.is_session_end() => Ok(()),
            outcome => outcome,
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.is_made && !planted!(self.client, KeepAbandonedClaims) {
            let (client, place, node) = (self.client.clone(), self.place.clone(), self.node.take());
            self.client.spawn(async move {
                if let Err(error) = delete_own(&client, &place, node.as_ref()).await {
                    tracing::debug!(?place, %error, "a claim that was given up is left to its session");
                }
            });
        }
    }
}

/// Looks for our znode. `sync` comes first: a create that was on its way when the connection broke is
/// ordered before it, so that what is not there now will not appear later.
async fn find(client: &Client, place: &Place) -> Result<Option<OwnNode>> {
    let own = match place {
        Place::Numbered { parent, prefix } => {
            let children = retried(client, || async {
                // Pipelined: executed in this order, in one round trip.
                let (synced, children) = (client.sync(parent), client.get_children(parent));
                synced.await?;
                Ok(children.await?.0)
            });
            let children = match children.await {
                Err(Error::NoNode(_)) => return Ok(None),
                children => children?,
            };
            let Some(name) = children.into_iter().find(|name| name.starts_with(prefix.as_str())) else {
                return Ok(None);
            };
            let own = path::join(parent, &name);
            retried(client, || client.exists(&own)).await?.map(|stat| (own, stat))
        }
        Place::Fixed { path, token } => {
            let found = retried(client, || async {
                let (synced, data) = (client.sync(path), client.get_data(path));
                synced.await?;
                data.await
            });
            match found.await {
                Ok((data, stat)) if data == *token => Some((path.clone(), stat)),
                Ok(_) | Err(Error::NoNode(_)) => None,
                Err(error) => return Err(error),
            }
        }
    };
    let is_ours = |stat: &Stat| stat.ephemeral_owner == Some(client.session_id());
    Ok(own.filter(|(_, stat)| is_ours(stat)).map(|(path, stat)| OwnNode { path, czxid: stat.czxid }))
}

async fn delete_own(client: &Client, place: &Place, known: Option<&OwnNode>) -> Result<()> {
    if let (Place::Numbered { .. }, Some(node)) = (place, known) {
        // Nobody else ever has this name: twice does no harm.
        return gone(retried(client, || client.delete(&node.path, None)).await);
    }
    // A fixed path may be another's by now: if ours was deleted unseen when the connection broke, or pushed
    // out.
    while let Some(node) = find(client, place).await? {
        match client.delete(&node.path, None).await {
            Err(Error::NotSent(_) | Error::ConnectionLoss(_)) => client.connected().await?,
            deleted => return gone(deleted),
        }
    }
    Ok(())
}

/// What is gone already is deleted.
fn gone(deleted: Result<()>) -> Result<()> {
    match deleted {
        Err(Error::NoNode(_)) => Ok(()),
        deleted => deleted,
    }
}
