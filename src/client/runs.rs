//! The calls for runs, and their output as it comes.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::Method;
use hyper::body::Incoming;

use super::calls::{Call, Client, EXEC_SECS_MAX, HELD_REPLY_GRACE, Query, Sends};
use super::error::Error;
use crate::id::{RunId, SessionId};
use crate::wire::runs::{
    OutputLine, Run, RunList, RunRequest, RunResponse, SignalRequest, StartRunRequest,
};

/// Bytes read of the reply to a run: both streams at their ceiling, each byte of which may
/// be six in JSON.
pub const RUN_REPLY_BYTES_MAX: usize = 64 << 20;
/// Bytes of one line of output.
pub const LINE_BYTES_MAX: usize = 1 << 20;

/// Whether the input of a run ends with what is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CloseInput {
    /// More may follow.
    #[default]
    No,
    /// It ends.
    Yes,
}

/// Whether output goes on with the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FollowRun {
    /// What is there is all.
    #[default]
    No,
    /// Until the run ends.
    Yes,
}

/// Which streams of a run are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RunStream {
    /// Both.
    #[default]
    Both,
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl RunStream {
    /// Returns it as the wire has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Both => "both",
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// Which output is wanted; the default is all that is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputOptions {
    /// Begins with this record.
    pub from: u64,
    /// Whether it goes on with the run.
    pub follow: FollowRun,
    /// Of which streams.
    pub stream: RunStream,
}

impl Client {
    /// Runs a program and waits for its end; wakes the session where it sleeps.
    ///
    /// Dropping the future closes the connection, upon which the service stops the run.
    pub async fn run(&self, id: &SessionId, request: &RunRequest) -> Result<RunResponse, Error> {
        let ceiling = Duration::from_secs(EXEC_SECS_MAX);
        let allowed = request.timeout_seconds.map_or(ceiling, |secs| {
            Duration::try_from_secs_f64(secs).map_or(ceiling, |asked| asked.min(ceiling))
        });
        let mut call = self.post(format!("/sessions/{id}/run"), request);
        call.deadline = allowed.saturating_add(HELD_REPLY_GRACE);
        call.reply_bytes_max = RUN_REPLY_BYTES_MAX;
        self.json(call).await
    }

    /// Starts a program in the background, or finds the run of the same request.
    pub async fn start_run(&self, id: &SessionId, request: &StartRunRequest) -> Result<Run, Error> {
        self.json(self.post(format!("/sessions/{id}/runs"), request))
            .await
    }

    /// Lists the runs that were started in the background, the oldest first.
    pub async fn runs(&self, id: &SessionId) -> Result<RunList, Error> {
        self.json(self.get(format!("/sessions/{id}/runs"))).await
    }

    /// Describes a run.
    pub async fn describe_run(&self, id: &SessionId, run: &RunId) -> Result<Run, Error> {
        self.json(self.get(path(id, run, ""))).await
    }

    /// Forgets a run that is over, with its output.
    pub async fn forget_run(&self, id: &SessionId, run: &RunId) -> Result<(), Error> {
        self.delete(path(id, run, "")).await
    }

    /// Stops a run; succeeds where there is none.
    pub async fn stop_run(&self, id: &SessionId, run: &RunId) -> Result<(), Error> {
        let call = self.post_bytes(path(id, run, "/stop"), None);
        self.send(&call).await.map(drop)
    }

    /// Sends a signal, by its name or its number, to the processes of a run.
    pub async fn signal_run(&self, id: &SessionId, run: &RunId, signal: &str) -> Result<(), Error> {
        let signal = signal.to_owned();
        let call = self.post(path(id, run, "/signal"), &SignalRequest { signal });
        self.send(&call).await.map(drop)
    }

    /// Gives a run input and waits until it was taken, at most the client's deadline.
    ///
    /// Where that passes, some of it may have been taken.
    pub async fn feed_run(
        &self,
        id: &SessionId,
        run: &RunId,
        bytes: Bytes,
        close: CloseInput,
    ) -> Result<(), Error> {
        let mut query = Query::default();
        match close {
            CloseInput::No => {}
            CloseInput::Yes => query.add("close", Some("true")),
        }
        let call = self.post_bytes(query.after(&path(id, run, "/stdin")), Some(bytes));
        self.send(&call).await.map(drop)
    }

