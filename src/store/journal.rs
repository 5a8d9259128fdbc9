//! Takes down events on their way to the database, for those who cannot wait for it.
//!
//! An event that is in this file is out of the process: it survives the end of it, which
//! is what a reply may rely on. That costs one write and no hand-over to the committer. The
//! committer puts it into the database a moment later, in the same order, together with
//! its number; what lies here beyond that number when the store is opened was on its way, and
//! is appended to the logs then. Nothing reads the file otherwise.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Seek as _, SeekFrom};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tracing::warn;

use super::batch::{Batch, Op};
use super::error::OpenError;
use super::events::Log;
use super::files::failed;
use crate::session::record::Event;

const NAME: &str = "journal";
/// Bytes of the file; what comes while it is that long waits for the committer.
const JOURNAL_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Bytes that the file keeps when all of it is in the database.
const IDLE_BYTES_MAX: u64 = 64 * 1024;

/// The file, open for as long as the store is.
#[derive(Debug)]
pub(super) struct Journal(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    file: File,
    bytes: u64,
    /// The number of the last entry.
    last: u64,
}

/// A line of the file.
#[derive(Debug, Serialize, Deserialize)]
struct Line<E> {
    n: u64,
    events: Vec<(Log, E)>,
}

/// What was on its way when the process ended.
#[derive(Debug, Default)]
pub(super) struct Left {
    /// The events, in their order.
    pub(super) batches: Vec<Batch>,
    /// The number of the last entry.
    pub(super) last: u64,
}

impl Journal {
    /// Opens the file of a state directory; returns what it holds beyond a number too.
    pub(super) fn open(dir: &Path, committed: u64) -> Result<(Self, Left), OpenError> {
        let path = dir.join(NAME);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(failed("open", &path))?;
        let (left, bytes) = read(&mut file, committed).map_err(failed("read", &path))?;
        let inner = Inner {
            last: left.last.max(committed),
            file,
            bytes,
        };
        Ok((Self(Mutex::new(inner)), left))
    }

    /// Writes the events of a batch down and hands it on, in that order for all callers;
    /// gives it back where it holds something else, or where there is no room.
    pub(super) fn append<T>(
        &self,
        batch: Batch,
        hand_on: impl FnOnce(Batch, u64) -> T,
    ) -> Result<T, Batch> {
        let Some(events) = only_events(&batch) else {
            return Err(batch);
        };
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let n = inner.last + 1;
        match inner.write(&Line { n, events }) {
            Ok(()) => {
                inner.last = n;
                // Within the lock: the committer takes them in the order of their numbers.
                Ok(hand_on(batch, n))
            }
            Err(error) => {
                if error.kind() != io::ErrorKind::StorageFull {
                    warn!(%error, "an event could not be written ahead of the store");
                }
                drop(inner);
                Err(batch)
            }
        }
    }

    /// Lets go of what is in the database, once that is all there is.
    pub(super) fn committed(&self, n: u64) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.last == n && IDLE_BYTES_MAX < inner.bytes {
            inner.clear();
        }
    }

    /// Forgets what is there: it is in the database.
    pub(super) fn clear(&self) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }
}

impl Inner {
    fn write(&mut self, line: &Line<&Event>) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        let bytes = self.bytes + u64::try_from(text.len()).unwrap_or(u64::MAX);
        if JOURNAL_BYTES_MAX < bytes {
            return Err(io::ErrorKind::StorageFull.into());
        }
        // What a failed write left of itself is written over by the next, and never read:
        // the line that it would have been has no end.
        self.file.write_all_at(&text, self.bytes)?;
        self.bytes = bytes;
        Ok(())
    }

    fn clear(&mut self) {
        match self.file.set_len(0) {
            Ok(()) => self.bytes = 0,
            // Their numbers say that they are in the database.
            Err(error) => warn!(%error, "events that are in the store stay in the journal"),
        }
    }
}

/// Renames the file after the store that is set aside, to which it belongs.
pub(super) fn set_aside(dir: &Path, aside: &Path) -> Result<(), OpenError> {
    let path = dir.join(NAME);
    let store = aside.file_name().unwrap_or_default().to_string_lossy();
    let date = match store.strip_prefix("store") {
        None | Some("") => ".aside",
        Some(date) => date,
    };
    match fs::rename(&path, dir.join(format!("{NAME}{date}"))) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed("set aside", &path)(error)),
    }
}

