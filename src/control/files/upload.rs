//! Takes files in as they come, whatever their size, and puts them in their place whole.
//!
//! What goes into a workspace is written to a file without a name beside its place. It is
//! seen when it is whole, and what breaks off leaves nothing. What only the sandbox can
//! write is gathered first, within the bounds of such a writing.

use std::fmt;

use bytes::Bytes;
use tokio::time::{Instant, timeout_at};

use super::super::errand::{Account, Reset};
use super::super::{Control, Refusal};
use super::asked::Op;
use super::download::text_of;
use super::given::GivenPath;
use super::held::{EndsApart, Held};
use super::host::{SCAN_BYTES_MAX, replacing};
use super::refusal::FileRefusal;
use crate::cause::chain;
use crate::clock::Timestamp;
use crate::id::{Nonce, RequestId, SessionId};
use crate::wire::files::ResetTold;
use crate::workspace::{Arrival, ContentDigest, Draft, Expected, FileError, Replacing};

/// What an upload asks for.
#[derive(Debug)]
pub struct Put {
    /// Where the file goes.
    pub path: GivenPath,
    /// What has to be there before.
    pub expected: Expected,
    /// The request.
    pub request_id: RequestId,
}

/// What became of an upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uploaded {
    /// The absolute path.
    pub path: String,
    /// The bytes of the file.
    pub bytes: u64,
    /// The digits of their SHA-256.
    pub sha256: String,
    /// The tag of the file, where it is in a workspace.
    pub etag: Option<String>,
    /// Whether something was replaced; `None` where that is not known.
    pub arrival: Option<Arrival>,
    /// The reset that the reply is to tell of.
    pub reset: ResetTold,
}

/// A file on its way in; dropped, it leaves nothing.
pub struct Upload {
    control: Control,
    id: SessionId,
    opening: Option<Nonce>,
    put: Put,
    sink: Sink,
    n_bytes: u64,
    digest: ContentDigest,
    began: Timestamp,
    _held: Held,
}

enum Sink {
    /// A file on the host.
    Host(EndsApart<Draft>),
    /// The memory, up to so many bytes; the sandbox gets it when it is whole.
    Memory(Vec<u8>, u64),
    /// Where a piece is just being written, or could not be.
    Nowhere,
}

impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upload")
            .field("id", &self.id)
            .field("put", &self.put)
            .field("n_bytes", &self.n_bytes)
            .finish_non_exhaustive()
    }
}

impl Control {
    /// Returns the bytes that an upload may have.
    pub fn upload_max(&self) -> u64 {
        self.0.policy.get().limits.max_upload_bytes
    }

    /// Begins to take in a file of a session.
    ///
    /// One for the workspace wakes nothing; one that only the sandbox can write has at most
    /// `max_read_bytes`, and no conditions. The session counts as used meanwhile.
    pub async fn upload(&self, id: &SessionId, put: Put) -> Result<Upload, Refusal> {
        let began = self.0.books.clock.now();
        let policy = self.0.policy.get();
        let seat = self.0.files.transfers.take(id)?;
        let deadline = Instant::now() + policy.limits.execute_timeout;
        let drafted = if self.has_native_writes() {
            let (expected, bytes_max) = (put.expected.clone(), policy.limits.max_upload_bytes);
            self.on_spot(id, &put.path, deadline, move |spot| {
                let expected = spot.dir.known(&spot.at, expected, SCAN_BYTES_MAX)?;
                let how = Replacing {
                    expected,
                    ..replacing(&spot.dir, bytes_max)?
                };
                spot.dir.draft(&spot.at, how)
            })
            .await?
        } else {
            self.open_record(id)
                .ok_or_else(|| Refusal::NoSession(id.clone()))?;
            Err(FileError::Permission)
        };
        let (sink, held) = match drafted {
            Ok((draft, lease)) => {
                let held = Held::session(seat, self, lease, id);
                (Sink::Host(EndsApart::new(draft)), held)
            }
            Err(error) if is_for_the_sandbox(&error) => {
                text_of(&put.path)?;
                if put.expected != Expected::Anything {
                    let why = "only the sandbox can write there, and it knows no conditions";
                    return Err(FileRefusal::Handed(format!("{}: {why}", put.path)).into());
                }
                let bytes_max = policy.limits.max_read_bytes;
                (Sink::Memory(Vec::new(), bytes_max), Held::seat(seat))
            }
            Err(error) => return Err(unwritten(&error, put.path.lossy())),
        };
        Ok(Upload {
            control: self.clone(),
            opening: self.opening(id),
            id: id.clone(),
            put,
            sink,
            n_bytes: 0,
            digest: ContentDigest::default(),
            began,
            _held: held,
        })
    }
}

