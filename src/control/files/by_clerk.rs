//! Carries out operations on files by the agent of the sandbox, as the host would.

use tokio::sync::mpsc;
use tokio::time::timeout_at;

use super::super::errand::Reset;
use super::super::slots::session_is_full;
use super::super::{Control, Refusal};
use super::asked::{Answer, Op};
use super::host::{
    ENTRIES_MAX, GREP_BOUNDS, PATHS_MAX, Seen, bytes_answer, edited_answer, exists, found_files,
    found_lines, query, sorted, start_error, written,
};
use super::{Trip, words};
use crate::agent::connection::Connection;
use crate::id::RunId;
use crate::sandbox::commands::{NotRun, Place};
use crate::sandbox::files::{Clerk, Failed, Listed, PIECES_MAX, Piece, Reading, Sought, WriteHow};
use crate::session::record::Notice;
use crate::wire::files::ReadResponse;
use crate::workspace::search::{
    Cut, Ending, Expression, Grepped, Hidden, Patience, Pattern, Query, Search, SearchError,
    Skipped,
};
use crate::workspace::{Change, Family, FileError, Kind, replaced};

/// How often work on files is begun whose way to the sandbox breaks.
const TRIES_MAX: usize = 3;
/// How often an edit begins anew because the sandbox changed the file meanwhile.
const EDITS_MAX: usize = 8;

/// What became of an operation in the sandbox.
type Told = Result<Answer, FileError>;

impl Control {
    /// Carries out an operation by the sandbox's agent; nothing where there is none that
    /// can, and nothing was done.
    pub(super) async fn by_clerk(
        &self,
        trip: &Trip,
        told: &mut Option<Reset>,
    ) -> Result<Option<Told>, Refusal> {
        let mut broken = None;
        for _ in 0..TRIES_MAX {
            let live = tokio::select! {
                _ = trip.halt.asked() => return Err(Refusal::ShuttingDown),
                live = self.live(&trip.id, trip.deadline) => live,
            };
            let live = live.map_err(|error| trip.not_live(error))?;
            let place = Place {
                session: &trip.id,
                container: &live.container,
                work_dir: &trip.site.work_dir,
            };
            let connection = match self.0.runner.files(place, trip.deadline).await {
                Ok(Some(connection)) => connection,
                Ok(None) => return Ok(None),
                // Nothing was done; it is woken where it sleeps.
                Err(NotRun::ContainerDown) => {
                    self.look(&trip.id, trip.deadline).await;
                    continue;
                }
                Err(NotRun::Late) => return Err(trip.late()),
                // Commands tell what is wrong.
                Err(_) => return Ok(None),
            };
            match self.served(trip, connection).await? {
                Err(Failed::NotBegun(_)) => return Ok(None),
                Err(Failed::Ceiling) => {
                    let limit = self.0.policy.get().limits.runs.per_session;
                    return Err(session_is_full(&trip.id, limit));
                }
                Err(failed @ Failed::Lost(_)) if may_repeat(&trip.op) => {
                    broken = Some(failed.into_error());
                }
                Err(failed) => {
                    self.tell_once(trip, live.reset, told);
                    return Ok(Some(Err(failed.into_error())));
                }
                Ok(answer) => {
                    self.tell_once(trip, live.reset, told);
                    return Ok(Some(Ok(answer)));
                }
            }
        }
        Ok(broken.map(Err))
    }

    fn tell_once(&self, trip: &Trip, reset: Option<(u64, Notice)>, told: &mut Option<Reset>) {
        if told.is_none() {
            *told = self.told(&trip.id, trip.news(reset));
        }
    }

