//! Starts runs in the background, each once under its id.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::sight::About;
use super::words;
use super::{Begun, Fresh, Wish, refusal_of, unheard};
use crate::agent::connection::{Connection, Error, Started};
use crate::agent::protocol::message::{
    self, Attended, Keep, Size, Start as Asked, Stdin, Streams as Writes, What, Why,
};
use crate::control::errand::may_run_as;
use crate::control::live::Live;
use crate::control::request::{Input, Overflow, Program, Start, Streams};
use crate::control::{Control, Refusal, unwritten};
use crate::id::{RunId, SessionId};
use crate::sandbox::reach::{Late, Way};
use crate::sandbox::request::{self, Reads, Wanted};
use crate::store::{Batch, CommitError, Conflict, ExpectRun, RunFound, StoredRun, TtySize};

/// How long an agent is waited for once its container runs.
const WAY_WAIT_MAX: Duration = Duration::from_secs(10);
/// How often a start is repeated whose answer was lost with its stream.
const TRIES_MAX: usize = 3;

/// A run on its way.
struct Errand {
    id: SessionId,
    run: RunId,
    asked: Asked,
    /// Input that is sent once it runs.
    input: Option<String>,
    target: String,
    tty: Option<Size>,
    request_id: String,
}

/// The sandbox that a run is started in.
struct Berth {
    live: Live,
    connection: Connection,
}

