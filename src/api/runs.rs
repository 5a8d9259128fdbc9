//! Reads what is asked of runs and passes it on.

use axum::body::Body;
use axum::http::{HeaderMap, Request, Response, StatusCode};

use crate::api::auth::SessionCaller;
use crate::api::body::{JsonText, Streamed};
use crate::api::command::{self, check_size};
use crate::api::edge::{request_id, stopping};
use crate::api::error::Failure;
use crate::api::output::{self, ByteRange, Encoding, Reader};
use crate::api::routes::{Captures, Param, ParamKind};
use crate::api::sessions::read_flag;
use crate::api::signals;
use crate::api::validate::{self, Fault, Form, Given};
use crate::api::{query, reply};
use crate::control::Refusal;
use crate::control::request::{
    AtEnd, Close, Follow, Input, Overflow, Position, Program, Run, Start, Streams, Which,
};
use crate::control::runs::Fresh;
use crate::id::{RequestId, RunId};

/// What of a run's output can be asked for.
const STREAMS: &[&str] = &["both", "stdout", "stderr"];
/// What can happen when a ring is full.
const OVERFLOWS: &[&str] = &["drop", "wait"];
/// Bytes of a reply to a run beside what the run wrote.
const REPLY_BYTES: usize = 512;

pub(super) const OUTPUT_QUERY: &[Param] = &[
    Param {
        name: "from",
        about: "Begins with this record; the first that is kept when left out",
        kind: ParamKind::Number(0, None),
    },
    Param {
        name: "follow",
        about: "Whether the reply goes on with the run, to its end",
        kind: ParamKind::Flag,
    },
    Param {
        name: "stream",
        about: "Only what was written there; bytes are those of stdout when left out",
        kind: ParamKind::OneOf(STREAMS),
    },
    Param {
        name: "offset",
        about: "Begins with this byte of one stream",
        kind: ParamKind::Number(0, None),
    },
];

pub(super) const STDIN_QUERY: &[Param] = &[Param {
    name: "close",
    about: "Whether the input of the run ends with this",
    kind: ParamKind::Flag,
}];

fn path_run_id(request: &Request<Body>) -> Result<RunId, Failure> {
    let captures = request.extensions().get::<Captures>();
    let text = captures.and_then(|captures| captures.get("run_id"));
    validate::path_run_id(text.unwrap_or_default())
}

fn query_of(request: &Request<Body>) -> &str {
    request.uri().query().unwrap_or_default()
}

pub(super) async fn run(
    caller: SessionCaller,
    request: Request<Body>,
) -> Result<Response<Body>, Failure> {
    let request_id = request_id(&request);
    let body = JsonText::read(request).await?;
    let run = caller.checked(read_run(&body, request_id)).await?;
    // It need not lie here while the program runs.
    drop(body);
    let ended = caller.control().run(caller.id(), run).await?;
    let about = REPLY_BYTES + ended.stdout.len() + ended.stderr.len();
    Ok(reply::long_json(&ended, about))
}

fn read_run(body: &JsonText, request_id: RequestId) -> Result<Run, Failure> {
    let mut form = Form::body(body.parse()?)?;
    let [argv, timeout, run_id, stdin] =
        form.fields(["argv", "timeout_seconds", "run_id", "stdin"]);
    let how = command::how_fields(&form);
    let argv = form.required(&argv, command::argv);
    let run_id = form.required(&run_id, |given| validate::run_id(given).map(Some));
    let timeout = form.optional(&timeout, validate::seconds);
    let stdin = form.optional(&stdin, validate::text);
    let stdin = stdin.map_or(Input::Closed, Input::Text);
    let options = command::options(&mut form, &how, stdin);
    form.finish()?;
    check_size(argv.iter().map(String::as_str), &options)?;
    Ok(Run {
        run_id: run_id.expect("the form was accepted"),
        argv,
        options,
        timeout,
        request_id,
    })
}

pub(super) async fn start(
    caller: SessionCaller,
    request: Request<Body>,
) -> Result<Response<Body>, Failure> {
    let request_id = request_id(&request);
    let body = JsonText::read(request).await?;
    let start = caller.checked(read_start(&body, request_id)).await?;
    drop(body);
    let begun = caller.control().start_run(caller.id(), start).await?;
    let mut answer = reply::json(&begun.run);
    *answer.status_mut() = match begun.fresh {
        Fresh::Yes => StatusCode::CREATED,
        Fresh::No => StatusCode::OK,
    };
    Ok(answer)
}

