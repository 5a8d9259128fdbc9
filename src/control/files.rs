//! Reads, writes and searches files of live sessions.
//!
//! What lies in the work directory is served from the host where it has a workspace; what
//! lies elsewhere, behind a link or out of the service's rights, by the agent in the sandbox,
//! which sees what its commands see; and where there is none, or an older one, by small
//! commands.

mod asked;
mod blocking;
mod by_clerk;
mod download;
mod given;
mod held;
mod host;
mod inside;
mod native;
pub mod refusal;
mod scripts;
mod seats;
mod spot;
mod stored;
mod upload;
mod watching;
mod words;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::errand::{Account, Entry, Noted, Reset};
use super::live::NotLive;
use super::{Control, Refusal};
use crate::id::{RequestId, SessionId};
use crate::sandbox::commands::Halt;
use crate::session::record::Notice;
use crate::workspace::search::{Patience, Pattern, PatternError};
use crate::workspace::{Expected, FileError, NotAPath, Old, Place, RelPath, Workspaces};

pub use asked::{Answer, Asked, Op};
use blocking::{Hands, Left, Length};
pub use download::{Download, FileFacts, Sending};
pub use given::GivenPath;
use host::Site;
pub use native::{Native, NativeAnswer};
use refusal::FileRefusal;
pub use seats::DESCRIPTORS_MAX;
use seats::{Seats, TRANSFERS, WATCHES};
pub use stored::Extent;
pub use upload::{Put, Upload, Uploaded};
pub use watching::Watching;

/// Works on files at once; others wait for their turn.
const WORKS_MAX: usize = 32;

/// The room for work on files of the host.
#[derive(Debug)]
pub(super) struct Files {
    room: Arc<Semaphore>,
    hands: Arc<Hands>,
    transfers: Seats,
    watches: Seats,
}

impl Default for Files {
    fn default() -> Self {
        Self {
            room: Arc::new(Semaphore::new(WORKS_MAX)),
            hands: Arc::default(),
            transfers: Seats::new(TRANSFERS),
            watches: Seats::new(WATCHES),
        }
    }
}

/// An operation on its way.
struct Trip {
    id: SessionId,
    op: Arc<Op>,
    /// The path, where the operation has only part of it.
    path: Option<GivenPath>,
    site: Site,
    /// Calls a search off.
    gone: CancellationToken,
    account: Account,
    ceiling: Duration,
    deadline: Instant,
    halt: Halt,
}

/// What became of an operation, and the reset that its reply is to tell of.
type Done = (Result<Answer, FileError>, Option<Reset>);

/// Has the work end when the caller leaves.
struct Caller {
    halt: Halt,
    gone: CancellationToken,
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.halt.leave();
        self.gone.cancel();
    }
}

impl Control {
    /// Carries out an operation on files of a session, waking it where it sleeps.
    ///
    /// What fails with the files is an answer too; dropping the future calls searches off.
    pub async fn work_on_files(&self, id: &SessionId, asked: Asked) -> Result<Answer, Refusal> {
        if self.open_record(id).is_none() {
            return Err(Refusal::NoSession(id.clone()));
        }
        check_pattern(&asked.op)?;
        if let Some(bytes) = asked.op.adds() {
            self.has_room_for(id, bytes).await?;
        }
        let mut trip = self.file_trip(id, asked.op);
        (trip.path, trip.account.request_id) = (asked.path, asked.request_id);
        trip.site.expected = asked.expected;
        let gone = trip.gone.clone();
        let halt = trip.halt.clone();
        let caller = Caller { halt, gone };
        let control = self.clone();
        let task = self
            .0
            .tasks
            .spawn(async move { Box::pin(control.travel_to_files(trip)).await });
        let answer = match task.await {
            Ok(answer) => answer,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        };
        drop(caller);
        answer
    }

