//! Describes the route table as an OpenAPI 3.1 document.

use serde_json::{Map, Value, json};

mod schemas;

use schemas::schemas;

use crate::api::auth::TOKEN_HEADER;
use crate::api::routes::{Access, Answer, Param, ParamKind, Route, Takes, Verb};
use crate::api::validate::RUN_ID_PATTERN;
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
    let body = match route.takes {
        Takes::Nothing => None,
        Takes::Json(schema) => Some(content(schema)),
        Takes::Bytes => Some(json!({ "application/octet-stream": {} })),
        Takes::Archive => Some(json!({ "application/x-tar": {}, "application/zstd": {} })),
    };
    if let Some(content) = body {
        let body = json!({ "required": true, "content": content });
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
            let pattern = if name == "run_id" || name == "tty_id" {
                RUN_ID_PATTERN
            } else {
                NAME_PATTERN
            };
            json!({
                "name": name, "in": "path", "required": true,
                "schema": { "type": "string", "pattern": pattern },
            })
        });
    captured
        .chain(route.query.iter().map(parameter))
        .chain(headers(route).iter().map(header))
        .collect()
}

/// Returns the headers that a route heeds, each with what it does.
fn headers(route: &Route) -> &'static [(&'static str, &'static str)] {
    const READ: &[(&str, &str)] = &[
        ("Range", "One range of bytes, as bytes=0-99"),
        (
            "If-Match",
            "Tags of which the file has to have one, or it is refused with 412",
        ),
        (
            "If-None-Match",
            "Tags of which the file has to have none, or it is not sent: 304",
        ),
        (
            "If-Range",
            "The tag that the file has to have for a range; all is sent otherwise",
        ),
    ];
    const WRITE: &[(&str, &str)] = &[
        (
            "If-Match",
            "Tags, or SHA-256 digests, of which the old file has to have one",
        ),
        (
            "If-None-Match",
            "* where there may be no old file, or tags that it must not have",
        ),
    ];
    match (route.answers, route.verb) {
        (Answer::File, _) => READ,
        (Answer::Made("Uploaded"), Verb::Put) => WRITE,
        _ => &[],
    }
}

fn header((name, about): &(&str, &str)) -> Value {
    json!({
        "name": name, "in": "header", "required": false,
        "description": about, "schema": { "type": "string" },
    })
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
    let done = |schema| json!({ "description": "Done", "content": content(schema) });
    let mut responses = match route.answers {
        Answer::Json(schema) => json!({ "200": done(schema) }),
        Answer::Made(schema) => json!({
            "200": { "description": "It was there", "content": content(schema) },
            "201": { "description": "It was made", "content": content(schema) },
        }),
        Answer::Stream(schema) => {
            let content = json!({
                "application/x-ndjson": { "schema": reference(schema) },
                "text/event-stream": {},
                "application/octet-stream": {},
            });
            json!({ "200": { "description": "As it comes", "content": content } })
        }
        Answer::Bytes => {
            let content = json!({ "application/octet-stream": {} });
            json!({ "200": { "description": "The bytes", "content": content } })
        }
        Answer::File => {
            let content = json!({ "application/octet-stream": {} });
            json!({
                "200": { "description": "The file", "content": content },
                "206": { "description": "The range that was asked for", "content": content },
                "304": { "description": "It is the one that the request knows" },
                "412": { "description": "It is not the one that the request expects", "content": content_of_error() },
                "416": { "description": "No byte of the range is in it", "content": content_of_error() },
            })
        }
        Answer::Events(schema) => {
            let content = json!({ "text/event-stream": { "schema": reference(schema) } });
            json!({ "200": { "description": "As it comes", "content": content } })
        }
        Answer::Archive => {
            let content = json!({ "application/x-tar": {}, "application/zstd": {} });
            json!({ "200": { "description": "The archive, as it is packed", "content": content } })
        }
        Answer::Document => json!({ "200": { "description": "The document" } }),
        Answer::Socket => json!({ "101": { "description": "The WebSocket" } }),
        Answer::Nothing => json!({ "204": { "description": "Done" } }),
    };
    let refused = json!({ "description": "Refused", "content": content("ErrorBody") });
    set(&mut responses, "default", refused);
    responses
}

fn content(schema: &str) -> Value {
    json!({ "application/json": { "schema": reference(schema) } })
}

fn content_of_error() -> Value {
    content("ErrorBody")
}

fn reference(schema: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{schema}") })
}

fn set(object: &mut Value, key: &str, value: Value) {
    if let Value::Object(members) = object {
        members.insert(key.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::api::table::TABLE;

    fn full_run_request() -> crate::wire::runs::RunRequest {
        crate::wire::runs::RunRequest {
            cwd: Some(String::new()),
            user: Some(String::new()),
            stdin: Some(String::new()),
            ..Default::default()
        }
    }

    fn full_start_request() -> crate::wire::runs::StartRunRequest {
        crate::wire::runs::StartRunRequest {
            argv: Some(Vec::new()),
            command: Some(String::new()),
            env: [("A".to_owned(), String::new())].into(),
            cwd: Some(String::new()),
            user: Some(String::new()),
            stdin: Some(crate::wire::runs::RunInput::Open),
            timeout_seconds: Some(1.0),
            run_id: Some(String::new()),
            output_limit: Some(1),
            merge: true,
            overflow: Some(String::new()),
        }
    }

    fn full_run_response() -> crate::wire::runs::RunResponse {
        crate::wire::runs::RunResponse {
            reason: Some(String::new()),
            incarnation: Some(1),
            reset_reason: Some(String::new()),
            ..Default::default()
        }
    }

    #[test]
    fn a_run_is_shown_with_the_fields_that_its_callers_know_in_their_order() {
        let run = serde_json::to_string(&crate::wire::runs::Run::default()).unwrap();
        assert_eq!(
            run,
            r#"{"run_id":"","state":"","exit_code":null,"signal":null,"reason":null,"started_at":0.0,"ended_at":null,"target":"","stdout_bytes":0,"stderr_bytes":0,"first_seq":0,"next_seq":0,"truncated":false}"#
        );
        // What the first clients of the contract know of is there, whatever it is.
        let waited = serde_json::to_string(&crate::wire::runs::RunResponse::default()).unwrap();
        assert_eq!(
            waited,
            r#"{"stdout":"","stderr":"","exit_code":null,"timed_out":false,"output_limited":false,"output_limit":null}"#
        );
    }

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
            (
                "RunRequest",
                serde_json::to_value(full_run_request()).unwrap(),
            ),
            (
                "StartRunRequest",
                serde_json::to_value(full_start_request()).unwrap(),
            ),
            (
                "RunResponse",
                serde_json::to_value(full_run_response()).unwrap(),
            ),
            (
                "Run",
                serde_json::to_value(crate::wire::runs::Run::default()).unwrap(),
            ),
            ("RunList", json!({ "runs": [] })),
            ("SignalRequest", json!({ "signal": "TERM" })),
            (
                "OutputGap",
                serde_json::to_value(crate::wire::runs::Gap::default()).unwrap(),
            ),
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
