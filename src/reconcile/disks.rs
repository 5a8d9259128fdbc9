//! Keeps what workspaces take, as it was last measured, and measures them.
//!
//! Counted are the blocks that the disk gives to what lies in a workspace, as `du` does:
//! a file with holes takes less than its length, and one with several names counts once.
//! Figures are in memory alone: after a start they are unknown until they are measured.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::cause::chain;
use crate::clock::{Clock, Timestamp};
use crate::id::SessionId;
use crate::workspace::Workspaces;
use crate::workspace::search::{DEPTH_MAX, Measuring, Patience, Progress, Reach};

/// Entries of a workspace that are counted; beyond, its figure is a lower bound.
const ENTRIES_MAX: usize = 20_000_000;
/// Workspaces that are measured at once for callers.
const MEASURINGS_MAX: usize = 1;
/// Entries that are counted between two rests.
const STEP_ENTRIES: usize = 2_048;
/// A measuring in the background rests so many times as long as it worked.
const REST_FACTOR: u32 = 4;
/// The longest that one workspace is measured.
const MEASURE_TIME_MAX: Duration = Duration::from_mins(30);

/// What lies in a workspace, as it was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figure {
    /// Bytes on the disk.
    pub bytes: u64,
    /// Regular files.
    pub files: u64,
    /// When the measuring began.
    pub at: Timestamp,
    /// Whether a bound cut it short, so that there is more.
    pub extent: Extent,
}

/// Whether everything was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// It was.
    Whole,
    /// There is more.
    Cut,
}

/// What is known of one workspace.
#[derive(Clone, Copy, Debug)]
struct Kept {
    figure: Figure,
    /// Bytes that were written by way of the service since.
    added: u64,
    /// How often something was removed by way of the service since.
    n_removed: u64,
}

impl Kept {
    fn is_true(&self) -> bool {
        self.added == 0 && self.n_removed == 0
    }
}

/// The figures of all workspaces; cheap to clone.
#[derive(Clone, Debug)]
pub struct Disks(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    workspaces: Option<Workspaces>,
    clock: Clock,
    /// A `std` mutex: held for a look into the map, never across an await.
    kept: Mutex<BTreeMap<SessionId, Kept>>,
    /// One measuring at a time for callers, beside the one in the background.
    turn: Semaphore,
    changed: Notify,
}

/// How a workspace is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// With rests, beside the work of the service.
    Background,
    /// As fast as it goes: somebody waits.
    Now,
}

impl Disks {
    /// Makes figures that know nothing yet.
    pub fn new(workspaces: Option<Workspaces>, clock: Clock) -> Self {
        Self(Arc::new(Shared {
            workspaces,
            clock,
            kept: Mutex::default(),
            turn: Semaphore::new(MEASURINGS_MAX),
            changed: Notify::new(),
        }))
    }

    /// Returns what was last measured of a workspace.
    pub fn figure(&self, id: &SessionId) -> Option<Figure> {
        self.kept().get(id).map(|kept| kept.figure)
    }

    /// Returns the bytes that a workspace is taken to have: as measured, and what was
    /// written by way of the service since.
    pub fn estimate(&self, id: &SessionId) -> Option<u64> {
        let kept = self.kept();
        let known = kept.get(id)?;
        Some(known.figure.bytes.saturating_add(known.added))
    }

    /// Notes that so many bytes are written by way of the service.
    pub fn note_written(&self, id: &SessionId, bytes: u64) {
        if let Some(kept) = self.kept().get_mut(id) {
            kept.added = kept.added.saturating_add(bytes);
        }
    }

    /// Notes that something was removed: the figure is not believed any more, and soon
    /// measured anew.
    pub fn note_removed(&self, id: &SessionId) {
        if let Some(kept) = self.kept().get_mut(id) {
            kept.n_removed += 1;
        }
        self.0.changed.notify_one();
    }

    /// Forgets the figure of a workspace that is gone, or another one by now.
    pub fn forget(&self, id: &SessionId) {
        self.kept().remove(id);
        self.0.changed.notify_one();
    }

    /// Returns the figure of a workspace as it is now, measured if need be; nothing where
    /// it has none, or cannot be measured within that time.
    pub async fn measured(&self, id: &SessionId, within: Duration) -> Option<Figure> {
        let asked = self.0.clock.now();
        let measure = async {
            let _turn = self.0.turn.acquire().await.ok()?;
            // Another may have measured it while this one waited for its turn.
            let kept = self.kept().get(id).copied();
            if let Some(kept) = kept.filter(|kept| kept.is_true() && asked < kept.figure.at) {
                return Some(kept.figure);
            }
            self.measure(id, Pace::Now, CancellationToken::new()).await
        };
        timeout(within, measure).await.unwrap_or(None)
    }

