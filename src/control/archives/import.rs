//! Unpacks an archive beside the workspaces, and puts it in place whole or not at all.

use std::io::{self, Cursor, Read};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::refusal::{broken, not_placed, not_unpacked};
use super::{ARCHIVE_TIME_MAX, ArchiveRefusal, Format, on_disk};
use crate::cause::chain;
use crate::control::disk::refuse;
use crate::control::files::refusal::FileRefusal;
use crate::control::open::wanted;
use crate::control::refusal::Attempt;
use crate::control::request::{Attach, Open};
use crate::control::{Control, Refusal, unwritten};
use crate::id::{Nonce, RequestId, SessionId, Tenant};
use crate::reconcile::Rival;
use crate::session::Fact;
use crate::session::blueprint::{predecessor_name, user};
use crate::session::disk::over;
use crate::session::record::{Marks, Purge, Reason, Record, Spec};
use crate::store::{Batch, Expect};
use crate::wire::files::SkippedPath;
use crate::wire::workspaces::ImportResponse;
use crate::workspace::archive::{ImportBounds, Imported, import};
use crate::workspace::search::{DEPTH_MAX, Patience, Reach, usage};
use crate::workspace::{Incoming, Life, OldFiles, Owner, Sidecar, WorkspaceError, Workspaces};

/// Headers of an archive: its members, and notes on them.
const ENTRIES_MAX: u64 = 1_000_000;
/// Bytes expanded for each one sent, beyond the first 64 MiB.
const RATIO_MAX: u64 = 1_000;
/// What an archive may have beyond the ceiling of its workspace: its headers take room in
/// it, and none on the disk.
const HEADERS_BYTES_MAX: u64 = 1 << 30;
/// Pieces of the body that wait to be unpacked.
const PARTS_MAX: usize = 4;

/// What is asked of an import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// How the archive is written; found out where `None`.
    pub format: Option<Format>,
    /// What becomes of files that are there.
    pub old: OldFiles,
    /// The alias for an id that is not known yet; `None` takes the default.
    pub runtime: Option<String>,
    /// The tenant for an id that is not known yet.
    pub tenant: Option<Tenant>,
    /// The request that asks.
    pub request_id: RequestId,
}

/// A part of an archive that is being received.
#[derive(Clone, Debug)]
pub enum Part {
    /// Bytes.
    Bytes(Bytes),
    /// There are no more. Without it the archive is not whole.
    End,
}

/// An import under way. It fails where its sender goes before the end; from then on it
/// goes on whatever becomes of this.
#[derive(Debug)]
pub struct Importing {
    parts: mpsc::Sender<Part>,
    outcome: JoinHandle<Result<ImportResponse, Refusal>>,
}

impl Importing {
    /// Hands on a part; false where no more are taken.
    pub async fn send(&self, part: Part) -> bool {
        self.parts.send(part).await.is_ok()
    }

    /// Waits for what becomes of it.
    pub async fn outcome(self) -> Result<ImportResponse, Refusal> {
        drop(self.parts);
        match self.outcome.await {
            Ok(outcome) => outcome,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }
}

/// What an import goes by.
struct Ground {
    id: SessionId,
    import: Import,
    workspaces: Workspaces,
    owner: Option<Owner>,
    limit: Option<u64>,
    place: Place,
    _turn: OwnedSemaphorePermit,
}

/// Whether something is where the files go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    New,
    /// A workspace, perhaps an empty one.
    Taken,
}