impl Control {
    /// Starts a run in the background, on a terminal of that size where one is given, or
    /// finds the one of the same request.
    ///
    /// It is on disk before it is started. Dropping the future stops nothing.
    pub(in crate::control) async fn begin_run(
        &self,
        id: &SessionId,
        start: Start,
        tty: Option<Size>,
    ) -> Result<Begun, Refusal> {
        let record = self
            .open_record(id)
            .ok_or_else(|| Refusal::NoSession(id.clone()))?;
        may_run_as(&record, &start.options)?;
        let errand = self.errand(id, start, tty);
        let control = self.clone();
        let task = self
            .0
            .tasks
            .spawn(async move { control.start_once(errand).await });
        match task.await {
            Ok(begun) => begun,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }

    /// Puts what was asked for into the agent's words.
    fn errand(&self, id: &SessionId, start: Start, tty: Option<Size>) -> Errand {
        let run = start.run_id.clone().unwrap_or_else(RunId::random);
        let ceiling = self.0.policy.get().limits.runs.background_timeout;
        let timeout = match (start.timeout, ceiling) {
            (Some(asked), Some(ceiling)) => Some(asked.min(ceiling)),
            (asked, ceiling) => asked.or(ceiling),
        };
        let limit = start.output_limit;
        let (mut asked, input) = request::start(Wanted {
            run: &run,
            digest: String::new(),
            what: match start.program {
                Program::Argv(argv) => What::Argv(argv),
                Program::Shell(text) => What::Shell(text),
            },
            env: start.options.env,
            cwd: start.options.cwd,
            user: start.options.user,
            input: match (&start.options.stdin, tty) {
                (_, Some(_)) | (Input::Open, None) => Reads::More,
                (Input::Closed, None) => Reads::Nothing,
                (Input::Text(text), None) => Reads::Text(text),
            },
            streams: match (tty, start.streams) {
                (Some(size), _) => Writes::Tty(size),
                (None, Streams::Merged) => Writes::Merged,
                (None, Streams::Split) => Writes::Split,
            },
            timeout,
            output: match start.overflow {
                Overflow::Drop => Keep::Newest { limit },
                Overflow::Wait => Keep::All { limit },
            },
            attended: Attended::No,
        });
        let input = input.map(str::to_owned);
        asked.digest = digest(&asked, input.as_deref());
        Errand {
            id: id.clone(),
            target: words::target(&asked.what),
            run,
            asked,
            input,
            tty,
            request_id: start.request_id.to_string(),
        }
    }

    async fn start_once(&self, errand: Errand) -> Result<Begun, Refusal> {
        let Errand { id, run, .. } = &errand;
        // From here on nobody else starts it, and nobody takes it for lost.
        let starting = self.starting(id, run).await;
        if let Some(known) = self.0.books.store.run(id, run) {
            drop(starting);
            return self.known(&errand, &known).await;
        }
        let slot = self.slot(id)?;
        let berth = self.berth(id).await?;
        let stored = Arc::new(StoredRun {
            run_id: run.clone(),
            digest: errand.asked.digest.clone(),
            target: errand.target.clone(),
            started_at: self.0.books.clock.now(),
            container: berth.live.container.clone(),
            life: berth.connection.hello().life.clone(),
            tty: errand.tty.map(|Size { cols, rows }| TtySize { cols, rows }),
            request_id: Some(errand.request_id.clone()),
            ended: None,
        });
        self.write_beginning(id, &stored).await?;
        match self.start_at(&errand, &berth, &stored).await {
            Ok(started) => {
                self.watch(id, &stored, Some(slot));
                if started.fresh {
                    self.send_input(&errand, berth.connection);
                }
                Ok(Begun {
                    run: words::described(&stored, Some(&started.run)),
                    fresh: Fresh::Yes,
                })
            }
            Err(Error::Refused(why, text)) => {
                // It was not started, so it is off the record again. Until it is, nobody
                // may take it for lost.
                let batch = Batch::new().drop_run(id, run);
                let dropped = self.0.books.store.commit(batch).await;
                dropped.map_err(|error| unwritten(&error))?;
                Err(match why {
                    // All that the agent still knows is that the id was used.
                    Why::NoRun => Refusal::RunIdUsed(run.clone()),
                    why => {
                        let ceiling = self.0.policy.get().limits.runs.per_session;
                        refusal_of((id, run), Wish::Start(ceiling), (why, text))
                    }
                })
            }
            Err(Error::Closed) => {
                // It may have been: the watch finds out.
                self.watch(id, &stored, Some(slot));
                Err(unheard(id))
            }
        }
    }

    /// Answers a request under an id that is known already.
    async fn known(&self, errand: &Errand, known: &StoredRun) -> Result<Begun, Refusal> {
        let Errand { id, run, asked, .. } = errand;
        if known.digest != asked.digest {
            return Err(Refusal::RunIdUsed(run.clone()));
        }
        Ok(Begun {
            run: self.described(id, run, About::Any).await?,
            fresh: Fresh::No,
        })
    }

    /// Gets a session's running sandbox, and the stream to its agent.
    async fn berth(&self, id: &SessionId) -> Result<Berth, Refusal> {
        let woken_by = Instant::now() + self.0.policy.get().limits.execute_timeout;
        let live = self.live(id, woken_by).await;
        let live = live.map_err(crate::control::live::NotLive::refusal)?;
        let connection = self.connection(id, &live.container).await?;
        Ok(Berth { live, connection })
    }

    /// Finds the stream to the agent in a running container.
    pub(super) async fn connection(
        &self,
        id: &SessionId,
        container: &str,
    ) -> Result<Connection, Refusal> {
        let deadline = Instant::now() + WAY_WAIT_MAX;
        match self.0.reacher.way(id, container, deadline).await {
            Ok(Way::Agent(connection)) => Ok(connection),
            Ok(Way::Engine) => Err(Refusal::NeedsAgent("a run in the background", id.clone())),
            Err(Late) => Err(unheard(id)),
        }
    }

    async fn write_beginning(&self, id: &SessionId, stored: &StoredRun) -> Result<(), Refusal> {
        let batch = Batch::new().put_run(id, stored.clone(), ExpectRun::Absent);
        match self.0.books.store.commit(batch).await {
            Ok(_) => Ok(()),
            Err(CommitError::Conflict(Conflict::Run {
                found: RunFound::NoSession,
                ..
            })) => Err(Refusal::NoSession(id.clone())),
            Err(error) => Err(unwritten(&error)),
        }
    }

    /// Has an agent start a run, once, however often its stream breaks meanwhile.
    async fn start_at(
        &self,
        errand: &Errand,
        berth: &Berth,
        stored: &StoredRun,
    ) -> Result<Started, Error> {
        let mut connection = berth.connection.clone();
        for _ in 1..TRIES_MAX {
            match connection.start(errand.asked.clone()).await {
                Err(Error::Closed) => {}
                other => return other,
            }
            // The same life attaches to what it has started.
            let again = self.connection(&errand.id, &stored.container).await;
            match again {
                Ok(again) if again.hello().life == stored.life => connection = again,
                Ok(_) | Err(_) => return Err(Error::Closed),
            }
        }
        connection.start(errand.asked.clone()).await
    }

    /// Sends the input that did not go along with the start.
    fn send_input(&self, errand: &Errand, connection: Connection) {
        let Some(input) = errand.input.clone() else {
            return;
        };
        let run = errand.run.clone();
        self.0.runs.spawn(async move {
            // A run that ends before it has read everything wants no more.
            drop(connection.input(&run, input.as_bytes(), true).await);
        });
    }
}

/// Tells one request from another: everything that is asked of the agent counts, with the
/// input that follows, but the id and the size of a terminal, which changes.
fn digest(asked: &Asked, input: Option<&str>) -> String {
    let stdin = match input {
        Some(text) => Stdin::Text(text.to_owned()),
        None => asked.stdin.clone(),
    };
    request::digest(&Asked {
        run: String::new(),
        digest: String::new(),
        stdin,
        streams: match asked.streams {
            Writes::Tty(_) => Writes::Tty(Size { cols: 0, rows: 0 }),
            Writes::Merged => Writes::Merged,
            Writes::Split => Writes::Split,
        },
        ..asked.clone()
    })
}

/// The words of a run that was just found with its agent and is not on record.
pub(super) fn found(
    heard: &message::Run,
    started_at: crate::clock::Timestamp,
) -> Option<StoredRun> {
    Some(StoredRun {
        run_id: RunId::parse(&heard.run).ok()?,
        digest: heard.digest.clone(),
        target: "unknown".to_owned(),
        started_at,
        container: String::new(),
        life: String::new(),
        tty: heard.size.map(|Size { cols, rows }| TtySize { cols, rows }),
        request_id: None,
        ended: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::request::Options;
    use crate::control::testing::without_engine;
    use crate::id::RequestId;
    use crate::sandbox::request::INPUT_ALONG_MAX;
    use crate::secret::Secret;

    fn asked(change: impl FnOnce(&mut Start), tty: Option<Size>) -> Errand {
        let mut start = Start {
            run_id: None,
            program: Program::Argv(vec!["make".to_owned(), "all".to_owned()]),
            options: Options::default(),
            timeout: None,
            output_limit: None,
            streams: Streams::Split,
            overflow: Overflow::Drop,
            request_id: RequestId::random(),
        };
        change(&mut start);
        let control = without_engine(Secret::new("x".repeat(32)));
        control.errand(&SessionId::parse("a").unwrap(), start, tty)
    }

    #[tokio::test]
    async fn a_repeated_request_has_the_same_digest_and_any_other_another() {
        let same = asked(|_| {}, None).asked.digest;
        assert_eq!(same.len(), 64);
        let again = asked(|start| start.run_id = Some(RunId::random()), None);
        assert_eq!(again.asked.digest, same);
        let size = |cols| Some(Size { cols, rows: 24 });
        let tty = asked(|_| {}, size(80)).asked.digest;
        assert_eq!(asked(|_| {}, size(99)).asked.digest, tty);
        let long = "x".repeat(INPUT_ALONG_MAX + 1);
        let others = [
            tty,
            asked(
                |start| start.program = Program::Shell("make all".to_owned()),
                None,
            )
            .asked
            .digest,
            asked(|start| start.options.cwd = Some("/tmp".to_owned()), None)
                .asked
                .digest,
            asked(|start| start.options.user = Some("1".to_owned()), None)
                .asked
                .digest,
            asked(
                |start| drop(start.options.env.insert("A".to_owned(), "b".to_owned())),
                None,
            )
            .asked
            .digest,
            asked(|start| start.options.stdin = Input::Open, None)
                .asked
                .digest,
            asked(
                |start| start.options.stdin = Input::Text("a".to_owned()),
                None,
            )
            .asked
            .digest,
            asked(
                |start| start.options.stdin = Input::Text(long.clone()),
                None,
            )
            .asked
            .digest,
            asked(|start| start.timeout = Some(Duration::from_secs(1)), None)
                .asked
                .digest,
            asked(|start| start.output_limit = Some(1), None)
                .asked
                .digest,
            asked(|start| start.streams = Streams::Merged, None)
                .asked
                .digest,
            asked(|start| start.overflow = Overflow::Wait, None)
                .asked
                .digest,
        ];
        let mut all: Vec<_> = others.into_iter().chain([same]).collect();
        let n = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), n);
    }

    #[tokio::test]
    async fn what_is_asked_of_the_agent_is_what_was_asked_for() {
        let long = "x".repeat(INPUT_ALONG_MAX + 1);
        let errand = asked(
            |start| {
                start.options.stdin = Input::Text(long.clone());
                start.overflow = Overflow::Wait;
                start.output_limit = Some(7);
                start.timeout = Some(Duration::from_millis(1_500));
            },
            None,
        );
        assert_eq!(errand.asked.stdin, Stdin::Open, "it is sent afterwards");
        assert_eq!(errand.input, Some(long));
        assert_eq!(errand.asked.output, Keep::All { limit: Some(7) });
        assert_eq!(errand.asked.timeout_ms, Some(1_500));
        assert_eq!(errand.asked.attended, Attended::No);
        assert_eq!(errand.target, "make all");
        let plain = asked(
            |start| start.options.stdin = Input::Text("a".to_owned()),
            None,
        );
        assert_eq!(plain.asked.stdin, Stdin::Text("a".to_owned()));
        assert_eq!((plain.input, plain.asked.timeout_ms), (None, None));
        assert_eq!(plain.asked.output, Keep::Newest { limit: None });
        let size = Size { cols: 80, rows: 24 };
        let tty = asked(|_| {}, Some(size)).asked;
        assert_eq!((tty.stdin, tty.streams), (Stdin::Open, Writes::Tty(size)));
    }
}
