//! Checks the store's laws against real files.

mod damage;
mod flips;
mod full_disk;
mod golden;
mod kill;
mod kill_open;
mod laws;
mod runs;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::*;
use crate::clock::{Clock, Timestamp};
use crate::id::{Alias, Nonce, RunId, SessionId, Tenant};
use crate::policy::{Ceilings, Runtime, Source};
use crate::session::record::{Event, Marks, Record, Spec};

pub(super) fn id(text: &str) -> SessionId {
    SessionId::parse(text).unwrap()
}

/// A record as a fresh session has it, of the given generation.
pub(super) fn record(session: &str, generation: u64) -> Record {
    Record {
        spec: Spec {
            id: id(session),
            alias: Alias::parse("py").unwrap(),
            runtime: Runtime {
                source: Source::Image("python:3.12".to_owned()),
                description: "Python".to_owned(),
                ceilings: Ceilings::default(),
                keep_awake: crate::policy::KeepAwake::No,
                users: crate::policy::Users::Own,
            },
            tenant: Some(Tenant::parse("acme").unwrap()),
            nonce: Nonce::parse("000102030405060708090a0b0c0d0e0f").unwrap(),
            opened_at: Timestamp::from_secs(1_700_000_000),
            order: 1,
        },
        marks: Marks {
            generation,
            last_used: Timestamp::from_secs(1_700_000_001),
            parked: None,
            closed: None,
            slept: None,
        },
    }
}

pub(super) fn event(detail: &str) -> Event {
    Event {
        at: Timestamp::from_secs(1_700_000_002),
        op: "exec".to_owned(),
        target: "make test".to_owned(),
        ok: true,
        detail: detail.to_owned(),
        duration_us: 1_250,
        request_id: Some("r-1".to_owned()),
        facts: BTreeMap::new(),
    }
}

/// A run that goes on, one of many.
pub(super) fn run(n: u32) -> StoredRun {
    StoredRun {
        run_id: RunId::parse(&format!("{n:032x}")).unwrap(),
        digest: "ab12".to_owned(),
        target: "make test".to_owned(),
        started_at: Timestamp::from_secs(1_700_000_003 + u64::from(n)),
        container: "4f53cda18c2b".to_owned(),
        life: "0011".to_owned(),
        tty: None,
        request_id: Some("r-1".to_owned()),
        ended: None,
    }
}

/// The same run, and how it ended.
pub(super) fn ended_run(n: u32) -> StoredRun {
    StoredRun {
        ended: Some(RunEnded {
            at: Timestamp::from_secs(1_700_000_010 + u64::from(n)),
            noted_at: Timestamp::from_secs(1_700_000_020),
            cause: RunCause::Exited,
            exit_code: Some(3),
            signal: None,
            stdout_bytes: 10,
            stderr_bytes: 2,
            next_seq: 4,
            truncated: false,
        }),
        ..run(n)
    }
}

pub(super) fn options(dir: &Path) -> OpenOptions<'_> {
    OpenOptions::new(dir, Probe::InProcess, Clock::host())
}

pub(super) fn page_all() -> Page {
    Page::Oldest(EVENTS_PAGE_MAX)
}

pub(super) fn open_store(dir: &Path) -> Store {
    Store::open(&options(dir)).unwrap()
}

/// Writes an executable shell script.
///
/// Another process writes it, so that no child forked meanwhile holds it open.
pub(super) fn script(dir: &Path, body: &str) -> PathBuf {
    let path = dir.join("script");
    let written = Command::new("sh")
        .args([
            "-c",
            r#"printf '#!/bin/sh\n%s\n' "$1" > "$2" && chmod 755 "$2""#,
            "sh",
            body,
        ])
        .arg(&path)
        .status()
        .unwrap();
    assert!(written.success());
    path
}

/// Copies a state directory as it is at this instant, without the reserve, which an
/// open makes again.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else if entry.file_name() != "ballast" {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}
