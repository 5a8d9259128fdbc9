//! Describes the route table as an OpenAPI 3.1 document.

use serde_json::{Map, Value, json};

use crate::api::auth::TOKEN_HEADER;
use crate::api::routes::{Access, Answer, Param, ParamKind, Route};
use crate::id::NAME_PATTERN;

/// Writes the document of a table.
pub(super) fn document(table: &[Route]) -> Value {
    let mut paths = Map::new();
    for route in table {
        let item = paths
            .entry(route.path)
            .or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(verbs) = item {
            verbs.insert(route.verb.as_str().to_ascii_lowercase(), operation(route));
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "sandboxd",
            "summary": "Sandbox execution service for AI agents",
            "version": env!("CARGO_PKG_VERSION"),
        },
        "paths": paths,
        "components": {
            "securitySchemes": {
                "token": {
                    "type": "apiKey",
                    "in": "header",
                    "name": TOKEN_HEADER,
                    "description": "The service token; on routes of one session, that session's token does as well.",
                },
            },
            "schemas": schemas(),
        },
    })
}

fn operation(route: &Route) -> Value {
    let mut operation = json!({
        "summary": route.summary,
        "operationId": operation_id(route),
        "parameters": parameters(route),
        "responses": responses(route),
    });
    if route.access != Access::Public {
        set(&mut operation, "security", json!([{ "token": [] }]));
    }
    if let Some(schema) = route.takes {
        let body = json!({ "required": true, "content": content(schema) });
        set(&mut operation, "requestBody", body);
    }
    operation
}

/// Makes a name such as `post_sessions_session_id_exec`.
fn operation_id(route: &Route) -> String {
    let path = route.path.replace(['{', '}', '.'], "_").replace('/', "_");
    let words: Vec<&str> = path.split('_').filter(|word| !word.is_empty()).collect();
    let verb = route.verb.as_str().to_ascii_lowercase();
    let id = format!("{verb}_{}", words.join("_"));
    id.trim_end_matches('_').to_owned()
}

fn parameters(route: &Route) -> Vec<Value> {
    let captured = route
        .path
        .split('/')
        .filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'))
        .map(|name| {
            json!({
                "name": name, "in": "path", "required": true,
                "schema": { "type": "string", "pattern": NAME_PATTERN },
            })
        });
    captured.chain(route.query.iter().map(parameter)).collect()
}

fn parameter(param: &Param) -> Value {
    let schema = match param.kind {
        ParamKind::Flag => json!({ "type": "boolean", "default": false }),
        ParamKind::Text => json!({ "type": "string" }),
        ParamKind::Number(least, None) => json!({ "type": "integer", "minimum": least }),
        ParamKind::Number(least, Some(most)) => {
            json!({ "type": "integer", "minimum": least, "maximum": most })
        }
        ParamKind::OneOf(words) => json!({ "type": "string", "enum": words }),
    };
    json!({
        "name": param.name, "in": "query", "required": false,
        "description": param.about, "schema": schema,
    })
}

fn responses(route: &Route) -> Value {
    let (status, good) = match route.answers {
        Answer::Json(schema) => (
            "200",
            json!({ "description": "Done", "content": content(schema) }),
        ),
        Answer::Document => ("200", json!({ "description": "The document" })),
        Answer::Nothing => ("204", json!({ "description": "Done" })),
        Answer::Socket => ("101", json!({ "description": "The WebSocket" })),
    };
    json!({
        status: good,
        "default": { "description": "Refused", "content": content("ErrorBody") },
    })
}

fn content(schema: &str) -> Value {
    json!({ "application/json": { "schema": reference(schema) } })
}

fn reference(schema: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{schema}") })
}

fn set(object: &mut Value, key: &str, value: Value) {
    if let Value::Object(members) = object {
        members.insert(key.to_owned(), value);
    }
}

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
            Self::Maybe(of) => json!({ "anyOf": [of.schema(), { "type": "null" }] }),
        }
    }
}

type Fields = &'static [(&'static str, Of)];

