//! Sends files as they are read, whatever their size.
//!
//! What is in a workspace comes from one descriptor, which was opened beneath it: a file
//! that is replaced meanwhile is sent as it was, one that grows as far as it was announced,
//! and one that shrinks ends the sending with an error. What only the sandbox sees is read
//! whole first, and has the bounds of such a reading.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::super::errand::{Account, Reset};
use super::super::{Control, Refusal};
use super::asked::{Answer, Op};
use super::given::GivenPath;
use super::held::{EndsApart, Held};
use super::refusal::FileRefusal;
use super::words;
use crate::cause::chain;
use crate::clock::Timestamp;
use crate::id::{RequestId, SessionId};
use crate::wire::files::ResetTold;
use crate::workspace::{ContentDigest, FileError, Opened};

/// Bytes that are read and sent at a time.
const PIECE_BYTES_MAX: u64 = 256 << 10;

/// What is told of a file before it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFacts {
    /// Its bytes.
    pub bytes: u64,
    /// What tells this content from others, without quotes.
    pub etag: String,
    /// When its content was last changed, in seconds since 1970, where that is known.
    pub modified_secs: Option<i64>,
}

/// A file that is open and may be sent.
#[derive(Debug)]
pub struct Download {
    facts: FileFacts,
    source: Source,
    held: Held,
    /// Whose log says that it was sent: the session, and the path there.
    log: Option<(SessionId, String)>,
    began: Timestamp,
    /// The reset that the reply is to tell of.
    reset: ResetTold,
}

#[derive(Debug)]
enum Source {
    /// A file on the host.
    Host(Arc<EndsApart<Opened>>),
    /// The whole of a file that only the sandbox sees.
    Whole(Bytes),
}

impl Download {
    /// Returns what is told of the file.
    pub fn facts(&self) -> &FileFacts {
        &self.facts
    }

    /// Returns the reset that the reply is to tell of.
    pub fn reset(&self) -> &ResetTold {
        &self.reset
    }
}

impl Source {
    fn host(opened: Opened) -> (Self, FileFacts) {
        let facts = FileFacts {
            bytes: opened.meta.size,
            etag: opened.meta.etag(),
            modified_secs: Some(opened.meta.modified_secs),
        };
        (Self::Host(Arc::new(EndsApart::new(opened))), facts)
    }

    fn whole(bytes: Vec<u8>) -> (Self, FileFacts) {
        let facts = FileFacts {
            bytes: u64::try_from(bytes.len()).unwrap_or(u64::MAX),
            etag: ContentDigest::of(&bytes),
            modified_secs: None,
        };
        (Self::Whole(bytes.into()), facts)
    }
}

impl Control {
    /// Opens a file of a session for sending.
    ///
    /// One in the workspace wakes nothing; one that only the sandbox sees wakes it, and has
    /// at most `max_read_bytes`. The session counts as used until the sending ends.
    pub async fn download(&self, id: &SessionId, path: GivenPath) -> Result<Download, Refusal> {
        let began = self.0.books.clock.now();
        let seat = self.0.files.transfers.take(id)?;
        let deadline = Instant::now() + self.0.policy.get().limits.execute_timeout;
        let opened = self
            .on_spot(id, &path, deadline, |spot| spot.dir.open_file(&spot.at))
            .await?;
        let mut reset = None;
        let ((source, facts), held) = match opened {
            Ok((opened, lease)) => {
                let held = Held::session(seat, self, lease, id);
                (Source::host(opened), held)
            }
            Err(error) if error.is_for_the_sandbox() => {
                let bytes = self.fetch_whole(id, &path, &mut reset).await?;
                (Source::whole(bytes), Held::seat(seat))
            }
            Err(error) => return Err(unread(&error, path.lossy())),
        };
        Ok(Download {
            facts,
            source,
            held,
            log: Some((id.clone(), path.lossy().to_owned())),
            began,
            reset: reset.map(Reset::wire).unwrap_or_default(),
        })
    }

    /// Opens a file of a stored workspace for sending, whether its session is open or not.
    pub async fn stored_download(
        &self,
        id: &SessionId,
        path: GivenPath,
    ) -> Result<Download, Refusal> {
        let began = self.0.books.clock.now();
        let seat = self.0.files.transfers.take(id)?;
        let (source, facts) = Source::host(self.stored_file(id, path).await?);
        Ok(Download {
            facts,
            source,
            held: Held::seat(seat),
            log: None,
            began,
            reset: ResetTold::default(),
        })
    }

