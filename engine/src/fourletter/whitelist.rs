use super::Word;

/// Which words are answered (`4lw.commands.whitelist`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whitelist(Vec<Word>);

impl Whitelist {
    /// The words of a comma-separated list; `*` stands for all. Names of no word are ignored, as in
    /// ZooKeeper.
    #[must_use]
    pub fn parse(list: &str) -> Self {
        let names: Vec<&str> = list.split(',').map(str::trim).collect();
        let wanted = |word: &Word| names.contains(&"*") || names.contains(&word.as_str());
        Self(Word::ALL.iter().copied().filter(wanted).collect())
    }

    /// The same and `word`.
    #[must_use]
    pub fn with(mut self, word: Word) -> Self {
        if !self.allows(word) {
            self.0.push(word);
        }
        self
    }

    /// Whether `word` is answered.
    #[must_use]
    pub fn allows(&self, word: Word) -> bool {
        self.0.contains(&word)
    }
}

impl Default for Whitelist {
    /// The words that load balancers and monitoring need, none of which is expensive. ZooKeeper allows only
    /// `srvr`, so that every tool needs another setting.
    fn default() -> Self {
        Self(vec![Word::Isro, Word::Mntr, Word::Ruok, Word::Srvr])
    }
}
