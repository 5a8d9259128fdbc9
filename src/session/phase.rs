//! Names the phase that a caller is shown for a session.

use super::lifecycle::Aim;
use super::record::{Record, Status};

/// The finer state of an open session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Its first container is being made.
    Opening,
    /// Its container runs.
    Running,
    /// It was asleep and its container is being started.
    Waking,
    /// Its container is being stopped.
    Hibernating,
    /// Asleep.
    Hibernated,
    /// Its start keeps failing and is tried again.
    Failed,
    /// Its files went with its container.
    Lost,
}

/// Names the phase of an open session.
///
/// It follows from what is stored alone, so that it costs no look at the engine;
/// the engine's events and the resync keep the stored status close to the truth.
pub fn phase(record: &Record, status: &Status) -> Phase {
    let reached = status.has_reached(&record.marks);
    match (&record.marks.parked, reached) {
        (Some(_), _) if status.files_lost => Phase::Lost,
        (Some(_), true) => Phase::Hibernated,
        (Some(_), false) => Phase::Hibernating,
        (None, true) => Phase::Running,
        (None, false) if 0 < status.attempts => Phase::Failed,
        (None, false) if status.incarnation == 0 => Phase::Opening,
        (None, false) => Phase::Waking,
    }
}

impl Phase {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Opening,
        Self::Running,
        Self::Waking,
        Self::Hibernating,
        Self::Hibernated,
        Self::Failed,
        Self::Lost,
    ];

    /// Returns the word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Opening => "opening",
            Self::Running => "running",
            Self::Waking => "waking",
            Self::Hibernating => "hibernating",
            Self::Hibernated => "hibernated",
            Self::Failed => "failed",
            Self::Lost => "lost",
        }
    }

    /// Returns the contract's coarser word.
    pub const fn state(self) -> &'static str {
        match self {
            Self::Hibernated => "hibernated",
            Self::Opening
            | Self::Running
            | Self::Waking
            | Self::Hibernating
            | Self::Failed
            | Self::Lost => "running",
        }
    }

    /// Returns whether the container runs.
    pub const fn alive(self) -> bool {
        match self {
            Self::Running => true,
            Self::Opening
            | Self::Waking
            | Self::Hibernating
            | Self::Hibernated
            | Self::Failed
            | Self::Lost => false,
        }
    }
}

impl Aim {
    /// Returns the word for operators.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Drowsy(_) => "drowsy",
            Self::Parked(_) => "parked",
            Self::Closed(_) => "closed",
            Self::Over(_) => "over",
            Self::Gone => "gone",
        }
    }
}
