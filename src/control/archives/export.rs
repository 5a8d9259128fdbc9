//! Packs a workspace for a caller, as fast as the caller takes it.

use std::io::{self, Read as _};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{ARCHIVE_TIME_MAX, Format, on_disk};
use crate::cause::chain;
use crate::control::files::refusal::FileRefusal;
use crate::control::{Control, Refusal};
use crate::id::SessionId;
use crate::workspace::archive::{Export, ExportBounds};
use crate::workspace::search::{DEPTH_MAX, Patience, Reach};
use crate::workspace::{Dir, Workspaces};

/// Bytes of a piece.
const PIECE_BYTES: usize = 256 << 10;
/// Pieces that were packed and not yet taken.
const PIECES_MAX: usize = 2;
/// A caller that takes nothing for so long is given up.
const STALL_MAX: Duration = Duration::from_mins(2);
/// Entries of a workspace that are packed.
const ENTRIES_MAX: usize = 20_000_000;

/// An archive on its way. Dropped, its packing ends.
#[derive(Debug)]
pub struct Packed(mpsc::Receiver<io::Result<Bytes>>);

impl Packed {
    /// Makes one of pieces that come from elsewhere.
    pub(in crate::control) fn of(pieces: mpsc::Receiver<io::Result<Bytes>>) -> Self {
        Self(pieces)
    }

    /// Waits for the next piece; nothing after the end. An error means that what came
    /// before it is not the whole archive.
    pub async fn next(&mut self) -> Option<io::Result<Bytes>> {
        self.0.recv().await
    }
}

/// A workspace that is being packed.
struct Packing {
    id: SessionId,
    workspaces: Workspaces,
    dir: Dir,
    export: Export,
    cancel: CancellationToken,
    _turn: OwnedSemaphorePermit,
}

impl Control {
    /// Begins to pack a workspace, whether its session is open or not; wakes nothing.
    ///
    /// A workspace that is purged or replaced meanwhile ends it with an error, so that no
    /// part is taken for the whole.
    pub async fn export(&self, id: &SessionId, format: Format) -> Result<Packed, Refusal> {
        let workspaces = self.0.host.workspaces.clone();
        let workspaces = workspaces.ok_or(FileRefusal::NoWorkspaces)?;
        self.has_workspaces()?;
        let turn = self.archive_turn().await?;
        let cancel = CancellationToken::new();
        let clock = self.0.books.clock.clone();
        let until = clock.now().plus(ARCHIVE_TIME_MAX);
        let patience = Patience::new(clock, until, cancel.clone());
        let bounds = ExportBounds {
            reach: Reach {
                depth: DEPTH_MAX,
                entries: ENTRIES_MAX,
            },
            bytes: self.0.archives.bytes_max,
        };
        let session = id.clone();
        let begin = move || -> Result<Packing, FileRefusal> {
            let broken = |error: &dyn std::error::Error| FileRefusal::Broken(chain(error));
            let dir = workspaces.enter(&session).map_err(|error| broken(&error))?;
            let dir = dir.ok_or_else(|| FileRefusal::NoWorkspace(session.clone()))?;
            let export = Export::begin(&dir, format, bounds, patience);
            Ok(Packing {
                export: export.map_err(|error| broken(&error))?,
                id: session,
                workspaces,
                dir,
                cancel,
                _turn: turn,
            })
        };
        let packing = on_disk(begin).await?;
        let (sender, receiver) = mpsc::channel(PIECES_MAX);
        self.0.tasks.spawn(packing.run(sender));
        Ok(Packed(receiver))
    }
}

impl Packing {
    async fn run(mut self, sender: mpsc::Sender<io::Result<Bytes>>) {
        loop {
            let cancel = self.cancel.clone();
            let work = on_disk(move || {
                let piece = self.piece();
                (self, piece)
            });
            let mut work = std::pin::pin!(work);
            let piece;
            (self, piece) = tokio::select! {
                biased;
                done = &mut work => done,
                () = sender.closed() => {
                    cancel.cancel();
                    work.await
                }
            };
            let is_last = !matches!(&piece, Ok(piece) if !piece.is_empty());
            match &piece {
                Ok(piece) if piece.is_empty() => {
                    self.tell();
                    return;
                }
                Ok(_) => {}
                Err(_) if sender.is_closed() => return,
                Err(error) => {
                    let why = error.to_string();
                    warn!(session = %self.id, why, "an export was broken off");
                }
            }
            match timeout(STALL_MAX, sender.send(piece)).await {
                Ok(Ok(())) if !is_last => {}
                // The caller has gone, stands still, or was told that it failed.
                Ok(Ok(()) | Err(_)) | Err(_) => return,
            }
        }
    }

    /// Packs the next piece; an empty one at the end. Blocks.
    fn piece(&mut self) -> io::Result<Bytes> {
        let mut piece = vec![0; PIECE_BYTES];
        let mut n_bytes = 0;
        while let Some(room @ [_, ..]) = piece.get_mut(n_bytes..) {
            match self.export.read(room)? {
                0 => break,
                n_read => n_bytes += n_read,
            }
        }
        if n_bytes == 0 && !self.workspaces.is_still(&self.id, &self.dir) {
            let why = "the workspace was purged or replaced while it was packed";
            return Err(io::Error::other(why));
        }
        piece.truncate(n_bytes);
        Ok(piece.into())
    }

    fn tell(&self) {
        let exported = self.export.exported();
        let (files, bytes) = (exported.files, exported.bytes);
        let skipped = &exported.skipped;
        info!(session = %self.id, files, bytes, "exported");
        if let Some(first) = skipped.listed.first() {
            let path = String::from_utf8_lossy(&first.path);
            let n_listed = u64::try_from(skipped.listed.len()).unwrap_or(u64::MAX);
            let n_skipped = skipped.more.saturating_add(n_listed);
            warn!(session = %self.id, n_skipped, %path, why = %first.why, "an export left something out, or packed it while it changed");
        }
    }
}
