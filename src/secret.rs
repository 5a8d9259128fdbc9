//! Holds secrets so that they can be compared and derived but not printed.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use crate::id::{Nonce, SessionId};

/// Bytes of a token key.
pub const TOKEN_KEY_BYTES: usize = 32;

/// A text that no `Debug`, log or event shows.
#[derive(Clone)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Takes a text as a secret.
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    /// Returns the text, for the one reply or header that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Compares with what a caller presented, in time that tells nothing.
    ///
    /// Digests are compared, so the length of the secret does not show either.
    pub fn matches(&self, presented: &[u8]) -> bool {
        let ours = Sha256::digest(self.0.as_bytes());
        let theirs = Sha256::digest(presented);
        ours.as_slice().ct_eq(theirs.as_slice()).into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// The key from which every session token is derived.
#[derive(Clone)]
pub struct TokenKey(Zeroizing<[u8; TOKEN_KEY_BYTES]>);

impl TokenKey {
    /// Takes exactly 32 bytes as a key.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let array: [u8; TOKEN_KEY_BYTES] = bytes.try_into().ok()?;
        Some(Self(Zeroizing::new(array)))
    }

    /// Makes a fresh random key.
    ///
    /// # Errors
    /// The operating system gave no random bytes.
    pub fn generate() -> Result<Self, getrandom::Error> {
        let mut bytes = Zeroizing::new([0u8; TOKEN_KEY_BYTES]);
        getrandom::fill(&mut bytes[..])?;
        Ok(Self(bytes))
    }

    /// Returns the bytes, for the key file.
    pub fn expose(&self) -> &[u8] {
        &self.0[..]
    }

    /// Returns the name of this key, which the store keeps: 16 hex digits.
    pub fn id(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(b"sandboxd token key id v1");
        hash.update(&self.0[..]);
        hex(hash.finalize().as_slice().get(..8).unwrap_or_default())
    }

    /// Derives the token of one opening of a session: 43 characters.
    ///
    /// The same id and nonce always give the same token, which is how attaching
    /// returns it although no token is stored.
    pub fn session_token(&self, id: &SessionId, nonce: &Nonce) -> Secret {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&self.0[..]).expect("HMAC takes a key of any length");
        mac.update(b"sandboxd session token v1");
        let length = u8::try_from(id.as_str().len()).expect("a session id has at most 64 bytes");
        mac.update(&[length]);
        mac.update(id.as_str().as_bytes());
        mac.update(nonce.as_str().as_bytes());
        Secret::new(URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes()))
    }
}

impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenKey({})", self.id())
    }
}

/// Writes bytes as lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] = [
        '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f',
    ];
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .filter_map(|nibble| DIGITS.get(usize::from(nibble)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_depends_on_key_id_and_nonce_and_on_nothing_else() {
        let key = TokenKey::from_bytes(&[7; 32]).unwrap();
        let id = SessionId::parse("a").unwrap();
        let nonce = Nonce::random();
        let token = key.session_token(&id, &nonce);
        assert_eq!(token.expose().len(), 43);
        assert_eq!(token.expose(), key.session_token(&id, &nonce).expose());
        assert_ne!(
            token.expose(),
            key.session_token(&id, &Nonce::random()).expose()
        );
        let other = TokenKey::from_bytes(&[8; 32]).unwrap();
        assert_ne!(token.expose(), other.session_token(&id, &nonce).expose());
    }

    #[test]
    fn no_secret_shows_in_debug_output() {
        let secret = Secret::new("hunter2".to_owned());
        assert_eq!(format!("{secret:?}"), "Secret(..)");
        let key = TokenKey::from_bytes(&[7; 32]).unwrap();
        assert!(!format!("{key:?}").contains("0707"));
    }

    #[test]
    fn a_secret_matches_only_itself() {
        let secret = Secret::new("abc".to_owned());
        assert!(secret.matches(b"abc"));
        for wrong in [&b""[..], b"ab", b"abcd", b"abC", b"\xff"] {
            assert!(!secret.matches(wrong));
        }
    }
}