impl Control {
    /// Begins to take an archive into the workspace of an id that is new or closed.
    pub async fn import(&self, id: &SessionId, import: Import) -> Result<Importing, Refusal> {
        let workspaces = self.0.host.workspaces.clone();
        let workspaces = workspaces.ok_or(FileRefusal::NoWorkspaces)?;
        self.has_workspaces()?;
        self.knows_containers()?;
        let spec = match self.closed_record(id)? {
            Some(record) => record.spec,
            None => self.new_spec(id, &import)?,
        };
        let looked = (workspaces.clone(), id.clone());
        let look = move || {
            let (workspaces, id) = looked;
            Ok((workspaces.owner(&id)?, workspaces.is_unused(&id)?))
        };
        let looked: Result<_, WorkspaceError> = on_disk(look).await;
        let (there, is_empty) = looked.map_err(|error| broken(&error))?;
        // Looked at again in the end; it is told now so that nothing is sent in vain.
        if there.is_some() && !is_empty && import.old == OldFiles::Refuse {
            return Err(ArchiveRefusal::NotEmpty(id.clone()).into());
        }
        let place = there.map_or(Place::New, |_| Place::Taken);
        let owner = there.or_else(|| {
            let user = user(&spec, &self.0.policy.get());
            user.map(|uid| Owner { uid, gid: uid })
        });
        self.has_no_rival(id, place).await?;
        let ground = Ground {
            id: id.clone(),
            import,
            workspaces,
            owner,
            limit: self.workspace_limit(Some(&spec.runtime)),
            place,
            _turn: self.archive_turn().await?,
        };
        let (parts, receiver) = mpsc::channel(PARTS_MAX);
        let control = self.clone();
        let work = async move { Box::pin(control.take_in(ground, receiver)).await };
        Ok(Importing {
            parts,
            outcome: self.0.tasks.spawn(work),
        })
    }

    /// Returns the record of an id whose session is over, if it has one.
    fn closed_record(&self, id: &SessionId) -> Result<Option<Record>, Refusal> {
        let Some(record) = self.0.books.store.record(id) else {
            return Ok(None);
        };
        match &record.marks.closed {
            None => Err(ArchiveRefusal::StillOpen(id.clone()).into()),
            Some(closed)
                if closed.purge == Purge::Yes || !self.status(id).has_reached(&record.marks) =>
            {
                Err(ArchiveRefusal::InUse(id.clone()).into())
            }
            Some(_) => Ok(Some((*record).clone())),
        }
    }

    /// Refuses to put anything in the place of files that a container of the predecessor
    /// works on: it would go on with those that are removed.
    async fn has_no_rival(&self, id: &SessionId, place: Place) -> Result<(), Refusal> {
        match place {
            Place::New => return Ok(()),
            Place::Taken => {}
        }
        match self.0.host.rival(id).await {
            Ok(Rival::None) => Ok(()),
            Ok(Rival::Running) => Err(ArchiveRefusal::Rival(predecessor_name(id)).into()),
            Err(error) => Err(Refusal::EngineUnavailable(chain(&error))),
        }
    }

    fn new_spec(&self, id: &SessionId, import: &Import) -> Result<Spec, Refusal> {
        let asked = Open {
            id: Some(id.clone()),
            runtime: import.runtime.clone(),
            tenant: import.tenant.clone(),
            attach: Attach::Never,
        };
        let wanted = wanted(&self.0.policy.get(), &asked)?;
        Ok(Spec {
            id: id.clone(),
            alias: wanted.alias,
            runtime: wanted.runtime,
            tenant: wanted.tenant,
            nonce: Nonce::random(),
            opened_at: self.0.books.clock.now(),
            order: self.0.books.store.next_order(),
        })
    }

    async fn take_in(
        &self,
        ground: Ground,
        parts: mpsc::Receiver<Part>,
    ) -> Result<ImportResponse, Refusal> {
        let clock = self.0.books.clock.clone();
        let until = clock.now().plus(ARCHIVE_TIME_MAX);
        let patience = Patience::new(clock, until, CancellationToken::new());
        let bytes_max = self.0.archives.bytes_max;
        let unpack = move || {
            let made = ground.workspaces.incoming(ground.owner);
            let incoming = made.map_err(|error| broken(&error))?;
            match ground.unpack(&incoming, parts, (bytes_max, &patience)) {
                Ok(imported) => Ok((ground, incoming, imported)),
                Err(refusal) => {
                    discard(&ground.id, incoming);
                    Err(refusal)
                }
            }
        };
        let (ground, incoming, imported) = on_disk(unpack).await?;
        self.place(&ground, incoming).await?;
        let id = ground.id;
        info!(session = %id, files = imported.files, bytes = imported.bytes, "imported");
        Ok(told(&id, imported))
    }

