//! Compares stored bytes with those that schema 1 was released with.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs;
use std::path::Path;

use expect_test::expect_file;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{ended_run, event, open_store, record, run};
use crate::clock::Timestamp;
use crate::id::{ContainerKey, InstanceId};
use crate::policy::catalogue::PackageManager;
use crate::policy::{Ceilings, RuntimeConfig, Source};
use crate::quantity::ByteSize;
use crate::session::record::{
    Closed, Event, Exec, Former, Notice, Parked, Purge, Reason, Record, Status,
};
use crate::store::codec::{decode, encode};
use crate::store::database::Database;
use crate::store::meta::Meta;
use crate::store::tally::{Runs, Tally};
use crate::store::writes::{Durability, Tree, Writes};
use crate::store::{
    Batch, Expect, Rebuilt, RunCause, RunEnded, StoredRun, TtySize, desired, marker,
};

/// Checks that a value has the bytes of its file, and that those make the value.
fn is_golden<T: Serialize + DeserializeOwned + PartialEq + Debug>(name: &str, value: &T) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden/store")
        .join(name);
    let written = String::from_utf8(encode(value).unwrap()).unwrap();
    expect_file![&path].assert_eq(&format!("{written}\n"));
    let kept = fs::read(&path).unwrap();
    assert_eq!(decode::<T>(&kept).unwrap(), *value, "{name}");
}

fn closed_record() -> Record {
    let mut record = record("built", 7);
    record.spec.tenant = None;
    record.spec.runtime.source = Source::Config(Box::new(RuntimeConfig {
        name: "data".to_owned(),
        description: "for tables".to_owned(),
        image: None,
        base_image: Some("python:3.12".to_owned()),
        packages: vec!["pandas".to_owned()],
        package_manager: PackageManager::Pip,
        setup_commands: vec!["true".to_owned()],
        env_vars: BTreeMap::from([("LANG".to_owned(), "C.UTF-8".to_owned())]),
        work_dir: "/workspace".to_owned(),
        cache_image: true,
        run_as_uid: Some(1_000),
    }));
    record.spec.runtime.ceilings = Ceilings {
        mem_limit: Some(ByteSize::parse("512m").unwrap()),
        pids_limit: Some(64),
        ..Ceilings::default()
    };
    record.marks.parked = Some(Parked {
        at: Timestamp::from_secs(1_700_000_100),
        reason: Reason::Evicted,
    });
    record.marks.closed = Some(Closed {
        at: Timestamp::from_secs(1_700_000_200),
        purge: Purge::Yes,
        reason: Reason::Requested,
    });
    record
}

#[test]
fn a_record_is_stored_as_schema_1_has_it() {
    is_golden("record.json", &record("s-0123456789abcdef", 1));
    is_golden("record-closed.json", &closed_record());
}

#[test]
fn a_status_is_stored_as_schema_1_has_it() {
    is_golden("status-new.json", &Status::default());
    is_golden(
        "status.json",
        &Status {
            reached: 3,
            key: Some(ContainerKey::parse("00112233445566778899aabbccddeeff").unwrap()),
            container: Some("4f53cda18c2b".to_owned()),
            incarnation: 2,
            notice: Some(Notice::Hibernated),
            files_lost: true,
            attempts: 1,
            last_error: Some("no such image".to_owned()),
            since: Timestamp::from_micros(1_700_000_300_000_001),
            started_at: Some(Timestamp::from_micros(1_700_000_200_000_000)),
            spec_hash: Some("ab12".to_owned()),
            exec: Exec::Docker,
            former: Vec::new(),
        },
    );
    is_golden(
        "status-agent.json",
        &Status {
            exec: Exec::Agent,
            ..Status::default()
        },
    );
    is_golden(
        "status-former.json",
        &Status {
            former: vec![Former {
                container: "28ea5b6f2d42".to_owned(),
                since: Timestamp::from_secs(1_700_000_400),
                reported: true,
            }],
            ..Status::default()
        },
    );
}

#[test]
fn an_event_is_stored_as_schema_1_has_it() {
    is_golden("event.json", &event("exit 0"));
    is_golden(
        "event-service.json",
        &Event {
            request_id: None,
            facts: BTreeMap::from([("tenant".to_owned(), "acme".to_owned())]),
            ..event("reaped")
        },
    );
}

#[test]
fn a_run_is_stored_as_schema_1_has_it() {
    is_golden("run.json", &run(1));
    is_golden("run-ended.json", &ended_run(2));
    is_golden(
        "run-tty-lost.json",
        &StoredRun {
            tty: Some(TtySize {
                cols: 120,
                rows: 40,
            }),
            request_id: None,
            ended: Some(RunEnded {
                cause: RunCause::ContainerLost,
                exit_code: None,
                signal: Some(9),
                truncated: true,
                ..ended_run(3).ended.unwrap()
            }),
            ..run(3)
        },
    );
}

#[test]
fn an_identity_is_stored_as_schema_1_has_it() {
    let instance = InstanceId::parse("ffeeddccbbaa99887766554433221100").unwrap();
    is_golden("instance.json", &instance);
    is_golden("token-key-id.json", &Some("0123456789abcdef".to_owned()));
    is_golden("engine-id.json", &None::<String>);
    is_golden("order.json", &42_u64);
}

#[test]
fn what_the_store_knows_of_itself_is_stored_as_schema_1_has_it() {
    is_golden(
        "tally.json",
        &Some(Tally {
            commits: 12,
            records: 3,
            statuses: 2,
            sum: 7,
            runs: None,
        }),
    );
    is_golden(
        "tally-runs.json",
        &Some(Tally {
            commits: 12,
            records: 3,
            statuses: 2,
            sum: 7,
            runs: Some(Runs { rows: 5, over: 4 }),
        }),
    );
    let mut rebuilt = Rebuilt::begin(
        Timestamp::from_secs(1_700_000_000),
        "/var/lib/sandboxd/store.corrupt-2023-11-14T22-13-20Z".to_owned(),
        "its log is gone".to_owned(),
    );
    rebuilt.sessions = 4;
    rebuilt.files_read = true;
    is_golden("rebuilt.json", &Some(rebuilt));
}

#[tokio::test]
async fn a_store_from_before_the_tally_opens_and_is_tallied_from_then_on() {
    let dir = tempfile::tempdir().unwrap();
    let database_dir = dir.path().join("store/v1");
    fs::create_dir_all(&database_dir).unwrap();
    let instance = InstanceId::random();
    let mut writes = Writes::default();
    Meta::new(instance.clone()).put(&mut writes).unwrap();
    for key in ["tally", "rebuilt"] {
        writes.remove(Tree::Meta, key.as_bytes().to_vec());
    }
    desired::put(&mut writes, &record("old", 3)).unwrap();
    let database = Database::open(&database_dir).unwrap();
    database.apply(&writes, Durability::Synced).unwrap();
    database.close();
    marker::write(dir.path(), &instance).unwrap();
    for generation in [3, 4] {
        let store = open_store(dir.path());
        let next = record("old", generation + 1);
        let batch = Batch::new().put_record(next, Expect::Generation(generation));
        store.commit(batch).await.unwrap();
        store.close().await.unwrap();
    }
    let database = Database::open(&database_dir).unwrap();
    let meta = database.load().unwrap().unwrap().meta;
    let tally = Tally {
        commits: 2,
        records: 1,
        statuses: 0,
        sum: 5,
        runs: Some(Runs::default()),
    };
    assert_eq!(meta.tally, Some(tally));
}