    /// Begins to read the output of a run.
    pub async fn output(
        &self,
        id: &SessionId,
        run: &RunId,
        options: OutputOptions,
    ) -> Result<OutputLines, Error> {
        let mut query = Query::default();
        query.add("from", Some(options.from).filter(|from| 0 < *from));
        match options.follow {
            FollowRun::No => {}
            FollowRun::Yes => query.add("follow", Some("true")),
        }
        match options.stream {
            RunStream::Both => {}
            one @ (RunStream::Stdout | RunStream::Stderr) => {
                query.add("stream", Some(one.as_str()));
            }
        }
        let call = self.get(query.after(&path(id, run, "/output")));
        let body = self.open_reply(&call).await?;
        Ok(OutputLines {
            body,
            ahead: BytesMut::new(),
            searched: 0,
            call: format!("{} {}", call.method, call.path),
            url: self.endpoint().to_string(),
        })
    }

    fn post_bytes(&self, path: String, body: Option<Bytes>) -> Call {
        Call {
            sends: match body {
                Some(bytes) => Sends::Bytes(bytes),
                None => Sends::Nothing,
            },
            method: Method::POST,
            ..self.get(path)
        }
    }
}

fn path(id: &SessionId, run: &RunId, rest: &str) -> String {
    format!("/sessions/{id}/runs/{run}{rest}")
}

/// The output of a run, line by line; dropping it ends the reading.
#[derive(Debug)]
pub struct OutputLines {
    body: Incoming,
    /// What came beyond the last line.
    ahead: BytesMut,
    /// Bytes of it that hold no line break.
    searched: usize,
    call: String,
    url: String,
}

