//! Keeps copies of the store in the state directory: backups, taken now and then.
//!
//! Failing to write one harms nothing: it is said once, and tried again.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::draft::Draft;
use crate::clock::{Clock, Timestamp};
use crate::session::record::Event;
use crate::store::{Batch, Snapshot, Store};
use crate::wire::backup::{LINE_BYTES_MAX, header_of};

/// How long after a start the first copy may be due at the earliest.
const CALM: Duration = Duration::from_mins(1);
/// How soon a copy is tried again that failed, or looked for again that was not needed,
/// unless they are due more often.
const AGAIN: Duration = Duration::from_mins(5);
/// How a copy is named, with digits for zeros.
const NAME_SHAPE: &str = "0000-00-00T00-00-00Z.jsonl";

/// When copies are made, and how many are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// Where they lie.
    pub(super) dir: PathBuf,
    /// The time between two of them.
    pub(super) every: Duration,
    /// At least 1.
    pub(super) keep: usize,
}

/// Of which moment a copy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Taken {
    at: Timestamp,
    commit: u64,
}

/// What there is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    /// A copy.
    Now,
    /// Nothing before this time has passed.
    After(Duration),
}

/// Makes copies until it is cancelled.
pub(super) async fn keep_copies(plan: Plan, store: Store, clock: Clock, cancel: CancellationToken) {
    let mut newest = newest(&plan.dir);
    let mut failing = false;
    let mut pause = CALM.min(plan.every);
    loop {
        tokio::select! {
            () = cancel.cancelled() => return,
            () = sleep(pause) => {}
        }
        let now = clock.now();
        match due(newest, store.last_commit(), plan.every, now) {
            Due::After(span) => {
                pause = span;
                continue;
            }
            Due::Now => {}
        }
        let snapshot = store.snapshot();
        let taken = Taken {
            at: now,
            commit: snapshot.commit(),
        };
        let work = {
            let plan = plan.clone();
            move || copy(&plan, snapshot, now)
        };
        let written = match tokio::task::spawn_blocking(work).await {
            Ok(written) => written,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        };
        pause = plan.every;
        match written {
            Ok(()) => {
                if failing {
                    info!("copies of the store are kept again");
                }
                failing = false;
                newest = Some(taken);
                debug!(commit = taken.commit, "a copy of the store was kept");
            }
            Err(error) => {
                pause = AGAIN.min(plan.every);
                if !failing {
                    failing = true;
                    warn!(%error, dir = %plan.dir.display(), "a copy of the store could not be kept; it is tried again");
                    tell(&store, now, &error).await;
                }
            }
        }
    }
}

/// Says whether a copy is due: where something has changed since the newest one, and that
/// is old enough, or says that it is of a time to come.
fn due(newest: Option<Taken>, commit: u64, every: Duration, now: Timestamp) -> Due {
    let Some(newest) = newest else {
        return Due::Now;
    };
    let is_ahead = now < newest.at;
    let rest = every.saturating_sub(now.since(newest.at));
    if !is_ahead && !rest.is_zero() {
        return Due::After(rest);
    }
    if newest.commit == commit {
        // What changes from now on is not to wait for as long again.
        return Due::After(AGAIN.min(every));
    }
    Due::Now
}

/// Writes a copy, and removes those that are too many.
fn copy(plan: &Plan, snapshot: Snapshot, now: Timestamp) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&plan.dir)?;
    let mut draft = Draft::begin(&plan.dir.join(name_of(now)))?;
    // The key lies beside them.
    for line in snapshot.lines(now, None) {
        draft.write(&line)?;
    }
    draft.finish()?;
    for name in surplus(names(&plan.dir)?, plan.keep) {
        fs::remove_file(plan.dir.join(name))?;
    }
    Ok(())
}

fn name_of(now: Timestamp) -> String {
    let date: String = now.to_string().chars().take(19).collect();
    format!("{}Z.jsonl", date.replace(':', "-"))
}

/// Tells whether a file is a copy: nothing else is ever removed.
fn is_copy(name: &str) -> bool {
    let digits = |c: char| if c.is_ascii_digit() { '0' } else { c };
    name.chars().map(digits).eq(NAME_SHAPE.chars())
}

