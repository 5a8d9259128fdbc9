//! Runs seeds, and says how to run one of them again.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use tokio::runtime::Builder;

use super::callers::Wish;
use super::tape::Counts;
use super::world::World;
use crate::id::SessionId;
use crate::policy::{Home, Persist, Terms};
use crate::session::record::Reason;
use crate::session::testing;

const SECOND: Duration = Duration::from_secs(1);
/// Seeds of an ordinary run.
const SEEDS: u64 = 1_000;
/// Steps of a seed.
const STEPS: u64 = 60;
/// Seeds that fail before the others are given up.
const FAILED_MAX: usize = 5;
/// Lines that are shown of a seed that fails.
const LINES: usize = 60;

/// How a seed went.
struct Course {
    breaches: Vec<String>,
    lines: Vec<String>,
    sum: u64,
    counts: Counts,
}

fn course(seed: u64, n_lines: usize) -> Course {
    let runtime = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut world = World::new(seed);
        let breaches = world.run(STEPS).await;
        Course {
            breaches,
            lines: world.tape.last(n_lines),
            sum: world.tape.sum(),
            counts: world.tape.counts(),
        }
    })
}

/// Says what a seed broke, and how it is run again.
fn in_words(seed: u64, course: &Course) -> String {
    format!(
        "seed {seed}:\n{}\n\nbroken:\n  {}\n\nreplay it with: SANDBOXD_SIM_SEED={seed} cargo test --lib simulation::tests::whatever_goes_wrong",
        course.lines.join("\n"),
        course.breaches.join("\n  "),
    )
}

#[expect(
    clippy::disallowed_methods,
    reason = "what a test run is asked for by hand"
)]
fn asked(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is no number")),
    )
}

/// What came of many seeds.
#[derive(Default)]
struct Sum {
    counts: Counts,
    /// Those that failed, in words.
    failed: BTreeMap<u64, String>,
}

/// Runs seeds on every processor, until all are done or several have failed.
fn run(from: u64, n: u64) -> Sum {
    let sum = Mutex::new(Sum::default());
    let next = AtomicU64::new(from);
    let work = || {
        while sum.lock().unwrap().failed.len() < FAILED_MAX {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if from + n <= seed {
                return;
            }
            let course = course(seed, LINES);
            let mut sum = sum.lock().unwrap();
            if !course.breaches.is_empty() {
                sum.failed.insert(seed, in_words(seed, &course));
            }
            for (what, n) in course.counts {
                *sum.counts.entry(what).or_default() += n;
            }
        }
    };
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            if let Err(panic) = worker.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
    sum.into_inner().unwrap()
}

/// No ceiling is exceeded, a session has one container, nothing acknowledged is lost, no
/// file goes and no token, nobody is stopped in use, and all is as it should be in the end.
#[test]
fn whatever_goes_wrong_nothing_is_lost_and_all_comes_to_rest() {
    if let Some(seed) = asked("SANDBOXD_SIM_SEED") {
        let course = course(seed, usize::MAX);
        assert!(course.breaches.is_empty(), "{}", in_words(seed, &course));
        return tell(1, &course.counts);
    }
    let from = asked("SANDBOXD_SIM_FROM").unwrap_or(0);
    let n = asked("SANDBOXD_SIM_SEEDS").unwrap_or(SEEDS);
    let Sum { counts, failed } = run(from, n);
    let seeds: Vec<_> = failed.keys().collect();
    if let Some(first) = failed.values().next() {
        panic!("{first}\n\nthe seeds that failed: {seeds:?}");
    }
    if SEEDS <= n {
        // A world in which it does not happen proves nothing about it.
        let missing: Vec<_> = HAPPENS
            .iter()
            .filter(|what| !counts.contains_key(*what))
            .collect();
        assert!(missing.is_empty(), "in {n} seeds there were no {missing:?}");
    }
    tell(n, &counts);
}

#[expect(clippy::print_stdout, reason = "what was tried is part of the result")]
fn tell(n: u64, counts: &Counts) {
    println!("{n} seeds, and nothing was broken");
    for (what, n) in counts {
        println!("{n:>10} {what}");
    }
}

/// What happens in any thousand seeds.
const HAPPENS: [&str; 19] = [
    "calls that failed",
    "calls that went well",
    "calls that were slow",
    "calls whose reply was lost",
    "commits that failed",
    "deaths by a call",
    "deaths by a commit",
    "openings acknowledged",
    "openings that failed",
    "records dropped",
    "sessions closed",
    "sessions opened",
    "sessions put to sleep",
    "sessions reaped",
    "sessions that gave way",
    "sessions whose container ended",
    "sessions woken",
    "sleepers closed to make room",
    "uses",
];

#[test]
fn a_seed_always_takes_the_same_course() {
    for seed in 0..20 {
        let (first, second) = (course(seed, usize::MAX), course(seed, usize::MAX));
        let differs = first.lines.iter().zip(&second.lines).find(|(a, b)| a != b);
        assert_eq!(differs, None, "seed {seed}");
        assert_eq!(first.sum, second.sum, "seed {seed}");
    }
}

