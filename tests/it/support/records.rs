//! Writes many sessions into the store of a daemon that does not run.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use sandboxd::clock::{Clock, Timestamp};
use sandboxd::id::{Alias, ContainerKey, Nonce, SessionId};
use sandboxd::policy::{Ceilings, KeepAwake, Runtime, Source, Users};
use sandboxd::session::record::{Event, Marks, Purge, Reason, Record, Spec, Status};
use sandboxd::store::{Batch, Expect, OpenOptions, Probe, Store};

/// Records of a batch, with a status and an event each.
const BATCH_RECORDS: u64 = 200;
/// How long before now the sessions were opened.
const AGE: Duration = Duration::from_hours(1);

/// What a session was when the daemon ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Was {
    /// Its container ran.
    Running,
    /// It was asleep, and its files in its workspace.
    Parked,
    /// It was over, and its workspace kept.
    Closed,
}

/// Adds `count` sessions, `r-0` and on, which were in turn each of these.
///
/// The alias is `bb`. Blocks; panics where the store cannot be written.
pub(crate) fn fill(state_dir: &Path, count: u64, were: &[Was]) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let options = OpenOptions::new(state_dir, Probe::InProcess, Clock::host());
    let store = Store::open(&options).unwrap();
    let kinds: Vec<(u64, Was)> = (0..count).zip(were.iter().copied().cycle()).collect();
    runtime.block_on(async {
        for chunk in kinds.chunks(usize::try_from(BATCH_RECORDS).unwrap()) {
            let batch = chunk.iter().fold(Batch::new(), |batch, (n, was)| {
                add(batch, *n, *was, store.next_order())
            });
            store.commit(batch).await.unwrap();
        }
        store.close().await.unwrap();
    });
}

fn add(batch: Batch, n: u64, was: Was, order: u64) -> Batch {
    let now = Clock::host().now();
    let opened_at = Timestamp::from_micros(now.micros() - u64::try_from(AGE.as_micros()).unwrap());
    let id = SessionId::parse(&format!("r-{n}")).unwrap();
    let opened = Marks::opened(1, opened_at);
    let marks = match was {
        Was::Running => opened,
        Was::Parked => opened.parked(now, Reason::Idle),
        Was::Closed => opened.closed(now, Purge::No, Reason::Requested),
    };
    let key = (was == Was::Running).then(ContainerKey::random);
    let status = Status {
        reached: marks.generation,
        container: key.as_ref().map(|_| Nonce::random().as_str().repeat(2)),
        spec_hash: key.as_ref().map(|_| "0123456789abcdef".to_owned()),
        key,
        incarnation: 1,
        since: now,
        started_at: Some(opened_at),
        ..Status::default()
    };
    let record = Record {
        spec: Spec {
            id: id.clone(),
            alias: Alias::parse("bb").unwrap(),
            runtime: Runtime {
                source: Source::Image("sandboxd-test/busybox:latest".to_owned()),
                description: String::new(),
                ceilings: Ceilings::default(),
                keep_awake: KeepAwake::No,
                users: Users::Own,
            },
            tenant: None,
            nonce: Nonce::random(),
            opened_at,
            order,
        },
        marks,
    };
    let event = Event {
        at: opened_at,
        op: "exec".to_owned(),
        target: "echo hi".to_owned(),
        ok: true,
        detail: "exit 0".to_owned(),
        duration_us: 50_000,
        request_id: None,
        facts: BTreeMap::new(),
    };
    batch
        .put_record(record, Expect::Absent)
        .put_status(&id, status)
        .event(Some(&id), event)
}
