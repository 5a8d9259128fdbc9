//! Describes the wire types as JSON schemas.

mod events;
mod files;
mod lifecycle;
mod workspaces;

use serde_json::{Map, Value, json};

use super::reference;

/// One field of a schema.
enum Of {
    Text,
    Flag,
    Integer,
    Number,
    Any,
    Ref(&'static str),
    Listed(&'static str),
    Texts,
    /// May be `null`.
    Maybe(&'static Self),
    /// An object of texts.
    TextMap,
    /// One of these.
    Either(&'static [Self]),
}

impl Of {
    fn schema(&self) -> Value {
        match self {
            Self::Text => json!({ "type": "string" }),
            Self::Flag => json!({ "type": "boolean" }),
            Self::Integer => json!({ "type": "integer" }),
            Self::Number => json!({ "type": "number" }),
            Self::Any => json!({}),
            Self::Ref(schema) => reference(schema),
            Self::Listed(schema) => json!({ "type": "array", "items": reference(schema) }),
            Self::Texts => json!({ "type": "array", "items": { "type": "string" } }),
            Self::TextMap => {
                json!({ "type": "object", "additionalProperties": { "type": "string" } })
            }
            Self::Either(some) => {
                let some: Vec<Value> = some.iter().map(Self::schema).collect();
                json!({ "anyOf": some })
            }
            Self::Maybe(of) => json!({ "anyOf": [of.schema(), { "type": "null" }] }),
        }
    }
}

/// A wire type: its name, fields that are always there, and those that may be left out.
type Schema = (&'static str, Fields, Fields);
type Fields = &'static [(&'static str, Of)];

/// Told once after a sandbox was reset.
const RESET: Fields = &[("incarnation", Of::Integer), ("reset_reason", Of::Text)];
/// Schemas that are lists of another one.
const LISTS: &[(&str, &str)] = &[("FileEntries", "FileEntry")];

/// The wire types but those of the modules below.
const SCHEMAS: &[Schema] = &[
    (
        "ServiceIndex",
        &[
            ("service", Of::Text),
            ("health", Of::Ref("ServiceHealth")),
            ("docs_url", Of::Text),
            ("openapi_url", Of::Text),
            ("ui_url", Of::Maybe(&Of::Text)),
            ("endpoints", Of::Texts),
            ("version", Of::Text),
        ],
        &[],
    ),
    (
        "ServiceHealth",
        &[
            ("status", Of::Text),
            ("sessions", Of::Integer),
            ("limit", Of::Maybe(&Of::Integer)),
            ("open_sessions", Of::Integer),
            ("open_limit", Of::Maybe(&Of::Integer)),
            ("runtimes", Of::Texts),
        ],
        &[("reasons", Of::Texts)],
    ),
    (
        "RuntimePolicy",
        &[
            ("alias", Of::Text),
            ("image", Of::Text),
            ("description", Of::Text),
            ("builds", Of::Flag),
            ("mem_limit", Of::Maybe(&Of::Text)),
            ("memswap_limit", Of::Maybe(&Of::Text)),
            ("cpus", Of::Maybe(&Of::Number)),
            ("cpu_shares", Of::Maybe(&Of::Integer)),
            ("pids_limit", Of::Maybe(&Of::Integer)),
            ("network_mode", Of::Maybe(&Of::Text)),
            ("oci_runtime", Of::Maybe(&Of::Text)),
            ("workspace_size", Of::Maybe(&Of::Text)),
        ],
        &[],
    ),
    (
        "ServicePolicy",
        &[
            ("runtimes", Of::Listed("RuntimePolicy")),
            ("default_runtime", Of::Text),
            ("max_sessions", Of::Maybe(&Of::Integer)),
            ("max_open_sessions", Of::Maybe(&Of::Integer)),
            ("max_sessions_per_tenant", Of::Maybe(&Of::Integer)),
            ("evict_idle_after", Of::Maybe(&Of::Integer)),
            ("mem_limit", Of::Maybe(&Of::Text)),
            ("memswap_limit", Of::Maybe(&Of::Text)),
            ("cpus", Of::Maybe(&Of::Number)),
            ("cpu_shares", Of::Maybe(&Of::Integer)),
            ("pids_limit", Of::Maybe(&Of::Integer)),
            ("network_mode", Of::Maybe(&Of::Text)),
            ("oci_runtime", Of::Maybe(&Of::Text)),
            ("work_dir", Of::Text),
            ("idle_timeout", Of::Integer),
            ("execute_timeout", Of::Integer),
            ("max_read_bytes", Of::Integer),
            ("persist_containers", Of::Flag),
            ("sandbox_uid", Of::Maybe(&Of::Integer)),
            ("workspace_ttl", Of::Maybe(&Of::Integer)),
            ("container_ttl", Of::Maybe(&Of::Integer)),
            ("tmpfs_size", Of::Maybe(&Of::Text)),
            ("prewarm", Of::Flag),
            ("buildkit", Of::Flag),
            ("native_files", Of::Flag),
            ("native_writes", Of::Flag),
            ("native_realpath", Of::Flag),
            ("workspace_size", Of::Maybe(&Of::Text)),
            ("workspace_size_enforced_by", Of::Text),
        ],
        &[("hibernate_idle_after", Of::Integer)],
    ),
    ("HoldList", &[("holds", Of::Listed("HoldInfo"))], &[]),
    (
        "HoldInfo",
        &[
            ("name", Of::Text),
            ("since", Of::Number),
            ("detail", Of::Text),
            ("remedy", Of::Text),
        ],
        &[],
    ),
    (
        "CreateSessionRequest",
        &[],
        &[
            ("session_id", Of::Maybe(&Of::Text)),
            ("runtime", Of::Maybe(&Of::Text)),
            ("tenant", Of::Maybe(&Of::Text)),
            ("reuse", Of::Flag),
            ("attach", Of::Flag),
        ],
    ),
    (
        "SessionCreated",
        &[("session", Of::Ref("SessionInfo")), ("token", Of::Text)],
        &[],
    ),
    (
        "SessionInfo",
        &[
            ("session_id", Of::Text),
            ("runtime", Of::Text),
            ("tenant", Of::Maybe(&Of::Text)),
            ("alive", Of::Flag),
            ("state", Of::Text),
            ("created_at", Of::Number),
            ("last_activity", Of::Number),
            ("idle_seconds", Of::Number),
            ("usage", Of::Maybe(&Of::Ref("SessionUsage"))),
            ("phase", Of::Text),
            ("reason", Of::Maybe(&Of::Text)),
            ("incarnation", Of::Integer),
            ("exec", Of::Text),
            ("drifted", Of::Flag),
        ],
        &[("container", Of::Text), ("image", Of::Text)],
    ),
    (
        "SessionUsage",
        &[
            ("memory_bytes", Of::Maybe(&Of::Integer)),
            ("memory_limit_bytes", Of::Maybe(&Of::Integer)),
            ("cpu_percent", Of::Maybe(&Of::Number)),
            ("pids", Of::Maybe(&Of::Integer)),
            ("source", Of::Maybe(&Of::Text)),
        ],
        &[],
    ),
    (
        "SessionList",
        &[
            ("sessions", Of::Listed("SessionInfo")),
            ("limit", Of::Maybe(&Of::Integer)),
            ("open_limit", Of::Maybe(&Of::Integer)),
            ("tenant_limit", Of::Maybe(&Of::Integer)),
        ],
        &[("next", Of::Text)],
    ),
    (
        "ExecRequest",
        &[("command", Of::Text)],
        &[
            ("timeout_seconds", Of::Maybe(&Of::Integer)),
            ("env", Of::TextMap),
            ("cwd", Of::Maybe(&Of::Text)),
            ("user", Of::Maybe(&Of::Text)),
            ("stdin", Of::Maybe(&Of::Text)),
        ],
    ),
    (
        "ExecResponse",
        &[
            ("output", Of::Text),
            ("exit_code", Of::Maybe(&Of::Integer)),
            ("truncated", Of::Flag),
        ],
        &[
            ("reason", Of::Text),
            ("incarnation", Of::Integer),
            ("reset_reason", Of::Text),
        ],
    ),
    (
        "RunRequest",
        &[("argv", Of::Texts), ("run_id", Of::Text)],
        &[
            ("timeout_seconds", Of::Maybe(&Of::Number)),
            ("env", Of::TextMap),
            ("cwd", Of::Maybe(&Of::Text)),
            ("user", Of::Maybe(&Of::Text)),
            ("stdin", Of::Maybe(&Of::Text)),
        ],
    ),
    (
        "RunResponse",
        &[
            ("stdout", Of::Text),
            ("stderr", Of::Text),
            ("exit_code", Of::Maybe(&Of::Integer)),
            ("timed_out", Of::Flag),
            ("output_limited", Of::Flag),
            ("output_limit", Of::Maybe(&Of::Integer)),
        ],
        &[
            ("reason", Of::Text),
            ("incarnation", Of::Integer),
            ("reset_reason", Of::Text),
        ],
    ),
    (
        "StartRunRequest",
        &[],
        &[
            ("argv", Of::Maybe(&Of::Texts)),
            ("command", Of::Maybe(&Of::Text)),
            ("env", Of::TextMap),
            ("cwd", Of::Maybe(&Of::Text)),
            ("user", Of::Maybe(&Of::Text)),
            ("stdin", Of::Maybe(&Of::Either(&[Of::Flag, Of::Text]))),
            ("timeout_seconds", Of::Maybe(&Of::Number)),
            ("run_id", Of::Maybe(&Of::Text)),
            ("output_limit", Of::Maybe(&Of::Integer)),
            ("merge", Of::Flag),
            ("overflow", Of::Maybe(&Of::Text)),
        ],
    ),
    (
        "Run",
        &[
            ("run_id", Of::Text),
            ("state", Of::Text),
            ("exit_code", Of::Maybe(&Of::Integer)),
            ("signal", Of::Maybe(&Of::Integer)),
            ("reason", Of::Maybe(&Of::Text)),
            ("started_at", Of::Number),
            ("ended_at", Of::Maybe(&Of::Number)),
            ("target", Of::Text),
            ("stdout_bytes", Of::Integer),
            ("stderr_bytes", Of::Integer),
            ("first_seq", Of::Integer),
            ("next_seq", Of::Integer),
            ("truncated", Of::Flag),
        ],
        &[],
    ),
    ("RunList", &[("runs", Of::Listed("Run"))], &[]),
    (
        "OutputLine",
        &[],
        &[
            ("seq", Of::Integer),
            ("stream", Of::Text),
            ("data", Of::Text),
            ("b64", Of::Text),
            ("gap", Of::Ref("OutputGap")),
            ("end", Of::Ref("Run")),
            ("error", Of::Ref("ErrorBody")),
        ],
    ),
    (
        "OutputGap",
        &[("from", Of::Integer), ("to", Of::Integer)],
        &[],
    ),
    (
        "SignalRequest",
        &[("signal", Of::Either(&[Of::Text, Of::Integer]))],
        &[],
    ),
    (
        "TtyRequest",
        &[],
        &[
            ("argv", Of::Maybe(&Of::Texts)),
            ("env", Of::TextMap),
            ("cwd", Of::Maybe(&Of::Text)),
            ("user", Of::Maybe(&Of::Text)),
            ("cols", Of::Maybe(&Of::Integer)),
            ("rows", Of::Maybe(&Of::Integer)),
        ],
    ),
    (
        "TtyCreated",
        &[("tty_id", Of::Text), ("run_id", Of::Text)],
        &[],
    ),
    ("TtyList", &[("ttys", Of::Listed("Tty"))], &[]),
    (
        "Tty",
        &[
            ("tty_id", Of::Text),
            ("run_id", Of::Text),
            ("target", Of::Text),
            ("cols", Of::Integer),
            ("rows", Of::Integer),
            ("started_at", Of::Number),
            ("viewers", Of::Integer),
            ("has_writer", Of::Flag),
        ],
        &[],
    ),
    (
        "TicketCreated",
        &[("ticket", Of::Text), ("expires_at", Of::Number)],
        &[],
    ),
    (
        "DoctorReport",
        &[
            ("verdict", Of::Text),
            ("checked_at", Of::Number),
            ("findings", Of::Listed("DoctorFinding")),
            ("counts", Of::Ref("DoctorCounts")),
        ],
        &[],
    ),
    (
        "DoctorFinding",
        &[
            ("check", Of::Text),
            ("name", Of::Text),
            ("level", Of::Text),
            ("subject", Of::Maybe(&Of::Text)),
            ("detail", Of::Text),
            ("remedy", Of::Maybe(&Of::Text)),
        ],
        &[],
    ),
    (
        "DoctorCounts",
        &[
            ("ok", Of::Integer),
            ("warn", Of::Integer),
            ("fail", Of::Integer),
            ("unknown", Of::Integer),
        ],
        &[],
    ),
    (
        "ErrorBody",
        &[
            ("detail", Of::Any),
            ("code", Of::Text),
            ("retryable", Of::Flag),
            ("request_id", Of::Text),
        ],
        &[
            ("ceiling", Of::Ref("Ceiling")),
            ("freed_by", Of::Text),
            ("reason", Of::Text),
        ],
    ),
    (
        "Ceiling",
        &[
            ("name", Of::Text),
            ("limit", Of::Integer),
            ("used", Of::Integer),
            ("scope", Of::Text),
        ],
        &[],
    ),
];

/// Writes the schemas of all wire types, by their names.
pub(super) fn schemas() -> Value {
    let all = [
        SCHEMAS,
        events::SCHEMAS,
        files::SCHEMAS,
        lifecycle::SCHEMAS,
        workspaces::SCHEMAS,
    ];
    let all = all.iter().copied().flatten();
    let named = all.map(|(name, always, sometimes)| {
        let properties: Map<String, Value> = always
            .iter()
            .chain(*sometimes)
            .map(|(field, of)| ((*field).to_owned(), of.schema()))
            .collect();
        let required: Vec<&str> = always.iter().map(|(field, _)| *field).collect();
        let schema = json!({
            "type": "object", "title": name, "properties": properties, "required": required,
        });
        ((*name).to_owned(), schema)
    });
    let lists = LISTS
        .iter()
        .map(|(name, of)| ((*name).to_owned(), Of::Listed(of).schema()));
    Value::Object(named.chain(lists).collect())
}