    /// Has one clerk carry out an operation.
    async fn served(
        &self,
        trip: &Trip,
        connection: Connection,
    ) -> Result<Result<Answer, Failed>, Refusal> {
        let _slot = self.slot(&trip.id)?;
        let run = RunId::random();
        let _attended = self.0.attended.watch(&run);
        let begun = tokio::select! {
            _ = trip.halt.asked() => return Err(Refusal::ShuttingDown),
            begun = timeout_at(
                trip.deadline,
                self.0.runner.clerk(connection, &run, trip.deadline),
            ) => begun,
        };
        let mut clerk = match begun {
            Err(_) => return Err(trip.late()),
            Ok(Err(failed)) => return Ok(Err(failed)),
            Ok(Ok(clerk)) => clerk,
        };
        let done = tokio::select! {
            _ = trip.halt.asked() => Err(Refusal::ShuttingDown),
            done = timeout_at(trip.deadline, carry_out(&mut clerk, trip)) => {
                done.map_err(|_| trip.late())
            }
        };
        clerk.end().await;
        done
    }
}

/// Tells whether an operation may be done once more where nobody knows whether it was.
fn may_repeat(op: &Op) -> bool {
    match op {
        Op::Write { .. } | Op::Edit { .. } => false,
        Op::Read { .. }
        | Op::ReadBytes { .. }
        | Op::Exists { .. }
        | Op::Ls { .. }
        | Op::Glob { .. }
        | Op::Grep { .. } => true,
    }
}

async fn carry_out(clerk: &mut Clerk, trip: &Trip) -> Result<Answer, Failed> {
    let site = &trip.site;
    let root = trip.op.root().unwrap_or(".").as_bytes();
    match &*trip.op {
        Op::Read { window, .. } => {
            let family = Family::of(root);
            let slice = clerk.lines(root, *window, family, site.bounds()).await?;
            Ok(Answer::Read(ReadResponse {
                content: words::lines(slice, *window),
                ..ReadResponse::default()
            }))
        }
        Op::ReadBytes { .. } => {
            let (bytes, _) = clerk.whole(root, site.bytes_max).await?;
            Ok(bytes_answer(&bytes))
        }
        Op::Write { path, bytes } => {
            clerk.write(root, bytes, WriteHow::Anything).await?;
            Ok(written(site.absolute(path)))
        }
        Op::Edit {
            path,
            old,
            new,
            times,
        } => {
            let change = Change {
                old,
                new,
                times: *times,
            };
            let n_replaced = edit(clerk, root, change, site.bytes_max).await?;
            Ok(edited_answer(site.absolute(path), n_replaced))
        }
        Op::Exists { .. } => match clerk.kind(root).await {
            Ok(kind) => Ok(exists(kind == Kind::File)),
            Err(Failed::File(_)) => Ok(exists(false)),
            Err(failed) => Err(failed),
        },
        Op::Ls { path } => {
            let listed = clerk.list(root, ENTRIES_MAX).await?;
            let entry = |one: Listed| {
                let seen = Seen {
                    name: one.name,
                    kind: one.kind,
                    size: one.size,
                    target: one.target,
                };
                seen.entry(path)
            };
            let entries = listed.into_iter().map(entry).collect();
            Ok(Answer::Entries(sorted(entries)))
        }
        Op::Glob { pattern, .. } => glob(clerk, &trip.op, root, pattern).await,
        Op::Grep { .. } => grep(clerk, trip, root).await,
    }
}

async fn edit(
    clerk: &mut Clerk,
    path: &[u8],
    change: Change<'_>,
    bytes_max: u64,
) -> Result<u64, Failed> {
    for _ in 0..EDITS_MAX {
        let (bytes, tag) = clerk.whole(path, bytes_max).await?;
        let (bytes, n_replaced) = replaced(&bytes, change, Family::of(path), bytes_max)?;
        match clerk.write(path, &bytes, WriteHow::InPlaceOf(tag)).await {
            Ok(()) => return Ok(n_replaced),
            Err(Failed::File(FileError::Changed)) => {}
            Err(failed) => return Err(failed),
        }
    }
    Err(FileError::Busy.into())
}