impl OutputLines {
    /// Waits for the next line; `None` where the service ended the reply.
    ///
    /// Only after [`OutputLine::End`] everything was told. It waits for as long as the run
    /// says nothing.
    pub async fn next(&mut self) -> Result<Option<OutputLine>, Error> {
        loop {
            let fresh = self.ahead.iter().skip(self.searched);
            if let Some(at) = fresh.clone().position(|byte| *byte == b'\n') {
                let line = self.ahead.split_to(self.searched + at + 1);
                self.searched = 0;
                let read = serde_json::from_slice(&line);
                return read.map(Some).map_err(|source| Error::Malformed {
                    call: self.call.clone(),
                    source,
                });
            }
            self.searched = self.ahead.len();
            if LINE_BYTES_MAX < self.ahead.len() {
                return Err(Error::TooLarge {
                    bytes_max: LINE_BYTES_MAX,
                });
            }
            let Some(frame) = self.body.frame().await else {
                return Ok(None);
            };
            let frame = frame.map_err(|source| Error::Unreachable {
                url: self.url.clone(),
                source: Box::new(source),
            })?;
            if let Some(data) = frame.data_ref() {
                self.ahead.extend_from_slice(data);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Endpoint;
    use crate::client::scripted::{Reply, Scripted};

    const RUN: &str = "00000000000000000000000000000000";

    fn ids() -> (SessionId, RunId) {
        (SessionId::parse("a").unwrap(), RunId::parse(RUN).unwrap())
    }

    fn client(server: &Scripted) -> Client {
        Client::new(Endpoint::parse(&server.url).unwrap())
    }

    #[tokio::test]
    async fn every_call_goes_to_its_route() {
        let server = Scripted::serve([]).await;
        let client = client(&server);
        let (id, run) = ids();
        client.run(&id, &RunRequest::default()).await.unwrap_err();
        let start = StartRunRequest {
            command: Some("x".to_owned()),
            ..StartRunRequest::default()
        };
        client.start_run(&id, &start).await.unwrap_err();
        client.runs(&id).await.unwrap_err();
        client.describe_run(&id, &run).await.unwrap_err();
        client.forget_run(&id, &run).await.unwrap_err();
        client.stop_run(&id, &run).await.unwrap_err();
        client.signal_run(&id, &run, "TERM").await.unwrap_err();
        let bytes = Bytes::from_static(b"in");
        client
            .feed_run(&id, &run, bytes.clone(), CloseInput::No)
            .await
            .unwrap_err();
        client
            .feed_run(&id, &run, bytes, CloseInput::Yes)
            .await
            .unwrap_err();
        client
            .output(&id, &run, OutputOptions::default())
            .await
            .unwrap_err();
        let options = OutputOptions {
            from: 7,
            follow: FollowRun::Yes,
            stream: RunStream::Stderr,
        };
        client.output(&id, &run, options).await.unwrap_err();
        let under = |rest: &str| format!("/sessions/a/runs/{RUN}{rest}");
        assert_eq!(
            server.lines(),
            [
                "POST /sessions/a/run".to_owned(),
                "POST /sessions/a/runs".to_owned(),
                "GET /sessions/a/runs".to_owned(),
                format!("GET {}", under("")),
                format!("DELETE {}", under("")),
                format!("POST {}", under("/stop")),
                format!("POST {}", under("/signal")),
                format!("POST {}", under("/stdin")),
                format!("POST {}", under("/stdin?close=true")),
                format!("GET {}", under("/output")),
                format!("GET {}", under("/output?from=7&follow=true&stream=stderr")),
            ]
        );
        let seen = server.seen();
        assert_eq!(seen[1].body, r#"{"command":"x","merge":false}"#);
        assert_eq!(seen[6].body, r#"{"signal":"TERM"}"#);
        assert_eq!(seen[8].body, "in");
        assert_eq!(
            seen[8].header("content-type"),
            Some("application/octet-stream")
        );
    }

    #[tokio::test]
    async fn output_is_read_line_by_line_to_its_end() {
        let end = serde_json::to_string(&Run::default()).unwrap();
        let text = format!(
            "{}\n{}\n{{\"end\":{end}}}\n",
            r#"{"seq":0,"stream":"stdout","data":"a\nb"}"#, r#"{"gap":{"from":1,"to":3}}"#
        );
        let server = Scripted::serve([Reply::Answer(200, text)]).await;
        let (id, run) = ids();
        let client = client(&server);
        let mut lines = client
            .output(&id, &run, OutputOptions::default())
            .await
            .unwrap();
        let Some(OutputLine::Output(chunk)) = lines.next().await.unwrap() else {
            panic!("no output");
        };
        assert_eq!(chunk.data.as_deref(), Some("a\nb"));
        let gap = lines.next().await.unwrap();
        assert!(matches!(gap, Some(OutputLine::Gap { gap }) if (gap.from, gap.to) == (1, 3)));
        assert!(matches!(
            lines.next().await,
            Ok(Some(OutputLine::End { .. }))
        ));
        assert!(matches!(lines.next().await, Ok(None)));
    }

    #[tokio::test]
    async fn output_that_is_refused_or_endless_or_odd_is_an_error() {
        let server = Scripted::serve([
            Reply::refusal(404, "No such run"),
            Reply::Answer(200, "x".repeat(LINE_BYTES_MAX + 1)),
            Reply::Answer(200, "<html>\n".to_owned()),
        ])
        .await;
        let (id, run) = ids();
        let client = client(&server);
        let options = OutputOptions::default();
        let error = client.output(&id, &run, options).await.unwrap_err();
        assert_eq!((error.status(), error.code()), (Some(404), "not_found"));
        let mut lines = client.output(&id, &run, options).await.unwrap();
        assert!(matches!(lines.next().await, Err(Error::TooLarge { .. })));
        let mut lines = client.output(&id, &run, options).await.unwrap();
        assert!(matches!(lines.next().await, Err(Error::Malformed { .. })));
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_is_waited_for_ten_seconds_beyond_its_timeout() {
        let server = Scripted::serve([Reply::Hang]).await;
        let request = RunRequest {
            timeout_seconds: Some(2.5),
            ..RunRequest::default()
        };
        let error = client(&server).run(&ids().0, &request).await.unwrap_err();
        assert!(matches!(error, Error::Timeout { after } if after.as_millis() == 12_500));
    }
}
