use super::holding::{Holding, Loss};
use super::line::read_all;
use super::{claim::Claim, retried};
use crate::{Call, Client, Error, Result, Watch, path};

/// What stands behind the unique word in the name of a member's znode.
const MARKER: &str = "__party__";

/// A group whose members are alive: each has an ephemeral znode (ZooKeeper, USENIX ATC 2010, section
/// 2.4). kazoo's `Party` on the same path is the same group.
///
/// ```no_run
/// # async fn example(client: ringkeeper_client::Client) -> ringkeeper_client::Result<()> {
/// use ringkeeper_client::recipes::Group;
///
/// let group = Group::new(&client, "/workers");
/// let membership = group.join("host-1:9000").await?;
/// let (members, changed) = group.members_and_watch().await?;
/// println!("{} members", members.len());
/// changed.await?; // until one joins or leaves
/// membership.leave().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Group {
    client: Client,
    path: String,
}

/// A member of a group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    /// Its znode.
    pub path: String,
    /// What it joined with.
    pub data: Vec<u8>,
}

/// One's own membership. Dropping it leaves the group in the background.
#[derive(Debug)]
#[must_use = "dropped, it leaves the group"]
pub struct Membership(Holding);

impl Group {
    /// The group whose members are children of `path`.
    #[must_use]
    pub fn new(client: &Client, path: &str) -> Self {
        Self { client: client.clone(), path: path.to_owned() }
    }

    /// Joins. `data` says who this is: a name, an address.
    ///
    /// # Errors
    /// The session ends, or the server refuses to create the znode.
    pub async fn join(&self, data: impl AsRef<[u8]>) -> Result<Membership> {
        let data = data.as_ref();
        let name = format!("{}{MARKER}", self.client.unique_name().simple());
        let path = path::join(&self.path, &name);
        let mut claim = Claim::fixed(&self.client, &path, data.to_vec());
        claim.make(data).await?;
        // The name is nobody else's; the only other way is that somebody wrote into it meanwhile.
        Holding::new(claim).map(Membership).ok_or_else(|| Error::NodeExists(Call::new("create", path)))
    }

    /// Who is there.
    ///
    /// # Errors
    /// The session ends, or the server refuses the reads.
    pub async fn members(&self) -> Result<Vec<Member>> {
        Ok(self.members_and_watch().await?.0)
    }

    /// Who is there, and a watch that fires when one joins or leaves.
    ///
    /// # Errors
    /// As [`Group::members`].
    pub async fn members_and_watch(&self) -> Result<(Vec<Member>, Watch)> {
        let read = || self.client.get_children_and_watch(&self.path);
        let ((children, _), changed) = match retried(&self.client, read).await {
            Err(Error::NoNode(_)) => {
                self.client.ensure_path(&self.path).await?;
                retried(&self.client, read).await?
            }
            outcome => outcome?,
        };
        let members = children.iter().filter(|name| name.contains(MARKER));
        let paths = members.map(|name| path::join(&self.path, name)).collect();
        let members = read_all(&self.client, paths).await?;
        Ok((members.into_iter().map(|(path, data)| Member { path, data }).collect(), changed))
    }
}

impl Membership {
    /// The member's znode.
    #[must_use]
    pub fn path(&self) -> &str {
        self.0.path()
    }

    /// Ready when the others may see this member gone without its having left.
    pub async fn lost(&self) -> Loss {
        self.0.lost().await
    }

    /// Leaves the group.
    ///
    /// # Errors
    /// As [`Holding::release`].
    pub async fn leave(self) -> Result<()> {
        self.0.release().await
    }
}