    /// Puts what was unpacked in the place of the workspace, and on record.
    async fn place(&self, ground: &Ground, incoming: Incoming) -> Result<(), Refusal> {
        let id = &ground.id;
        let unused = |incoming: Incoming| {
            let id = id.clone();
            on_disk(move || discard(&id, incoming))
        };
        // Nobody opens, removes or stops anything of this id meanwhile.
        let Some(exclusive) = self.0.loop_.leases.try_exclusive(id) else {
            unused(incoming).await;
            return Err(ArchiveRefusal::InUse(id.clone()).into());
        };
        let looked = match self.has_no_rival(id, ground.place).await {
            Ok(()) => self.what_is_imported(ground),
            Err(refusal) => Err(refusal),
        };
        let (spec, new) = match looked {
            Ok(looked) => looked,
            Err(refusal) => {
                unused(incoming).await;
                return Err(refusal);
            }
        };
        let sidecar = new.as_ref().map(|(_, sidecar)| sidecar.clone());
        let (session, old) = (id.clone(), ground.import.old);
        let place = move || {
            let placed = incoming.take_place(&session, sidecar.as_ref(), old);
            if placed.is_err() {
                discard(&session, incoming);
            }
            placed
        };
        let placed = on_disk(place).await;
        let remains = placed.map_err(|error| not_placed(id, &error))?;
        if !remains.is_empty() {
            warn!(session = %id, %remains, "what an import replaced is partly in the trash still");
        }
        self.0.disks.forget(id);
        let marks = new.map(|(marks, _)| marks);
        let noted = self
            .note_imported(spec, marks, &ground.import.request_id)
            .await;
        drop(exclusive);
        self.0.loop_.leases.touch(id);
        self.0.loop_.work.nudge_session(id);
        noted
    }

    /// Returns what the files are for, and what is new about it where there is no record:
    /// that of a session that was opened and closed.
    fn what_is_imported(
        &self,
        ground: &Ground,
    ) -> Result<(Spec, Option<(Marks, Sidecar)>), Refusal> {
        if let Some(record) = self.closed_record(&ground.id)? {
            return Ok((record.spec, None));
        }
        let spec = self.new_spec(&ground.id, &ground.import)?;
        let now = self.0.books.clock.now();
        let marks = Marks::opened(0, now).closed(now, Purge::No, Reason::Requested);
        let sidecar = sidecar_of(&spec, &marks);
        Ok((spec, Some((marks, sidecar))))
    }

    async fn note_imported(
        &self,
        spec: Spec,
        new: Option<Marks>,
        request_id: &RequestId,
    ) -> Result<(), Refusal> {
        let id = spec.id.clone();
        let mut event = Fact::Imported.event(self.0.books.clock.now(), &spec, None);
        event.request_id = Some(request_id.to_string());
        let mut batch = Batch::new().event(None, event);
        if let Some(marks) = new {
            batch = batch.put_record(Record { spec, marks }, Expect::Absent);
        }
        match self.0.books.store.commit(batch).await {
            Ok(_) => Ok(()),
            Err(error) => {
                warn!(session = %id, error = %chain(&error), "an import is in place and not on record");
                Err(unwritten(&error))
            }
        }
    }
}

