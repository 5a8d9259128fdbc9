//! Holds the rows of refusals about archives.

use axum::http::StatusCode;

use super::{Again, Row};
use crate::control::archives::ArchiveRefusal;

pub(super) fn row(refusal: &ArchiveRefusal) -> Row {
    use Again::{After, Never};
    match refusal {
        ArchiveRefusal::Bad(_) => (StatusCode::BAD_REQUEST, "bad_archive", Never),
        ArchiveRefusal::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "archive_too_large", Never),
        ArchiveRefusal::BrokenOff => (StatusCode::BAD_REQUEST, "unreadable_body", Never),
        ArchiveRefusal::NotEmpty(_) => (StatusCode::CONFLICT, "workspace_not_empty", Never),
        ArchiveRefusal::StillOpen(_) => (StatusCode::CONFLICT, "session_open", Never),
        ArchiveRefusal::InUse(_) => (StatusCode::CONFLICT, "session_closing", After(1)),
        ArchiveRefusal::TooSlow(_) => (StatusCode::GATEWAY_TIMEOUT, "operation_too_slow", Never),
    }
}