    /// Measures a workspace, a few entries at a time, and keeps its figure.
    pub(super) async fn measure(
        &self,
        id: &SessionId,
        pace: Pace,
        cancel: CancellationToken,
    ) -> Option<Figure> {
        let workspaces = self.0.workspaces.clone()?;
        let at = self.0.clock.now();
        // What is written from now on may be counted twice, and never not at all.
        let before = self.kept().get(id).copied();
        let until = at.plus(MEASURE_TIME_MAX);
        let patience = Patience::new(self.0.clock.clone(), until, cancel.clone());
        let _gone = cancel.drop_guard();
        let session = id.clone();
        let begin = move || -> Result<Option<Measuring>, String> {
            let reach = Reach {
                depth: DEPTH_MAX,
                entries: ENTRIES_MAX,
            };
            let entered = workspaces.enter(&session).map_err(|error| chain(&error))?;
            entered
                .map(|dir| Measuring::begin(&dir, reach).map_err(|error| chain(&error)))
                .transpose()
        };
        let mut measuring = match on_disk(begin).await {
            Ok(Some(measuring)) => measuring,
            Ok(None) => {
                self.kept().remove(id);
                return None;
            }
            Err(why) => {
                debug!(session = %id, why, "a workspace could not be measured");
                return None;
            }
        };
        loop {
            let began = Instant::now();
            let patience = patience.clone();
            let step = move || {
                let progress = measuring.advance(STEP_ENTRIES, &patience);
                (measuring, progress)
            };
            let progress;
            (measuring, progress) = on_disk(step).await;
            match (progress, pace) {
                (Err(_), _) => return None,
                (Ok(Progress::Done), _) => return Some(self.keep((id, before), at, &measuring)),
                (Ok(Progress::Going), Pace::Now) => {}
                (Ok(Progress::Going), Pace::Background) => {
                    sleep(began.elapsed() * REST_FACTOR).await;
                }
            }
        }
    }

    fn keep(
        &self,
        (id, before): (&SessionId, Option<Kept>),
        at: Timestamp,
        measuring: &Measuring,
    ) -> Figure {
        let usage = measuring.usage();
        let extent = match measuring.cut() {
            None => Extent::Whole,
            Some(_) => Extent::Cut,
        };
        let figure = Figure {
            bytes: usage.disk_bytes,
            files: usage.files,
            at,
            extent,
        };
        let mut kept = self.kept();
        let since = kept.get(id).zip(before.as_ref());
        let (added, n_removed) = since.map_or((0, 0), |(now, before)| {
            (
                now.added.saturating_sub(before.added),
                now.n_removed.saturating_sub(before.n_removed),
            )
        });
        let known = Kept {
            figure,
            added,
            n_removed,
        };
        kept.insert(id.clone(), known);
        figure
    }

    /// Returns when a workspace was last measured, unless that is out of date.
    pub(super) fn believed(&self, id: &SessionId) -> Option<Timestamp> {
        let kept = self.kept();
        let known = kept.get(id).filter(|known| known.is_true())?;
        Some(known.figure.at)
    }

    /// Forgets workspaces that are not among these.
    pub(super) fn retain(&self, ids: &[SessionId]) {
        self.kept().retain(|id, _| ids.binary_search(id).is_ok());
    }

    /// Waits until something is known to have changed.
    pub(super) async fn changed(&self) {
        self.0.changed.notified().await;
    }

    pub(super) fn workspaces(&self) -> Option<&Workspaces> {
        self.0.workspaces.as_ref()
    }

    fn kept(&self) -> MutexGuard<'_, BTreeMap<SessionId, Kept>> {
        // Every change is one insertion or removal, so a panic leaves nothing half done.
        self.0.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Does file work on a thread where blocking hurts nobody.
async fn on_disk<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{Alias, Nonce};
    use crate::workspace::{Life, Sidecar};

    fn ground() -> (tempfile::TempDir, Workspaces, SessionId) {
        let dir = tempfile::tempdir().unwrap();
        let workspaces = Workspaces::open(&dir.path().join("ws"), dir.path()).unwrap();
        let id = SessionId::parse("a").unwrap();
        let sidecar = Sidecar {
            id: id.clone(),
            runtime: Alias::parse("bb").unwrap(),
            tenant: None,
            nonce: Nonce::random(),
            opened_at: None,
            order: None,
            life: Life::Open,
        };
        workspaces.ensure(&sidecar, None).unwrap();
        (dir, workspaces, id)
    }

    #[tokio::test]
    async fn a_figure_is_kept_estimated_doubted_and_forgotten() {
        let (_dir, workspaces, id) = ground();
        let clock = Clock::manual(Timestamp::from_secs(1_000));
        let mounted = workspaces.mounted(&id);
        let disks = Disks::new(Some(workspaces), clock.clone());
        assert_eq!(disks.figure(&id), None);
        std::fs::write(mounted.join("f"), vec![b'x'; 100_000]).unwrap();
        std::fs::hard_link(mounted.join("f"), mounted.join("g")).unwrap();
        let holes = std::fs::File::create(mounted.join("holes")).unwrap();
        holes.set_len(1 << 40).unwrap();
        let within = Duration::from_secs(10);
        let first = disks.measured(&id, within).await.unwrap();
        assert_eq!((first.files, first.extent), (2, Extent::Whole));
        assert!((100_000..200_000).contains(&first.bytes), "{first:?}");
        assert_eq!(disks.believed(&id), Some(clock.now()));
        disks.note_written(&id, 7);
        assert_eq!(disks.estimate(&id), Some(first.bytes + 7));
        assert_eq!(disks.believed(&id), None, "it is to be measured again");
        std::fs::remove_file(mounted.join("f")).unwrap();
        std::fs::remove_file(mounted.join("g")).unwrap();
        disks.note_removed(&id);
        let second = disks.measured(&id, within).await.unwrap();
        assert!(second.bytes < 50_000, "{second:?}");
        assert_eq!(disks.estimate(&id), Some(second.bytes));
        disks.retain(&[]);
        assert_eq!(disks.figure(&id), None);
        let nobody = SessionId::parse("nobody").unwrap();
        assert_eq!(disks.measured(&nobody, within).await, None);
    }
}
