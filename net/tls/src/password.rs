//! A secret that no log shows.

use std::fmt;

/// A password. Neither `Debug` nor `Display` has it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Password(String);

impl Password {
    /// The text itself, for whoever opens a store with it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl From<String> for Password {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "Password(none)" } else { "Password(...)" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_not_shown() {
        let settings = crate::StoreSettings { password: Password("geheim".to_owned()), ..Default::default() };
        assert!(!format!("{settings:?}").contains("geheim"));
    }
}
