//! Gives up on connections whose other end is too slow.
//!
//! A connection is waiting (no byte of the next request has come), heading (some
//! have), or busy (from the call of the service until the reply's body is dropped).
//! Waiting and heading have deadlines; hyper's own header timeout would not tell the
//! two apart. A busy connection is left alone, but not one whose reply stays unread.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// How long each state of a connection may last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// From the first byte of a request to the end of its headers.
    pub(super) heading: Duration,
    /// Between two requests.
    pub(super) waiting: Duration,
    /// While the other end takes nothing of what is written.
    pub(super) unread: Duration,
}

/// What a connection is doing, shared by its socket and its service.
#[derive(Debug, Default)]
pub(super) struct Pace {
    busy: AtomicBool,
    /// Requests begun.
    turns: AtomicU64,
}

impl Pace {
    /// Notes that a request is being answered, until the guard is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> Busy {
        self.turns.fetch_add(1, Ordering::Relaxed);
        self.busy.store(true, Ordering::Relaxed);
        Busy(Arc::clone(self))
    }
}

/// Keeps a connection busy.
#[derive(Debug)]
pub(super) struct Busy(Arc<Pace>);

impl Busy {
    /// Stays with a reply's body until it is sent.
    pub(super) fn with(self, body: Body) -> BusyBody {
        BusyBody { body, _busy: self }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.store(false, Ordering::Relaxed);
    }
}

/// The body of a reply, which keeps its connection busy.
#[derive(Debug)]
pub(super) struct BusyBody {
    body: Body,
    _busy: Busy,
}

impl HttpBody for BusyBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A timer that is touched only when it has to go off earlier, or has gone off.
#[derive(Debug, Default)]
struct Alarm(Option<Pin<Box<Sleep>>>);

impl Alarm {
    /// Fails once `due` is past.
    fn poll(&mut self, cx: &mut Context<'_>, due: Instant) -> io::Result<()> {
        let sleep = self.0.get_or_insert_with(|| Box::pin(sleep_until(due)));
        if due < sleep.deadline() {
            sleep.as_mut().reset(due);
        }
        while sleep.as_mut().poll(cx).is_ready() {
            if due <= Instant::now() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            sleep.as_mut().reset(due);
        }
        Ok(())
    }
}

/// A socket that fails when a deadline passes.
#[derive(Debug)]
pub(super) struct Paced<T> {
    socket: T,
    pace: Arc<Pace>,
    limits: Limits,
    /// The turn in which `heading` and `since` were set.
    turn: u64,
    /// Whether bytes of the next request have come; from the start on a new connection.
    heading: bool,
    /// Since when the connection is waiting or heading.
    since: Option<Instant>,
    unread_since: Option<Instant>,
    read_alarm: Alarm,
    write_alarm: Alarm,
}

impl<T> Paced<T> {
    /// Wraps a socket that was just accepted.
    pub(super) fn new(socket: T, pace: Arc<Pace>, limits: Limits) -> Self {
        Self {
            socket,
            pace,
            limits,
            turn: 0,
            heading: true,
            since: None,
            unread_since: None,
            read_alarm: Alarm::default(),
            write_alarm: Alarm::default(),
        }
    }

    /// Notes that bytes came while no request was being answered.
    fn came(&mut self) {
        if !self.heading {
            self.heading = true;
            self.since = None;
        }
    }

    /// Starts a new turn where a request was begun since the last look.
    fn catch_up(&mut self) {
        let turn = self.pace.turns.load(Ordering::Relaxed);
        if turn != self.turn {
            self.turn = turn;
            self.heading = false;
            self.since = None;
        }
    }

    fn read_in_time(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let limit = if self.heading {
            self.limits.heading
        } else {
            self.limits.waiting
        };
        let since = *self.since.get_or_insert_with(Instant::now);
        self.read_alarm.poll(cx, since + limit)
    }

    fn write_in_time<R>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        if written.is_ready() {
            self.unread_since = None;
            return written;
        }
        let since = *self.unread_since.get_or_insert_with(Instant::now);
        match self.write_alarm.poll(cx, since + self.limits.unread) {
            Ok(()) => Poll::Pending,
            Err(late) => Poll::Ready(Err(late)),
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Paced<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.socket).poll_read(cx, buf);
        self.catch_up();
        if self.pace.busy.load(Ordering::Relaxed) {
            return read;
        }
        if read.is_pending() {
            return match self.read_in_time(cx) {
                Ok(()) => Poll::Pending,
                Err(late) => Poll::Ready(Err(late)),
            };
        }
        if before < buf.filled().len() {
            self.came();
        }
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Paced<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(cx, buf);
        self.write_in_time(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(cx, bufs);
        self.write_in_time(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.socket).poll_flush(cx))?;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    use super::*;

    const LIMITS: Limits = Limits {
        heading: Duration::from_secs(10),
        waiting: Duration::from_mins(1),
        unread: Duration::from_secs(30),
    };

    fn paced() -> (DuplexStream, Paced<DuplexStream>, Arc<Pace>) {
        let (client, server) = duplex(8);
        let pace = Arc::new(Pace::default());
        let paced = Paced::new(server, Arc::clone(&pace), LIMITS);
        (client, paced, pace)
    }

    /// Reads until it fails, and tells after how many seconds that was.
    async fn secs_until_late(paced: &mut Paced<DuplexStream>) -> u64 {
        let began = Instant::now();
        let late = paced.read_u8().await.unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
        began.elapsed().as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_connection_has_the_time_of_a_header() {
        let (_client, mut paced, _) = paced();
        assert_eq!(secs_until_late(&mut paced).await, 10);
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_that_drip_do_not_put_off_the_deadline_of_a_header() {
        let (mut client, mut paced, _) = paced();
        let drip = async {
            for _ in 0..5 {
                tokio::time::sleep(Duration::from_secs(3)).await;
                client.write_all(b"G").await.unwrap();
            }
            std::future::pending::<()>().await;
        };
        let began = Instant::now();
        let read = async { while paced.read_u8().await.is_ok() {} };
        tokio::select! { () = drip => {}, () = read => {} }
        assert_eq!(began.elapsed().as_secs(), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_may_wait_longer_between_requests_than_within_a_header() {
        let (mut client, mut paced, pace) = paced();
        drop(pace.begin());
        assert_eq!(secs_until_late(&mut paced).await, 60);
        drop(pace.begin());
        client.write_all(b"G").await.unwrap();
        paced.read_u8().await.unwrap();
        assert_eq!(secs_until_late(&mut paced).await, 10);
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_connection_has_no_deadline() {
        let (_client, mut paced, pace) = paced();
        let busy = pace.begin();
        let hour = Duration::from_hours(1);
        assert!(tokio::time::timeout(hour, paced.read_u8()).await.is_err());
        drop(busy);
        assert_eq!(secs_until_late(&mut paced).await, 60);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reply_that_nobody_reads_is_given_up() {
        let (_client, mut paced, pace) = paced();
        let _busy = pace.begin();
        let began = Instant::now();
        let late = paced.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
        assert_eq!(began.elapsed().as_secs(), 30);
    }
}
