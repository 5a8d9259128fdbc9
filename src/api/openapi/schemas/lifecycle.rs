//! Describes what explains a session.

use super::{Of, Schema};

/// The wire types of explanations.
pub(super) const SCHEMAS: &[Schema] = &[
    (
        "SessionExplanation",
        &[
            ("aim", Of::Text),
            ("phase", Of::Text),
            ("reason", Of::Maybe(&Of::Text)),
            ("since", Of::Number),
            ("next", Of::Maybe(&Of::Ref("NextStep"))),
            ("attempts", Of::Integer),
            ("last_error", Of::Maybe(&Of::Text)),
            ("drift", Of::Texts),
            ("container", Of::Ref("ExplainedContainer")),
            ("lease_count", Of::Integer),
            ("ceilings", Of::Listed("Ceiling")),
        ],
        &[],
    ),
    (
        "NextStep",
        &[("step", Of::Text), ("at", Of::Maybe(&Of::Number))],
        &[],
    ),
    (
        "ExplainedContainer",
        &[
            ("name", Of::Maybe(&Of::Text)),
            ("id", Of::Maybe(&Of::Text)),
            ("state", Of::Text),
        ],
        &[],
    ),
    (
        "SweepReport",
        &[
            ("dry_run", Of::Flag),
            ("until", Of::Number),
            ("items", Of::Listed("SweepItem")),
            ("more", Of::Flag),
            ("holds", Of::Texts),
            ("strays_held_back", Of::Integer),
        ],
        &[],
    ),
    (
        "SweepItem",
        &[
            ("kind", Of::Text),
            ("session_id", Of::Maybe(&Of::Text)),
            ("container", Of::Maybe(&Of::Text)),
            ("what", Of::Text),
            ("reason", Of::Text),
            ("since", Of::Number),
            ("limit", Of::Maybe(&Of::Number)),
            ("at", Of::Number),
        ],
        &[("waits_for", Of::Text)],
    ),
];
