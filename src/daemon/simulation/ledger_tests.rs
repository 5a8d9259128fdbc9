//! Breaks each promise by hand: a ledger that sees nothing proves nothing.

use std::time::Duration;

use super::dice::Dice;
use super::engine::Containers;
use super::ledger::{Ask, Ledger, Rules};
use crate::clock::Timestamp;
use crate::id::{ContainerKey, Nonce, SessionId, Tenant};
use crate::policy::{Capacity, Lifetimes, Persist};
use crate::session::record::{Purge, Reason, Record};
use crate::session::testing;

const NOW: Timestamp = Timestamp::from_secs(1_760_000_000);

fn rules() -> Rules {
    let terms = testing::terms();
    Rules {
        capacity: Capacity {
            max_sessions: Some(1),
            max_open_sessions: Some(1),
            max_sessions_per_tenant: Some(1),
            evict_idle_after: Some(Duration::from_secs(10)),
        },
        lifetimes: Lifetimes {
            persist: Persist::Yes,
            ..terms.lifetimes
        },
        root: None,
    }
}

fn id() -> SessionId {
    SessionId::parse("a").unwrap()
}

/// A ledger with an open session that was asked for.
fn opened() -> (Ledger, Record) {
    let mut ledger = Ledger::new(rules());
    let record = testing::record("a");
    ledger.ask(&id(), Ask::Open);
    ledger.changed(None, Some(&record), true);
    ledger.opened(&id(), "token", Duration::ZERO);
    ledger.answered(&id(), Ask::Open, Duration::ZERO);
    assert_eq!(ledger.breaches, [""; 0]);
    (ledger, record)
}

#[track_caller]
fn assert_told(ledger: &Ledger, what: &str) {
    let told = &ledger.breaches;
    assert!(told.iter().any(|breach| breach.contains(what)), "{told:?}");
}

fn closed(record: &Record, reason: Reason) -> Record {
    record.with(record.marks.closed(NOW, Purge::No, reason))
}

