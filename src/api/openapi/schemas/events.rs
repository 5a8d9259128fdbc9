//! Describes the logs.

use super::{Of, Schema};

/// The wire types of both logs.
pub(super) const SCHEMAS: &[Schema] = &[
    (
        "SessionEvent",
        &[
            ("seq", Of::Integer),
            ("at", Of::Number),
            ("op", Of::Text),
            ("target", Of::Text),
            ("ok", Of::Flag),
            ("detail", Of::Text),
            ("duration_ms", Of::Number),
        ],
        &[],
    ),
    (
        "SessionEvents",
        &[
            ("events", Of::Listed("SessionEvent")),
            ("latest_seq", Of::Integer),
            ("first_seq", Of::Integer),
        ],
        &[],
    ),
    (
        "ServiceEvent",
        &[
            ("seq", Of::Integer),
            ("at", Of::Number),
            ("kind", Of::Text),
            ("op", Of::Text),
            ("target", Of::Text),
            ("ok", Of::Flag),
            ("detail", Of::Text),
        ],
        &[
            ("session_id", Of::Text),
            ("tenant", Of::Text),
            ("reason", Of::Text),
            ("duration_ms", Of::Number),
            ("request_id", Of::Text),
            ("facts", Of::TextMap),
        ],
    ),
    (
        "ServiceEvents",
        &[
            ("events", Of::Listed("ServiceEvent")),
            ("next", Of::Integer),
            ("latest_seq", Of::Integer),
            ("first_seq", Of::Integer),
        ],
        &[],
    ),
];
