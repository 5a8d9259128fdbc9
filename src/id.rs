//! Defines the identifiers that the program passes around, each checked when made.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The pattern of a session id and of a tenant, as error replies show it.
pub const NAME_PATTERN: &str = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$";
/// Bytes of the longest session id or tenant.
pub const NAME_BYTES_MAX: usize = 64;

/// Says why a text is not an identifier of the wanted kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {text:?} does not match {pattern}")]
pub struct InvalidId {
    /// What the text was meant to be.
    pub kind: &'static str,
    /// The text, cut to 80 characters.
    pub text: String,
    /// The pattern that it does not match.
    pub pattern: &'static str,
}

fn invalid(kind: &'static str, text: &str, pattern: &'static str) -> InvalidId {
    InvalidId {
        kind,
        text: text.chars().take(80).collect(),
        pattern,
    }
}

fn is_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes
        .next()
        .is_some_and(|first| first.is_ascii_alphanumeric())
        && text.len() <= NAME_BYTES_MAX
        && bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

fn random_hex() -> String {
    Uuid::new_v4().simple().to_string()
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $pattern:expr, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Checks a text and takes it as an identifier.
            pub fn parse(text: &str) -> Result<Self, InvalidId> {
                let check: fn(&str) -> bool = $check;
                if check(text) {
                    Ok(Self(text.to_owned()))
                } else {
                    Err(invalid($kind, text, $pattern))
                }
            }

            /// Returns the text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidId;

            fn try_from(text: String) -> Result<Self, InvalidId> {
                Self::parse(&text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0
            }
        }
    };
}

text_id!(
    /// Names a session; chosen by the client or made here.
    SessionId,
    "session id",
    NAME_PATTERN,
    is_name
);
text_id!(
    /// Groups sessions under a ceiling; grants nothing.
    Tenant,
    "tenant",
    NAME_PATTERN,
    is_name
);
text_id!(
    /// Joins a record to its container: random, in the container's label and name.
    ContainerKey,
    "container key",
    "^[0-9a-f]{32}$",
    |text| is_hex(text, 32)
);
text_id!(
    /// Names one run of a command; also the cookie in its environment.
    RunId,
    "run id",
    "^[0-9a-f]{32}$",
    |text| is_hex(text, 32)
);
text_id!(
    /// Sixteen random bytes of one opening of a session, in hex; goes into its token.
    Nonce,
    "nonce",
    "^[0-9a-f]{32}$",
    |text| is_hex(text, 32)
);
text_id!(
    /// Marks everything that one state directory owns on an engine.
    InstanceId,
    "instance id",
    "^[0-9a-f]{32}$",
    |text| is_hex(text, 32)
);
text_id!(
    /// Names a runtime of the operator's catalogue; any text but the empty one.
    Alias,
    "runtime alias",
    "^.+$",
    |text| !text.is_empty()
);
text_id!(
    /// Follows one request through replies, logs and events: 1 to 64 visible characters.
    RequestId,
    "request id",
    "^[!-~]{1,64}$",
    |text| !text.is_empty() && text.len() <= 64 && text.bytes().all(|b| b.is_ascii_graphic())
);

impl SessionId {
    /// Makes an id for a session whose client named none: `s-` and 16 hex digits.
    pub fn random() -> Self {
        let hex = random_hex();
        Self(format!("s-{}", hex.get(..16).unwrap_or(&hex)))
    }
}

macro_rules! random_id {
    ($($name:ident),*) => {$(
        impl $name {
            /// Makes a fresh random one.
            pub fn random() -> Self {
                Self(random_hex())
            }
        }
    )*};
}
random_id!(ContainerKey, RunId, Nonce, InstanceId, RequestId);

impl ContainerKey {
    /// Returns the eight hex digits that end a container's name.
    pub fn short(&self) -> &str {
        self.0.get(..8).unwrap_or(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_id_is_a_plain_name_of_at_most_64_bytes() {
        for good in ["a", "A..b", "a.", "0-_", &"x".repeat(64)] {
            assert!(SessionId::parse(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "-a",
            ".a",
            "a/b",
            "a b",
            "a\n",
            "é",
            "../x",
            &"x".repeat(65),
        ] {
            assert!(SessionId::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn random_ids_satisfy_their_own_patterns() {
        assert!(SessionId::parse(SessionId::random().as_str()).is_ok());
        assert!(ContainerKey::parse(ContainerKey::random().as_str()).is_ok());
        assert_eq!(ContainerKey::random().short().len(), 8);
    }

    #[test]
    fn a_stored_id_is_checked_when_read_back() {
        assert!(serde_json::from_str::<SessionId>("\"ok\"").is_ok());
        assert!(serde_json::from_str::<SessionId>("\"../etc\"").is_err());
    }
}