#[tokio::test(start_paused = true)]
async fn what_nobody_asked_for_is_a_breach() {
    let mut ledger = Ledger::new(rules());
    ledger.changed(None, Some(&testing::record("a")), true);
    assert_told(&ledger, "nobody asked");
    let (mut ledger, record) = opened();
    ledger.changed(
        Some(&record),
        Some(&closed(&record, Reason::Requested)),
        true,
    );
    assert_told(&ledger, "it was closed, and nobody asked");
    let (mut ledger, record) = opened();
    let asleep = record.with(record.marks.parked(NOW, Reason::Requested));
    ledger.changed(Some(&record), Some(&asleep), true);
    assert_told(&ledger, "it was put to sleep, and nobody asked");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_replaced_or_dropped_is_a_breach() {
    let (mut ledger, record) = opened();
    let mut other = record.with(record.marks.raised());
    other.spec.nonce = Nonce::random();
    ledger.changed(Some(&record), Some(&other), true);
    assert_told(&ledger, "was replaced");
    let (mut ledger, record) = opened();
    ledger.changed(Some(&record), None, true);
    assert_told(&ledger, "was dropped");
    let (mut ledger, _) = opened();
    ledger.opened(&id(), "another", Duration::ZERO);
    assert_told(&ledger, "another token");
}

#[tokio::test(start_paused = true)]
async fn what_ends_too_early_or_in_use_is_a_breach() {
    let (mut ledger, record) = opened();
    ledger.changed(Some(&record), Some(&closed(&record, Reason::Idle)), true);
    assert_told(&ledger, "reaped after");
    let (mut ledger, record) = opened();
    tokio::time::sleep(Duration::from_hours(1)).await;
    ledger.used(&id(), 1);
    ledger.changed(Some(&record), Some(&closed(&record, Reason::Idle)), true);
    assert_told(&ledger, "reaped in use");
    let (mut ledger, record) = opened();
    let asleep = record.with(record.marks.parked(NOW, Reason::Evicted));
    ledger.changed(Some(&record), Some(&asleep), true);
    assert_told(&ledger, "gave way after 0ns");
    let (mut ledger, record) = opened();
    ledger.used(&id(), 1);
    tokio::time::sleep(Duration::from_mins(1)).await;
    let asleep = record.with(record.marks.parked(NOW, Reason::Evicted));
    ledger.changed(Some(&record), Some(&asleep), true);
    assert_told(&ledger, "gave way in use");
    let (mut ledger, record) = opened();
    ledger.changed(
        Some(&record),
        Some(&closed(&record, Reason::StartFailed)),
        true,
    );
    assert_told(&ledger, "taken for stillborn");
    let (mut ledger, record) = opened();
    ledger.changed(Some(&record), Some(&closed(&record, Reason::Evicted)), true);
    assert_told(&ledger, "did not sleep");
}

#[tokio::test(start_paused = true)]
async fn more_than_may_be_open_is_a_breach() {
    let (mut ledger, _) = opened();
    let mut other = testing::record("b");
    for record in [testing::record("c"), other.clone()] {
        ledger.ask(&record.spec.id, Ask::Open);
        ledger.changed(None, Some(&record), true);
    }
    let engine = Containers::new(Dice::new(0, 0));
    ledger.judge_all(&engine);
    assert_told(&ledger, "3 sessions are open");
    for name in ["b", "c"] {
        other.spec.id = SessionId::parse(name).unwrap();
        other.spec.tenant = Some(Tenant::parse("t").unwrap());
        ledger.changed(None, Some(&other), true);
    }
    ledger.judge_all(&engine);
    assert_told(&ledger, "2 sessions of t are open");
}

#[tokio::test(start_paused = true)]
async fn what_runs_beyond_its_ceiling_or_is_stopped_in_use_is_a_breach() {
    let (mut ledger, _) = opened();
    let mut engine = Containers::new(Dice::new(0, 0));
    let mut ids = Vec::new();
    for _ in 0..2 {
        ids.push(engine.put(&id(), &ContainerKey::random()));
    }
    ledger.judge_running(&engine);
    assert_told(&ledger, "2 containers run");
    assert_told(&ledger, "two containers of");
    ledger.used(&id(), 1);
    ledger.judge_stop(engine.find(&ids[0]).unwrap());
    assert_told(&ledger, "stopped in use");
}

#[tokio::test(start_paused = true)]
async fn a_file_that_goes_is_a_breach() {
    let (mut ledger, _) = opened();
    let mut engine = Containers::new(Dice::new(0, 0));
    let container = engine.put(&id(), &ContainerKey::random());
    engine.write(&container, 1);
    ledger.wrote(&id(), 1);
    ledger.judge_all(&engine);
    assert_eq!(ledger.breaches, [""; 0]);
    let removed = engine.destroy(&container).unwrap();
    ledger.judge_removal(&removed);
    assert_told(&ledger, "the only copy");
    let (mut ledger, _) = opened();
    ledger.wrote(&id(), 2);
    ledger.judge_all(&engine);
    assert_told(&ledger, "has lost files: [2]");
}

/// The time of what is over counts from when its closing was asked for: the host may sleep
/// between that and its commit, but what it slept before counts for nothing.
#[tokio::test(start_paused = true)]
async fn a_container_may_go_when_its_time_has_passed_since_its_closing_was_asked_for() {
    const TTL: Duration = Duration::from_mins(1);
    for (before, between, may_go) in [
        (Duration::ZERO, TTL, true),
        (TTL, Duration::ZERO, false),
        (TTL, Duration::from_secs(55), false),
    ] {
        let (mut ledger, record) = opened();
        tokio::time::sleep(Duration::from_secs(10)).await;
        ledger.rules.lifetimes.container_ttl = Some(TTL);
        let mut engine = Containers::new(Dice::new(0, 0));
        let container = engine.put(&id(), &ContainerKey::random());
        engine.write(&container, 1);
        ledger.wrote(&id(), 1);
        ledger.pass(before);
        ledger.ask(&id(), Ask::Close);
        ledger.pass(between);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let over = closed(&record, Reason::Requested);
        ledger.changed(Some(&record), Some(&over), true);
        ledger.doom(engine.find(&container).unwrap());
        ledger.judge_removal(&engine.destroy(&container).unwrap());
        assert_eq!(ledger.breaches.is_empty(), may_go, "{before:?} {between:?}");
    }
}

/// Who gives way was chosen before that is seen: a use that begins in between is none of
/// its business, however long the host sleeps meanwhile.
#[tokio::test(start_paused = true)]
async fn a_use_that_begins_between_a_choice_and_its_commit_is_no_breach() {
    for (waits, is_breach) in [(1, false), (5, true)] {
        let (mut ledger, record) = opened();
        tokio::time::sleep(Duration::from_mins(1)).await;
        ledger.used(&id(), 1);
        ledger.pass(Duration::from_mins(1));
        tokio::time::sleep(Duration::from_secs(waits)).await;
        let asleep = record.with(record.marks.parked(NOW, Reason::Evicted));
        ledger.changed(Some(&record), Some(&asleep), true);
        assert_eq!(!ledger.breaches.is_empty(), is_breach, "{waits}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_file_that_is_written_under_a_purge_may_go_with_it() {
    let (mut ledger, record) = opened();
    ledger.ask(&id(), Ask::Purge);
    let purged = record.with(record.marks.closed(NOW, Purge::Yes, Reason::Requested));
    ledger.changed(Some(&record), Some(&purged), true);
    ledger.wrote(&id(), 1);
    ledger.judge_all(&Containers::new(Dice::new(0, 0)));
    assert_eq!(ledger.breaches, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_file_that_expired_may_be_missing_after_its_session_was_opened_anew() {
    const TTL: Duration = Duration::from_mins(1);
    for (age, may_go) in [(TTL * 2, true), (TTL / 2, false)] {
        let root = tempfile::tempdir().unwrap();
        let (mut ledger, record) = opened();
        ledger.rules.root = Some(root.path().to_owned());
        ledger.rules.lifetimes.workspace_ttl = Some(TTL);
        ledger.wrote(&id(), 1);
        ledger.ask(&id(), Ask::Close);
        let over = closed(&record, Reason::Requested);
        ledger.changed(Some(&record), Some(&over), true);
        ledger.pass(age);
        ledger.ask(&id(), Ask::Open);
        let mut again = testing::record("a");
        again.marks = over.marks.raised();
        again.marks.closed = None;
        ledger.changed(Some(&over), Some(&again), true);
        ledger.judge_all(&Containers::new(Dice::new(0, 0)));
        let told = ledger
            .breaches
            .iter()
            .any(|what| what.contains("lost files"));
        assert_eq!(told, !may_go, "{:?}", ledger.breaches);
    }
}
