//! Terminals: programs on a PTY, with one writer and many viewers.

use bytes::Bytes;

use super::request::OpenTty;
use super::{Control, Refusal};
use crate::id::SessionId;
use crate::wire;

/// What somebody who is attached to a terminal may do at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Write, if nobody else does.
    Write,
    /// Look.
    View,
}

/// Somebody who is attached to a terminal; dropping it detaches.
#[derive(Debug)]
pub struct Attached(());

/// What somebody who is attached is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// The present screen, as escape sequences that paint it; the first that is told,
    /// and again after output was dropped that was not read in time.
    Screen {
        /// Columns.
        cols: u16,
        /// Rows.
        rows: u16,
        /// Paints it on a terminal of that size.
        paint: Vec<u8>,
    },
    /// Output since then.
    Output(Bytes),
    /// Whether they are the writer now.
    Writer(bool),
    /// It ended; nothing follows.
    Exit {
        /// The exit code, where it is known.
        exit_code: Option<i64>,
        /// As for a run.
        reason: String,
    },
}

impl Attached {
    /// Waits for what is next; `None` after [`Told::Exit`].
    pub async fn next(&mut self) -> Option<Told> {
        std::future::ready(None).await
    }

    /// Types; without effect for one who is not the writer.
    pub async fn input(&mut self, bytes: Bytes) -> Result<(), Refusal> {
        let _ = bytes;
        std::future::ready(Ok(())).await
    }

    /// Changes the size; without effect for one who is not the writer.
    pub async fn resize(&mut self, cols: u16, rows: u16) -> Result<(), Refusal> {
        let _ = (cols, rows);
        std::future::ready(Ok(())).await
    }

    /// Becomes the writer in place of whoever is.
    pub fn take(&mut self) {}
}

impl Control {
    /// Opens a terminal.
    pub async fn open_tty(
        &self,
        id: &SessionId,
        open: OpenTty,
    ) -> Result<wire::ttys::TtyCreated, Refusal> {
        let _ = open;
        Err(stub(id).await)
    }

    /// Lists the terminals of a session.
    pub async fn ttys(&self, id: &SessionId) -> Result<wire::ttys::TtyList, Refusal> {
        Err(stub(id).await)
    }

    /// Ends a terminal.
    pub async fn close_tty(&self, id: &SessionId, tty: &str) -> Result<(), Refusal> {
        let _ = tty;
        Err(stub(id).await)
    }

    /// Attaches to a terminal.
    pub async fn attach_tty(
        &self,
        id: &SessionId,
        tty: &str,
        mode: Mode,
    ) -> Result<Attached, Refusal> {
        let _ = (tty, mode);
        Err(stub(id).await)
    }
}

async fn stub(id: &SessionId) -> Refusal {
    std::future::ready(Refusal::NeedsAgent("a terminal", id.clone())).await
}
