//! A host, its daemon, its callers and its mishaps, step by step as the dice fall.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::time::{Instant, sleep, timeout};

use super::callers::{Callers, Wish};
use super::dice::Dice;
use super::ledger::{Ledger, Rules};
use super::life::{Life, Settled};
use super::scene::Scene;
use super::tape::Tape;
use crate::clock::Timestamp;
use crate::control::request::{Attach, Viewer, WhenOpen};
use crate::id::{SessionId, Tenant};
use crate::policy::{Home, Persist, Terms};
use crate::secret::TokenKey;
use crate::session::record::Record;
use crate::session::testing;
use crate::store::recording::Disk;

/// Where the wall clock begins.
const BEGAN: Timestamp = Timestamp::from_secs(1_760_000_000);
/// The longest that callers may wait once nothing goes wrong any more.
const ANSWERS_MAX: Duration = Duration::from_mins(30);
/// How long everything has to come to rest.
const REST: Duration = Duration::from_mins(5);
/// How often it is looked whether it has.
const LOOKS_MAX: usize = 3;
/// A clock that was ahead by so much is not believed.
const FAR: Duration = Duration::from_hours(60 * 24);

/// What stands and what happens.
pub(super) struct World {
    dice: Dice,
    pub(super) tape: Tape,
    pub(super) scene: Scene,
    settled: Settled,
    disk: Disk,
    /// What the wall shows when the runtime's clock shows nothing.
    wall: Timestamp,
    began: Instant,
    life: Option<(Life, Callers)>,
    call_faults: u64,
    commit_faults: u64,
    n_files: u64,
    _dir: TempDir,
}

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// Throws the settings of an operator.
fn terms(dice: &Dice, home: Home) -> Terms {
    let mut terms = testing::terms();
    let max = 1 + dice.below(3);
    terms.capacity.max_sessions = Some(max);
    terms.capacity.max_open_sessions = dice.pick(&[None, Some(max + dice.below(3))]);
    terms.capacity.max_sessions_per_tenant = dice.pick(&[None, Some(1), Some(2)]);
    terms.lifetimes.idle_timeout = dice.pick(&[secs(60), secs(180), secs(3_600)]);
    terms.lifetimes.workspace_ttl = dice.pick(&[None, Some(secs(120)), Some(secs(900))]);
    terms.lifetimes.container_ttl = dice.pick(&[None, Some(secs(60)), Some(secs(600))]);
    terms.lifetimes.persist = dice.pick(&[Persist::Yes, Persist::No]);
    terms.limits.open_queue_max = dice.pick(&[1, 3, 100]);
    match home {
        Home::Host => {
            terms.capacity.evict_idle_after = dice.pick(&[None, Some(secs(1)), Some(secs(20))]);
            terms.lifetimes.hibernate_idle_after = dice.pick(&[None, None, Some(secs(30))]);
        }
        // There everything would be lost by it.
        Home::Container => {}
    }
    terms
}

impl World {
    /// A world of mishaps.
    pub(super) fn new(seed: u64) -> Self {
        let dice = Dice::new(seed, 0);
        let home = dice.pick(&[Home::Host, Home::Host, Home::Host, Home::Container]);
        let terms = terms(&dice, home);
        let mut world = Self::calm(seed, home, terms);
        world.call_faults = dice.pick(&[0, 10, 30, 100]);
        world.commit_faults = dice.pick(&[0, 0, 10, 50]);
        {
            let mut state = world.scene.state();
            state.engine.event_faults = dice.pick(&[0, 100, 500, 1_000]);
            state.engine.has_image(dice.chance(700));
        }
        world
    }