fn read_start(body: &JsonText, request_id: RequestId) -> Result<Start, Failure> {
    let mut form = Form::body(body.parse()?)?;
    let [argv, text, run_id, timeout, stdin, limit, merge, overflow] = form.fields([
        "argv",
        "command",
        "run_id",
        "timeout_seconds",
        "stdin",
        "output_limit",
        "merge",
        "overflow",
    ]);
    let how = command::how_fields(&form);
    if argv.is_given() && text.is_given() {
        form.refuse(&text, Fault::value("give either argv or command"));
    } else if !argv.is_given() && !text.is_given() {
        form.miss(&argv);
    }
    let program = match form.optional(&text, command::shell) {
        Some(text) => Program::Shell(text),
        None => Program::Argv(form.optional(&argv, command::argv).unwrap_or_default()),
    };
    let run_id = form.optional(&run_id, validate::run_id);
    let timeout = form.optional(&timeout, validate::seconds);
    let stdin = form.optional(&stdin, input).unwrap_or_default();
    let output_limit = form.optional(&limit, validate::positive);
    let streams = if form.or_default(&merge, validate::flag) {
        Streams::Merged
    } else {
        Streams::Split
    };
    let overflow = form.optional(&overflow, |given| validate::one_of(given, OVERFLOWS));
    let options = command::options(&mut form, &how, stdin);
    form.finish()?;
    match &program {
        Program::Argv(argv) => check_size(argv.iter().map(String::as_str), &options)?,
        Program::Shell(text) => check_size([text.as_str()], &options)?,
    }
    Ok(Start {
        run_id,
        program,
        options,
        timeout,
        output_limit,
        streams,
        overflow: match overflow.as_deref() {
            Some("wait") => Overflow::Wait,
            Some(_) | None => Overflow::Drop,
        },
        request_id,
    })
}

/// Reads the input of a run in the background: `true` to send it later, or a text.
fn input(given: &Given<'_>) -> Result<Input, Fault> {
    match given.truth() {
        Some(true) => Ok(Input::Open),
        Some(false) => Ok(Input::Closed),
        None => validate::text(given).map(Input::Text),
    }
}

pub(super) async fn list(caller: SessionCaller) -> Result<Response<Body>, Failure> {
    Ok(reply::json(&caller.control().runs(caller.id()).await?))
}

pub(super) async fn describe(
    caller: SessionCaller,
    request: Request<Body>,
) -> Result<Response<Body>, Failure> {
    let run = caller.checked(path_run_id(&request)).await?;
    let described = caller.control().describe_run(caller.id(), &run).await?;
    Ok(reply::json(&described))
}

pub(super) async fn forget(
    caller: SessionCaller,
    request: Request<Body>,
) -> Result<Response<Body>, Failure> {
    let run = caller.checked(path_run_id(&request)).await?;
    caller.control().forget_run(caller.id(), &run).await?;
    Ok(reply::no_content())
}

pub(super) async fn stop(
    caller: SessionCaller,
    request: Request<Body>,
) -> Result<Response<Body>, Failure> {
    let run = caller.checked(path_run_id(&request)).await?;
    caller.control().stop_run(caller.id(), &run).await?;
    Ok(reply::no_content())
}

pub(super) async fn signal(
    caller: SessionCaller,
    request: Request<Body>,
) -> Result<Response<Body>, Failure> {
    let run = caller.checked(path_run_id(&request)).await?;
    let body = JsonText::read(request).await?;
    let number = caller.checked(read_signal(&body)).await?;
    caller
        .control()
        .signal_run(caller.id(), &run, number)
        .await?;
    Ok(reply::no_content())
}

fn read_signal(body: &JsonText) -> Result<i32, Failure> {
    let mut form = Form::body(body.parse()?)?;
    let [signal] = form.fields(["signal"]);
    let number = form.required(&signal, signals::signal);
    form.finish()?;
    Ok(number)
}

