//! What outlives a daemon: the engine, the disk, the weather, and what callers were told.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hyper::Response;
use serde_json::Value;
use tokio::sync::{Notify, OwnedMutexGuard, mpsc, oneshot};
use tokio::time::{Instant, sleep};

use super::dice::Dice;
use super::engine::{Begun, Container, Containers, Reply, Request, error};
use super::ledger::Ledger;
use super::tape::Tape;
use crate::docker::testing::{Asked, PlayedBody, Player, Playing, Unplayed};
use crate::id::SessionId;
use crate::session::record::Record;
use crate::store::recording::{Course, End, Observer};

/// The longest that a call is held up, beyond every deadline.
const SLOW_MAX: Duration = Duration::from_secs(90);
/// The longest that a commit takes.
const COMMIT_MAX: Duration = Duration::from_secs(2);

/// All of it; clones are the same scene.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    state: Arc<Mutex<State>>,
    /// Told when the daemon is to die.
    pub(super) crash: Arc<Notify>,
    pub(super) tape: Tape,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) engine: Containers,
    pub(super) ledger: Ledger,
    pub(super) weather: Weather,
    dice: Dice,
}

/// What goes wrong.
#[derive(Debug, Default)]
pub(super) struct Weather {
    /// So many of a thousand calls.
    pub(super) call_faults: u64,
    /// So many of a thousand commits.
    pub(super) commit_faults: u64,
    /// Whose container is not to be had.
    pub(super) fails_for: Option<SessionId>,
    /// Until when nobody listens.
    pub(super) away_until: Option<Instant>,
    /// The daemon dies at the end of so many further calls.
    pub(super) calls_left: Option<u64>,
    /// The daemon dies at the end of so many further commits.
    pub(super) commits_left: Option<u64>,
}

/// How a call goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Well,
    /// It is refused with 500, and has no effect.
    Fails,
    /// The connection is closed, and it has no effect.
    LostBefore,
    /// The connection is closed, and it has its effect, by and by.
    LostAfter,
    /// It is late, and so is its effect.
    Slow,
    /// It has no effect, and the daemon dies of it.
    DiesBefore,
    /// It has its effect, and the daemon dies before the answer.
    DiesAfter,
}