/// The wire types by name: fields that are always there, then those that may be left out.
const SCHEMAS: &[(&str, Fields, Fields)] = &[
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
        ],
        &[],
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
        "ExecRequest",
        &[("command", Of::Text)],
        &[("timeout_seconds", Of::Maybe(&Of::Integer))],
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
        "TtyRequest",
        &[],
        &[
            ("argv", Of::Maybe(&Of::Texts)),
            ("env", Of::Any),
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
        &[("ceiling", Of::Ref("Ceiling"))],
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

fn schemas() -> Value {
    let named = SCHEMAS.iter().map(|(name, always, sometimes)| {
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
    Value::Object(named.collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::api::routes::TABLE;

    fn references(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(members) => {
                for (key, member) in members {
                    if let (true, Some(target)) = (key == "$ref", member.as_str()) {
                        found.insert(target.to_owned());
                    }
                    references(member, found);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            _ => {}
        }
    }

    #[test]
    fn the_document_has_every_route_and_no_other() {
        let document = document(TABLE);
        assert_eq!(document["openapi"], "3.1.0");
        assert_eq!(document["info"]["title"], "sandboxd");
        let mut documented = BTreeSet::new();
        for (path, verbs) in document["paths"].as_object().unwrap() {
            for (verb, operation) in verbs.as_object().unwrap() {
                documented.insert((path.clone(), verb.to_uppercase()));
                assert!(operation["responses"]["default"].is_object(), "{path}");
            }
        }
        let routed = TABLE
            .iter()
            .map(|route| (route.path.to_owned(), route.verb.as_str().to_owned()))
            .collect();
        assert_eq!(documented, routed);
    }

    #[test]
    fn exactly_the_routes_with_callers_ask_for_a_token() {
        let document = document(TABLE);
        for route in TABLE {
            let verb = route.verb.as_str().to_lowercase();
            let guarded = document["paths"][route.path][&verb]["security"].is_array();
            assert_eq!(guarded, route.access != Access::Public, "{}", route.path);
        }
    }

    #[test]
    fn every_reference_leads_to_a_schema_and_no_operation_id_is_given_twice() {
        let document = document(TABLE);
        let mut found = BTreeSet::new();
        references(&document, &mut found);
        for target in found {
            let pointer = target.trim_start_matches('#');
            assert!(document.pointer(pointer).is_some(), "{target}");
        }
        let ids: BTreeSet<String> = TABLE.iter().map(operation_id).collect();
        assert_eq!(ids.len(), TABLE.len());
        assert!(ids.contains("post_sessions_session_id_exec"));
    }

    #[test]
    fn the_schema_of_a_wire_type_has_the_fields_that_are_sent() {
        let health = crate::wire::service::ServiceHealth {
            status: "degraded".to_owned(),
            sessions: 0,
            limit: None,
            open_sessions: 0,
            open_limit: None,
            runtimes: Vec::new(),
            reasons: vec!["x".to_owned()],
        };
        let ended = crate::wire::exec::ExecResponse {
            output: String::new(),
            exit_code: None,
            truncated: false,
            reason: Some(String::new()),
            incarnation: Some(1),
            reset_reason: Some(String::new()),
        };
        let created = crate::wire::sessions::CreateSessionRequest::default();
        let page = crate::wire::doctor::DoctorReport {
            verdict: "ok".to_owned(),
            checked_at: 0.0,
            findings: Vec::new(),
            counts: crate::wire::doctor::DoctorCounts::default(),
        };
        let counts = page.counts;
        let schemas = schemas();
        for (name, sent) in [
            ("ServiceHealth", serde_json::to_value(health).unwrap()),
            ("DoctorReport", serde_json::to_value(page).unwrap()),
            ("DoctorCounts", serde_json::to_value(counts).unwrap()),
            ("ExecResponse", serde_json::to_value(ended).unwrap()),
            (
                "CreateSessionRequest",
                serde_json::to_value(created).unwrap(),
            ),
        ] {
            let described: BTreeSet<&String> = schemas[name]["properties"]
                .as_object()
                .unwrap()
                .keys()
                .collect();
            let sent: BTreeSet<&String> = sent.as_object().unwrap().keys().collect();
            assert_eq!(described, sent, "{name}");
        }
    }
}