/// What a seed found once: who was not counted while it failed could wait for ever.
#[tokio::test(start_paused = true)]
async fn who_lost_its_place_while_it_failed_sleeps_and_has_one_at_its_next_use() {
    let mut terms = testing::terms();
    terms.capacity.max_sessions = Some(1);
    terms.capacity.evict_idle_after = Some(SECOND);
    terms.lifetimes.persist = Persist::Yes;
    let mut world = World::calm(0, Home::Host, terms);
    let [a, b] = ["a", "b"].map(|name| SessionId::parse(name).unwrap());
    world.begin();
    world.callers().open(Wish::of(&a));
    world.pass(5 * SECOND).await;
    let container = {
        let mut state = world.scene.state();
        let container = state.engine.running().next().unwrap().id.clone();
        state.engine.die(&container, 1, false);
        state.weather.fails_for = Some(a.clone());
        container
    };
    world.pass(5 * SECOND).await;
    world.callers().make_use(&a, 1, SECOND);
    world.pass(SECOND).await;
    world.callers().open(Wish::of(&b));
    world.pass(5 * SECOND).await;
    world.scene.state().weather.fails_for = None;
    world.pass(60 * SECOND).await;
    let parked = world.record(&a).unwrap().marks.parked.clone();
    assert_eq!(parked.map(|parked| parked.reason), Some(Reason::Evicted));
    world.callers().make_use(&a, 2, 10 * SECOND);
    world.pass(5 * SECOND).await;
    let running: Vec<_> = {
        let state = world.scene.state();
        state.engine.running().map(|one| one.id.clone()).collect()
    };
    assert_eq!(running, [container]);
    assert!(world.record(&b).unwrap().marks.parked.is_some());
    world.come_to_rest().await;
    assert_eq!(world.breaches(), [""; 0]);
}

/// What a seed found once: the session went by the container that was gone, and the one that
/// a creation left late under its name stayed for ever.
#[tokio::test(start_paused = true)]
async fn a_container_that_comes_late_is_removed_whether_its_session_sleeps_or_is_over() {
    for is_over in [false, true] {
        let mut terms = testing::terms();
        terms.lifetimes.persist = Persist::No;
        terms.lifetimes.idle_timeout = 1_000 * SECOND;
        let mut world = World::calm(0, Home::Host, terms);
        let a = SessionId::parse("a").unwrap();
        world.begin();
        world.callers().open(Wish::of(&a));
        world.pass(5 * SECOND).await;
        let container = {
            let state = world.scene.state();
            state.engine.running().next().unwrap().clone()
        };
        if is_over {
            world.callers().close(&a);
        } else {
            world.callers().hibernate(&a);
        }
        world.pass(5 * SECOND).await;
        let count = |world: &World| world.scene.state().engine.all().count();
        assert_eq!(count(&world), 0, "{is_over}");
        world.scene.state().engine.make_late(&container);
        assert_eq!(count(&world), 1, "{is_over}");
        world.pass(300 * SECOND).await;
        assert_eq!(count(&world), 0, "{is_over}");
        let marks = world.record(&a).unwrap().marks.clone();
        assert_eq!(marks.closed.is_some(), is_over);
        world.come_to_rest().await;
        assert_eq!(world.breaches(), [""; 0], "{is_over}");
    }
}

/// A world in which a session sleeps, another has the only place, and nobody gives way.
async fn sleeper_without_a_place(mut terms: Terms) -> (World, SessionId, SessionId) {
    terms.capacity.max_sessions = Some(1);
    terms.capacity.evict_idle_after = None;
    let mut world = World::calm(0, Home::Host, terms);
    let [a, b] = ["a", "b"].map(|name| SessionId::parse(name).unwrap());
    world.begin();
    world.callers().open(Wish::of(&a));
    world.pass(5 * SECOND).await;
    world.callers().hibernate(&a);
    world.pass(5 * SECOND).await;
    world.callers().open(Wish::of(&b));
    world.pass(5 * SECOND).await;
    (world, a, b)
}

/// No container too many would run if it were let in: it would wait for a place in vain.
#[tokio::test(start_paused = true)]
async fn who_would_wake_where_nobody_gives_way_is_refused_at_once_and_sleeps_on() {
    let (mut world, a, b) = sleeper_without_a_place(testing::terms()).await;
    assert!(world.record(&b).unwrap().marks.parked.is_none());
    let asleep = world.record(&a).unwrap();
    assert!(asleep.marks.parked.is_some());
    world.callers().make_use(&a, 1, SECOND);
    world.pass(SECOND).await;
    assert_eq!(world.callers().waiting(), 0);
    let after = world.record(&a).unwrap();
    assert_eq!(after.marks.generation, asleep.marks.generation);
    world.come_to_rest().await;
    assert_eq!(world.breaches(), [""; 0]);
}

/// What is refused is no use: whoever polls a sleeper does not keep it.
#[tokio::test(start_paused = true)]
async fn a_wake_that_is_refused_does_not_put_off_the_end_of_a_sleeper() {
    let mut terms = testing::terms();
    terms.lifetimes.idle_timeout = 600 * SECOND;
    let (mut world, a, b) = sleeper_without_a_place(terms).await;
    for n in 1..10 {
        world.callers().make_use(&a, n, SECOND);
        world.callers().make_use(&b, 100 + n, SECOND);
        world.pass(60 * SECOND).await;
        assert!(world.record(&a).unwrap().marks.closed.is_none(), "{n}");
    }
    world.pass(120 * SECOND).await;
    let ended = world.record(&a).unwrap().marks.closed.clone();
    assert_eq!(ended.map(|ended| ended.reason), Some(Reason::Idle));
    assert!(world.record(&b).unwrap().is_open());
    assert_eq!(world.breaches(), [""; 0]);
}
