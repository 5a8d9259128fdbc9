//! Terminals, and the tickets by which browsers reach them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Asks for a terminal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TtyRequest {
    /// The program and its arguments; a shell where `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argv: Option<Vec<String>>,
    /// Variables over those of the sandbox.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Where it begins; relative to the work directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Its user, where the runtime lets callers choose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Columns, 1 to 1,000; 80 where `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cols: Option<u16>,
    /// Rows, 1 to 1,000; 24 where `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u16>,
}

/// The answer of a request for a terminal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TtyCreated {
    /// Names the terminal.
    pub tty_id: String,
    /// Names its run.
    pub run_id: String,
}

/// A terminal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tty {
    /// Names the terminal.
    pub tty_id: String,
    /// Names its run.
    pub run_id: String,
    /// What runs in it, cut to 200 characters and `…`.
    pub target: String,
    /// Columns.
    pub cols: u16,
    /// Rows.
    pub rows: u16,
    /// Epoch seconds.
    pub started_at: f64,
    /// How many look at it, the writer included.
    pub viewers: u64,
    /// Whether somebody may write to it now.
    pub has_writer: bool,
}

/// The terminals of a session, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TtyList {
    /// The terminals.
    pub ttys: Vec<Tty>,
}

/// Lets a browser open one WebSocket of one session.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct TicketCreated {
    /// Goes into the query as `ticket`; good once.
    pub ticket: String,
    /// Epoch seconds.
    pub expires_at: f64,
}

impl std::fmt::Debug for TicketCreated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TicketCreated")
            .field("expires_at", &self.expires_at)
            .finish_non_exhaustive()
    }
}

/// A text frame of the server on a terminal's WebSocket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "type")]
pub enum ServerFrame {
    /// The present screen; the first frame, and again after the size changed or output
    /// was dropped that the client did not take in time.
    Screen {
        /// Columns.
        cols: u16,
        /// Rows.
        rows: u16,
        /// Escape sequences that paint it on a terminal of that size.
        data: String,
    },
    /// Whether the client writes: else its input and its sizes have no effect.
    Writer {
        /// Whether it does.
        you: bool,
    },
    /// The program ended; the server closes with 1000.
    Exit {
        /// The exit code, where it is known.
        exit_code: Option<i64>,
        /// As of a run.
        reason: String,
    },
}

/// A text frame of the client on a terminal's WebSocket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "type")]
pub enum ClientFrame {
    /// Changes the size.
    Resize {
        /// Columns, 1 to 1,000.
        cols: u16,
        /// Rows, 1 to 1,000.
        rows: u16,
    },
    /// Makes the client the writer in place of whoever is.
    Take,
}
