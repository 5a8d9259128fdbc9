//! Holds paths as callers write them: text, or bytes that are none.

use std::fmt;

/// A path as a caller wrote it; not checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GivenPath {
    text: String,
    /// The bytes, where the text does not have them.
    bytes: Option<Vec<u8>>,
}

impl GivenPath {
    /// Takes the bytes of a path.
    pub fn of(bytes: Vec<u8>) -> Self {
        match String::from_utf8(bytes) {
            Ok(text) => Self { text, bytes: None },
            Err(other) => {
                let bytes = other.into_bytes();
                Self {
                    text: String::from_utf8_lossy(&bytes).into_owned(),
                    bytes: Some(bytes),
                }
            }
        }
    }

    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.as_deref().unwrap_or(self.text.as_bytes())
    }

    /// Returns the text, with U+FFFD for what is none.
    pub fn lossy(&self) -> &str {
        &self.text
    }

    /// Returns whether the text says it all.
    pub fn is_text(&self) -> bool {
        self.bytes.is_none()
    }
}

impl From<String> for GivenPath {
    fn from(text: String) -> Self {
        Self { text, bytes: None }
    }
}

impl fmt::Display for GivenPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
