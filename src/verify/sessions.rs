//! Judges sessions against their containers, their workspaces and the ceilings.

use std::collections::BTreeMap;

use super::finding::Finding;
use super::kind::Kind;
use super::seen::{Contents, Home, Presence, Seen, SessionSeen, StoreSeen};
use crate::docker::inspect::{State, Summary};
use crate::id::{ContainerKey, SessionId, Tenant};
use crate::session::admission::Standing;
use crate::session::blueprint::{LABEL_INSTANCE, LABEL_KEY};
use crate::session::record::{Purge, Reason, Record, Status};

/// Names that the detail of one finding lists.
const NAMES_SHOWN_MAX: usize = 10;

/// Judges I1, I2, I3 and I6.
pub(super) fn judge(seen: &Seen, findings: &mut Vec<Finding>) {
    let contents = match &seen.store {
        StoreSeen::Read(contents) => contents,
        StoreSeen::Nothing => return,
        StoreSeen::Broken(why) | StoreSeen::Unseen(why) => {
            findings.push(Finding::new(Kind::RecordsUnseen, why));
            return;
        }
    };
    let ours = Ours::of(seen);
    records(contents, ours.as_ref(), findings);
    workspaces(seen, contents, ours.as_ref(), findings);
    match &seen.ours {
        Ok(listed) => containers(contents, listed, findings),
        Err(why) => findings.push(Finding::new(Kind::ContainersUnseen, why)),
    }
    namesakes(seen, contents, findings);
    ceilings(seen, contents, findings);
}

/// The complete listing of our containers, by id.
struct Ours<'a>(BTreeMap<&'a str, &'a Summary>);

impl<'a> Ours<'a> {
    fn of(seen: &'a Seen) -> Option<Self> {
        let listed = seen.ours.as_ref().ok()?;
        Some(Self(
            listed.iter().map(|line| (line.id.as_str(), line)).collect(),
        ))
    }

    fn container(&self, status: &Status) -> Option<&'a Summary> {
        self.0.get(status.container.as_deref()?).copied()
    }
}

fn records(contents: &Contents, ours: Option<&Ours<'_>>, findings: &mut Vec<Finding>) {
    let before = findings.len();
    let mut moving = Vec::new();
    for (id, session) in &contents.sessions {
        if let Some(status) = &session.status {
            let found = record(session, status, ours);
            findings.extend(found.map(|(kind, detail)| Finding::about(kind, id, detail)));
        }
        if !session.is_settled() {
            moving.push(id.as_str());
        }
    }
    shared(contents, findings);
    if findings.len() == before {
        let sessions = contents.sessions.values();
        let open = sessions.filter(|session| session.record.is_open()).count();
        let detail = format!(
            "{open} open sessions of {} on record",
            contents.sessions.len()
        );
        findings.push(Finding::new(Kind::SessionsSound, detail));
    }
    if !moving.is_empty() {
        let detail = format!(
            "not judged, since something is being done: {}",
            some(&moving)
        );
        findings.push(Finding::new(Kind::SessionMoving, detail));
    }
}

/// Judges one record with its status and its container.
fn record(
    session: &SessionSeen,
    status: &Status,
    ours: Option<&Ours<'_>>,
) -> Option<(Kind, String)> {
    let marks = &session.record.marks;
    if marks.generation < status.reached {
        let detail = format!(
            "its status is of generation {}, and its record of {}",
            status.reached, marks.generation
        );
        return Some((Kind::StatusAhead, detail));
    }
    if let (None, Some(container)) = (&status.key, &status.container) {
        let detail = format!("its status names the container {container} and no key");
        return Some((Kind::Keyless, detail));
    }
    if 0 < status.attempts && session.record.is_open() {
        let last = status.last_error.as_deref().unwrap_or("unknown");
        let detail = format!("{} attempts failed, the last: {last}", status.attempts);
        return Some((Kind::StartFails, detail));
    }
    if !session.is_settled() || !session.record.is_open() {
        return None;
    }
    if status.files_lost {
        let detail = "its files went with its container".to_owned();
        return Some((Kind::FilesLost, detail));
    }
    if marks.parked.is_some() {
        return None;
    }
    if status.incarnation == 0 {
        let detail = "it is settled as running, and never started".to_owned();
        return Some((Kind::NeverBegan, detail));
    }
    container(status, ours?)
}

/// Judges the container of a session that should run.
fn container(status: &Status, ours: &Ours<'_>) -> Option<(Kind, String)> {
    let (Some(key), Some(id)) = (&status.key, &status.container) else {
        let detail = "it is settled as running, and its status names no container".to_owned();
        return Some((Kind::ContainerMissing, detail));
    };
    let Some(line) = ours.container(status) else {
        let detail = format!("the engine lists no container {id} of ours");
        return Some((Kind::ContainerMissing, detail));
    };
    if line.labels.get(LABEL_KEY).map(String::as_str) != Some(key.as_str()) {
        let detail = format!("the container {} carries another key", line.name);
        return Some((Kind::ContainerForeign, detail));
    }
    if is_running(line.state) {
        return None;
    }
    let detail = format!("the container {} is {:?}", line.name, line.state);
    Some((Kind::ContainerStopped, detail))
}