impl Scene {
    pub(super) fn new(seed: u64, tape: &Tape, ledger: Ledger) -> Self {
        let state = State {
            engine: Containers::new(Dice::new(seed, 1)),
            ledger,
            weather: Weather::default(),
            dice: Dice::new(seed, 2),
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            crash: Arc::default(),
            tape: tape.clone(),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the engine do what it was asked, whatever becomes of who asked.
    async fn carry_out(self, request: Request, way: Way, held_up: Duration) -> Option<Reply> {
        let boots = self.state().engine.boots;
        let held = self.wait_for_start(&request).await;
        sleep(held_up).await;
        let reply = self.do_as_asked(&request, way, boots).await;
        drop(held);
        reply
    }

    /// Waits for whoever is at a start of the container that is asked for, as the engine
    /// does, which holds it locked meanwhile; returns what holds it, for a start.
    async fn wait_for_start(&self, request: &Request) -> Option<OwnedMutexGuard<()>> {
        let (method, path) = request.words();
        let ["containers", wanted, ..] = path[..] else {
            return None;
        };
        let lock = Arc::clone(&self.state().engine.find(wanted)?.lock);
        let held = lock.lock_owned().await;
        let starts = method == "POST" && path.last() == Some(&"start");
        starts.then_some(held)
    }

    async fn do_as_asked(&self, request: &Request, way: Way, boots: u64) -> Option<Reply> {
        let begun = match way {
            _ if self.is_cut_short(boots, way) => return None,
            Way::Fails => return Some(error(500, "something went wrong")),
            Way::LostBefore => return None,
            Way::DiesBefore => {
                self.crash.notify_one();
                return None;
            }
            Way::Well | Way::LostAfter | Way::Slow | Way::DiesAfter => {
                self.state().engine.begin(request)
            }
        };
        let reply = match begun {
            Begun::Refused(reply) => reply,
            Begun::Takes(takes) => {
                sleep(takes).await;
                if self.is_cut_short(boots, way) {
                    return None;
                }
                self.finish(request)
            }
        };
        if way == Way::DiesAfter {
            self.crash.notify_one();
            return None;
        }
        (way != Way::LostAfter).then_some(reply)
    }

    /// Whether the engine ended since it was asked: then it forgets what it was asked.
    fn is_cut_short(&self, boots: u64, way: Way) -> bool {
        let is_cut_short = self.state().engine.boots != boots;
        if is_cut_short && matches!(way, Way::DiesBefore | Way::DiesAfter) {
            self.crash.notify_one();
        }
        is_cut_short
    }

    fn finish(&self, request: &Request) -> Reply {
        let mut state = self.state();
        let State { engine, ledger, .. } = &mut *state;
        let (method, path) = request.words();
        let removed = match (method, &path[..]) {
            ("DELETE", ["containers", wanted]) => engine.find(wanted).cloned(),
            _ => None,
        };
        let reply = engine.finish(request);
        if let Some(removed) = removed {
            ledger.judge_removal(&removed);
        }
        if method == "POST" {
            ledger.judge_running(engine);
        }
        reply
    }
}

impl State {
    /// Decides how a call goes.
    fn way(&mut self, request: &Request) -> Result<Way, Unplayed> {
        let now = Instant::now();
        if self.weather.away_until.is_some_and(|until| now < until) {
            return Err(Unplayed::Unreachable);
        }
        let is_look = request.method == "GET";
        if !is_look && let Some(left) = &mut self.weather.calls_left {
            if *left == 0 {
                self.weather.calls_left = None;
                let ways = [Way::DiesBefore, Way::DiesAfter];
                return Ok(self.dice.pick(&ways));
            }
            *left -= 1;
        }
        let about = request.path.get(1).map_or("", String::as_str);
        let session = || self.engine.find(about).and_then(Container::session);
        if !is_look && self.weather.fails_for.is_some() && session() == self.weather.fails_for {
            return Ok(Way::Fails);
        }
        if !self.dice.chance(self.weather.call_faults) {
            return Ok(Way::Well);
        }
        Ok(match self.dice.below(5) {
            0 => Way::Fails,
            1 => Way::LostBefore,
            2 | 3 if !is_look => Way::LostAfter,
            2 | 3 => Way::LostBefore,
            _ => Way::Slow,
        })
    }

    fn held_up(&self, way: Way) -> Duration {
        match way {
            Way::Slow => self.dice.span(Duration::from_secs(1), SLOW_MAX),
            Way::LostAfter => self.dice.wait(Duration::from_secs(5)),
            Way::Well | Way::Fails | Way::LostBefore | Way::DiesBefore | Way::DiesAfter => {
                Duration::from_millis(self.dice.below(3))
            }
        }
    }
}

/// The line from one daemon to the engine.
#[derive(Clone, Debug)]
pub(super) struct Line(pub(super) Scene);

impl Player for Line {
    fn play(&self, asked: Asked) -> Playing {
        let scene = self.0.clone();
        Box::pin(async move {
            let request = Request::new(&asked);
            let (way, held_up) = {
                let mut state = scene.state();
                let way = state.way(&request)?;
                (way, state.held_up(way))
            };
            scene.tell(&request, way);
            if request.path == ["events"] {
                return scene.follow(way).await;
            }
            scene.state().judge_call(&request);
            let (tell, told) = oneshot::channel();
            let at_work = scene.clone().carry_out(request, way, held_up);
            tokio::spawn(async move {
                let reply = at_work.await;
                drop(reply.map(|reply| tell.send(reply)));
            });
            match way {
                // As far as the caller knows it may be either.
                Way::LostAfter | Way::LostBefore => {
                    sleep(Duration::from_millis(2)).await;
                    Err(Unplayed::Closed)
                }
                Way::DiesBefore | Way::DiesAfter => std::future::pending().await,
                Way::Well | Way::Fails | Way::Slow => {
                    let (status, body) = told.await.map_err(|_| Unplayed::Closed)?;
                    Ok(answer(status, &body))
                }
            }
        })
    }
}

impl Scene {
    async fn follow(&self, way: Way) -> Result<Response<PlayedBody>, Unplayed> {
        sleep(Duration::from_millis(2)).await;
        if way != Way::Well {
            return Err(Unplayed::Closed);
        }
        let events = self.state().engine.listen();
        Ok(Response::new(events))
    }

    fn tell(&self, request: &Request, way: Way) {
        self.tape.count(match way {
            Way::Well => "calls that went well",
            Way::Fails => "calls that failed",
            Way::LostBefore | Way::LostAfter => "calls whose reply was lost",
            Way::Slow => "calls that were slow",
            Way::DiesBefore | Way::DiesAfter => "deaths by a call",
        });
        let is_routine = way == Way::Well && request.method == "GET";
        if is_routine {
            return;
        }
        let state = self.state();
        let about = request.path.get(1).map_or("", String::as_str);
        let session = state.engine.find(about).and_then(Container::session);
        drop(state);
        let what = match session {
            Some(session) => format!("of {session}"),
            None => String::new(),
        };
        let (method, path) = request.words();
        let verb = match path[..] {
            ["containers", _] => "",
            [] => "",
            _ => path.last().copied().unwrap_or_default(),
        };
        self.tape
            .note(&format!("  engine: {method} {verb} {what} {way:?}"));
    }
}

impl State {
    fn judge_call(&mut self, request: &Request) {
        let Self { engine, ledger, .. } = self;
        let (method, path) = request.words();
        match (method, &path[..]) {
            ("POST", ["containers", wanted, "stop"]) | ("DELETE", ["containers", wanted]) => {
                if let Some(found) = engine.find(wanted) {
                    ledger.judge_stop(found);
                    if method == "DELETE" {
                        ledger.doom(found);
                    }
                }
            }
            _ => {}
        }
    }
}

fn answer(status: u16, body: &Value) -> Response<PlayedBody> {
    let (piece, pieces) = mpsc::unbounded_channel();
    if !body.is_null() {
        drop(piece.send(Bytes::from(body.to_string())));
    }
    let mut response = Response::new(pieces);
    *response.status_mut() = status.try_into().expect("it is a status");
    response
}

impl Observer for Scene {
    fn course(&self) -> Course {
        let mut state = self.state();
        let takes = state.dice.wait(COMMIT_MAX);
        let mut end = End::Told;
        if let Some(left) = &mut state.weather.commits_left {
            if *left == 0 {
                state.weather.commits_left = None;
                end = state.dice.pick(&[End::LostBefore, End::LostAfter]);
            } else {
                *left -= 1;
            }
        } else if state.dice.chance(state.weather.commit_faults) {
            end = End::Fails;
        }
        drop(state);
        if end == End::Fails {
            self.tape.count("commits that failed");
        }
        if end != End::Told {
            self.tape.note(&format!("  store: a commit {end:?}"));
        }
        Course { takes, end }
    }

    fn lost(&self) {
        self.tape.count("deaths by a commit");
        self.crash.notify_one();
    }

    fn changed(&self, before: Option<&Record>, after: Option<&Record>) {
        if let Some(line) = super::tape::in_words(before, after) {
            self.tape.note(&line);
        }
        if let Some(what) = super::tape::in_a_word(before, after) {
            self.tape.count(what);
        }
        let mut state = self.state();
        let id = before.or(after).map(|record| record.spec.id.clone());
        let runs = state.engine.running().any(|one| one.session() == id);
        state.ledger.changed(before, after, runs);
    }
}
