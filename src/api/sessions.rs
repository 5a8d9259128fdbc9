//! Reads what is asked of sessions and passes it on.

use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response, Uri};

use crate::api::auth::{ServiceCaller, SessionCaller};
use crate::api::body::JsonText;
use crate::api::edge::{request_id, stopping};
use crate::api::error::Failure;
use crate::api::routes::{Param, ParamKind};
use crate::api::validate::{self, Form};
use crate::api::{command, query, reply};
use crate::control::queue::Patience;
use crate::control::request::{
    Attach, COMMAND_BYTES_MAX, Events, Exec, Input, List, Open, Sampling,
};
use crate::id::RequestId;
use crate::session::record::Purge;

/// Sessions or events of the largest page.
const PAGE_MAX: u64 = 1000;
/// What a session of a listing takes, with some to spare.
const LINE_BYTES: usize = 512;
/// The states by which a listing can be narrowed.
const STATES: &[&str] = &["running", "hibernated"];

const USAGE: Param = Param {
    name: "usage",
    about: "Whether resources are sampled, which takes a moment",
    kind: ParamKind::Flag,
};

pub(super) const LIST_QUERY: &[Param] = &[
    USAGE,
    Param {
        name: "tenant",
        about: "Only this tenant's",
        kind: ParamKind::Text,
    },
    Param {
        name: "state",
        about: "Only those in this state",
        kind: ParamKind::OneOf(STATES),
    },
    Param {
        name: "limit",
        about: "At most so many; all when left out",
        kind: ParamKind::Number(1, Some(PAGE_MAX)),
    },
    Param {
        name: "cursor",
        about: "Continues a listing: `next` of the page before",
        kind: ParamKind::Text,
    },
];

pub(super) const OPEN_QUERY: &[Param] = &[Param {
    name: "wait",
    about: "Seconds to wait for a place where a ceiling is reached; refuses at once when left out",
    kind: ParamKind::Number(0, None),
}];

pub(super) const DESCRIBE_QUERY: &[Param] = &[USAGE];

pub(super) const CLOSE_QUERY: &[Param] = &[Param {
    name: "purge",
    about: "Whether the files go too",
    kind: ParamKind::Flag,
}];

pub(super) const EVENTS_QUERY: &[Param] = &[
    Param {
        name: "after",
        about: "Only those with a higher sequence number",
        kind: ParamKind::Number(0, None),
    },
    Param {
        name: "limit",
        about: "The oldest so many; the newest 200 when left out",
        kind: ParamKind::Number(1, Some(PAGE_MAX)),
    },
];

pub(super) async fn open(
    caller: ServiceCaller,
    request: Request<Body>,
) -> Result<Response<Body>, Failure> {
    let stopping = stopping(&request);
    let longest = read_wait(request.uri().query().unwrap_or_default());
    let body = JsonText::read(request).await?;
    let open = read_open(&body)?;
    // It may wait for long, and the room for bodies is not its own.
    drop(body);
    let patience = Patience {
        longest: longest?,
        stopping,
    };
    let created = caller.control().open(open, patience).await?;
    Ok(reply::json(&created))
}

/// Reads for how long an opening waits at a ceiling.
fn read_wait(text: &str) -> Result<Duration, Failure> {
    let mut form = Form::query();
    let [wait] = query::fields(text, ["wait"]);
    let secs = form.or_default(&wait, |given| validate::at_least(given, 0));
    form.finish()?;
    Ok(Duration::from_secs(secs))
}

fn read_open(body: &JsonText) -> Result<Open, Failure> {
    let mut form = Form::body(body.parse()?)?;
    let [id, runtime, tenant, reuse, attach] =
        form.fields(["session_id", "runtime", "tenant", "reuse", "attach"]);
    let id = form.optional(&id, validate::session_id);
    let runtime = form.optional(&runtime, validate::text);
    let tenant = form.optional(&tenant, validate::tenant);
    let reuse = form.or_default(&reuse, validate::flag);
    let only = form.or_default(&attach, validate::flag);
    form.finish()?;
    let attach = match (only, reuse) {
        (true, _) => Attach::Only,
        (false, true) => Attach::Reuse,
        (false, false) => Attach::Never,
    };
    Ok(Open {
        id,
        runtime,
        tenant,
        attach,
    })
}

pub(super) async fn list(caller: ServiceCaller, uri: Uri) -> Result<Response<Body>, Failure> {
    let list = read_list(uri.query().unwrap_or_default())?;
    let listed = caller.control().list(list).await?;
    let about = LINE_BYTES * (listed.sessions.len() + 1);
    Ok(reply::long_json(&listed, about))
}