fn only_events(batch: &Batch) -> Option<Vec<(Log, &Event)>> {
    let events = batch.ops.iter().map(|op| match op {
        Op::Event(log, event) => Some((log.clone(), &**event)),
        _ => None,
    });
    events.collect()
}

/// Reads the lines beyond a number, as far as they are whole; returns the end of the last
/// whole one too.
fn read(file: &mut File, committed: u64) -> io::Result<(Left, u64)> {
    file.seek(SeekFrom::Start(0))?;
    let mut lines = BufReader::new(file);
    let (mut left, mut end, mut line) = (Left::default(), 0, Vec::new());
    loop {
        line.clear();
        let bytes = lines.read_until(b'\n', &mut line)?;
        if !line.ends_with(b"\n") {
            return Ok((left, end));
        }
        let Ok(whole) = serde_json::from_slice::<Line<Event>>(&line) else {
            warn!("the journal of events ends with what cannot be read");
            return Ok((left, end));
        };
        end += u64::try_from(bytes).unwrap_or(u64::MAX);
        left.last = left.last.max(whole.n);
        if committed < whole.n {
            let batch = whole.events.into_iter();
            left.batches
                .push(batch.fold(Batch::new(), |batch, (log, event)| {
                    batch.event(log.as_ref(), event)
                }));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::super::tests::{event, id, open_store, page_all, record};
    use super::super::{Expect, Store};
    use super::*;

    /// Leaves an event in the journal that the store never saw.
    fn leave(dir: &Path, detail: &str) {
        let (journal, left) = Journal::open(dir, 0).unwrap();
        assert!(left.batches.is_empty());
        let batch = Batch::new()
            .event(None, event(detail))
            .event(Some(&id("s1")), event(detail));
        journal.append(batch, |_, _| ()).unwrap();
    }

    fn details(store: &Store, log: Option<&str>) -> Vec<String> {
        let log = log.map(id);
        let page = store.events(log.as_ref(), 0, page_all()).unwrap();
        let events = page.events.into_iter();
        events.map(|(_, event)| event.detail).collect()
    }

    #[tokio::test]
    async fn what_was_on_its_way_is_appended_at_the_next_start_and_only_then() {
        let dir = tempfile::tempdir().unwrap();
        let store = open_store(dir.path());
        let opened = Batch::new().put_record(record("s1", 1), Expect::Absent);
        store.commit(opened).await.unwrap();
        store.close().await.unwrap();
        drop(store);
        leave(dir.path(), "left");
        for _ in 0..2 {
            let store = open_store(dir.path());
            assert_eq!(details(&store, None), ["left"]);
            assert_eq!(details(&store, Some("s1")), ["left"]);
            store.close().await.unwrap();
        }
    }

    #[tokio::test]
    async fn what_is_in_the_store_is_not_appended_again() {
        let dir = tempfile::tempdir().unwrap();
        for n in 1..=3 {
            let store = open_store(dir.path());
            let batch = Batch::new().event(None, event(&n.to_string()));
            store.jot(batch).unwrap();
            store.settled().await.unwrap();
            store.close().await.unwrap();
            assert!(0 < fs::metadata(dir.path().join(NAME)).unwrap().len());
        }
        assert_eq!(details(&open_store(dir.path()), None), ["1", "2", "3"]);
    }

    #[test]
    fn a_line_that_was_cut_ends_the_journal_and_costs_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let store = open_store(dir.path());
        drop(store);
        leave(dir.path(), "whole");
        let mut file = OpenOptions::new()
            .append(true)
            .open(dir.path().join(NAME))
            .unwrap();
        file.write_all(br#"{"n":2,"events":[[nu"#).unwrap();
        assert_eq!(details(&open_store(dir.path()), None), ["whole"]);
    }

    #[test]
    fn a_batch_of_something_else_and_one_without_room_come_back() {
        let dir = tempfile::tempdir().unwrap();
        let (journal, _) = Journal::open(dir.path(), 0).unwrap();
        let other = Batch::new().put_key_id("k".to_owned());
        assert!(journal.append(other, |_, _| ()).is_err());
        let text = "x".repeat(1 << 20);
        let large = || Batch::new().event(None, event(&text));
        for _ in 0..3 {
            journal.append(large(), |_, _| ()).unwrap();
        }
        assert!(journal.append(large(), |_, _| ()).is_err());
        journal.committed(2);
        assert!(journal.append(large(), |_, _| ()).is_err());
        journal.committed(3);
        journal.append(large(), |_, _| ()).unwrap();
    }
}
