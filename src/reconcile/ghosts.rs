//! Tells what is left of containers that the engine has lost.
//!
//! An engine that is killed while it starts a container may forget it, although a
//! process of it runs: its start fails for good, its removal succeeds, and no listing
//! shows it. Such a *ghost* is found by its control group, since the record keeps the
//! id of every container until its group was seen to be empty. While there is one,
//! the files it may write to are neither handed to another container nor removed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::plan::Container;
use crate::cgroup::Cgroups;
use crate::clock::Timestamp;
use crate::id::SessionId;
use crate::session::record::{Former, Status};

/// How long a former container is remembered although its group is empty: an engine
/// that was killed may have left a start on its way.
const FORMER_GRACE: Duration = Duration::from_mins(1);

/// Processes that are left of a container which the engine has lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Haunting {
    /// The engine's id of the container.
    pub container: String,
    /// How many processes are left.
    pub processes: usize,
}

impl Haunting {
    /// Says what an operator can do about it.
    pub fn remedy(&self) -> String {
        format!("ctr -n moby tasks kill -s 9 {}", self.container)
    }
}

/// What the engine knows of a container, as far as its ghost is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Knowledge {
    /// It is the engine of before, and neither of two complete listings in a row
    /// showed the container, nor is it found by its id.
    Lost,
    /// It shows the container after all.
    Shown,
    /// It is another engine than before, which knows nothing of ours.
    OtherEngine,
}

/// What may be done about a ghost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Its processes may be killed.
    Kill,
    /// They are the engine's own business.
    Leave,
}

/// Decides whether what is left of a container may be killed.
pub(super) fn judge(knowledge: Knowledge) -> Verdict {
    match knowledge {
        Knowledge::Lost => Verdict::Kill,
        Knowledge::Shown => Verdict::Leave,
        Knowledge::OtherEngine => Verdict::Leave,
    }
}

/// Returns what two complete listings in a row, and a look by its id, tell of a
/// container.
pub(super) fn knowledge(listings: [&BTreeSet<String>; 2], found: bool, id: &str) -> Knowledge {
    if found || listings.iter().any(|listing| listing.contains(id)) {
        Knowledge::Shown
    } else {
        Knowledge::Lost
    }
}

/// Finds the ghosts among all control groups: those of the containers that a record
/// has or had, which have processes, and which no complete listing of the engine shows.
///
/// `groups` are the host's, as [`Cgroups::containers`] lists them, and `listed` are the
/// engine's ids of all containers of ours, running or not.
pub fn hauntings<'s>(
    statuses: impl IntoIterator<Item = (&'s SessionId, &'s Status)>,
    listed: &BTreeSet<String>,
    groups: &BTreeMap<String, usize>,
) -> Vec<(SessionId, Haunting)> {
    let mut found = Vec::new();
    for (id, status) in statuses {
        for container in status.containers() {
            let processes = groups.get(container).copied().unwrap_or(0);
            if processes != 0 && !listed.contains(container) {
                let container = container.to_owned();
                let haunting = Haunting {
                    container,
                    processes,
                };
                found.push((id.clone(), haunting));
            }
        }
    }
    found
}

/// Looks for what is left of a session's former containers, and of its present one
/// where the engine says that it is gone.
///
/// What cannot be seen is taken to be gone, as it was removed in order.
pub(super) fn left_of(cgroups: &Cgroups, seen: Container, status: &Status) -> Vec<Haunting> {
    let present = status.container.as_deref();
    status
        .containers()
        .filter(|container| seen == Container::Lost || present != Some(*container))
        .filter_map(|container| {
            let processes = cgroups.processes(container).unwrap_or(0);
            (processes != 0).then(|| Haunting {
                container: container.to_owned(),
                processes,
            })
        })
        .collect()
}

/// Returns which former containers are to be remembered further on.
pub(super) fn remembered(former: &[Former], left: &[Haunting], now: Timestamp) -> Vec<Former> {
    former
        .iter()
        .filter(|one| now.since(one.since) < FORMER_GRACE || is_left(left, &one.container))
        .cloned()
        .collect()
}

/// Tells whether processes of a container are left.
pub(super) fn is_left(left: &[Haunting], container: &str) -> bool {
    left.iter().any(|one| one.container == container)
}

/// Tells whether a former container could be forgotten by now.
pub(super) fn has_outlived_its_grace(status: &Status, now: Timestamp) -> bool {
    let mut former = status.former.iter();
    former.any(|one| FORMER_GRACE <= now.since(one.since))
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Timestamp = Timestamp::from_secs(1_000);

    fn former(container: &str, since: Timestamp) -> Former {
        Former {
            container: container.to_owned(),
            since,
            reported: false,
        }
    }

    fn haunting(container: &str) -> Haunting {
        Haunting {
            container: container.to_owned(),
            processes: 1,
        }
    }

    fn set(ids: &[&str]) -> BTreeSet<String> {
        ids.iter().map(|id| (*id).to_owned()).collect()
    }

    #[test]
    fn a_ghost_may_be_killed_only_where_two_listings_and_a_look_miss_it() {
        for first in [false, true] {
            for second in [false, true] {
                for found in [false, true] {
                    let listing = |shows| set(if shows { &["c"] } else { &["other"] });
                    let (one, two) = (listing(first), listing(second));
                    let verdict = judge(knowledge([&one, &two], found, "c"));
                    let wanted = if first || second || found {
                        Verdict::Leave
                    } else {
                        Verdict::Kill
                    };
                    assert_eq!(verdict, wanted, "{first} {second} {found}");
                }
            }
        }
        assert_eq!(judge(Knowledge::OtherEngine), Verdict::Leave);
    }

    #[test]
    fn ghosts_are_containers_of_a_record_that_have_processes_and_are_not_listed() {
        let id = SessionId::parse("a").unwrap();
        let status = Status {
            container: Some("now".to_owned()),
            former: vec![former("old", T0), former("gone", T0), former("back", T0)],
            ..Status::default()
        };
        let groups = ["now", "old", "back", "foreign"]
            .map(|container| (container.to_owned(), 1))
            .into_iter()
            .chain([("gone".to_owned(), 0)])
            .collect();
        let found = hauntings([(&id, &status)], &set(&["now", "back"]), &groups);
        assert_eq!(found, [(id.clone(), haunting("old"))]);
        let found = hauntings([(&id, &status)], &set(&["back"]), &groups);
        assert_eq!(found.len(), 2, "the present one may be lost as well");
    }

    #[test]
    fn a_former_container_is_remembered_for_a_minute_and_while_anything_is_left_of_it() {
        let all = [
            former("old", T0),
            former("left", T0),
            former("new", T0.plus(FORMER_GRACE)),
        ];
        let later = T0.plus(FORMER_GRACE);
        let kept = remembered(&all, &[haunting("left")], later);
        let kept: Vec<_> = kept.iter().map(|one| one.container.as_str()).collect();
        assert_eq!(kept, ["left", "new"]);
        assert_eq!(remembered(&all, &[], T0).len(), 3);
    }
}
