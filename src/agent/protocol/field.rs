//! Reads and writes the fields of which a payload is made.
//!
//! Numbers are little-endian; bytes have their length before them, as a `u32`. What was
//! read would be written as the same bytes: there is one form of everything.

/// What is left of a payload.
#[derive(Debug)]
pub(super) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// Begins to read a payload.
    pub(super) fn of(payload: &'a [u8]) -> Self {
        Self(payload)
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    /// Reads a byte.
    pub(super) fn byte(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    /// Reads whether something is so.
    pub(super) fn flag(&mut self) -> Option<bool> {
        match self.byte()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    /// Reads a number.
    pub(super) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    /// Reads a number.
    pub(super) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    /// Reads a number.
    pub(super) fn i64(&mut self) -> Option<i64> {
        self.take().map(i64::from_le_bytes)
    }

    /// Reads bytes, at most so many.
    pub(super) fn bytes(&mut self, most: usize) -> Option<Vec<u8>> {
        let length = usize::try_from(self.u32()?).ok()?;
        if most < length {
            return None;
        }
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes.to_vec())
    }

    /// Returns what was read, provided that nothing is left.
    pub(super) fn end<T>(&self, read: T) -> Option<T> {
        self.0.is_empty().then_some(read)
    }
}

/// Writes bytes behind their length.
pub(super) fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    // What is too long for this is too long for a frame, which is refused as a whole.
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(bytes);
}
