//! The form of the log.

/// How the server writes its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// Lines for people.
    Text,
    /// An object a line, with the fields at its top.
    Json,
}

impl LogFormat {
    /// The one of this name.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn parse(name: &str) -> Result<Self, String> {
        match name {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(format!("{name:?} is neither text nor json")),
        }
    }
}
