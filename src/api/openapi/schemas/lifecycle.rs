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
];
