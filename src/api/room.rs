//! Bounds the bytes of request bodies that are held at once.
//!
//! Small bodies take no share of the room, so that large ones never keep a session from
//! being opened or a command from being run.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::api::body::JSON_BODY_BYTES_MAX;
use crate::api::error::Failure;

/// Bytes up to which a body takes no share; times the ceiling of connections they are
/// the memory of all such bodies.
const SMALL_BYTES_MAX: usize = 16 << 10;

/// Bytes from which a text is large.
const LARGE_BYTES: usize = 1 << 20;
/// What the C library serves from no heap but maps, and gives back when it is dropped.
const MAPPED_BYTES: usize = 33 << 20;

/// Returns the capacity with which room for so many bytes of text is made.
///
/// A heap keeps most of what was freed in it, and each thread has one of its own, so large
/// texts are kept out of them. What no byte was written to takes no memory.
pub(super) fn capacity(bytes: usize) -> usize {
    if bytes < LARGE_BYTES {
        bytes
    } else {
        bytes.max(MAPPED_BYTES)
    }
}

/// Room for the bodies of all requests together; cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct BodyRoom {
    free: Arc<Semaphore>,
    bytes_max: usize,
}

/// The part of the room that one body takes, until it is dropped.
#[derive(Debug)]
pub(super) struct Share {
    room: BodyRoom,
    taken: Option<OwnedSemaphorePermit>,
}

impl BodyRoom {
    /// Makes room for so many bytes, and never for less than the largest body.
    pub(super) fn new(bytes_max: usize) -> Self {
        let bytes_max = bytes_max.clamp(JSON_BODY_BYTES_MAX, Semaphore::MAX_PERMITS);
        Self {
            free: Arc::new(Semaphore::new(bytes_max)),
            bytes_max,
        }
    }

    /// Begins a share of no bytes.
    pub(super) fn share(&self) -> Share {
        Share {
            room: self.clone(),
            taken: None,
        }
    }
}

impl Default for BodyRoom {
    fn default() -> Self {
        Self::new(JSON_BODY_BYTES_MAX)
    }
}

impl Share {
    /// Grows to so many bytes; never waits, since whoever waits holds a share as well.
    ///
    /// # Errors
    /// Other bodies take the room.
    pub(super) fn grow_to(&mut self, bytes: usize) -> Result<(), Failure> {
        let held = self
            .taken
            .as_ref()
            .map_or(0, OwnedSemaphorePermit::num_permits);
        if bytes <= SMALL_BYTES_MAX {
            return Ok(());
        }
        let more = bytes.saturating_sub(held);
        let more = u32::try_from(more).expect("no body has 4 GiB");
        let room = &self.room;
        let Ok(permit) = Arc::clone(&room.free).try_acquire_many_owned(more) else {
            let used = room.bytes_max - room.free.available_permits();
            let bytes = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
            return Err(Failure::NoBodyRoom {
                limit: bytes(room.bytes_max),
                used: bytes(used),
            });
        };
        match &mut self.taken {
            Some(taken) => taken.merge(permit),
            None => self.taken = Some(permit),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_grows_while_there_is_room_and_gives_all_of_it_back() {
        let room = BodyRoom::new(JSON_BODY_BYTES_MAX);
        let (mut first, mut second) = (room.share(), room.share());
        let large = SMALL_BYTES_MAX + 1;
        assert_eq!(first.grow_to(JSON_BODY_BYTES_MAX - large - 1), Ok(()));
        assert_eq!(second.grow_to(large), Ok(()));
        assert_eq!(second.grow_to(large + 1), Ok(()));
        let limit = u64::try_from(JSON_BODY_BYTES_MAX).unwrap();
        let full = Failure::NoBodyRoom { limit, used: limit };
        assert_eq!(second.grow_to(large + 2), Err(full.clone()));
        assert_eq!(room.share().grow_to(large), Err(full));
        assert_eq!(room.share().grow_to(SMALL_BYTES_MAX), Ok(()));
        drop(first);
        assert_eq!(second.grow_to(large + 2), Ok(()));
        drop(second);
        assert_eq!(room.free.available_permits(), JSON_BODY_BYTES_MAX);
    }

    #[test]
    fn the_largest_body_fits_whatever_was_configured() {
        let room = BodyRoom::new(0);
        assert_eq!(room.share().grow_to(JSON_BODY_BYTES_MAX), Ok(()));
    }
}
