//! Holds the rows of refusals about archives, and about what lies in workspaces.

use axum::http::StatusCode;

use super::{Again, Row};
use crate::control::archives::ArchiveRefusal;

/// Not 429: that says to come back later, and no time makes room.
pub(super) const WORKSPACE_FULL: Row = (
    StatusCode::INSUFFICIENT_STORAGE,
    "workspace_full",
    Again::Never,
);
pub(super) const CEILING: Row = (
    StatusCode::TOO_MANY_REQUESTS,
    "archive_ceiling",
    Again::After(10),
);

pub(super) fn row(refusal: &ArchiveRefusal) -> Row {
    use Again::{After, Never};
    match refusal {
        ArchiveRefusal::Bad(_) => (StatusCode::BAD_REQUEST, "bad_archive", Never),
        ArchiveRefusal::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "archive_too_large", Never),
        ArchiveRefusal::BrokenOff => (StatusCode::BAD_REQUEST, "unreadable_body", Never),
        ArchiveRefusal::NotEmpty(_) => (StatusCode::CONFLICT, "workspace_not_empty", Never),
        ArchiveRefusal::StillOpen(_) => (StatusCode::CONFLICT, "session_open", Never),
        ArchiveRefusal::InUse(_) => (StatusCode::CONFLICT, "session_closing", After(1)),
        ArchiveRefusal::Rival(_) => (StatusCode::CONFLICT, "workspace_in_use", Never),
        ArchiveRefusal::TooSlow(_) => (StatusCode::GATEWAY_TIMEOUT, "operation_too_slow", Never),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Failure;
    use super::*;
    use crate::control::Refusal;
    use crate::control::refusal::Attempt;
    use crate::id::{RequestId, SessionId};

    #[test]
    fn a_refusal_tells_its_status_its_ceiling_and_what_to_do() {
        let id = || SessionId::parse("a").unwrap();
        let text = || "x".to_owned();
        let full = |attempt| Refusal::WorkspaceFull {
            id: id(),
            limit: 10,
            used: 11,
            attempt,
        };
        for (status, refusal, ceiling) in [
            (507, full(Attempt::Write), Some("workspace_size")),
            (507, full(Attempt::Wake), Some("workspace_size")),
            (507, full(Attempt::Import), Some("workspace_size")),
            (429, Refusal::ArchiveCeiling { limit: 4 }, Some("archives")),
            (400, ArchiveRefusal::Bad(text()).into(), None),
            (413, ArchiveRefusal::TooLarge(text()).into(), None),
            (400, ArchiveRefusal::BrokenOff.into(), None),
            (409, ArchiveRefusal::NotEmpty(id()).into(), None),
            (409, ArchiveRefusal::StillOpen(id()).into(), None),
            (409, ArchiveRefusal::InUse(id()).into(), None),
            (409, ArchiveRefusal::Rival(text()).into(), None),
            (504, ArchiveRefusal::TooSlow(1).into(), None),
        ] {
            let failure = Failure::from(refusal);
            assert_eq!(failure.status(), status, "{failure:?}");
            let body = failure.body(&RequestId::random());
            assert_eq!(body.ceiling.map(|one| one.name).as_deref(), ceiling);
        }
        let told = full(Attempt::Wake).to_string();
        assert!(told.contains("files/remove") && told.contains("11 bytes of the 10"));
    }
}
