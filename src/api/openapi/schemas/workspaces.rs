//! Describes the wire types of stored workspaces.

use super::{Of, Schema};

/// By name: fields that are always there, then those that may be left out.
pub(super) const SCHEMAS: &[Schema] = &[
    (
        "WorkspaceList",
        &[
            ("workspaces", Of::Listed("WorkspaceInfo")),
            ("next", Of::Maybe(&Of::Text)),
        ],
        &[],
    ),
    (
        "WorkspaceInfo",
        &[
            ("session_id", Of::Text),
            ("open", Of::Flag),
            ("bytes", Of::Maybe(&Of::Integer)),
            ("files", Of::Maybe(&Of::Integer)),
            ("measured_at", Of::Maybe(&Of::Number)),
            ("limit", Of::Maybe(&Of::Integer)),
            ("last_used", Of::Maybe(&Of::Number)),
            ("runtime", Of::Maybe(&Of::Text)),
            ("tenant", Of::Maybe(&Of::Text)),
        ],
        &[],
    ),
    (
        "ImportResponse",
        &[
            ("session_id", Of::Text),
            ("files", Of::Integer),
            ("directories", Of::Integer),
            ("links", Of::Integer),
            ("bytes", Of::Integer),
            ("skipped", Of::Listed("SkippedPath")),
            ("n_skipped", Of::Integer),
        ],
        &[],
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Value, to_value};

    use super::super::schemas;
    use crate::wire::workspaces::{ImportResponse, WorkspaceInfo, WorkspaceList};

    #[test]
    fn what_is_sent_of_workspaces_has_the_fields_that_are_described() {
        let schemas = schemas();
        for (name, sent) in [
            ("WorkspaceInfo", to_value(WorkspaceInfo::default())),
            ("WorkspaceList", to_value(WorkspaceList::default())),
            ("ImportResponse", to_value(ImportResponse::default())),
        ] {
            let names = |value: &Value| -> BTreeSet<String> {
                value.as_object().unwrap().keys().cloned().collect()
            };
            let described = names(&schemas[name]["properties"]);
            assert_eq!(described, names(&sent.unwrap()), "{name}");
        }
    }
}
