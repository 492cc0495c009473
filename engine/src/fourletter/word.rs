//! The four-letter words. What an answer needs of shards and leader core is asked by the server, in
//! `net/src/server/inspect.rs`.

use std::fmt;

macro_rules! words {
    ($($(#[$meta:meta])* $variant:ident = $text:literal,)*) => {
        /// A four-letter word.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Word { $($(#[$meta])* $variant,)* }

        impl Word {
            /// Every word, in the order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// As it is typed.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            /// The word of these bytes.
            #[must_use]
            pub fn from_bytes(bytes: [u8; 4]) -> Option<Self> {
                Self::ALL.iter().copied().find(|word| word.as_str().as_bytes() == bytes)
            }
        }
    };
}

words! {
    /// Details about the configuration.
    Conf = "conf",
    /// Details about every connection.
    Cons = "cons",
    /// Resets the statistics of all connections.
    Crst = "crst",
    /// Sizes of the data directories.
    Dirs = "dirs",
    /// Sessions and ephemeral znodes.
    Dump = "dump",
    /// The environment of the process.
    Envi = "envi",
    /// The trace mask.
    Gtmk = "gtmk",
    /// Digests of the tree, by zxid.
    Hash = "hash",
    /// Whether the server is read-only.
    Isro = "isro",
    /// Metrics, one a line.
    Mntr = "mntr",
    /// Whether the process runs.
    Ruok = "ruok",
    /// The server's statistics.
    Srvr = "srvr",
    /// Resets the server's statistics.
    Srst = "srst",
    /// The server's statistics and its connections.
    Stat = "stat",
    /// Sets the trace mask.
    Stmk = "stmk",
    /// Watches by connection.
    Wchc = "wchc",
    /// Watches by path.
    Wchp = "wchp",
    /// Number of watches.
    Wchs = "wchs",
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A word with its argument, if it takes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// The word.
    pub word: Word,
    /// The new trace mask; 0 for every word but [`Word::Stmk`].
    pub trace_mask: i64,
}

impl Command {
    /// The command at the front of a connection's bytes. `None` if they are something else; `Some(None)` if
    /// its argument is still on the way.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Option<Self>> {
        let (word, rest) = bytes.split_first_chunk()?;
        let word = Word::from_bytes(*word)?;
        if word != Word::Stmk {
            return Some(Some(Self { word, trace_mask: 0 }));
        }
        let mask = rest.first_chunk().map(|mask| i64::from_be_bytes(*mask));
        Some(mask.map(|trace_mask| Self { word, trace_mask }))
    }
}
