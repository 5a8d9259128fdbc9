//! Runs a process in a container whose input and output are one stream both ways.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::engine::Engine;
use super::error::Error;
use super::exec::{ExecBody, ExecCreated, Reads};
use super::frames::{Decoder, Frame, Stream};

/// Bytes that one read takes.
const READ_BYTES_MAX: usize = 64 << 10;

/// What became of a process that was to be joined.
#[derive(Debug)]
pub enum Joined {
    /// It is on its way, and this is its input and output.
    Now(Duplex),
    /// The container is stopped or paused, in the engine's words.
    NotRunning(String),
    /// There is no such container.
    Gone,
}

/// The standard input of a process to write to, and its standard output to read.
///
/// Dropping it ends its input, and stops nothing. What it writes to standard error is
/// dropped.
#[derive(Debug)]
pub struct Duplex {
    stream: TokioIo<Upgraded>,
    decoder: Decoder,
    /// What was read and not decoded.
    piece: Bytes,
    /// Output that was decoded and not taken.
    output: Bytes,
    buffer: Box<[u8]>,
}

impl Engine {
    /// Runs a process in a running container and joins its input and output.
    ///
    /// A program that cannot be started ends the stream at once.
    pub async fn exec_joined(&self, container: &str, body: &ExecBody) -> Result<Joined, Error> {
        let created = self.exec_create_reading(container, body, Reads::Stream);
        let exec = match created.await? {
            ExecCreated::New(exec) => exec,
            ExecCreated::NotRunning(words) => return Ok(Joined::NotRunning(words)),
            ExecCreated::Gone => return Ok(Joined::Gone),
        };
        let call = self.exec_start_call(&exec).both_ways();
        Ok(Joined::Now(Duplex {
            stream: TokioIo::new(self.turn(call).await?),
            decoder: Decoder::default(),
            piece: Bytes::new(),
            output: Bytes::new(),
            buffer: vec![0; READ_BYTES_MAX].into_boxed_slice(),
        }))
    }
}

impl AsyncRead for Duplex {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if !this.output.is_empty() {
                let length = this.output.len().min(into.remaining());
                into.put_slice(&this.output.split_to(length));
                return Poll::Ready(Ok(()));
            }
            match this.decoder.decode(&mut this.piece) {
                Ok(Some(Frame { stream, data })) => {
                    match stream {
                        Stream::Stdout => this.output = data,
                        Stream::Stderr => {}
                    }
                    continue;
                }
                Ok(None) => {}
                Err(bad) => return Poll::Ready(Err(io::Error::other(bad))),
            }
            let mut raw = ReadBuf::new(&mut this.buffer);
            ready!(Pin::new(&mut this.stream).poll_read(context, &mut raw))?;
            if raw.filled().is_empty() {
                return Poll::Ready(this.decoder.finish().map_err(io::Error::other));
            }
            this.piece = Bytes::copy_from_slice(raw.filled());
        }
    }
}

impl AsyncWrite for Duplex {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;
    use crate::docker::testing::{Answer, FakeEngine};

    const TURNED: &[u8] = b"HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n";

    fn body() -> ExecBody {
        ExecBody {
            argv: vec!["cat".to_owned()],
            ..ExecBody::default()
        }
    }

    /// Joins a process; the engine is gone once it is dropped.
    async fn joined(answer: Answer) -> (FakeEngine, Result<Joined, Error>) {
        let fake = FakeEngine::new(move |line| match line {
            "POST /v1.41/exec/e1/start" => answer.clone(),
            _ => Answer::new(201, r#"{"Id":"e1"}"#),
        });
        let joined = fake.client().exec_joined("c", &body()).await;
        (fake, joined)
    }

    #[tokio::test]
    async fn standard_output_is_read_without_its_frames_and_the_other_stream_is_dropped() {
        let turned: [&[u8]; 4] = [
            TURNED,
            b"\x02\0\0\0\0\0\0\x03err\x01\0\0\0\0\0",
            b"\0\x03hel\x01\0\0\0\0\0\0",
            b"\x02lo",
        ];
        let (_fake, joined) = joined(Answer::raw(turned)).await;
        let Joined::Now(mut duplex) = joined.unwrap() else {
            panic!("it is joined")
        };
        let mut text = String::new();
        duplex.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "hello");
    }

    #[tokio::test]
    async fn a_stream_that_ends_inside_a_frame_is_an_error() {
        let turned = [TURNED, b"\x01\0\0\0\0\0\0\x09cut"];
        let (_fake, joined) = joined(Answer::raw(turned)).await;
        let Joined::Now(mut duplex) = joined.unwrap() else {
            panic!("it is joined")
        };
        let mut text = String::new();
        assert!(duplex.read_to_string(&mut text).await.is_err());
    }

    #[tokio::test]
    async fn an_engine_that_does_not_turn_its_connection_is_refused() {
        let (_fake, joined) = joined(Answer::stream(["hello"])).await;
        let error = joined.unwrap_err();
        assert_eq!(error.call(), "start an exec");
    }
}
