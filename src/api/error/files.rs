//! The rows of refusals about files.

use axum::http::StatusCode;

use super::{Again, Row};
use crate::control::files::refusal::{ErrorName, FileRefusal};

pub(super) fn row(refusal: &FileRefusal) -> Row {
    use Again::{After, Never};
    match refusal {
        FileRefusal::TooSlow(_) => (StatusCode::GATEWAY_TIMEOUT, "operation_too_slow", Never),
        FileRefusal::BadPattern(_) => (StatusCode::UNPROCESSABLE_ENTITY, "bad_pattern", Never),
        FileRefusal::NotBase64(_) => (StatusCode::BAD_REQUEST, "not_base64", Never),
        FileRefusal::NoWorkspaces => (StatusCode::CONFLICT, "no_workspaces", Never),
        FileRefusal::NoWorkspace(_) => (StatusCode::NOT_FOUND, "no_workspace", Never),
        FileRefusal::Outside(_) => (StatusCode::BAD_REQUEST, "outside_workspace", Never),
        FileRefusal::NoDirectory(_) => (StatusCode::NOT_FOUND, "no_directory", Never),
        FileRefusal::NoFile(_) => (StatusCode::NOT_FOUND, "no_file", Never),
        FileRefusal::Unreadable(_) => (StatusCode::BAD_REQUEST, "unreadable_file", Never),
        FileRefusal::Broken(_) => (StatusCode::INTERNAL_SERVER_ERROR, "file_failed", Never),
        FileRefusal::Handed(_) => (StatusCode::CONFLICT, "by_sandbox", Never),
        FileRefusal::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "file_too_large", Never),
        FileRefusal::Unwritable(_) => (StatusCode::CONFLICT, "unwritable_file", Never),
        FileRefusal::Condition(_) => (
            StatusCode::PRECONDITION_FAILED,
            "precondition_failed",
            Never,
        ),
        FileRefusal::Changed(_) => (StatusCode::CONFLICT, "file_changed", Never),
        FileRefusal::TooMany { .. } => (StatusCode::TOO_MANY_REQUESTS, "file_ceiling", After(2)),
        FileRefusal::HostCeiling { .. } => {
            (StatusCode::TOO_MANY_REQUESTS, "host_ceiling", After(10))
        }
        FileRefusal::Named { name, .. } => match name {
            ErrorName::FileNotFound => (StatusCode::NOT_FOUND, "file_not_found", Never),
            ErrorName::IsADirectory => (StatusCode::BAD_REQUEST, "is_a_directory", Never),
            ErrorName::NotADirectory => (StatusCode::BAD_REQUEST, "not_a_directory", Never),
            ErrorName::FileExists => (StatusCode::BAD_REQUEST, "file_exists", Never),
            ErrorName::Value => (StatusCode::BAD_REQUEST, "bad_path", Never),
        },
    }
}