impl Upload {
    /// Returns how many bytes it may have.
    pub fn bytes_max(&self) -> u64 {
        match self.sink {
            Sink::Memory(_, bytes_max) => bytes_max,
            Sink::Host(_) | Sink::Nowhere => self.control.upload_max(),
        }
    }

    /// Returns how many bytes of it are held in memory.
    pub fn held_bytes(&self) -> usize {
        match &self.sink {
            Sink::Memory(bytes, _) => bytes.len(),
            Sink::Host(_) | Sink::Nowhere => 0,
        }
    }

    /// Writes the next piece.
    ///
    /// # Errors
    /// The file has too many bytes, or the disk is full. What was there is as it was.
    pub async fn append(&mut self, piece: Bytes) -> Result<(), Refusal> {
        self.n_bytes += u64::try_from(piece.len()).unwrap_or(u64::MAX);
        if matches!(self.sink, Sink::Host(_))
            && let Err(refusal) = self.control.would_fit(&self.id, self.n_bytes).await
        {
            self.sink = Sink::Nowhere;
            return Err(refusal);
        }
        let draft = match std::mem::replace(&mut self.sink, Sink::Nowhere) {
            Sink::Host(draft) => draft,
            Sink::Memory(mut bytes, bytes_max) => {
                if bytes_max < self.n_bytes {
                    return Err(self.too_large(bytes_max));
                }
                self.digest.add(&piece);
                bytes.extend_from_slice(&piece);
                self.sink = Sink::Memory(bytes, bytes_max);
                return Ok(());
            }
            Sink::Nowhere => return Err(Refusal::ShuttingDown),
        };
        let mut digest = std::mem::take(&mut self.digest);
        let work = tokio::task::spawn_blocking(move || {
            let mut draft = draft.into_inner();
            draft.append(&piece)?;
            digest.add(&piece);
            Ok((draft, digest))
        });
        let written: Result<_, FileError> = match work.await {
            Ok(written) => written,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        };
        let (draft, digest) = written.map_err(|error| self.unwritten(&error))?;
        (self.sink, self.digest) = (Sink::Host(EndsApart::new(draft)), digest);
        Ok(())
    }

    /// Puts the file in its place.
    pub async fn finish(mut self) -> Result<Uploaded, Refusal> {
        let sink = std::mem::replace(&mut self.sink, Sink::Nowhere);
        let done = self.place(sink).await;
        let (ok, detail, told) = match &done {
            Ok(done) => {
                let told = done.reset.incarnation;
                (true, format!("{} bytes", self.n_bytes), told)
            }
            Err(refusal) => (false, refusal.to_string(), None),
        };
        self.note(ok, detail, told).await;
        done
    }

    /// Writes down that the rest of it never came.
    pub async fn give_up(mut self, why: &str) {
        self.sink = Sink::Nowhere;
        self.note(false, why.to_owned(), None).await;
    }

    async fn note(&self, ok: bool, detail: String, told: Option<u64>) {
        let account = Account {
            op: "upload",
            target: self.put.path.lossy().to_owned(),
            began: self.began,
            request_id: self.put.request_id.clone(),
        };
        let entry = account.entry(ok, detail, told);
        self.control.write_down(&self.id, entry).await;
    }

