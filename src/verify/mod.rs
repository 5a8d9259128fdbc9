//! Checks the invariants of the service over store, engine and disk; changes nothing.
//!
//! ```text
//!   store, engine, disk, control groups ──look──▶ Seen ──verify──▶ findings ──▶ Page
//! ```
//!
//! Looking is the one part that reads anything; [`verify()`] is a pure function of what
//! was seen. What could not be seen is a finding of its own: it is neither well nor
//! absent. Store and host move while they are looked at, so a broken invariant counts
//! only when a second look finds it again.
//!
//! | check | invariant |
//! | --- | --- |
//! | I1 | every open session has a sound record, a derivable token, and its container if one should run |
//! | I2 | every session that ran has its workspace, where workspaces are kept |
//! | I3 | every container of ours is named by exactly one record, and runs only if that should run |
//! | I4 | no processes are left of a container that the engine does not run |
//! | I5 | nothing remains of what was purged |
//! | I6 | no ceiling is exceeded, what is under way counted |
//! | I7 | the store takes writes and belongs to this state directory |
//! | I8 | no command claims an exit code that its ending contradicts |

mod disk;
mod examine;
mod finding;
mod kind;
mod look;
mod offline;
mod remains;
mod seen;
mod service;
mod sessions;

#[cfg(test)]
mod tests;

pub use examine::{AGAIN_AFTER, examine};
pub use finding::{FINDINGS_MAX, Finding, Page};
pub use kind::{Kind, Level};
pub use look::{ENGINE_WAIT_MAX, EVENTS_MAX, Place, Stock, Subjects};
pub use offline::{Borrowed, NotBorrowed, borrow};
pub use seen::{
    Contents, EngineSeen, Home, KeySeen, Look, Motion, Presence, RootSeen, Seen, SessionSeen,
    Space, StoreSeen,
};

/// Judges everything that was seen.
pub fn verify(seen: &Seen) -> Vec<Finding> {
    let mut findings = Vec::new();
    sessions::judge(seen, &mut findings);
    remains::judge(seen, &mut findings);
    service::judge(seen, &mut findings);
    findings
}