async fn glob(clerk: &mut Clerk, op: &Op, root: &[u8], pattern: &str) -> Result<Answer, Failed> {
    let Ok(pattern) = Pattern::parse(pattern) else {
        return Ok(Answer::Entries(Vec::new()));
    };
    let sought = Sought {
        root,
        hidden: Hidden::Searched,
        filter: Some(&pattern),
        entries: GREP_BOUNDS.reach.entries,
    };
    let (mut paths, mut room) = (Vec::new(), GREP_BOUNDS.bytes);
    clerk
        .find(sought, &mut |path| {
            if PATHS_MAX <= paths.len() || room < path.len() {
                return false;
            }
            room -= path.len();
            paths.push(path);
            true
        })
        .await?;
    Ok(found_files(op, paths))
}

/// What a search for lines goes by, for one who blocks.
struct Hunt {
    expression: Expression,
    patience: Patience,
}

async fn grep(clerk: &mut Clerk, trip: &Trip, root: &[u8]) -> Result<Answer, Failed> {
    let Op::Grep {
        pattern,
        filter,
        hidden,
        ..
    } = &*trip.op
    else {
        return Err(Failed::NotBegun("it is no search".to_owned()));
    };
    let (expression, filter) = match query(pattern, filter.as_deref()) {
        Ok(query) => query,
        Err(answer) => return Ok(*answer),
    };
    let sought = Sought {
        root,
        hidden: *hidden,
        filter: filter.as_ref(),
        entries: GREP_BOUNDS.reach.entries,
    };
    let (to, from) = mpsc::channel(PIECES_MAX);
    let hunt = Hunt {
        expression,
        patience: trip.site.patience.clone(),
    };
    let searching = tokio::task::spawn_blocking(move || hunt.search(from));
    let poured = pour(clerk, sought, to).await;
    let found = match searching.await {
        Ok(found) => found,
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    };
    poured?;
    match found {
        Ok(found) => Ok(found_lines(&trip.op, found)),
        Err(error) => Err(start_error(error).into()),
    }
}

async fn pour(
    clerk: &mut Clerk,
    sought: Sought<'_>,
    to: mpsc::Sender<Piece>,
) -> Result<(), Failed> {
    match clerk.pour(sought, &to).await {
        Err(Failed::File(FileError::NotDirectory)) => {
            let name = sought.root.rsplit(|byte| *byte == b'/').next();
            let name = name.unwrap_or_default();
            if sought.filter.is_some_and(|filter| !filter.fits(name)) {
                return Ok(());
            }
            clerk.pour_one(sought.root, &to).await
        }
        other => other,
    }
}

impl Hunt {
    /// Searches what arrives. It blocks.
    fn search(self, mut from: mpsc::Receiver<Piece>) -> Result<Grepped, SearchError> {
        let query = Query {
            expression: &self.expression,
            // What arrives was chosen already.
            filter: None,
            hidden: Hidden::Searched,
        };
        let mut search = Search::begin(query, &GREP_BOUNDS, &self.patience);
        let mut skipped = Skipped::default();
        let mut cut: Option<Cut> = None;
        while let Some(piece) = from.blocking_recv() {
            match piece {
                Piece::Left(path, why) => skipped.note(&path, why),
                Piece::Cut(at) => cut = Some(at),
                // Of a file that was passed over.
                Piece::Bytes(_) | Piece::End(_) => {}
                Piece::File(path) => {
                    let mut reading = Reading::of(&mut from);
                    let ending = search.file(&mut reading, &path);
                    match ending {
                        Ending::Whole => reading.pass(),
                        Ending::Left(why) => {
                            reading.pass();
                            skipped.note(&path, why);
                        }
                        Ending::Cut(at) => {
                            cut = Some(at);
                            break;
                        }
                        Ending::Cancelled => return Err(SearchError::Cancelled),
                    }
                }
            }
        }
        Ok(Grepped {
            hits: search.into_hits(),
            cut,
            skipped,
        })
    }
}
