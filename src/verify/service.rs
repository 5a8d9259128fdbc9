//! Judges the store, the token key, the engine, the disk and the clock.

use std::time::Duration;

use super::finding::Finding;
use super::kind::Kind;
use super::seen::{Contents, EngineSeen, Seen, Space, StoreSeen};
use crate::session::record::Event;
use crate::store::Health;

/// The oldest API of an engine without known limits, that of Docker 25.
const API_WITHOUT_LIMITS: (u16, u16) = (1, 44);
/// Below so many free bytes it is time to act.
const FREE_BYTES_MIN: u64 = 1 << 30;
/// Below one in so many bytes free it is time to act, where a gibibyte is too much to ask.
const FREE_SHARE: u64 = 20;
/// Below so many files that can be made it is time to act.
const FREE_FILES_MIN: u64 = 10_000;
/// How far ahead of the clock something may have been written down.
const AHEAD_MAX: Duration = Duration::from_mins(1);
/// Permissions that a key must not give.
const MODE_OTHERS: u32 = 0o077;

/// Judges I7, I8 and the parts that the service stands on.
pub(super) fn judge(seen: &Seen, findings: &mut Vec<Finding>) {
    store(seen, findings);
    let contents = match &seen.store {
        StoreSeen::Read(contents) => Some(&**contents),
        StoreSeen::Nothing | StoreSeen::Broken(_) | StoreSeen::Unseen(_) => None,
    };
    key(seen, contents, findings);
    engine(seen, contents, findings);
    groups(seen, findings);
    spaces(seen, findings);
    if let Some(contents) = contents {
        endings(contents, findings);
        clock(seen, contents, findings);
    }
}

fn store(seen: &Seen, findings: &mut Vec<Finding>) {
    let contents = match &seen.store {
        StoreSeen::Read(contents) => contents,
        StoreSeen::Nothing => {
            let detail = "the state directory holds no store";
            findings.push(Finding::new(Kind::NoStore, detail));
            return;
        }
        StoreSeen::Broken(why) => {
            findings.push(Finding::new(Kind::StoreBroken, why));
            return;
        }
        StoreSeen::Unseen(why) => {
            findings.push(Finding::new(Kind::StoreUnseen, why));
            return;
        }
    };
    let before = findings.len();
    match &contents.health {
        Health::Ok => {}
        Health::Full { reason } => findings.push(Finding::new(Kind::StoreFull, &**reason)),
        Health::Degraded { reason } => {
            findings.push(Finding::new(Kind::StoreDegraded, &**reason));
        }
    }
    match &seen.marker {
        Ok(Some(marker)) if *marker == contents.instance => {}
        Ok(Some(marker)) => {
            let detail = format!(
                "the state directory is of instance {marker}, and its store of {}",
                contents.instance
            );
            findings.push(Finding::new(Kind::MarkerOther, detail));
        }
        Ok(None) => {
            let detail = "the file STATE_DIR/initialised is gone";
            findings.push(Finding::new(Kind::MarkerMissing, detail));
        }
        Err(why) => findings.push(Finding::new(Kind::MarkerUnseen, why)),
    }
    if let Some(aside) = &contents.set_aside {
        let detail = format!("the former store is {}", aside.display());
        findings.push(Finding::new(Kind::StoreBegunAnew, detail));
    }
    if findings.len() == before {
        let detail = format!("instance {} takes writes", contents.instance);
        findings.push(Finding::new(Kind::StoreSound, detail));
    }
}

fn key(seen: &Seen, contents: Option<&Contents>, findings: &mut Vec<Finding>) {
    let used = contents.and_then(|contents| contents.token_key_id.as_deref());
    let key = match &seen.key {
        Ok(Some(key)) => key,
        Ok(None) => {
            // Before the first start there is none, and nothing to miss.
            if used.is_some() {
                let detail = "the file of the token key is gone";
                findings.push(Finding::new(Kind::KeyMissing, detail));
            }
            return;
        }
        Err(why) => {
            findings.push(Finding::new(Kind::KeyUnseen, why));
            return;
        }
    };
    let path = key.path.display();
    let is_other = used.is_some_and(|used| key.id.as_deref() != Some(used));
    if key.id.is_none() || is_other {
        let detail = "the file holds another key, or none";
        findings.push(Finding::about(Kind::KeyOther, path, detail));
    } else if key.mode & MODE_OTHERS != 0 {
        let detail = format!("its permissions are {:o}", key.mode & 0o7777);
        findings.push(Finding::about(Kind::KeyOpen, path, detail));
    } else {
        let detail = "every token can be derived, and nobody else reads the key";
        findings.push(Finding::new(Kind::KeySound, detail));
    }
}

