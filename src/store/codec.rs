//! Turns stored values into bytes and back: JSON in an envelope with its version.
//!
//! A value is `{"v":1,"r":…}`. A version that this build does not know is an
//! error, never a guess.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Bytes of the largest value; larger ones would become files beside the log.
pub const VALUE_BYTES_MAX: usize = 64 * 1024;

/// The version of values that this build writes.
const VERSION: u32 = 1;

/// Says why a value cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// The value is larger than [`VALUE_BYTES_MAX`].
    #[error("store a value of {bytes} bytes: at most {VALUE_BYTES_MAX} are kept")]
    TooLarge {
        /// Its size in bytes.
        bytes: usize,
    },
    /// Another version of this program wrote the value.
    #[error("read a value of version {found}: this build knows version {VERSION}")]
    UnknownVersion {
        /// The version it was written with.
        found: u32,
    },
    /// The bytes are not such a value.
    #[error("read a stored value")]
    Malformed(#[source] serde_json::Error),
    /// The key is not one of its tree.
    #[error("read the key {key:?} of tree {tree}")]
    Key {
        /// The tree.
        tree: &'static str,
        /// The key, as text as far as it is text.
        key: String,
    },
    /// The value belongs to another session than its key.
    #[error("read the value of {key}: it says that it is {value}")]
    Mislabelled {
        /// The session of the key.
        key: String,
        /// The session of the value.
        value: String,
    },
}

#[derive(Serialize, Deserialize)]
struct Envelope<T> {
    v: u32,
    r: T,
}

#[derive(Deserialize)]
struct Version {
    v: u32,
}

/// Writes a value in its envelope.
pub(super) fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, CodecError> {
    let envelope = Envelope {
        v: VERSION,
        r: value,
    };
    let bytes = serde_json::to_vec(&envelope).map_err(CodecError::Malformed)?;
    if VALUE_BYTES_MAX < bytes.len() {
        return Err(CodecError::TooLarge { bytes: bytes.len() });
    }
    Ok(bytes)
}

/// Reads a value out of its envelope.
pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CodecError> {
    let failure = match serde_json::from_slice::<Envelope<T>>(bytes) {
        Ok(Envelope { v: VERSION, r }) => return Ok(r),
        Ok(Envelope { v: found, .. }) => return Err(CodecError::UnknownVersion { found }),
        Err(failure) => failure,
    };
    // The rest of a newer value need not have our shape, but says its version.
    match serde_json::from_slice::<Version>(bytes) {
        Ok(Version { v: found }) if found != VERSION => Err(CodecError::UnknownVersion { found }),
        Ok(_) | Err(_) => Err(CodecError::Malformed(failure)),
    }
}

/// Makes the error for a key that is not one of `tree`.
pub(super) fn bad_key(tree: &'static str, key: &[u8]) -> CodecError {
    CodecError::Key {
        tree,
        key: String::from_utf8_lossy(key).chars().take(80).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_an_unknown_version_is_refused_whatever_its_shape() {
        let newer = br#"{"v":2,"r":{"shape":"of tomorrow"}}"#;
        assert!(matches!(
            decode::<u64>(newer),
            Err(CodecError::UnknownVersion { found: 2 })
        ));
    }

    #[test]
    fn a_value_over_the_bound_is_not_written() {
        let fits = "x".repeat(VALUE_BYTES_MAX - br#"{"v":1,"r":""}"#.len());
        assert!(encode(&fits).is_ok());
        assert!(matches!(
            encode(&format!("{fits}x")),
            Err(CodecError::TooLarge { .. })
        ));
    }
}