/// Passes the body on as it comes, as fast as the run takes it; it is held nowhere.
pub(super) async fn stdin(
    caller: SessionCaller,
    request: Request<Body>,
) -> Result<Response<Body>, Failure> {
    let read =
        path_run_id(&request).and_then(|run| Ok((run, read_flag(query_of(&request), "close")?)));
    let (run, closes) = caller.checked(read).await?;
    let close = if closes { Close::Yes } else { Close::No };
    let stopping = stopping(&request);
    let mut pieces = Streamed::of(request);
    let fed = tokio::select! {
        biased;
        fed = feed(&caller, &run, &mut pieces, close) => fed,
        () = stopping.cancelled() => Err(Refusal::ShuttingDown.into()),
    };
    if let Err(failure) = fed {
        pieces.discard().await;
        return Err(failure);
    }
    Ok(reply::no_content())
}

async fn feed(
    caller: &SessionCaller,
    run: &RunId,
    pieces: &mut Streamed,
    close: Close,
) -> Result<(), Failure> {
    let (control, id) = (caller.control(), caller.id());
    let mut is_fed = false;
    while let Some(piece) = pieces.next().await? {
        control.feed_run(id, run, piece, Close::No).await?;
        is_fed = true;
    }
    // Without a byte there is still a run to be asked for, and its input to be ended.
    if close == Close::Yes || !is_fed {
        control
            .feed_run(id, run, bytes::Bytes::new(), close)
            .await?;
    }
    Ok(())
}

pub(super) async fn output(
    caller: SessionCaller,
    request: Request<Body>,
) -> Result<Response<Body>, Failure> {
    let read = path_run_id(&request)
        .and_then(|run| Ok((run, read_output(query_of(&request), request.headers())?)));
    let (run, wanted) = caller.checked(read).await?;
    let follower = caller
        .control()
        .follow_run(caller.id(), &run, wanted.follow)
        .await?;
    let next = match wanted.follow.from {
        Position::Offset(offset) => offset,
        Position::Seq(_) => 0,
    };
    let reader = Reader {
        encoding: wanted.encoding,
        bytes: ByteRange {
            of: wanted.follow.streams,
            next,
        },
        request_id: request_id(&request),
        stopping: stopping(&request),
    };
    output::answer(follower, reader).await
}

/// Which output is wanted, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wanted {
    encoding: Encoding,
    follow: Follow,
}

fn read_output(text: &str, headers: &HeaderMap) -> Result<Wanted, Failure> {
    let encoding = Encoding::accepted(headers);
    let mut form = Form::query();
    let [from, follow, stream, offset] =
        query::fields(text, ["from", "follow", "stream", "offset"]);
    let seq = form.optional(&from, |given| validate::at_least(given, 0));
    let at_end = if form.or_default(&follow, validate::flag) {
        AtEnd::Wait
    } else {
        AtEnd::Stop
    };
    let named = form.optional(&stream, |given| validate::one_of(given, STREAMS));
    let byte = form.optional(&offset, |given| validate::at_least(given, 0));
    let streams = match (named.as_deref(), encoding) {
        (Some("stdout"), _) | (None, Encoding::Bytes) => Which::Stdout,
        (Some("stderr"), _) => Which::Stderr,
        (Some(_) | None, _) => Which::Both,
    };
    match encoding {
        Encoding::Bytes => {
            if streams == Which::Both {
                form.refuse(&stream, Fault::value("bytes are those of one stream"));
            }
            if seq.is_some() {
                form.refuse(&from, Fault::value("bytes are counted by offset"));
            }
        }
        Encoding::Lines | Encoding::Events => {
            if byte.is_some() && streams == Which::Both {
                form.refuse(&offset, Fault::value("an offset is one of a single stream"));
            }
            if byte.is_some() && seq.is_some() {
                form.refuse(&offset, Fault::value("give either from or offset"));
            }
        }
    }
    form.finish()?;
    let from = match (resumed(encoding, headers), byte, encoding) {
        (Some(seq), _, _) => Position::Seq(seq),
        (None, Some(byte), _) => Position::Offset(byte),
        (None, None, Encoding::Bytes) => Position::Offset(0),
        (None, None, Encoding::Lines | Encoding::Events) => Position::Seq(seq.unwrap_or(0)),
    };
    let follow = Follow {
        from,
        streams,
        at_end,
    };
    Ok(Wanted { encoding, follow })
}

/// Returns the record after the last one that a reader of events had seen.
fn resumed(encoding: Encoding, headers: &HeaderMap) -> Option<u64> {
    if encoding != Encoding::Events {
        return None;
    }
    let last = headers.get("last-event-id")?.to_str().ok()?;
    last.trim().parse::<u64>().ok()?.checked_add(1)
}

#[cfg(test)]
mod tests;
