//! Runs further processes in a container and follows their output.
//!
//! Three things about an exec are not as they look:
//!
//! - A program that cannot be started is no error of [`Engine::exec_start`]. The
//!   engine's words arrive as output, and the exec ends with pid 0.
//! - An orderly end of the output does not mean that the process ended: the engine
//!   may be going down. Only [`Engine::exec_inspect`] tells, and its `None` means
//!   that nobody will ever know.
//! - Dropping an [`ExecStream`] stops nothing.

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::body::{Body, parse};
use super::call::Call;
use super::engine::Engine;
use super::error::{Error, Kind};
use super::frames::{BadFrame, Decoder, Frame};
use super::path::Path;
use super::spec::Env;

/// What to run.
///
/// The engine writes the arguments into its event log, but not the environment:
/// secrets go there.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExecBody {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Environment over the container's.
    pub env: Env,
    /// Where it begins; the container's where `None`.
    pub working_dir: Option<String>,
    /// Its user; the container's where `None`.
    pub user: Option<String>,
}

/// Names an exec for a few minutes beyond its end.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(transparent)]
pub struct ExecId(String);

impl fmt::Display for ExecId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What became of the creation of an exec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecCreated {
    /// It can be started.
    New(ExecId),
    /// The container is stopped or paused, in the engine's words.
    NotRunning(String),
    /// There is no such container.
    Gone,
}

/// What the engine says of an exec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecState {
    /// Whether its process runs.
    pub running: bool,
    /// How it ended; an engine may tell a moment after the output ended.
    pub exit_code: Option<i64>,
    /// Its process on the host; `None` before the start, and for good when the
    /// program could not be started.
    pub pid: Option<u32>,
}

