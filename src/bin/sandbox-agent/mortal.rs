//! Has the children of the agent die before it when memory is short.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};

const FIRST: &str = "1000";

/// The agent's own place in the order of dying.
///
/// A child inherits the place that its parent has at the fork, so the agent takes that
/// of a child for that long: what a child forks in turn is never late.
#[derive(Debug)]
pub(crate) struct Mortal {
    place: Option<(File, String)>,
}

impl Mortal {
    /// Opens the place; must come before the process is made non-dumpable.
    pub(crate) fn open() -> Self {
        let open = || {
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .open("/proc/self/oom_score_adj")?;
            let mut own = String::new();
            file.read_to_string(&mut own)?;
            Ok::<_, std::io::Error>((file, own.trim().to_owned()))
        };
        Self { place: open().ok() }
    }

    /// Starts a child that dies first.
    pub(crate) fn while_children_go_first<T>(&mut self, start: impl FnOnce() -> T) -> T {
        self.write(FIRST);
        let started = start();
        if let Some(own) = self.place.as_ref().map(|(_, own)| own.clone()) {
            self.write(&own);
        }
        started
    }

    fn write(&mut self, place: &str) {
        if let Some((file, _)) = &mut self.place {
            // Where the kernel does not permit it, all have the same place.
            file.rewind()
                .and_then(|()| file.write_all(place.as_bytes()))
                .ok();
        }
    }
}
