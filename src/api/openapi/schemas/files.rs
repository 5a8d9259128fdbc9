//! The wire types about files.

use super::{Of, RESET, Schema};

/// How a file is named: by one of these.
const NAMED: super::Fields = &[("path", Of::Text), ("path_b64", Of::Text)];

/// The tag of a file, and what is told once after a sandbox was reset.
const TAG_AND_RESET: super::Fields = &[
    ("etag", Of::Text),
    ("incarnation", Of::Integer),
    ("reset_reason", Of::Text),
];

/// The same of what also says why a file was not read.
const READ: super::Fields = &[
    ("error", Of::Text),
    ("etag", Of::Text),
    ("incarnation", Of::Integer),
    ("reset_reason", Of::Text),
];

/// By name: fields that are always there, then those that may be left out.
pub(super) const SCHEMAS: &[Schema] = &[
    (
        "ReadRequest",
        &[],
        &[
            ("path", Of::Text),
            ("path_b64", Of::Text),
            ("offset", Of::Integer),
            ("limit", Of::Integer),
        ],
    ),
    ("ReadResponse", &[("content", Of::Text)], READ),
    ("PathRequest", &[], NAMED),
    ("ReadBytesResponse", &[("content_b64", Of::Text)], READ),
    (
        "WriteRequest",
        &[("content_b64", Of::Text)],
        &[
            ("path", Of::Text),
            ("path_b64", Of::Text),
            ("if_match", Of::Maybe(&Of::Text)),
        ],
    ),
    (
        "WriteResponse",
        &[
            ("path", Of::Maybe(&Of::Text)),
            ("error", Of::Maybe(&Of::Text)),
        ],
        TAG_AND_RESET,
    ),
    (
        "EditRequest",
        &[("old_string", Of::Text), ("new_string", Of::Text)],
        &[
            ("path", Of::Text),
            ("path_b64", Of::Text),
            ("replace_all", Of::Flag),
            ("if_match", Of::Maybe(&Of::Text)),
        ],
    ),
    (
        "EditResponse",
        &[
            ("path", Of::Maybe(&Of::Text)),
            ("error", Of::Maybe(&Of::Text)),
            ("occurrences", Of::Maybe(&Of::Integer)),
        ],
        TAG_AND_RESET,
    ),
    ("ExistsResponse", &[("exists", Of::Flag)], RESET),
    (
        "FileEntry",
        &[
            ("name", Of::Text),
            ("path", Of::Text),
            ("is_dir", Of::Flag),
            ("size", Of::Maybe(&Of::Integer)),
            ("modified_at", Of::Maybe(&Of::Text)),
        ],
        &[
            ("kind", Of::Text),
            ("name_b64", Of::Text),
            ("path_b64", Of::Text),
        ],
    ),
    ("GlobRequest", &[("pattern", Of::Text)], NAMED),
    (
        "GrepRequest",
        &[("pattern", Of::Text)],
        &[
            ("path", Of::Maybe(&Of::Text)),
            ("path_b64", Of::Maybe(&Of::Text)),
            ("glob", Of::Maybe(&Of::Text)),
            ("ignore_hidden", Of::Flag),
        ],
    ),
    (
        "GrepResponse",
        &[
            ("matches", Of::Listed("GrepMatch")),
            ("error", Of::Maybe(&Of::Text)),
        ],
        &[
            ("skipped", Of::Listed("SkippedPath")),
            ("truncated", Of::Flag),
            ("incarnation", Of::Integer),
            ("reset_reason", Of::Text),
        ],
    ),
    (
        "GrepMatch",
        &[
            ("path", Of::Text),
            ("line_number", Of::Integer),
            ("line", Of::Text),
        ],
        &[("path_b64", Of::Text)],
    ),
    (
        "SkippedPath",
        &[("path", Of::Text), ("reason", Of::Text)],
        &[],
    ),
    (
        "RealpathResponse",
        &[("path", Of::Text)],
        &[("path_b64", Of::Text)],
    ),
    (
        "TreeRequest",
        &[],
        &[
            ("path", Of::Text),
            ("path_b64", Of::Text),
            ("max_depth", Of::Integer),
            ("max_entries", Of::Integer),
        ],
    ),
    (
        "TreeResponse",
        &[
            ("entries", Of::Listed("FileEntry")),
            ("truncated", Of::Flag),
        ],
        &[],
    ),
    (
        "TreesRequest",
        &[("sessions", Of::Texts)],
        &[
            ("path", Of::Text),
            ("path_b64", Of::Text),
            ("max_depth", Of::Integer),
            ("max_entries", Of::Integer),
        ],
    ),
    (
        "TreesResponse",
        &[("results", Of::Listed("TreeResult"))],
        &[],
    ),
    (
        "TreeResult",
        &[
            ("session_id", Of::Text),
            ("tree", Of::Maybe(&Of::Ref("TreeResponse"))),
            ("error", Of::Maybe(&Of::Text)),
            ("status_code", Of::Maybe(&Of::Integer)),
        ],
        &[],
    ),
    (
        "Uploaded",
        &[
            ("path", Of::Text),
            ("size", Of::Integer),
            ("sha256", Of::Text),
        ],
        TAG_AND_RESET,
    ),
    (
        "FileChange",
        &[("kind", Of::Text), ("path", Of::Text)],
        &[
            ("path_b64", Of::Text),
            ("from", Of::Text),
            ("from_b64", Of::Text),
        ],
    ),
];
