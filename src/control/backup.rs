//! Sends a backup of the store, as fast as its caller takes it.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tracing::{info, warn};

use super::archives::Packed;
use super::{Control, Refusal};
use crate::cause::chain;
use crate::session::record::Event;
use crate::store::{Batch, Lines};

/// Bytes from which a piece is sent.
const PIECE_BYTES: usize = 128 << 10;
/// Pieces that were made and not yet taken.
const PIECES_MAX: usize = 2;
/// A caller that takes nothing for so long is given up.
const STALL_MAX: Duration = Duration::from_mins(2);

/// Whether a backup holds the key that all session tokens are derived from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WithKey {
    /// It tells nobody a token.
    No,
    /// Whoever reads it can make every token.
    Yes,
}

impl Control {
    /// Begins a backup of the store as it is at this moment, and says so in the log.
    ///
    /// Everything that was answered before is in it, and nothing of what is committed
    /// after: it is of one commit, however long it takes to send.
    pub async fn backup(&self, key: WithKey) -> Result<Packed, Refusal> {
        let turn = self.archive_turn().await?;
        let books = &self.0.books;
        let snapshot = books.store.snapshot();
        let (commit, now) = (snapshot.commit(), books.clock.now());
        let (key, holds) = match key {
            WithKey::No => (None, "no"),
            WithKey::Yes => (Some(&self.0.keys.tokens), "yes"),
        };
        info!(commit, token_key = holds, "a backup is sent");
        let facts = [
            ("commit", commit.to_string()),
            ("token_key", holds.to_owned()),
        ];
        let event = Event {
            at: now,
            op: "backup".to_owned(),
            target: String::new(),
            ok: true,
            detail: "a backup was sent".to_owned(),
            duration_us: 0,
            request_id: None,
            facts: BTreeMap::from(facts.map(|(name, value)| (name.to_owned(), value))),
        };
        // A store that takes no writes is one to make a backup of.
        if let Err(error) = books
            .store
            .commit_soon(Batch::new().event(None, event))
            .await
        {
            warn!(error = %chain(&error), "the log does not tell of a backup");
        }
        let lines = snapshot.lines(now, key);
        let (sender, receiver) = mpsc::channel(PIECES_MAX);
        self.0.tasks.spawn(async move {
            send(lines, sender).await;
            drop(turn);
        });
        Ok(Packed::of(receiver))
    }
}

async fn send(mut lines: Lines, sender: mpsc::Sender<io::Result<Bytes>>) {
    loop {
        let mut piece = Vec::with_capacity(PIECE_BYTES);
        while piece.len() < PIECE_BYTES {
            let Some(line) = lines.next() else { break };
            piece.extend(line);
        }
        if piece.is_empty() {
            return;
        }
        match timeout(STALL_MAX, sender.send(Ok(piece.into()))).await {
            Ok(Ok(())) => {}
            // The caller has gone, or stands still.
            Ok(Err(_)) | Err(_) => return,
        }
    }
}