fn read_list(text: &str) -> Result<List, Failure> {
    let mut form = Form::query();
    let [usage, tenant, state, limit, cursor] =
        query::fields(text, ["usage", "tenant", "state", "limit", "cursor"]);
    let list = List {
        usage: sampling(form.or_default(&usage, validate::flag)),
        tenant: form.optional(&tenant, validate::tenant),
        state: form.optional(&state, |given| validate::one_of(given, STATES)),
        limit: form.optional(&limit, |given| validate::page(given, PAGE_MAX)),
        cursor: form.optional(&cursor, |given| validate::at_least(given, 0)),
    };
    form.finish()?;
    Ok(list)
}

pub(super) async fn describe(caller: SessionCaller, uri: Uri) -> Result<Response<Body>, Failure> {
    let read = read_flag(uri.query().unwrap_or_default(), "usage");
    let usage = sampling(caller.checked(read).await?);
    let described = caller
        .control()
        .describe(caller.id(), usage, caller.viewer())
        .await?;
    Ok(reply::json(&described))
}

pub(super) async fn close(caller: SessionCaller, uri: Uri) -> Result<Response<Body>, Failure> {
    let read = read_flag(uri.query().unwrap_or_default(), "purge");
    let purge = if caller.checked(read).await? {
        Purge::Yes
    } else {
        Purge::No
    };
    caller.control().close(caller.id(), purge).await?;
    Ok(reply::no_content())
}

pub(super) async fn events(caller: SessionCaller, uri: Uri) -> Result<Response<Body>, Failure> {
    let read = read_events(uri.query().unwrap_or_default());
    let wanted = caller.checked(read).await?;
    let events = caller.control().events(caller.id(), wanted).await?;
    Ok(reply::json(&events))
}

fn read_events(text: &str) -> Result<Events, Failure> {
    let mut form = Form::query();
    let [after, limit] = query::fields(text, ["after", "limit"]);
    let events = Events {
        after: form.or_default(&after, |given| validate::at_least(given, 0)),
        limit: form.optional(&limit, |given| validate::page(given, PAGE_MAX)),
    };
    form.finish()?;
    Ok(events)
}

pub(super) async fn exec(
    caller: SessionCaller,
    request: Request<Body>,
) -> Result<Response<Body>, Failure> {
    let request_id = request_id(&request);
    let body = JsonText::read(request).await?;
    let exec = caller.checked(read_exec(&body, request_id)).await?;
    // The body is as large as the command: it need not lie here while that runs. A
    // command that is too long to run keeps its share until that is said.
    let share = body.into_share();
    let _share = (COMMAND_BYTES_MAX < exec.command.len()).then_some(share);
    let ended = caller.control().exec(caller.id(), exec).await?;
    Ok(reply::json(&ended))
}

fn read_exec(body: &JsonText, request_id: RequestId) -> Result<Exec, Failure> {
    let mut form = Form::body(body.parse()?)?;
    let [text, timeout_seconds, stdin] = form.fields(["command", "timeout_seconds", "stdin"]);
    let how = command::how_fields(&form);
    let text = form.required(&text, validate::text);
    let timeout_secs = form.optional(&timeout_seconds, validate::positive);
    let stdin = form.optional(&stdin, validate::text);
    let stdin = stdin.map_or(Input::Closed, Input::Text);
    let options = command::options(&mut form, &how, stdin);
    form.finish()?;
    // By the contract a command that no shell takes is no fault of the request.
    let is_startable = text.len() <= COMMAND_BYTES_MAX;
    command::check_size(is_startable.then_some(text.as_str()), &options)?;
    Ok(Exec {
        command: text,
        options,
        timeout: timeout_secs.map(Duration::from_secs),
        request_id,
    })
}

/// Reads a query of one flag that is off when left out.
pub(super) fn read_flag(text: &str, name: &'static str) -> Result<bool, Failure> {
    let mut form = Form::query();
    let [flag] = query::fields(text, [name]);
    let flag = form.or_default(&flag, validate::flag);
    form.finish()?;
    Ok(flag)
}