    async fn place(&mut self, sink: Sink) -> Result<Uploaded, Refusal> {
        // It may have been closed, and another opened under its id, while this came in.
        if self.opening.is_none() || self.control.opening(&self.id) != self.opening {
            return Err(Refusal::NoSession(self.id.clone()));
        }
        let sha256 = std::mem::take(&mut self.digest).digits();
        let mut reset = None;
        let (etag, arrival) = match sink {
            Sink::Host(draft) => {
                let work = tokio::task::spawn_blocking(move || draft.into_inner().place());
                let placed = match work.await {
                    Ok(placed) => placed.map_err(|error| self.unwritten(&error))?,
                    Err(panic) => std::panic::resume_unwind(panic.into_panic()),
                };
                self.control.has_grown(&self.id, self.n_bytes);
                (Some(placed.meta.etag()), Some(placed.arrival))
            }
            Sink::Memory(bytes, _) => {
                self.hand_over(bytes, &mut reset).await?;
                (None, None)
            }
            Sink::Nowhere => return Err(Refusal::ShuttingDown),
        };
        let work_dir = &self.control.0.policy.get().interior.work_dir;
        Ok(Uploaded {
            path: super::host::absolute(work_dir, self.put.path.lossy()),
            bytes: self.n_bytes,
            sha256,
            etag,
            arrival,
            reset: reset.map(Reset::wire).unwrap_or_default(),
        })
    }

    /// Has the sandbox write what was gathered.
    async fn hand_over(&self, bytes: Vec<u8>, reset: &mut Option<Reset>) -> Result<(), Refusal> {
        let path = text_of(&self.put.path)?;
        let op = Op::Write {
            path: path.clone(),
            bytes,
        };
        let trip = self.control.file_trip(&self.id, op);
        let wait = self.control.done_inside(&trip, reset);
        let put = timeout_at(trip.deadline, Box::pin(wait)).await;
        let put = put.map_err(|_| trip.late())??;
        put.map(drop).map_err(|error| match error {
            FileError::Io(error) => {
                FileRefusal::Unwritable(format!("{path} cannot be written: {error}")).into()
            }
            error => unwritten(&error, &path),
        })
    }

    fn too_large(&self, limit: u64) -> Refusal {
        FileRefusal::TooLarge(format!(
            "The body is over the {limit} bytes that a file may have at {}",
            self.put.path
        ))
        .into()
    }

    fn unwritten(&self, error: &FileError) -> Refusal {
        match error {
            FileError::TooLarge { limit, .. } => self.too_large(*limit),
            error => unwritten(error, self.put.path.lossy()),
        }
    }
}

/// Returns whether the sandbox could write what the host cannot.
///
/// A directory that was moved while a file came in is told: the sandbox knows no better.
fn is_for_the_sandbox(error: &FileError) -> bool {
    match error {
        FileError::Moved | FileError::Busy | FileError::TooLarge { .. } => false,
        error => error.is_for_the_sandbox(),
    }
}

/// Puts an error of a writing into the caller's words.
fn unwritten(error: &FileError, path: &str) -> Refusal {
    let conflict = |why: &str| FileRefusal::Unwritable(format!("{path} cannot be written: {why}"));
    let refused = match error {
        FileError::NoSpace => return Refusal::NoSpace("the workspace".to_owned()),
        FileError::Changed => FileRefusal::Condition(path.to_owned()),
        FileError::IsDirectory => conflict("it is a directory"),
        FileError::NotDirectory => conflict("a file is in the way"),
        FileError::TooLarge { .. } => {
            conflict("its content is too large to be compared by a digest. Compare it by its ETag")
        }
        FileError::NameTooLong
        | FileError::NotFound
        | FileError::Permission
        | FileError::Moved
        | FileError::Busy
        | FileError::Link { .. }
        | FileError::Special { .. } => conflict(&error.to_string()),
        other => FileRefusal::Broken(chain(other)),
    };
    refused.into()
}