/// What the process of an exec reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reads {
    Nothing,
    /// What is written to its stream.
    Stream,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct CreatedBody {
    id: ExecId,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct StateBody {
    running: bool,
    exit_code: Option<i64>,
    #[serde(default)]
    pid: u32,
}

#[derive(Serialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "these are the engine's words"
)]
struct CreateBody<'a> {
    #[serde(rename = "AttachStdin", skip_serializing_if = "is_no")]
    attach_stdin: bool,
    #[serde(rename = "AttachStdout")]
    attach_stdout: bool,
    #[serde(rename = "AttachStderr")]
    attach_stderr: bool,
    #[serde(rename = "Cmd")]
    argv: &'a [String],
    #[serde(rename = "Env", skip_serializing_if = "Env::is_empty")]
    env: &'a Env,
    #[serde(rename = "WorkingDir", skip_serializing_if = "Option::is_none")]
    working_dir: Option<&'a str>,
    #[serde(rename = "User", skip_serializing_if = "Option::is_none")]
    user: Option<&'a str>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands on a reference"
)]
fn is_no(flag: &bool) -> bool {
    !flag
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct StartBody {
    detach: bool,
    tty: bool,
}

/// The output of an exec.
#[derive(Debug)]
pub struct ExecStream {
    body: Body,
    decoder: Decoder,
    piece: Bytes,
}

const FOLLOW: &str = "follow the output of an exec";

impl Engine {
    /// Prepares a process in a running container, which reads nothing.
    pub async fn exec_create(
        &self,
        container: &str,
        body: &ExecBody,
    ) -> Result<ExecCreated, Error> {
        self.exec_create_reading(container, body, Reads::Nothing)
            .await
    }

    /// Prepares a process in a running container.
    pub(super) async fn exec_create_reading(
        &self,
        container: &str,
        body: &ExecBody,
        reads: Reads,
    ) -> Result<ExecCreated, Error> {
        const NAME: &str = "create an exec";
        let path = Path::new(&["containers", container, "exec"]);
        let call = Call::post(NAME, path, self.deadlines().exec_create).json(&CreateBody {
            attach_stdin: reads == Reads::Stream,
            attach_stdout: true,
            attach_stderr: true,
            argv: &body.argv,
            env: &body.env,
            working_dir: body.working_dir.as_deref(),
            user: body.user.as_deref(),
        });
        match self.call(call).await {
            Ok(answer) => parse("a new exec", &answer.body)
                .map(|CreatedBody { id }| ExecCreated::New(id))
                .map_err(|kind| self.failure(NAME, kind)),
            Err(error) => match (error.status(), error.message()) {
                (Some(404), _) if error.is_missing() => Ok(ExecCreated::Gone),
                (Some(409), Some(words)) => Ok(ExecCreated::NotRunning(words.to_owned())),
                _ => Err(error),
            },
        }
    }

    /// Starts the process and follows its output.
    ///
    /// The deadline covers the time until output may begin; how long the output
    /// may last is up to the caller. A container that stopped in between is an
    /// error of status 409, one that was removed of status 404.
    pub async fn exec_start(&self, exec: &ExecId) -> Result<ExecStream, Error> {
        Ok(ExecStream {
            body: self.open(self.exec_start_call(exec)).await?,
            decoder: Decoder::default(),
            piece: Bytes::new(),
        })
    }

    pub(super) fn exec_start_call(&self, exec: &ExecId) -> Call {
        let path = Path::new(&["exec", &exec.0, "start"]);
        Call::post("start an exec", path, self.deadlines().exec_start).json(&StartBody {
            detach: false,
            tty: false,
        })
    }

    /// Looks at an exec; `None` means that the engine has forgotten it.
    pub async fn exec_inspect(&self, exec: &ExecId) -> Result<Option<ExecState>, Error> {
        const NAME: &str = "inspect an exec";
        let path = Path::new(&["exec", &exec.0, "json"]);
        match self
            .call(Call::get(NAME, path, self.deadlines().look))
            .await
        {
            Ok(answer) => ExecState::parse(&answer.body)
                .map(Some)
                .map_err(|kind| self.failure(NAME, kind)),
            Err(error) if error.is_missing() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl ExecState {
    fn parse(body: &[u8]) -> Result<Self, Kind> {
        let body: StateBody = parse("an exec", body)?;
        Ok(Self {
            running: body.running,
            // Some engines say 0 of a process that still runs.
            exit_code: body.exit_code.filter(|_| !body.running),
            pid: Some(body.pid).filter(|pid| 0 < *pid),
        })
    }
}

impl ExecStream {
    /// Waits for the next piece of output; `None` is its orderly end.
    ///
    /// Dropping the future loses nothing. The order between the two streams is
    /// the engine's, not the process's.
    pub async fn next(&mut self) -> Result<Option<Frame>, Error> {
        loop {
            match self.decoder.decode(&mut self.piece) {
                Ok(Some(frame)) => return Ok(Some(frame)),
                Ok(None) => {}
                Err(bad) => return Err(spoiled(bad)),
            }
            match self.body.piece().await {
                Ok(Some(piece)) => self.piece = piece,
                Ok(None) => return self.decoder.finish().map(|()| None).map_err(spoiled),
                Err(kind) => return Err(Error::new(FOLLOW, kind)),
            }
        }
    }
}

fn spoiled(bad: BadFrame) -> Error {
    let kind = match bad {
        BadFrame::Truncated => Kind::Truncated,
        BadFrame::UnknownStream(_) => Kind::malformed(bad.to_string()),
    };
    Error::new(FOLLOW, kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::docker::frames::Stream;
    use crate::docker::testing::{Answer, FakeEngine};

    fn id() -> ExecId {
        ExecId("e1".to_owned())
    }

    async fn output(answer: Answer) -> Result<Vec<(Stream, Vec<u8>)>, Error> {
        let fake = FakeEngine::new(move |_| answer.clone());
        let mut stream = fake.client().exec_start(&id()).await?;
        let mut seen = Vec::new();
        while let Some(frame) = stream.next().await? {
            seen.push((frame.stream, frame.data.to_vec()));
        }
        Ok(seen)
    }

    #[tokio::test]
    async fn an_exec_is_asked_for_without_a_terminal() {
        let fake = FakeEngine::new(|line| match line {
            "POST /v1.41/exec/e1/start" => Answer::stream(["\u{1}\0\0\0\0\0\0\u{2}hi"]),
            _ => Answer::new(201, r#"{"Id":"e1"}"#),
        });
        let engine = fake.client();
        let body = ExecBody {
            argv: vec!["sh".to_owned()],
            env: Env::from_iter([("A", "b")]),
            working_dir: Some("/w".to_owned()),
            user: None,
        };
        let created = engine.exec_create("c", &body).await.unwrap();
        assert_eq!(created, ExecCreated::New(id()));
        engine.exec_start(&id()).await.unwrap();
        let requests = fake.requests();
        assert_eq!(
            requests[1].body,
            r#"{"AttachStdout":true,"AttachStderr":true,"Cmd":["sh"],"Env":["A=b"],"WorkingDir":"/w"}"#
        );
        assert_eq!(requests[2].body, r#"{"Detach":false,"Tty":false}"#);
    }

    #[tokio::test]
    async fn a_container_that_cannot_take_an_exec_is_an_outcome() {
        let fake = FakeEngine::new(|_| Answer::new(409, r#"{"message":"Container c is paused"}"#));
        let body = ExecBody::default();
        let created = fake.client().exec_create("c", &body).await.unwrap();
        assert_eq!(
            created,
            ExecCreated::NotRunning("Container c is paused".to_owned())
        );
        let fake = FakeEngine::new(|_| Answer::new(404, r#"{"message":"No such container"}"#));
        let created = fake.client().exec_create("c", &body).await.unwrap();
        assert_eq!(created, ExecCreated::Gone);
    }

    #[tokio::test]
    async fn output_is_followed_to_the_end_of_the_connection() {
        let pieces = [
            &b"\x01\0\0"[..],
            b"\0\0\0\0\x03out\x02\0\0\0\0\0\0\x03e",
            b"rr",
        ];
        let joined = |seen: &[(Stream, Vec<u8>)], of| {
            let own = seen.iter().filter(|(stream, _)| *stream == of);
            own.flat_map(|(_, data)| data.clone()).collect::<Vec<u8>>()
        };
        for answer in [Answer::stream(pieces), Answer::chunked(pieces)] {
            let seen = output(answer).await.unwrap();
            assert_eq!(joined(&seen, Stream::Stdout), b"out");
            assert_eq!(joined(&seen, Stream::Stderr), b"err");
        }
        assert_eq!(output(Answer::stream([b""])).await.unwrap(), []);
    }

    #[tokio::test]
    async fn output_that_ends_inside_a_frame_is_not_taken_for_whole() {
        for cut in 1..11 {
            let whole = Answer::stream([b"\x01\0\0\0\0\0\0\x03out"]);
            let error = output(whole.cut(cut)).await.unwrap_err();
            assert!(matches!(error.kind(), Kind::Truncated), "{cut}: {error:?}");
        }
        let error = output(Answer::stream([b"raw text of a terminal"])).await;
        assert!(matches!(error.unwrap_err().kind(), Kind::Malformed { .. }));
        let error = output(Answer::chunked([b"\x01\0\0\0\0\0\0\x01x"]).cut(5)).await;
        assert!(matches!(error.unwrap_err().kind(), Kind::Closed { .. }));
    }

    #[tokio::test]
    async fn a_dropped_stream_closes_its_connection() {
        let mut fake = FakeEngine::new(|_| Answer::stream([b"\x01\0\0\0\0\0\0\x01x"]).and_hold());
        let mut stream = fake.client().exec_start(&id()).await.unwrap();
        assert_eq!(stream.next().await.unwrap().unwrap().data, "x");
        drop(stream);
        assert_eq!(fake.hung_up().await, "POST /v1.41/exec/e1/start");
    }

    #[tokio::test]
    async fn the_end_of_an_exec_is_known_only_once_it_runs_no_more() {
        let cases = [
            (
                r#"{"Running":true,"ExitCode":null,"Pid":7}"#,
                Some((true, None, Some(7))),
            ),
            (
                r#"{"Running":true,"ExitCode":0,"Pid":7}"#,
                Some((true, None, Some(7))),
            ),
            (
                r#"{"Running":false,"ExitCode":137,"Pid":7,"CanRemove":false}"#,
                Some((false, Some(137), Some(7))),
            ),
            (
                r#"{"Running":false,"ExitCode":126,"Pid":0}"#,
                Some((false, Some(126), None)),
            ),
        ];
        for (body, expected) in cases {
            let fake = FakeEngine::new(move |_| Answer::new(200, body));
            let state = fake.client().exec_inspect(&id()).await.unwrap();
            let seen = state.map(|state| (state.running, state.exit_code, state.pid));
            assert_eq!(seen, expected);
        }
        let fake = FakeEngine::new(|_| Answer::new(404, r#"{"message":"No such exec"}"#));
        assert_eq!(fake.client().exec_inspect(&id()).await.unwrap(), None);
    }
}