fn sampling(wanted: bool) -> Sampling {
    if wanted { Sampling::On } else { Sampling::Off }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{SessionId, Tenant};

    async fn body(text: &str) -> JsonText {
        let request = Request::post("/")
            .body(Body::from(text.to_owned()))
            .unwrap();
        JsonText::read(request).await.unwrap()
    }

    /// The kind and the place of every fault.
    fn faults<T: std::fmt::Debug>(read: Result<T, Failure>) -> Vec<String> {
        match read {
            Err(Failure::Invalid(faults)) => faults
                .iter()
                .map(|fault| format!("{} {}", fault.kind, serde_json::json!(fault.loc)))
                .collect(),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn an_opening_takes_its_known_fields_and_ignores_the_rest() {
        let open = read_open(&body(r#"{"image":"evil","privileged":true}"#).await);
        let plain = Open {
            id: None,
            runtime: None,
            tenant: None,
            attach: Attach::Never,
        };
        assert_eq!(open, Ok(plain.clone()));
        let full = r#"{"session_id":"a","runtime":"","tenant":"t","reuse":"yes","attach":null}"#;
        assert_eq!(
            faults(read_open(&body(full).await)),
            [r#"bool_type ["body","attach"]"#]
        );
        let full = r#"{"session_id":"a","runtime":"","tenant":"t","reuse":"yes"}"#;
        assert_eq!(
            read_open(&body(full).await),
            Ok(Open {
                id: SessionId::parse("a").ok(),
                runtime: Some(String::new()),
                tenant: Tenant::parse("t").ok(),
                attach: Attach::Reuse,
            })
        );
        let only = read_open(&body(r#"{"attach":1,"reuse":true}"#).await);
        assert_eq!(
            only,
            Ok(Open {
                attach: Attach::Only,
                ..plain
            })
        );
    }

    #[tokio::test]
    async fn a_command_has_a_text_and_a_positive_time_or_none() {
        let read = async |text: &str| {
            read_exec(&body(text).await, RequestId::parse("r").unwrap())
                .map(|exec| (exec.command, exec.timeout))
        };
        assert_eq!(read(r#"{"command":""}"#).await, Ok((String::new(), None)));
        for two in ["2", "\"2\"", "2.0"] {
            let text = format!(r#"{{"command":"x","timeout_seconds":{two}}}"#);
            assert_eq!(
                read(&text).await,
                Ok(("x".to_owned(), Some(Duration::from_secs(2))))
            );
        }
        for (time, kind) in [
            ("0", "greater_than"),
            ("-1", "greater_than"),
            ("1.5", "int_from_float"),
        ] {
            let text = format!(r#"{{"command":7,"timeout_seconds":{time}}}"#);
            assert_eq!(
                faults(read(&text).await),
                [
                    r#"string_type ["body","command"]"#.to_owned(),
                    format!(r#"{kind} ["body","timeout_seconds"]"#),
                ]
            );
        }
    }

    #[tokio::test]
    async fn a_command_takes_variables_a_directory_a_user_and_input() {
        let read = async |text: &str| read_exec(&body(text).await, RequestId::parse("r").unwrap());
        let full = r#"{"command":"x","env":{"A":"b"},"cwd":"/tmp","user":"0","stdin":"in"}"#;
        let options = read(full).await.unwrap().options;
        assert_eq!(options.env["A"], "b");
        assert_eq!(options.cwd.as_deref(), Some("/tmp"));
        assert_eq!(options.user.as_deref(), Some("0"));
        assert_eq!(options.stdin, Input::Text("in".to_owned()));
        let plain = read(r#"{"command":"x","cwd":null,"user":null,"stdin":null}"#).await;
        assert_eq!(
            plain.unwrap().options,
            crate::control::request::Options::default()
        );
        assert_eq!(
            faults(read(r#"{"command":"x","env":null,"stdin":true}"#).await),
            [
                r#"string_type ["body","stdin"]"#,
                r#"dict_type ["body","env"]"#
            ]
        );
        // One that no shell takes is answered by how it failed to start.
        let long = format!(r#"{{"command":"{}"}}"#, "x".repeat(1 << 20));
        assert!(read(&long).await.is_ok());
        let fed = format!(r#"{{"command":"cat","stdin":"{}"}}"#, "x".repeat(1 << 20));
        assert_eq!(read(&fed).await.unwrap_err().status(), 413);
    }

    #[tokio::test]
    async fn a_body_that_is_no_object_has_no_fields() {
        for text in ["null", "[]", "1", "\"x\""] {
            assert_eq!(
                faults(read_open(&body(text).await)),
                [r#"model_attributes_type ["body"]"#],
                "{text}"
            );
        }
    }

    #[test]
    fn a_query_is_checked_like_a_body() {
        assert_eq!(
            read_events("after=3&limit=1000"),
            Ok(Events {
                after: 3,
                limit: Some(1000)
            })
        );
        assert_eq!(
            faults(read_events("after=-1&limit=1001")),
            [
                r#"greater_than_equal ["query","after"]"#,
                r#"less_than_equal ["query","limit"]"#
            ]
        );
        for unclear in ["usage=maybe", "usage=", "usage"] {
            assert_eq!(
                faults(read_flag(unclear, "usage")),
                [r#"bool_parsing ["query","usage"]"#]
            );
        }
        assert_eq!(read_wait(""), Ok(Duration::ZERO));
        assert_eq!(read_wait("wait=30"), Ok(Duration::from_secs(30)));
        assert_eq!(
            faults(read_wait("wait=-1")),
            [r#"greater_than_equal ["query","wait"]"#]
        );
        assert_eq!(read_list(""), Ok(List::default()));
        assert_eq!(
            faults(read_list("usage=2&tenant=-&state=dead&limit=0")),
            [
                r#"bool_parsing ["query","usage"]"#,
                r#"string_pattern_mismatch ["query","tenant"]"#,
                r#"literal_error ["query","state"]"#,
                r#"greater_than_equal ["query","limit"]"#,
            ]
        );
    }
}