    /// Makes a trip that begins now, for one that nobody calls off.
    fn file_trip(&self, id: &SessionId, op: Op) -> Trip {
        let policy = self.0.policy.get();
        let ceiling = policy.limits.execute_timeout;
        let clock = self.0.books.clock.clone();
        let (began, gone) = (clock.now(), CancellationToken::new());
        Trip {
            id: id.clone(),
            account: Account {
                op: op.name(),
                target: op.target(),
                began,
                request_id: RequestId::random(),
            },
            op: Arc::new(op),
            path: None,
            site: Site {
                work_dir: policy.interior.work_dir.clone(),
                bytes_max: policy.limits.max_read_bytes,
                patience: Patience::new(clock, began.plus(ceiling), gone.clone()),
                expected: Expected::Anything,
            },
            gone,
            ceiling,
            deadline: Instant::now() + ceiling,
            halt: Halt::default(),
        }
    }

    async fn travel_to_files(&self, trip: Trip) -> Result<Answer, Refusal> {
        let done = match self.place_of(&trip) {
            Ok(Some((workspaces, path))) => self.by_host(&trip, workspaces, path).await,
            Ok(None) => self.hand_over(&trip, None).await.map(unnoted),
            Err(error) => self.nowhere(&trip, error).await.map(unnoted),
        };
        let (done, noted) = match done {
            Ok(((Err(FileError::Changed), _), _)) => {
                let changed = FileRefusal::Changed(trip.op.target());
                (Err(changed.into()), Noted::No)
            }
            Ok((done, noted)) => (Ok(done), noted),
            Err(refusal) => (Err(refusal), Noted::No),
        };
        let answered = done.map(|(done, reset)| {
            let mut answer = match done {
                Ok(answer) => answer,
                Err(error) => words::failed(&trip.op, &error, trip.site.bytes_max),
            };
            let told = answer.tell(reset);
            (answer, told)
        });
        let entry = || entry_of(&trip.account, &trip.op, answered.as_ref().ok());
        self.see_noted(&trip.id, noted, entry).await;
        answered.map(|(answer, _)| answer)
    }

    /// Says where the host has what an operation is about; nothing where it has not.
    fn place_of(&self, trip: &Trip) -> Result<Option<(Workspaces, RelPath)>, NotAPath> {
        let work_dir = trip.site.work_dir.as_bytes();
        let place = match (&trip.path, trip.op.root()) {
            (Some(path), _) => Place::of(work_dir, path.as_bytes())?,
            (None, None) => Place::Inside(RelPath::work_dir()),
            (None, Some(path)) => Place::of(work_dir, path.as_bytes())?,
        };
        let workspaces = self.0.host.workspaces.clone();
        Ok(match place {
            Place::Inside(path) => workspaces.map(|workspaces| (workspaces, path)),
            Place::Outside | Place::Climbs => None,
        })
    }

    /// Answers for a path that no file has, once there is a sandbox that has none.
    async fn nowhere(&self, trip: &Trip, error: NotAPath) -> Result<Done, Refusal> {
        let live = self.live(&trip.id, trip.deadline).await;
        let live = live.map_err(|error| trip.not_live(error))?;
        let error = match error {
            NotAPath::Empty => FileError::IsDirectory,
            NotAPath::Nul => FileError::Io(std::io::Error::other("embedded null byte")),
            NotAPath::TooLong | NotAPath::NameTooLong => FileError::NameTooLong,
            NotAPath::Climbs => FileError::Outside,
        };
        Ok((Err(error), self.told(&trip.id, trip.news(live.reset))))
    }

    /// Has the sandbox do what the host cannot, provided that it can be told of the path.
    async fn hand_over(&self, trip: &Trip, reset: Option<(u64, Notice)>) -> Result<Done, Refusal> {
        if let Some(path) = &trip.path {
            download::text_of(path)?;
        }
        if trip.site.expected != Expected::Anything {
            let why = "only the sandbox can write there, and it knows no if_match";
            return Err(FileRefusal::Handed(format!("{}: {why}", trip.op.target())).into());
        }
        self.by_sandbox(trip, reset).await
    }

