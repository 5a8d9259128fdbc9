//! Reads what is asked of terminals and passes it on.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::http::{Request, Response};
use serde_json::json;

use crate::api::auth::SessionCaller;
use crate::api::body::JsonText;
use crate::api::edge::request_id;
use crate::api::error::Failure;
use crate::api::reply;
use crate::api::routes::Captures;
use crate::api::socket::SIDE_MAX;
use crate::api::validate::{self, Form};
use crate::control::request::{Input, OpenTty, Options};
use crate::id::RequestId;
use crate::wire::error::FieldError;

/// Columns where none are asked for.
const COLS: u16 = 80;
/// Rows where none are asked for.
const ROWS: u16 = 24;

pub(super) async fn open(
    caller: SessionCaller,
    request: Request<Body>,
) -> Result<Response<Body>, Failure> {
    let request_id = request_id(&request);
    let body = JsonText::read(request).await?;
    let open = caller.checked(read_open(&body, request_id)).await?;
    let created = caller.control().open_tty(caller.id(), open).await?;
    Ok(reply::json(&created))
}

/// What is run in a terminal and how, without its size, which is read as leniently as
/// other numbers are.
#[derive(serde::Deserialize)]
struct Asked {
    argv: Option<Vec<String>>,
    env: Option<BTreeMap<String, String>>,
    cwd: Option<String>,
    user: Option<String>,
}

fn read_open(body: &JsonText, request_id: RequestId) -> Result<OpenTty, Failure> {
    let mut form = Form::body(body.parse()?)?;
    let [cols, rows] = form.fields(["cols", "rows"]);
    let most = u64::from(SIDE_MAX);
    let cols = form.optional(&cols, |given| validate::page(given, most));
    let rows = form.optional(&rows, |given| validate::page(given, most));
    form.finish()?;
    let side = |given: Option<usize>, default| {
        given.and_then(|n| u16::try_from(n).ok()).unwrap_or(default)
    };
    let asked: Asked = serde_json::from_str(body.text()).map_err(|fault| {
        invalid(
            "argv is a list of texts, env holds texts by name, and cwd and user are texts",
            &fault.to_string(),
        )
    })?;
    if asked.argv.as_ref().is_some_and(Vec::is_empty) {
        return Err(invalid("argv names at least the program", ""));
    }
    let env = asked.env.unwrap_or_default();
    let texts = asked.argv.iter().flatten().chain(asked.cwd.iter());
    let texts = texts.chain(env.iter().flat_map(|(name, value)| [name, value]));
    if texts.into_iter().any(|text| text.contains('\0')) {
        return Err(invalid("no program can be given a NUL byte", ""));
    }
    Ok(OpenTty {
        argv: asked.argv,
        options: Options {
            env,
            cwd: asked.cwd,
            user: asked.user,
            stdin: Input::Open,
        },
        cols: side(cols, COLS),
        rows: side(rows, ROWS),
        request_id,
    })
}

fn invalid(expected: &str, fault: &str) -> Failure {
    Failure::Invalid(vec![FieldError {
        kind: "value_error".to_owned(),
        loc: vec![json!("body")],
        msg: format!("Value error, {expected}"),
        input: json!({}),
        ctx: Some(json!({ "error": fault })),
    }])
}

pub(super) async fn list(caller: SessionCaller) -> Result<Response<Body>, Failure> {
    let ttys = caller.control().ttys(caller.id()).await?;
    Ok(reply::json(&ttys))
}

pub(super) async fn close(
    caller: SessionCaller,
    request: Request<Body>,
) -> Result<Response<Body>, Failure> {
    let captures = request.extensions().get::<Captures>();
    let tty = captures.and_then(|captures| captures.get("tty_id"));
    let tty = tty.unwrap_or_default().to_owned();
    caller.control().close_tty(caller.id(), &tty).await?;
    Ok(reply::no_content())
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(text: &str) -> Result<OpenTty, Failure> {
        let request = Request::post("/")
            .body(Body::from(text.to_owned()))
            .unwrap();
        let body = JsonText::read(request).await.unwrap();
        read_open(&body, RequestId::parse("r").unwrap())
    }

    #[tokio::test]
    async fn a_terminal_has_the_size_that_was_asked_for_within_bounds() {
        for (text, cols, rows) in [
            ("{}", 80, 24),
            (r#"{"cols":1,"rows":1000}"#, 1, 1000),
            (r#"{"cols":null,"rows":"40"}"#, 80, 40),
        ] {
            let open = read(text).await.unwrap();
            assert_eq!((open.cols, open.rows), (cols, rows), "{text}");
        }
        for bad in ["0", "1001", "-1", "\"x\"", "1.5", "[]"] {
            assert!(
                read(&format!(r#"{{"cols":{bad}}}"#)).await.is_err(),
                "{bad}"
            );
        }
    }

    #[tokio::test]
    async fn a_terminal_runs_what_was_asked_for_as_it_was() {
        let open = read(r#"{"argv":["vi","-R"],"env":{"A":"b"},"cwd":"src","user":"0"}"#)
            .await
            .unwrap();
        assert_eq!(open.argv.unwrap(), ["vi", "-R"]);
        assert_eq!(open.options.env["A"], "b");
        assert_eq!(open.options.cwd.as_deref(), Some("src"));
        assert_eq!(open.options.user.as_deref(), Some("0"));
        assert_eq!(read("{}").await.unwrap().argv, None);
        for bad in [
            r#"{"argv":[]}"#,
            r#"{"argv":"sh"}"#,
            r#"{"argv":["a\u0000"]}"#,
            r#"{"env":{"A":1}}"#,
            r#"{"env":{"A":"\u0000"}}"#,
            r#"{"cwd":1}"#,
        ] {
            assert!(read(bad).await.is_err(), "{bad}");
        }
    }
}
