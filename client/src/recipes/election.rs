use super::holding::Holding;
use super::line::{Class, Line, NodeNames};
use crate::{Client, Result};

/// A leader election: candidates stand in a line, the first one leads, and when it goes the next is told,
/// and nobody else.
///
/// kazoo's `Election` on the same path is the same election; with [`NodeNames::Curator`], so is Curator's
/// `LeaderLatch`.
///
/// ```no_run
/// # async fn example(client: ringkeeper_client::Client) -> ringkeeper_client::Result<()> {
/// use ringkeeper_client::recipes::Election;
///
/// let election = Election::new(&client, "/election", "host-1:9000");
/// let leadership = election.lead().await?;
/// println!("leading, fenced by {}", leadership.fencing_token());
/// println!("stopped leading: {:?}", leadership.lost().await);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Election(Line);

impl Election {
    /// The election at `path`, whose children are the candidates; this one is called `id`.
    #[must_use]
    pub fn new(client: &Client, path: &str, id: &str) -> Self {
        let mut line = Line::new(client, path);
        line.set_data(id.into());
        Self(line)
    }

    /// Names the znodes otherwise.
    #[must_use]
    pub const fn with_names(mut self, names: NodeNames) -> Self {
        self.0.set_names(names);
        self
    }

    /// Stands for election, and waits until it is won. Who leads must watch [`Holding::lost`], and
    /// resigns by [`Holding::release`]. Dropped before it is ready, it stands down.
    ///
    /// # Errors
    /// The session ends, or the server refuses to create the znode.
    pub async fn lead(&self) -> Result<Holding> {
        self.0.enter(Class::Candidate).await
    }

    /// The names of the candidates, the leader first.
    ///
    /// # Errors
    /// The session ends, or the server refuses the reads.
    pub async fn candidates(&self) -> Result<Vec<Vec<u8>>> {
        Ok(self.0.contenders(Class::Candidate).await?.into_iter().map(|(_, id)| id).collect())
    }

    /// The name of the leader, as this server knows it; `None` if nobody stands.
    ///
    /// # Errors
    /// As [`Election::candidates`].
    pub async fn leader(&self) -> Result<Option<Vec<u8>>> {
        Ok(self.candidates().await?.into_iter().next())
    }
}
