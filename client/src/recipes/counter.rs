use super::mark::Mark;
use super::retried;
use crate::{Client, Error, Result, Stat};

/// How a [`Counter`] is written into its znode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CounterFormat {
    /// Decimal digits, as kazoo's `Counter` does it.
    #[default]
    Decimal,
    /// Four bytes, the highest first, as Curator's `SharedCount` does it.
    Curator,
}

/// A counter that many change: each change is a write on condition that nobody else was quicker, made
/// once although connections break. Each user needs a `Counter` of its own.
///
/// ```no_run
/// # async fn example(client: ringkeeper_client::Client) -> ringkeeper_client::Result<()> {
/// use ringkeeper_client::recipes::Counter;
///
/// let mut counter = Counter::new(&client, "/visitors");
/// let visitors = counter.add(1).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Counter {
    path: String,
    format: CounterFormat,
    mark: Mark,
}

impl Counter {
    /// The counter in the znode at `path`, which is not the root; 0 until it is first changed.
    #[must_use]
    pub fn new(client: &Client, path: &str) -> Self {
        Self { path: path.to_owned(), format: CounterFormat::default(), mark: Mark::new(client, path) }
    }

    /// Writes it otherwise.
    #[must_use]
    pub const fn with_format(mut self, format: CounterFormat) -> Self {
        self.format = format;
        self
    }

    /// Its value, as this server knows it.
    ///
    /// # Errors
    /// The session ends; the server refuses the read; the znode holds something else than a counter.
    pub async fn get(&self) -> Result<i64> {
        Ok(self.read().await?.map_or(0, |(value, _)| value))
    }

    /// Adds to it: the sum. Changes by others come before or after, never between.
    ///
    /// # Errors
    /// As [`Counter::get`], and the server refuses the write; [`Error::InvalidSetting`] if the sum is
    /// beyond what the format holds. [`Error::ConnectionLoss`] if the session ended before it was known
    /// whether the change is made.
    pub async fn add(&mut self, difference: i64) -> Result<i64> {
        loop {
            let Some((value, stat)) = self.read().await? else {
                self.mark.client().ensure_path(&self.path).await?;
                continue;
            };
            let sum =
                value.checked_add(difference).and_then(|sum| self.format.write(sum).map(|text| (sum, text)));
            let (sum, text) = sum.ok_or(Error::InvalidSetting("the sum is beyond the counter's format"))?;
            match self.mark.commit(|t| t.set_data(&self.path, &text, stat.version)).await {
                Ok(_) => return Ok(sum),
                Err(Error::Transaction { index: 0, error })
                    if matches!(*error, Error::BadVersion(_) | Error::NoNode(_)) => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn read(&self) -> Result<Option<(i64, Stat)>> {
        let client = self.mark.client();
        let (data, stat) = match retried(client, || client.get_data(&self.path)).await {
            Err(Error::NoNode(_)) => return Ok(None),
            outcome => outcome?,
        };
        let value = self.format.read(&data).ok_or_else(|| Error::UnexpectedContents {
            path: self.path.clone(),
            reason: "not a counter of this format",
        })?;
        Ok(Some((value, stat)))
    }
}

impl CounterFormat {
    fn read(self, data: &[u8]) -> Option<i64> {
        match self {
            _ if data.is_empty() => Some(0),
            Self::Decimal => std::str::from_utf8(data).ok()?.parse().ok(),
            Self::Curator => Some(i32::from_be_bytes(data.try_into().ok()?).into()),
        }
    }

    fn write(self, value: i64) -> Option<Vec<u8>> {
        match self {
            Self::Decimal => Some(value.to_string().into_bytes()),
            Self::Curator => Some(i32::try_from(value).ok()?.to_be_bytes().to_vec()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_they_are_read() {
        for format in [CounterFormat::Decimal, CounterFormat::Curator] {
            for value in [0, 1, -1, i64::from(i32::MAX), i64::from(i32::MIN)] {
                assert_eq!(format.write(value).and_then(|text| format.read(&text)), Some(value));
            }
            assert_eq!(format.read(b""), Some(0));
            assert_eq!(format.read(b"what?"), None);
        }
        assert_eq!(CounterFormat::Curator.write(1 << 40), None);
        assert_eq!(CounterFormat::Decimal.write(-12), Some(b"-12".to_vec()));
    }
}
