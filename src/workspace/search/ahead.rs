//! Opens the files of a search in the order of their paths, the next ones while one is being
//! searched: finding and opening a small file takes as long as its search.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{Builder, scope};

use super::grep::{Hidden, Query};
use super::patience::{Cut, Patience};
use super::skipped::{Skipped, Why};
use super::start::SearchError;
use super::walk::Walk;
use crate::workspace::{Kind, Opened};

/// Files that are searched before a second thread is worth its start.
const ALONE_FILES: usize = 64;
/// Files that are handed over together: one by one, the threads would wake each other more
/// than they work.
const BATCH_FILES_MAX: usize = 16;
/// Batches that wait between one that is being opened and one that is being searched.
const WAITING_BATCHES_MAX: usize = 1;

/// The next file of a search, or its end.
#[derive(Debug)]
pub(super) struct Next {
    /// What was left out on the way to it.
    pub(super) left: Skipped,
    /// Its path, and what came of opening it; nothing at the end.
    pub(super) file: Option<(Vec<u8>, Result<Opened, Why>)>,
    /// The bound that brought the end.
    pub(super) cut: Option<Cut>,
}

/// Whether a search goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// It wants the next file.
    On,
    /// It is over.
    Over,
}

/// Gives one file after another to a search, until it is over.
pub(super) fn each(
    mut walk: Walk,
    (query, patience): (Query<'_>, &Patience),
    mut search: impl FnMut(Next) -> Result<Flow, SearchError>,
) -> Result<(), SearchError> {
    for _ in 0..ALONE_FILES {
        if search(next(&mut walk, query, patience)?)? == Flow::Over {
            return Ok(());
        }
    }
    let (send, waiting) = sync_channel(WAITING_BATCHES_MAX);
    let is_done = scope(|scope| {
        let walk = &mut walk;
        let open = move || open_ahead(walk, (query, patience), &send);
        if Builder::new().spawn_scoped(scope, open).is_err() {
            return Ok(false);
        }
        // With the end of the loop the other end of the channel goes, and so does the thread.
        for next in waiting.into_iter().flatten() {
            if search(next?)? == Flow::Over {
                break;
            }
        }
        Ok(true)
    })?;
    // Where no thread is to be had it goes on as it began.
    while !is_done && search(next(&mut walk, query, patience)?)? == Flow::On {}
    Ok(())
}

fn open_ahead(
    walk: &mut Walk,
    (query, patience): (Query<'_>, &Patience),
    send: &SyncSender<Vec<Result<Next, SearchError>>>,
) {
    let mut is_last = false;
    while !is_last {
        let mut batch = Vec::with_capacity(BATCH_FILES_MAX);
        while !is_last && batch.len() < BATCH_FILES_MAX {
            let next = next(walk, query, patience);
            is_last = next.as_ref().map_or(true, |next| next.file.is_none());
            batch.push(next);
        }
        if send.send(batch).is_err() {
            return;
        }
    }
}

/// Goes on to the next file that is wanted, and opens it.
fn next(walk: &mut Walk, query: Query<'_>, patience: &Patience) -> Result<Next, SearchError> {
    let file = loop {
        match walk.next(patience) {
            Ok(Some(_)) if query.hidden == Hidden::Skipped && walk.name().starts_with(b".") => {
                walk.pass_by();
            }
            Ok(Some(Kind::File)) if query.wants(walk.path()) => {
                break Some((walk.path().to_vec(), walk.open()));
            }
            Ok(Some(_)) => {}
            Ok(None) => break None,
            Err(stop) => {
                walk.note_cut(SearchError::unless_late(stop)?);
                break None;
            }
        }
    };
    Ok(Next {
        left: std::mem::take(&mut walk.skipped),
        cut: walk.cut.filter(|_| file.is_none()),
        file,
    })
}