fn names(dir: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        names.extend(
            name.to_str()
                .filter(|name| is_copy(name))
                .map(str::to_owned),
        );
    }
    names.sort_unstable();
    Ok(names)
}

/// Returns which of the sorted names go so that `keep` stay: the oldest.
fn surplus(mut names: Vec<String>, keep: usize) -> Vec<String> {
    names.truncate(names.len().saturating_sub(keep));
    names
}

/// Finds out of which moment the newest copy is, as far as that can be read.
fn newest(dir: &Path) -> Option<Taken> {
    let name = names(dir).ok()?.pop()?;
    let bound = u64::try_from(LINE_BYTES_MAX).ok()?;
    let file = File::open(dir.join(name)).ok()?.take(bound);
    let mut first = Vec::new();
    BufReader::new(file).read_until(b'\n', &mut first).ok()?;
    let header = header_of(&first).ok()?;
    Some(Taken {
        at: header.taken_at,
        commit: header.commit,
    })
}

/// Says in the log of the service that a copy could not be kept, as far as that works.
async fn tell(store: &Store, now: Timestamp, error: &io::Error) {
    let event = Event {
        at: now,
        op: "backup".to_owned(),
        target: String::new(),
        ok: false,
        detail: format!("a copy of the store could not be kept: {error}"),
        duration_us: 0,
        request_id: None,
        facts: BTreeMap::new(),
    };
    let told = store.commit_soon(Batch::new().event(None, event)).await;
    if let Err(error) = told {
        debug!(%error, "the log does not tell of it");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Contents, OpenOptions, Probe};

    const HOUR: Duration = Duration::from_hours(1);
    const T0: Timestamp = Timestamp::from_secs(1_700_000_000);

    #[test]
    fn a_copy_is_due_when_the_newest_is_old_and_something_has_changed() {
        let newest = |at, commit| Some(Taken { at, commit });
        let later = T0.plus(HOUR);
        assert_eq!(due(None, 1, HOUR, T0), Due::Now);
        assert_eq!(due(newest(T0, 1), 2, HOUR, later), Due::Now);
        assert_eq!(due(newest(T0, 1), 1, HOUR, later), Due::After(AGAIN));
        let mins = Duration::from_mins;
        let soon = T0.plus(mins(20));
        assert_eq!(due(newest(T0, 1), 2, HOUR, soon), Due::After(mins(40)));
        // The clock was set back, or the store was: neither holds copies up.
        assert_eq!(due(newest(later, 1), 2, HOUR, T0), Due::Now);
        assert_eq!(due(newest(T0, 9), 2, HOUR, later), Due::Now);
    }

    #[test]
    fn only_copies_are_counted_and_the_oldest_go() {
        let names: Vec<String> = (1..=5).map(|n| name_of(T0.plus(HOUR * n))).collect();
        assert!(names.iter().all(|name| is_copy(name)), "{names:?}");
        assert_eq!(surplus(names.clone(), 2), names[..3]);
        assert!(surplus(names, 9).is_empty());
        for other in ["notes.jsonl", ".2023-11-14T23-13-20Z.jsonl.part", "2023"] {
            assert!(!is_copy(other), "{other}");
        }
    }

    #[test]
    fn a_copy_reads_as_a_backup_and_older_ones_go() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let options = OpenOptions::new(&state, Probe::InProcess, Clock::host());
        let store = Store::open(&options).unwrap();
        let plan = Plan {
            dir: dir.path().join("backups"),
            every: HOUR,
            keep: 2,
        };
        assert_eq!(newest(&plan.dir), None);
        for n in 0..4 {
            copy(&plan, store.snapshot(), T0.plus(HOUR * n)).unwrap();
        }
        fs::write(plan.dir.join("notes.jsonl"), "mine").unwrap();
        let kept = names(&plan.dir).unwrap();
        assert_eq!(
            kept,
            [name_of(T0.plus(HOUR * 2)), name_of(T0.plus(HOUR * 3))]
        );
        let bytes = fs::read(plan.dir.join(&kept[1])).unwrap();
        let contents = Contents::read(&bytes).unwrap();
        assert_eq!(contents.instance(), store.instance());
        let at = T0.plus(HOUR * 3);
        let commit = store.last_commit();
        assert_eq!(newest(&plan.dir), Some(Taken { at, commit }));
    }
}
