//! Lets one at a time replace a file.
//!
//! A file is known here by its directory's inode and its name: all ways to it lead
//! there, and both stay when its content is replaced by another inode. Inodes are the
//! host's, so one table serves the whole process. Two files may share a lock; which ones
//! do nobody can foretell, so no session makes another wait on purpose.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// How many locks there are.
const LOCKS_MAX: usize = 256;

static LOCKS: [Mutex<()>; LOCKS_MAX] = [const { Mutex::new(()) }; LOCKS_MAX];
static STATE: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// The right to replace a file, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    _guard: MutexGuard<'static, ()>,
}

/// Waits for the turn at the file `name` in the directory of that device and inode.
pub(super) fn wait(directory: (u64, u64), name: &[u8]) -> Turn {
    let hash = STATE.hash_one((directory, name));
    let nth = usize::try_from(hash >> 32).unwrap_or(0) % LOCKS_MAX;
    let lock = LOCKS.get(nth).expect("it is less than how many there are");
    Turn {
        _guard: lock.lock().unwrap_or_else(PoisonError::into_inner),
    }
}
