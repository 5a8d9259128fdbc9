//! Plays the agent at the other end of a stream, as a test has it.

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream};

use super::connection::{Connection, NoAgent};
use super::protocol::frame::{Decoder, Frame, Input};
use super::protocol::message::{
    AgentHello, Attended, Bounds, Cause, End, Fetch, Filter, From, Keep, Reply, Request, Run,
    Start, Stdin, Streams, Wait, What,
};
use super::protocol::output::{Output, Record, Stream};
use super::protocol::{VERSION, files};
use crate::id::SessionId;

/// The digest of every request in a test.
pub(crate) const DIGEST: &str = "d1";
/// A run.
pub(crate) const RUN: &str = "0123456789abcdef0123456789abcdef";

/// What the daemon was heard to say.
#[derive(Debug)]
pub(crate) enum Heard {
    Request(Request),
    Input(Input),
    End,
}

/// The agent's end of a stream.
#[derive(Debug)]
pub(crate) struct Scripted<S = DuplexStream> {
    pub(crate) stream: S,
    decoder: Decoder,
}

pub(crate) fn session(id: &str) -> SessionId {
    SessionId::parse(id).unwrap()
}

pub(crate) fn bounds() -> Bounds {
    Bounds {
        ring_bytes: 1 << 20,
        rings_bytes: 4 << 20,
        keep_ms: 60_000,
        runs: 8,
    }
}

pub(crate) fn hello() -> AgentHello {
    AgentHello {
        version: VERSION,
        life: "life1".to_owned(),
        uid: 0,
        files: files::VERSION,
    }
}

pub(crate) fn run(id: &str, end: Option<End>) -> Run {
    Run {
        run: id.to_owned(),
        digest: DIGEST.to_owned(),
        attended: Attended::Yes,
        size: None,
        age_ms: 1,
        stdout_bytes: 0,
        stderr_bytes: 0,
        first_seq: 0,
        next_seq: 0,
        truncated: false,
        end,
    }
}

pub(crate) fn exited(code: i32) -> End {
    End {
        cause: Cause::Exited,
        code: Some(code),
        signal: None,
        ran_ms: 1,
    }
}

pub(crate) fn start(id: &str) -> Start {
    Start {
        run: id.to_owned(),
        digest: DIGEST.to_owned(),
        what: What::Shell("true".to_owned()),
        env: std::collections::BTreeMap::new(),
        cwd: None,
        user: None,
        stdin: Stdin::Closed,
        streams: Streams::Merged,
        timeout_ms: None,
        output: Keep::First(100_000),
        attended: Attended::Yes,
    }
}

pub(crate) fn fetch(id: &str, from: u64) -> Fetch {
    Fetch {
        run: id.to_owned(),
        from: From::Seq(from),
        streams: Filter::Both,
        bytes: 64 << 10,
        wait: Wait::Some,
    }
}

pub(crate) fn record(seq: u64, offset: u64, bytes: &[u8]) -> Record {
    Record {
        seq,
        stream: Stream::Out,
        offset,
        bytes: bytes.to_vec().into(),
    }
}

/// Joins a connection to a scripted agent.
pub(crate) async fn joined(id: &str) -> (Connection, Scripted) {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let mut agent = Scripted::new(theirs);
    let id = session(id);
    let (opened, ()) = tokio::join!(
        Connection::open(ours, &id, bounds()),
        agent.introduce(hello())
    );
    (opened.unwrap(), agent)
}

/// What becomes of a stream on which the other side begins with these bytes.
pub(crate) async fn opened_with(bytes: &[u8]) -> Result<Connection, NoAgent> {
    let (ours, mut theirs) = tokio::io::duplex(1 << 21);
    theirs.write_all(bytes).await.unwrap();
    Connection::open(ours, &session("a"), bounds()).await
}

pub(crate) fn packed(frame: &Frame) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.put(&mut bytes).unwrap();
    bytes
}

pub(crate) fn replied(reply: &Reply) -> Vec<u8> {
    packed(&Frame::Message(serde_json::to_vec(reply).unwrap().into()))
}

impl<S: AsyncRead + AsyncWrite + Unpin> Scripted<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self {
            stream,
            decoder: Decoder::default(),
        }
    }

    /// Introduces itself and hears the daemon's introduction.
    pub(crate) async fn introduce(&mut self, hello: AgentHello) {
        self.reply(&Reply::Hello(hello)).await;
        match self.hear().await {
            Heard::Request(Request::Hello(hello)) => assert_eq!(hello.version, VERSION),
            other => panic!("{other:?}"),
        }
    }

    /// Waits for what the daemon says next.
    pub(crate) async fn hear(&mut self) -> Heard {
        let mut piece = [0; 4096];
        loop {
            match self.decoder.next().unwrap() {
                Some(Frame::Message(json)) => {
                    return Heard::Request(serde_json::from_slice(&json).unwrap());
                }
                Some(Frame::Input(input)) => return Heard::Input(input),
                Some(Frame::Output(_)) => panic!("the daemon has no output"),
                None => {}
            }
            match self.stream.read(&mut piece).await {
                Ok(0) | Err(_) => return Heard::End,
                Ok(length) => self.decoder.push(&piece[..length]),
            }
        }
    }

    pub(crate) async fn say(&mut self, bytes: &[u8]) {
        // The daemon may have gone.
        drop(self.stream.write_all(bytes).await);
        drop(self.stream.flush().await);
    }

    pub(crate) async fn reply(&mut self, reply: &Reply) {
        self.say(&replied(reply)).await;
    }

    pub(crate) async fn output(&mut self, output: &Output) {
        self.say(&packed(&Frame::Output(output.pack().into())))
            .await;
    }
}