fn engine(seen: &Seen, contents: Option<&Contents>, findings: &mut Vec<Finding>) {
    let EngineSeen::Answered {
        id,
        version,
        api,
        live_restore,
        cgroup: _,
    } = &seen.engine
    else {
        findings.push(match &seen.engine {
            EngineSeen::Refused(why) => Finding::new(Kind::EngineRefused, why),
            EngineSeen::Silent(why) => Finding::new(Kind::EngineUnseen, why),
            EngineSeen::Answered { .. } => return,
        });
        return;
    };
    let known = contents.and_then(|contents| contents.engine_id.as_deref());
    match known {
        Some(known) if known != id => {
            let detail = format!("it is {id}, and the sandboxes were made on {known}");
            findings.push(Finding::new(Kind::EngineOther, detail));
        }
        Some(_) | None => {
            let detail = format!("Docker {version}, API {}.{}", api.0, api.1);
            findings.push(Finding::new(Kind::EngineSound, detail));
        }
    }
    if *api < API_WITHOUT_LIMITS {
        let detail = format!("Docker {version} is older than 25");
        findings.push(Finding::new(Kind::EngineOld, detail));
    }
    if !live_restore {
        let detail = "restarting Docker ends every sandbox's processes";
        findings.push(Finding::new(Kind::NoLiveRestore, detail));
    }
}

fn groups(seen: &Seen, findings: &mut Vec<Finding>) {
    let EngineSeen::Answered { cgroup, .. } = &seen.engine else {
        return;
    };
    let version = if cgroup.is_empty() { "unknown" } else { cgroup };
    let (kind, detail) = match seen.usage_visible {
        Some(true) => (Kind::GroupsSound, "usage is read from the host"),
        Some(false) => (Kind::UsageUnseen, "usage cannot be read from the host"),
        None => (
            Kind::GroupsSound,
            "no sandbox runs whose usage could be read",
        ),
    };
    findings.push(Finding::new(
        kind,
        format!("cgroup version {version}: {detail}"),
    ));
}

fn spaces(seen: &Seen, findings: &mut Vec<Finding>) {
    for (what, path, space) in &seen.spaces {
        let (kind, detail) = match space {
            Err(why) => (Kind::SpaceUnseen, format!("{what}: {why}")),
            Ok(space) if is_low(space) => (Kind::SpaceLow, format!("{what}: {}", room(space))),
            Ok(space) => (Kind::SpaceSound, format!("{what}: {}", room(space))),
        };
        findings.push(Finding::about(kind, path.display(), detail));
    }
}

fn is_low(space: &Space) -> bool {
    let wanted = FREE_BYTES_MIN.min(space.bytes / FREE_SHARE);
    let few_files = |files| files < FREE_FILES_MIN;
    space.free_bytes < wanted || space.free_files.is_some_and(few_files)
}

fn room(space: &Space) -> String {
    let mebibytes = |bytes: u64| bytes >> 20;
    let bytes = format!(
        "{} MiB of {} are free",
        mebibytes(space.free_bytes),
        mebibytes(space.bytes)
    );
    match space.free_files {
        Some(files) => format!("{bytes}, and room for {files} files"),
        None => bytes,
    }
}

fn endings(contents: &Contents, findings: &mut Vec<Finding>) {
    let commands = match &contents.commands {
        Ok(commands) => commands,
        Err(why) => {
            findings.push(Finding::new(Kind::EventsUnseen, why));
            return;
        }
    };
    let before = findings.len();
    for (id, seq, event) in commands {
        if let Some(why) = contradiction(event) {
            let detail = format!("event {seq}: {why}");
            findings.push(Finding::about(Kind::EndingContradicts, id, detail));
        }
    }
    if findings.len() == before {
        let detail = format!("the newest {} commands were looked at", commands.len());
        findings.push(Finding::new(Kind::EndingsSound, detail));
    }
}

/// Returns how the ending of a command contradicts itself.
fn contradiction(event: &Event) -> Option<String> {
    let code = event.detail.strip_prefix("exit ");
    let detail = &event.detail;
    match code.map(str::parse::<u8>) {
        Some(Err(_)) => Some(format!("{detail:?} is no exit code of a process")),
        Some(Ok(0)) if !event.ok => Some("it ended with 0 and is no success".to_owned()),
        Some(Ok(code)) if code != 0 && event.ok => {
            Some(format!("it ended with {code} and is a success"))
        }
        None if event.ok => Some(format!("it ended as {detail:?} and is a success")),
        Some(Ok(_)) | None => None,
    }
}

fn clock(seen: &Seen, contents: &Contents, findings: &mut Vec<Finding>) {
    let sessions = contents.sessions.values();
    let marks = sessions.map(|session| {
        let marks = &session.record.marks;
        let status = session.status.as_ref().map(|status| status.since);
        session
            .record
            .spec
            .opened_at
            .max(marks.last_used)
            .max(status.unwrap_or_default())
    });
    let latest = marks.max().unwrap_or_default();
    let ahead = latest.since(seen.now);
    let finding = if AHEAD_MAX < ahead {
        let detail = format!("something was written down {} s from now", ahead.as_secs());
        Finding::new(Kind::ClockBehind, detail)
    } else {
        Finding::new(Kind::ClockSound, format!("it is {}", seen.now))
    };
    findings.push(finding);
}
