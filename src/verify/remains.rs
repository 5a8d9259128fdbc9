//! Judges what is left of containers and of sessions that are gone.

use std::time::Duration;

use super::finding::Finding;
use super::kind::Kind;
use super::seen::{Contents, RootSeen, Seen, SessionSeen, StoreSeen};
use super::sessions::{is_running, some};
use crate::docker::inspect::{State, Summary};
use crate::session::blueprint::LABEL_KEY;

/// How long something set aside for removal may take to go.
const TRASH_AGE_MAX: Duration = Duration::from_mins(10);

/// Judges I4 and I5.
pub(super) fn judge(seen: &Seen, findings: &mut Vec<Finding>) {
    ghosts(seen, findings);
    let contents = match &seen.store {
        StoreSeen::Read(contents) => contents,
        StoreSeen::Nothing | StoreSeen::Broken(_) | StoreSeen::Unseen(_) => return,
    };
    let before = findings.len();
    for id in &contents.logs {
        if !contents.sessions.contains_key(id) {
            let detail = "its events are kept, and it has no record";
            findings.push(Finding::about(Kind::LogWithoutRecord, id, detail));
        }
    }
    for id in &contents.runs {
        if !contents.sessions.contains_key(id) {
            let detail = "its runs are kept, and it has no record";
            findings.push(Finding::about(Kind::RunWithoutRecord, id, detail));
        }
    }
    // A root that could not be listed is told of with the workspaces.
    if let Some(Ok(root)) = &seen.root {
        trash(seen, root, findings);
        directories(contents, root, findings);
    }
    let remains = findings.get(before..).unwrap_or_default();
    let is_clean = !remains.iter().any(|finding| {
        matches!(
            finding.kind,
            Kind::LogWithoutRecord | Kind::RunWithoutRecord | Kind::TrashOld
        )
    });
    if is_clean {
        let detail = "no log, no run and nothing in the trash without its session";
        findings.push(Finding::new(Kind::NothingRemains, detail));
    }
}

fn ghosts(seen: &Seen, findings: &mut Vec<Finding>) {
    let (groups, ours) = match (&seen.groups, &seen.ours) {
        (Ok(groups), Ok(ours)) => (groups, ours),
        (Err(why), _) | (_, Err(why)) => {
            findings.push(Finding::new(Kind::GroupsUnseen, why));
            return;
        }
    };
    let before = findings.len();
    for (container, processes) in groups.iter().filter(|(_, processes)| 0 < **processes) {
        let listed = ours.iter().find(|line| line.id == *container);
        let detail = match listed {
            Some(line) if is_running(line.state) || is_being_started(seen, line) => continue,
            Some(line) => format!(
                "{processes} processes are left, and the engine calls it {:?}",
                line.state
            ),
            None => format!("{processes} processes are left, and the engine does not list it"),
        };
        findings.push(Finding::about(Kind::Ghost, container, detail));
    }
    if findings.len() == before {
        let detail = format!(
            "{} control groups of our containers were looked at",
            groups.len()
        );
        findings.push(Finding::new(Kind::NoGhosts, detail));
    }
}

/// Whether a container is being started: the engine calls it created for as long as that
/// takes, and its first process is there before that is over.
fn is_being_started(seen: &Seen, line: &Summary) -> bool {
    let StoreSeen::Read(contents) = &seen.store else {
        return false;
    };
    let key_of = |session: &SessionSeen| Some(session.status.as_ref()?.key.as_ref()?.to_string());
    let key = line.labels.get(LABEL_KEY);
    line.state == State::Created
        && contents
            .sessions
            .values()
            .any(|session| !session.is_settled() && key_of(session).as_ref() == key)
}

fn trash(seen: &Seen, root: &RootSeen, findings: &mut Vec<Finding>) {
    let old = |since| TRASH_AGE_MAX < seen.now.since(since);
    let names = root.trash.iter().filter(|(_, since)| old(**since));
    let names: Vec<&str> = names.map(|(name, _)| name.as_str()).collect();
    if !names.is_empty() {
        let detail = format!(
            "set aside more than {} minutes ago: {}",
            TRASH_AGE_MAX.as_secs() / 60,
            some(&names)
        );
        findings.push(Finding::new(Kind::TrashOld, detail));
    }
}

fn directories(contents: &Contents, root: &RootSeen, findings: &mut Vec<Finding>) {
    let unrecorded = root
        .homes
        .keys()
        .filter(|id| !contents.sessions.contains_key(*id));
    findings.extend(unrecorded.map(|id| {
        let detail = "a directory of this id is there, and no record";
        Finding::about(Kind::UnrecordedWorkspace, id, detail)
    }));
    let strange = root.strange.iter();
    findings.extend(
        strange.map(|name| {
            Finding::about(Kind::StrangeEntry, name, "it is no directory of a session")
        }),
    );
}