    /// A world in which nothing goes wrong by itself.
    pub(super) fn calm(seed: u64, home: Home, terms: Terms) -> Self {
        let dice = Dice::new(seed, 3);
        let dir = scratch();
        let settled = Settled {
            terms,
            dir: dir.path().to_owned(),
            home,
            calls_max: dice.pick(&[2, 4, 8]),
            tokens: TokenKey::from_bytes(&[7; 32]).expect("it is 32 bytes"),
        };
        let rules = Rules {
            capacity: settled.terms.capacity.clone(),
            lifetimes: settled.terms.lifetimes.clone(),
            root: settled.root(),
        };
        let tape = Tape::begin();
        let scene = Scene::new(seed, &tape, Ledger::new(rules));
        tape.note(&format!("{home:?} {:?}", settled.terms.capacity));
        tape.note(&format!("{:?}", settled.terms.lifetimes));
        scene.state().engine.has_image(true);
        Self {
            dice,
            tape,
            scene,
            settled,
            disk: Disk::new(),
            wall: BEGAN,
            began: Instant::now(),
            life: None,
            call_faults: 0,
            commit_faults: 0,
            n_files: 0,
            _dir: dir,
        }
    }

    /// Goes through a life of so many steps, and then lets everything come to rest.
    ///
    /// Returns what was broken.
    pub(super) async fn run(&mut self, steps: u64) -> Vec<String> {
        self.begin();
        for step in 0..steps {
            self.storm(true);
            self.step(step).await;
            self.judge();
            if self.is_broken() {
                return self.breaches();
            }
        }
        self.come_to_rest().await;
        let breaches = self.breaches();
        if let Some((life, _)) = self.life.take() {
            life.kill().await;
        }
        breaches
    }

    fn is_broken(&self) -> bool {
        !self.scene.state().ledger.breaches.is_empty()
    }

    pub(super) fn breaches(&self) -> Vec<String> {
        self.scene.state().ledger.breaches.clone()
    }

    fn storm(&self, is_on: bool) {
        let mut state = self.scene.state();
        state.weather.call_faults = if is_on { self.call_faults } else { 0 };
        state.weather.commit_faults = if is_on { self.commit_faults } else { 0 };
        if !is_on {
            state.weather.away_until = None;
            state.weather.calls_left = None;
            state.weather.commits_left = None;
            state.weather.fails_for = None;
            state.engine.event_faults = 0;
        }
    }

    fn wall(&self) -> Timestamp {
        self.wall.plus(self.began.elapsed())
    }

    /// Starts the daemon.
    pub(super) fn begin(&mut self) {
        self.tape.note("the daemon starts");
        self.tape.count("starts of the daemon");
        self.scene.state().ledger.start();
        let life = Life::begin(&self.settled, &self.scene, &self.disk, self.wall());
        let callers = Callers::of(&self.scene, &life.control);
        self.life = Some((life, callers));
    }

    /// Lets time pass, in which the daemon may come to its end.
    pub(super) async fn pass(&mut self, span: Duration) {
        let crash = Arc::clone(&self.scene.crash);
        if timeout(span, crash.notified()).await.is_ok() {
            self.tape.note("the daemon dies of it");
            self.kill().await;
            self.stay_down().await;
        }
    }

    async fn kill(&mut self) {
        if let Some((life, callers)) = self.life.take() {
            drop(callers);
            life.kill().await;
            self.scene.state().ledger.hang_up();
        }
    }

    /// Starts the daemon again, some time later and now and then at some other time.
    async fn stay_down(&mut self) {
        {
            let mut state = self.scene.state();
            state.weather.calls_left = None;
            state.weather.commits_left = None;
        }
        let span = self.dice.pick(&[secs(0), secs(1), secs(30)]);
        sleep(span).await;
        match self.dice.below(8) {
            0 => {
                let ahead = self.dice.span(secs(1), secs(600));
                self.tape
                    .note(&format!("the wall clock is set ahead by {ahead:?}"));
                self.wall = self.wall.plus(ahead);
                self.scene.state().ledger.pass(ahead);
            }
            1 => {
                let back = self.dice.span(secs(1), secs(86_400));
                self.tape
                    .note(&format!("the wall clock is set back by {back:?}"));
                self.wall = self.wall.before(back).expect("the epoch is far");
            }
            2 => {
                self.tape.note("the wall clock is set ahead by months");
                self.wall = self.wall.plus(FAR);
            }
            _ => {}
        }
        // What was told before belongs to the daemon that died.
        let crash = Arc::clone(&self.scene.crash);
        drop(timeout(Duration::from_millis(1), crash.notified()).await);
        self.begin();
    }