    /// Sends a range of a file, which lies within it.
    pub async fn send(
        &self,
        download: Download,
        range: Range<u64>,
        request_id: &RequestId,
    ) -> Sending {
        if let Some((id, target)) = download.log {
            let n_bytes = range.end.saturating_sub(range.start);
            let account = Account {
                op: "download",
                target,
                began: download.began,
                request_id: request_id.clone(),
            };
            let told = download.reset.incarnation;
            let entry = account.entry(true, format!("{n_bytes} bytes"), told);
            self.write_down(&id, entry).await;
        }
        Sending {
            room: Arc::clone(&self.0.files.room),
            source: download.source,
            unread: range,
            ahead: None,
            _held: download.held,
        }
    }

    /// Reads a whole file as the sandbox sees it.
    async fn fetch_whole(
        &self,
        id: &SessionId,
        path: &GivenPath,
        reset: &mut Option<Reset>,
    ) -> Result<Vec<u8>, Refusal> {
        let path = text_of(path)?;
        let trip = self.file_trip(id, Op::ReadBytes { path: path.clone() });
        let fetched = self.done_inside(&trip, reset).await?;
        fetched
            .map(Answer::into_bytes)
            .map_err(|error| match error {
                // Of what the sandbox refuses, its own words are all that is known.
                FileError::Io(error) => {
                    FileRefusal::Unreadable(format!("{path} cannot be read: {error}")).into()
                }
                error => unread(&error, &path),
            })
    }
}

/// A file on its way; dropped, it is read no further.
#[derive(Debug)]
pub struct Sending {
    room: Arc<Semaphore>,
    source: Source,
    /// What is not being read yet.
    unread: Range<u64>,
    /// The piece that comes next, read while the one before it is being sent.
    ahead: Option<JoinHandle<Result<Vec<u8>, FileError>>>,
    _held: Held,
}

impl Sending {
    /// Waits for the next piece; `None` after the last one.
    ///
    /// # Errors
    /// The file could not be read on, or has become shorter than it was.
    pub async fn next(&mut self) -> Result<Option<Bytes>, FileError> {
        let file = match &self.source {
            Source::Host(file) => Arc::clone(file),
            Source::Whole(bytes) => {
                let place = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
                let rest = place(self.unread.start)..place(self.unread.end);
                let piece = bytes.slice(rest);
                self.unread.start = self.unread.end;
                return Ok((!piece.is_empty()).then_some(piece));
            }
        };
        let reading = match self.ahead.take() {
            Some(reading) => reading,
            None if self.unread.is_empty() => return Ok(None),
            None => {
                let permit = Arc::clone(&self.room).acquire_owned().await;
                self.read(&file, permit.expect("the semaphore is never closed"))
            }
        };
        let piece = match reading.await {
            Ok(piece) => piece?,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        };
        // Where there is no room just now, it is read when it is wanted.
        if !self.unread.is_empty()
            && let Ok(permit) = Arc::clone(&self.room).try_acquire_owned()
        {
            self.ahead = Some(self.read(&file, permit));
        }
        Ok(Some(piece.into()))
    }

    /// Begins to read the next piece.
    fn read(
        &mut self,
        file: &Arc<EndsApart<Opened>>,
        permit: OwnedSemaphorePermit,
    ) -> JoinHandle<Result<Vec<u8>, FileError>> {
        let file = Arc::clone(file);
        let from = self.unread.start;
        let until = self.unread.end.min(from.saturating_add(PIECE_BYTES_MAX));
        self.unread.start = until;
        tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let mut piece = vec![0; usize::try_from(until - from).unwrap_or(0)];
            if file.chunks(from, until).fill(&mut piece)? < piece.len() {
                let shorter = std::io::Error::other("it became shorter while it was sent");
                return Err(shorter.into());
            }
            Ok(piece)
        })
    }
}

/// Returns the text of a path, which the sandbox is asked with.
pub(super) fn text_of(path: &GivenPath) -> Result<String, Refusal> {
    if path.is_text() {
        return Ok(path.lossy().to_owned());
    }
    let why = "only the sandbox can do it, and a path that is not UTF-8 cannot be handed to it";
    Err(FileRefusal::Handed(format!("{path}: {why}")).into())
}

/// Puts an error of a reading into the caller's words.
fn unread(error: &FileError, path: &str) -> Refusal {
    let refused = match error {
        FileError::NotFound | FileError::NotDirectory | FileError::NameTooLong => {
            FileRefusal::NoFile(path.to_owned())
        }
        FileError::IsDirectory => FileRefusal::Unreadable(format!(
            "{path} is a directory, and only files are sent. Name a file, or list it."
        )),
        FileError::TooLarge { bytes, limit } => FileRefusal::TooLarge(format!(
            "{}. Only files of the work directory are sent whatever their size.",
            words::over_limit(*bytes, *limit)
        )),
        FileError::Permission => FileRefusal::Unreadable(format!("{path} cannot be read: {error}")),
        other => FileRefusal::Broken(chain(other)),
    };
    refused.into()
}