    async fn by_host(
        &self,
        trip: &Trip,
        workspaces: Workspaces,
        path: RelPath,
    ) -> Result<(Done, Noted), Refusal> {
        let live = self.live(&trip.id, trip.deadline).await;
        let live = live.map_err(|error| trip.not_live(error))?;
        let reset = live.reset;
        // What its answer tells of has to be in the store first.
        let jots = trip.op.adds().is_some() && trip.news(reset).is_none();
        let (control, account) = (self.clone(), trip.account.clone());
        let room = Arc::clone(&self.0.files.room).acquire_owned();
        let permit = timeout_at(trip.deadline, room).await;
        let permit = permit.map_err(|_| trip.late())?;
        let (id, op, site) = (trip.id.clone(), Arc::clone(&trip.op), trip.site.clone());
        // What is under way holds its room and its sandbox, even where nobody waits any more.
        let work = move || {
            let _held = (permit, live);
            let done = match workspaces.enter(&id) {
                Ok(Some(dir)) => host::carry_out(&dir, &op, &path, &site),
                // The sandbox may see more.
                Ok(None) | Err(_) => Err(FileError::Outside),
            };
            match done {
                // This thread may block, and spares the reply two others.
                Ok((answer, old)) if jots => {
                    let answered = (answer, None);
                    let entry = entry_of(&account, &op, Some(&answered));
                    let noted = control.jot_down(&id, entry);
                    ((Ok(answered.0), noted), left(old))
                }
                Ok((answer, old)) => ((Ok(answer), Noted::No), left(old)),
                Err(error) => ((Err(error), Noted::No), None),
            }
        };
        let length = if trip.op.searches() {
            Length::Long
        } else {
            Length::Short
        };
        let hands = &self.0.files.hands;
        let done = hands.answer_first((length, trip.deadline), work).await;
        let (done, noted) = done.ok_or_else(|| trip.late())?;
        match done {
            Err(FileError::TooLarge { .. }) => {}
            Err(error) if error.is_for_the_sandbox() => {
                return self.hand_over(trip, reset).await.map(unnoted);
            }
            Ok(_) | Err(_) => {}
        }
        Ok(((done, self.told(&trip.id, trip.news(reset))), noted))
    }
}

fn left(old: Option<Old>) -> Option<Left> {
    old.map(|old| {
        let bytes = old.bytes();
        Left::of(old, bytes)
    })
}

fn unnoted(done: Done) -> (Done, Noted) {
    (done, Noted::No)
}

/// Makes the entry of an operation that was answered, or refused.
fn entry_of<'a>(
    account: &'a Account,
    op: &Op,
    answered: Option<&(Answer, Option<u64>)>,
) -> Entry<'a> {
    match answered {
        None => account.entry(false, String::new(), None),
        Some((answer, told)) => {
            let (ok, detail) = words::event(op, answer);
            account.entry(ok, detail, *told)
        }
    }
}

impl Trip {
    /// Returns the reset that the answer has a place to tell of.
    fn news(&self, reset: Option<(u64, Notice)>) -> Option<(u64, Notice)> {
        reset.filter(|_| Answer::can_tell(&self.op))
    }

    fn late(&self) -> Refusal {
        FileRefusal::TooSlow(self.ceiling.as_secs()).into()
    }

    fn not_live(&self, error: NotLive) -> Refusal {
        match error {
            NotLive::Late => self.late(),
            NotLive::Refused(refusal) => refusal,
        }
    }
}

/// Refuses a pattern that is none: its listing would only be empty.
fn check_pattern(op: &Op) -> Result<(), Refusal> {
    if let Op::Glob { pattern, .. } = op {
        return match Pattern::parse(pattern) {
            Ok(_) | Err(PatternError::Empty) => Ok(()),
            Err(error) => Err(FileRefusal::BadPattern(error.to_string()).into()),
        };
    }
    Ok(())
}
