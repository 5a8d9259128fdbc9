//! Reads what is asked of terminals and passes it on.

use axum::body::Body;
use axum::http::{Request, Response};

use crate::api::auth::SessionCaller;
use crate::api::body::JsonText;
use crate::api::command::{self, check_size};
use crate::api::edge::request_id;
use crate::api::error::Failure;
use crate::api::reply;
use crate::api::routes::Captures;
use crate::api::socket::SIDE_MAX;
use crate::api::validate::{self, Fault, Form, Given};
use crate::control::request::{Input, OpenTty};
use crate::control::terminals::CELLS_MAX;
use crate::id::RequestId;

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

fn read_open(body: &JsonText, request_id: RequestId) -> Result<OpenTty, Failure> {
    let mut form = Form::body(body.parse()?)?;
    let [argv, cols, rows] = form.fields(["argv", "cols", "rows"]);
    let how = command::how_fields(&form);
    let argv = form.optional(&argv, command::argv);
    let wide = form.optional(&cols, side).unwrap_or(COLS);
    let high = form.optional(&rows, side).unwrap_or(ROWS);
    if CELLS_MAX < u32::from(wide) * u32::from(high) {
        let fault =
            format!("a terminal has at most {CELLS_MAX} characters, which are cols by rows");
        form.refuse(&cols, Fault::value(fault));
    }
    let options = command::options(&mut form, &how, Input::Open);
    form.finish()?;
    check_size(argv.iter().flatten().map(String::as_str), &options)?;
    Ok(OpenTty {
        argv,
        options,
        cols: wide,
        rows: high,
        request_id,
    })
}

/// Reads columns or rows.
fn side(given: &Given<'_>) -> Result<u16, Fault> {
    let most = u64::from(SIDE_MAX);
    validate::page(given, most).map(|n| u16::try_from(n).unwrap_or(SIDE_MAX))
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
            (r#"{"cols":1000,"rows":250}"#, 1000, 250),
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
        for (bad, at) in [
            (r#"{"cols":1000,"rows":251}"#, "cols"),
            (r#"{"cols":501,"rows":500}"#, "cols"),
        ] {
            let Err(Failure::Invalid(faults)) = read(bad).await else {
                panic!("{bad}");
            };
            assert_eq!(faults.len(), 1, "{faults:?}");
            assert_eq!(faults[0].loc, ["body", at]);
            assert!(faults[0].msg.contains("250000 characters"), "{faults:?}");
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
            r#"{"cwd":""}"#,
            r#"{"env":{"A=B":"c"}}"#,
            r#"{"env":{"":"c"}}"#,
            r#"{"user":"a b"}"#,
        ] {
            assert!(read(bad).await.is_err(), "{bad}");
        }
        let long = format!(r#"{{"argv":["{}"]}}"#, "x".repeat(131_072));
        assert!(read(&long).await.is_err(), "longer than the kernel takes");
        let half = "x".repeat(131_000);
        let large = format!(r#"{{"argv":["{half}","{half}","{half}","{half}","{half}"]}}"#);
        let refused = read(&large).await;
        assert!(matches!(refused, Err(Failure::CommandTooLarge { .. })));
    }
}