impl Ground {
    /// Unpacks the archive, and holds what came of it to the ceiling. Blocks.
    fn unpack(
        &self,
        incoming: &Incoming,
        parts: mpsc::Receiver<Part>,
        (bytes_max, patience): (u64, &Patience),
    ) -> Result<Imported, Refusal> {
        let most = self
            .limit
            .map(|limit| limit.saturating_add(HEADERS_BYTES_MAX));
        let bytes = most.map_or(bytes_max, |most| most.min(bytes_max));
        let bounds = ImportBounds {
            entries: ENTRIES_MAX,
            bytes,
            sent_bytes: bytes,
            ratio: RATIO_MAX,
        };
        let mut source = Parts {
            receiver: parts,
            rest: Bytes::new(),
            has_ended: false,
        };
        let unsent = |_| Refusal::from(ArchiveRefusal::BrokenOff);
        let mut head = Vec::new();
        source
            .by_ref()
            .take(MAGIC_BYTES)
            .read_to_end(&mut head)
            .map_err(unsent)?;
        let format = self.import.format.unwrap_or_else(|| format_of(&head));
        let source = Cursor::new(head).chain(source);
        let into = (incoming.dir(), self.owner);
        let imported = import(source, format, into, &bounds, patience);
        let imported = imported.map_err(|error| not_unpacked(&error))?;
        let reach = Reach {
            depth: DEPTH_MAX,
            entries: usize::MAX,
        };
        let measured = usage(incoming.dir(), reach, patience);
        let (found, ..) =
            measured.map_err(|error| Refusal::from(FileRefusal::Broken(chain(&error))))?;
        refuse(
            &self.id,
            over(self.limit, found.disk_bytes, 0),
            Attempt::Import,
        )?;
        Ok(imported)
    }
}

/// Bytes by which a compressed archive is known.
const MAGIC_BYTES: u64 = 4;

/// Tells a compressed archive from a plain one by its first bytes.
fn format_of(head: &[u8]) -> Format {
    match head {
        [0x28, 0xb5, 0x2f, 0xfd] | [0x50..=0x5f, 0x2a, 0x4d, 0x18] => Format::TarZst,
        _ => Format::Tar,
    }
}

/// Reads the parts as they come. Blocks.
struct Parts {
    receiver: mpsc::Receiver<Part>,
    rest: Bytes,
    has_ended: bool,
}

impl Read for Parts {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        while self.rest.is_empty() && !self.has_ended {
            match self.receiver.blocking_recv() {
                Some(Part::Bytes(bytes)) => self.rest = bytes,
                Some(Part::End) => self.has_ended = true,
                None => return Err(io::ErrorKind::ConnectionAborted.into()),
            }
        }
        let n_bytes = self.rest.len().min(buffer.len());
        let part = self.rest.split_to(n_bytes);
        for (to, from) in buffer.iter_mut().zip(part) {
            *to = from;
        }
        Ok(n_bytes)
    }
}

fn discard(id: &SessionId, incoming: Incoming) {
    match incoming.discard() {
        Ok(remains) if remains.is_empty() => {}
        Ok(remains) => {
            warn!(session = %id, %remains, "what was left of a refused archive is partly in the trash still");
        }
        Err(error) => {
            warn!(session = %id, error = %chain(&error), "what was left of a refused archive could not be removed");
        }
    }
}

fn sidecar_of(spec: &Spec, marks: &Marks) -> Sidecar {
    Sidecar {
        id: spec.id.clone(),
        runtime: spec.alias.clone(),
        tenant: spec.tenant.clone(),
        nonce: spec.nonce.clone(),
        opened_at: Some(spec.opened_at),
        order: Some(spec.order),
        life: marks
            .closed
            .as_ref()
            .map_or(Life::Open, |closed| Life::ClosedAt(closed.at)),
    }
}

fn told(id: &SessionId, imported: Imported) -> ImportResponse {
    let listed = imported.skipped.listed;
    let n_listed = u64::try_from(listed.len()).unwrap_or(u64::MAX);
    ImportResponse {
        session_id: id.to_string(),
        files: imported.files,
        directories: imported.directories,
        links: imported.links,
        bytes: imported.bytes,
        n_skipped: imported.skipped.more.saturating_add(n_listed),
        skipped: listed
            .into_iter()
            .map(|left| SkippedPath {
                path: String::from_utf8_lossy(&left.path).into_owned(),
                reason: left.why.to_string(),
            })
            .collect(),
    }
}
