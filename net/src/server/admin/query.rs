//! The parameters of a request.

/// The part of a URL behind the question mark.
pub(super) struct Query<'a>(pub(super) &'a str);

impl<'a> Query<'a> {
    fn pairs(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.0.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")))
    }

    /// All values of a key.
    pub(super) fn all(&self, key: &str) -> impl Iterator<Item = &'a str> {
        self.pairs().filter(move |(name, _)| *name == key).map(|(_, value)| value)
    }

    /// The first value of a key.
    pub(super) fn first(&self, key: &str) -> Option<&'a str> {
        self.all(key).next()
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.first(key).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_has_keys_with_and_without_values() {
        let query = Query("verbose&exclude=a&exclude=b,c");
        assert!(query.has("verbose") && !query.has("exclud"));
        assert_eq!(query.all("exclude").collect::<Vec<_>>(), ["a", "b,c"]);
    }
}