/// Finds what no two records may share.
fn shared(contents: &Contents, findings: &mut Vec<Finding>) {
    let mut keys: BTreeMap<&ContainerKey, &SessionId> = BTreeMap::new();
    let mut orders: BTreeMap<u64, &SessionId> = BTreeMap::new();
    for (id, session) in &contents.sessions {
        let key = session
            .status
            .as_ref()
            .and_then(|status| status.key.as_ref());
        if let Some(other) = key.and_then(|key| keys.insert(key, id)) {
            let detail = format!("session {other} owns the same container key");
            findings.push(Finding::about(Kind::KeyShared, id, detail));
        }
        if let Some(other) = orders.insert(session.record.spec.order, id) {
            let detail = format!("session {other} has the same place in the order of opening");
            findings.push(Finding::about(Kind::OrderShared, id, detail));
        }
    }
}

fn workspaces(
    seen: &Seen,
    contents: &Contents,
    ours: Option<&Ours<'_>>,
    findings: &mut Vec<Finding>,
) {
    let root = match &seen.root {
        None => {
            let detail = "none are kept: files live in their containers";
            findings.push(Finding::new(Kind::WorkspacesSound, detail));
            return;
        }
        Some(Err(why)) => {
            findings.push(Finding::new(Kind::WorkspacesUnseen, why));
            return;
        }
        Some(Ok(root)) if root.is_other => {
            let detail = "it has not the mark that STATE_DIR/workspace-root names, so nothing is known of the workspaces";
            findings.push(Finding::new(Kind::RootOther, detail));
            return;
        }
        Some(Ok(root)) => root,
    };
    let mut n_there = 0;
    let mut n_lost = 0;
    for (id, session) in &contents.sessions {
        let home = root.homes.get(id);
        match home.map(|home| home.workspace) {
            Some(Presence::There) => n_there += 1,
            Some(Presence::Absent) | None if should_have(session, ours) => {
                n_lost += 1;
                let detail = "it ran, and its workspace is not there".to_owned();
                findings.push(Finding::about(Kind::WorkspaceMissing, id, detail));
            }
            Some(Presence::Absent) | None => {}
        }
        if let Some(Home {
            workspace: Presence::There,
            sidecar: Presence::Absent,
        }) = home
            && session.is_settled()
        {
            let detail = "its directory does not say whom it belongs to";
            findings.push(Finding::about(Kind::SidecarMissing, id, detail));
        }
    }
    if n_lost == 0 {
        let detail = format!("{n_there} workspaces of sessions are there");
        findings.push(Finding::new(Kind::WorkspacesSound, detail));
    }
}

/// Whether a session is certain to have had a workspace that nothing has removed.
fn should_have(session: &SessionSeen, ours: Option<&Ours<'_>>) -> bool {
    let Some(status) = &session.status else {
        return false;
    };
    let over = session.record.marks.closed.as_ref();
    let is_kept =
        over.is_none_or(|closed| closed.purge == Purge::No && closed.reason != Reason::StartFailed);
    // One that was opened before workspaces were kept has its files in its container,
    // which then mounts nothing.
    let container = ours.and_then(|ours| ours.container(status));
    let lives_in_container = container.is_some_and(|line| line.mounts.is_empty());
    session.is_settled() && 0 < status.incarnation && is_kept && !lives_in_container
}

fn containers(contents: &Contents, listed: &[Summary], findings: &mut Vec<Finding>) {
    let before = findings.len();
    let owners: BTreeMap<&str, &SessionSeen> = contents
        .sessions
        .values()
        .filter_map(|session| Some((session.status.as_ref()?.key.as_ref()?.as_str(), session)))
        .collect();
    let departed = |key: &str| contents.departed.iter().any(|gone| gone.as_str() == key);
    let mut by_key: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in listed {
        let Some(key) = line.labels.get(LABEL_KEY).map(String::as_str) else {
            let detail = format!("{} carries our label and no key", line.name);
            findings.push(Finding::about(Kind::StrayContainer, &line.id, detail));
            continue;
        };
        by_key.entry(key).or_default().push(&line.id);
        match owners.get(key) {
            None if departed(key) => {}
            None => {
                let detail = format!("no record names the key of {}", line.name);
                findings.push(Finding::about(Kind::StrayContainer, &line.id, detail));
            }
            Some(owner) if is_running(line.state) && must_rest(owner) => {
                let detail = format!("{} runs, and its session is asleep or over", line.name);
                findings.push(Finding::about(Kind::RunsUnasked, &line.id, detail));
            }
            Some(_) => {}
        }
    }
    for (key, ids) in by_key {
        if let (true, Some(owner)) = (1 < ids.len(), owners.get(key)) {
            let detail = format!("its key is carried by {}", some(&ids));
            let id = &owner.record.spec.id;
            findings.push(Finding::about(Kind::TwinContainer, id, detail));
        }
    }
    if findings.len() == before {
        let detail = format!("{} containers of ours, each on record", listed.len());
        findings.push(Finding::new(Kind::ContainersExplained, detail));
    }
}

