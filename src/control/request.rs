//! What callers ask for, already checked.

use std::time::Duration;

use crate::id::{RequestId, SessionId, Tenant};

/// Bytes of the longest command: the kernel takes no longer argument (`MAX_ARG_STRLEN`,
/// 32 pages with the zero at the end).
pub const COMMAND_BYTES_MAX: usize = (128 << 10) - 1;

/// Asks for a session to be opened or attached to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// The id; one is made where none is given.
    pub id: Option<SessionId>,
    /// The alias as the client wrote it; `None` or empty takes the default.
    pub runtime: Option<String>,
    /// The tenant.
    pub tenant: Option<Tenant>,
    /// What to do where the id is known already.
    pub attach: Attach,
}

/// What opening does with an id that is known already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attach {
    /// Refuse: the session must be new.
    Never,
    /// Attach to an open session, and open one where there is none.
    Reuse,
    /// Attach to an open session or to a workspace, and refuse where there is neither.
    Only,
}

/// What a listing shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List {
    /// Whether resources are sampled.
    pub usage: Sampling,
    /// Only this tenant's.
    pub tenant: Option<Tenant>,
    /// Only those in this state: `running` or `hibernated`.
    pub state: Option<String>,
    /// At most so many; all where `None`.
    pub limit: Option<usize>,
    /// Continue after this place in the order of opening, as the page before said.
    pub cursor: Option<u64>,
}

/// Whether resources are sampled for a description.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sampling {
    /// `usage` is `null`.
    #[default]
    Off,
    /// `usage` is sampled now.
    On,
}

/// Who looks, which decides how much is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Viewer {
    /// A holder of the session's own token.
    Session,
    /// A holder of the service token, who also sees container and image.
    Service,
}

/// Asks for a shell command to be run and waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exec {
    /// The text for `sh -c`.
    pub command: String,
    /// The longest it may run; the service's ceiling where `None`, and at most that.
    pub timeout: Option<Duration>,
    /// The request that asks.
    pub request_id: RequestId,
}

/// Which part of a session's log is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Events {
    /// Only those with a higher sequence number.
    pub after: u64,
    /// The oldest so many; the newest 200 where `None`.
    pub limit: Option<usize>,
}

/// What purging by id does with a session that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenOpen {
    /// It is refused.
    Refuse,
    /// It is closed first.
    Close,
}