    async fn step(&mut self, step: u64) {
        let id = self.id();
        match self.dice.below(100) {
            0..=29 => self.open(),
            30..=54 => {
                self.n_files += 1;
                let file = self.n_files;
                let span = self.dice.pick(&[secs(0), secs(1), secs(15), secs(60)]);
                self.tape.note(&format!("{step}: use {id} for {span:?}"));
                self.callers().make_use(&id, file, span);
            }
            55..=61 => {
                self.tape.note(&format!("{step}: close {id}"));
                self.callers().close(&id);
            }
            62..=66 => {
                let open = self.dice.pick(&[WhenOpen::Refuse, WhenOpen::Close]);
                self.tape.note(&format!("{step}: purge {id} {open:?}"));
                self.callers().purge(&id, open);
            }
            67..=72 => {
                self.tape.note(&format!("{step}: hibernate {id}"));
                self.callers().hibernate(&id);
            }
            73..=82 => self.mishap(step),
            83..=86 => self.plan_death(step),
            87 => self.end_daemon(step).await,
            88 => {
                let slept = self.dice.span(secs(1), secs(300));
                self.tape
                    .note(&format!("{step}: the host sleeps for {slept:?}"));
                if let Some((life, _)) = &self.life {
                    life.clock.advance(slept);
                }
                self.wall = self.wall.plus(slept);
                self.scene.state().ledger.pass(slept);
            }
            _ => {}
        }
        let span = match self.dice.below(10) {
            0..=3 => Duration::from_millis(self.dice.below(50)),
            4..=7 => self.dice.span(Duration::ZERO, secs(3)),
            8 => self.dice.span(secs(3), secs(30)),
            _ => self.dice.span(secs(30), secs(100)),
        };
        self.pass(span).await;
    }

    fn open(&mut self) {
        let wish = Wish {
            id: self.id(),
            tenant: self.dice.pick(&[None, Some("t"), Some("u")]).map(tenant),
            attach: self
                .dice
                .pick(&[Attach::Reuse, Attach::Reuse, Attach::Never, Attach::Only]),
            patience: self.dice.pick(&[secs(0), secs(0), secs(20), secs(200)]),
        };
        self.tape.note(&format!("open {wish:?}"));
        self.callers().open(wish);
    }

    /// Something happens that the daemon is not asked about.
    fn mishap(&mut self, step: u64) {
        let id = self.id();
        let mut state = self.scene.state();
        let found = state
            .engine
            .all()
            .find(|one| one.session().as_ref() == Some(&id));
        let container = found.cloned();
        let what = match (self.dice.below(7), container) {
            (0, Some(container)) => {
                state.engine.die(&container.id, 1, false);
                "its container dies"
            }
            (1, Some(container)) => {
                state.engine.die(&container.id, 137, true);
                "its container runs out of memory"
            }
            (2, Some(container)) => {
                let removed = state.engine.destroy(&container.id);
                if removed.is_some_and(|removed| removed.workspace().is_none()) {
                    state.ledger.robbed(&id);
                }
                "its container is removed"
            }
            (3, _) => {
                let away = self.dice.span(secs(1), secs(60));
                state.weather.away_until = Some(Instant::now() + away);
                state.engine.cut_events();
                if self.dice.chance(500) {
                    state.engine.reboot();
                }
                "the engine is away"
            }
            (4, _) => {
                state.engine.cut_events();
                "the stream of events breaks"
            }
            (5, _) => {
                let root = self.settled.root();
                let home = root.map(|root| root.join(id.as_str()));
                if home.is_some_and(remove) {
                    state.ledger.robbed(&id);
                }
                "its workspace is removed"
            }
            (6, _) => {
                let is_there = self.dice.chance(500);
                state.engine.has_image(is_there);
                "an image comes or goes"
            }
            _ => "nothing happens",
        };
        drop(state);
        self.tape.note(&format!("{step}: {id}: {what}"));
    }