/// Whether no container of the session may run.
fn must_rest(session: &SessionSeen) -> bool {
    let marks = &session.record.marks;
    session.is_settled() && (marks.parked.is_some() || marks.closed.is_some())
}

fn namesakes(seen: &Seen, contents: &Contents, findings: &mut Vec<Finding>) {
    // Where this fails, the other listing fails as well and is told of.
    let Ok(listed) = &seen.namesakes else { return };
    let mut by_kind: BTreeMap<Kind, Vec<&str>> = BTreeMap::new();
    for line in listed {
        let kind = match line.labels.get(LABEL_INSTANCE) {
            Some(instance) if instance == contents.instance.as_str() => continue,
            Some(_) => Kind::OtherInstances,
            None if has_key_in_name(&line.name) => Kind::Unlabelled,
            None => Kind::Predecessors,
        };
        by_kind.entry(kind).or_default().push(&line.name);
    }
    for (kind, names) in by_kind {
        findings.push(Finding::new(kind, some(&names)));
    }
}

/// Whether a name ends as the names of our containers do.
fn has_key_in_name(name: &str) -> bool {
    let end = name.rsplit_once('-').map(|(_, end)| end);
    end.is_some_and(|end| end.len() == 8 && end.bytes().all(|b| b.is_ascii_hexdigit()))
}

fn ceilings(seen: &Seen, contents: &Contents, findings: &mut Vec<Finding>) {
    let before = findings.len();
    let capacity = &seen.capacity;
    let (mut resident, mut open) = (0_u64, 0_u64);
    let mut tenants: BTreeMap<&Tenant, u64> = BTreeMap::new();
    for session in contents.sessions.values() {
        let record: &Record = &session.record;
        let Some(standing) = Standing::of(record, session.status.as_deref()) else {
            continue;
        };
        // As admission counts: who is on the way out has given the place to another, who
        // starts only once it is free. What runs in truth is counted below.
        resident += u64::from(match standing {
            Standing::Resident => true,
            Standing::FallingAsleep(_) | Standing::Closing => false,
            Standing::Failing | Standing::Asleep(_) => false,
        });
        open += u64::from(standing.is_open());
        if let (true, Some(tenant)) = (standing.is_open(), &record.spec.tenant) {
            *tenants.entry(tenant).or_insert(0) += 1;
        }
    }
    let over = |limit: Option<u64>, used: u64| limit.filter(|limit| *limit < used);
    let tell = |what: &str, used: u64, limit: u64| format!("{used} {what}, and {limit} may be");
    if let Some(limit) = over(capacity.max_sessions, resident) {
        let detail = tell("sandboxes are resident", resident, limit);
        findings.push(Finding::new(Kind::ResidentOver, detail));
    }
    if let Some(limit) = over(capacity.max_open_sessions, open) {
        let detail = tell("sessions are open", open, limit);
        findings.push(Finding::new(Kind::OpenOver, detail));
    }
    for (tenant, used) in tenants {
        if let Some(limit) = over(capacity.max_sessions_per_tenant, used) {
            let detail = tell("of its sessions are open", used, limit);
            findings.push(Finding::about(Kind::TenantOver, tenant, detail));
        }
    }
    let running = seen.ours.as_ref().map_or(0, |ours| {
        let running = ours.iter().filter(|line| is_running(line.state)).count();
        u64::try_from(running).unwrap_or(u64::MAX)
    });
    if let Some(limit) = over(capacity.max_sessions, running) {
        let detail = tell("containers of ours run", running, limit);
        findings.push(Finding::new(Kind::RunningOver, detail));
    }
    if findings.len() == before {
        let of = |limit: Option<u64>| limit.map_or(String::new(), |limit| format!(" of {limit}"));
        let detail = format!(
            "{resident}{} resident, {open}{} open",
            of(capacity.max_sessions),
            of(capacity.max_open_sessions)
        );
        findings.push(Finding::new(Kind::CeilingsHold, detail));
    }
}

/// Whether processes of the container may be there.
pub(super) fn is_running(state: State) -> bool {
    match state {
        State::Running | State::Paused | State::Restarting => true,
        State::Created | State::Removing | State::Exited | State::Dead => false,
    }
}

/// Lists the first of some names, and says how many there are.
pub(super) fn some(names: &[&str]) -> String {
    let shown = names.get(..NAMES_SHOWN_MAX).unwrap_or(names).join(", ");
    match names.len().checked_sub(NAMES_SHOWN_MAX) {
        Some(more) if 0 < more => format!("{shown} and {more} more"),
        Some(_) | None => shown,
    }
}