    fn plan_death(&mut self, step: u64) {
        let after = self.dice.below(6);
        let mut state = self.scene.state();
        if self.dice.chance(600) {
            self.tape
                .note(&format!("{step}: to die after {after} calls"));
            state.weather.calls_left = Some(after);
        } else {
            self.tape
                .note(&format!("{step}: to die after {after} commits"));
            state.weather.commits_left = Some(after);
        }
    }

    async fn end_daemon(&mut self, step: u64) {
        match self.dice.below(3) {
            0 => {
                self.tape.note(&format!("{step}: the daemon is killed"));
                self.kill().await;
            }
            1 => {
                self.tape.note(&format!("{step}: the power fails"));
                self.kill().await;
                self.disk.lose_power();
                self.scene.state().engine.reboot();
            }
            _ => {
                self.tape.note(&format!("{step}: the daemon is stopped"));
                if let Some((life, callers)) = self.life.take() {
                    drop(callers);
                    // What it waits for may be kept from it for good.
                    drop(timeout(secs(120), life.stop()).await);
                    self.scene.state().ledger.hang_up();
                }
            }
        }
        self.stay_down().await;
    }

    /// Returns the record of a session.
    pub(super) fn record(&self, id: &SessionId) -> Option<Arc<Record>> {
        let (life, _) = self.life.as_ref()?;
        life.store.record(id)
    }

    fn judge(&self) {
        let mut state = self.scene.state();
        let super::scene::State { engine, ledger, .. } = &mut *state;
        ledger.judge_all(engine);
        let tokens = ledger.tokens();
        drop(state);
        let Some((life, _)) = &self.life else {
            return;
        };
        for (id, token) in tokens {
            if life.control.authenticate(&id, token.as_bytes()) != Some(Viewer::Session) {
                let breach = format!("the token of {id} is not good any more");
                self.scene.state().ledger.breach(breach);
            }
        }
    }

    /// Faults end; then callers are answered, and everything becomes as it should be.
    pub(super) async fn come_to_rest(&mut self) {
        self.storm(false);
        self.scene.state().engine.has_image(true);
        self.tape.note("nothing goes wrong any more");
        // The last planned death may have come already.
        self.pass(secs(1)).await;
        let began = Instant::now();
        while 0 < self.callers().waiting() {
            if ANSWERS_MAX < began.elapsed() {
                let breach = "callers wait for ever".to_owned();
                return self.scene.state().ledger.breach(breach);
            }
            self.pass(secs(1)).await;
        }
        let mut unlike = Vec::new();
        for _ in 0..LOOKS_MAX {
            self.pass(REST).await;
            self.judge();
            unlike = self.unlike();
            if unlike.is_empty() {
                return;
            }
        }
        self.scene.state().ledger.breaches.extend(unlike);
    }

    /// Says what is not as the records have it.
    fn unlike(&self) -> Vec<String> {
        let Some((life, _)) = &self.life else {
            return vec!["no daemon runs".to_owned()];
        };
        let state = self.scene.state();
        super::rest::unlike(&life.store, &state.engine, &self.settled)
    }

    pub(super) fn callers(&mut self) -> &mut Callers {
        let (_, callers) = self.life.as_mut().expect("a daemon runs between steps");
        callers
    }

    fn id(&self) -> SessionId {
        let name = self.dice.pick(&["a", "b", "c", "d", "e"]);
        SessionId::parse(name).expect("it is a name")
    }
}

fn tenant(name: &str) -> Tenant {
    Tenant::parse(name).expect("it is a name")
}

/// Makes a directory, in memory where there is such a place.
fn scratch() -> TempDir {
    let memory = std::path::Path::new("/dev/shm");
    let made = tempfile::Builder::new()
        .prefix("sandboxd-sim-")
        .tempdir_in(memory);
    made.or_else(|_| tempfile::tempdir())
        .expect("there is a place for files")
}

/// Removes what an operator removes by mistake; says whether it was there.
#[expect(
    clippy::disallowed_methods,
    reason = "what is in there is a few files of this test"
)]
fn remove(home: PathBuf) -> bool {
    std::fs::remove_dir_all(home).is_ok()
}
