//! Looks at store, engine, disk and control groups; the one part that reads anything.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::seen::{Contents, EngineSeen, Look, Motion, Seen, SessionSeen, StoreSeen};
use crate::cause::chain;
use crate::cgroup::Cgroups;
use crate::clock::Clock;
use crate::docker::Engine;
use crate::docker::containers::Label;
use crate::docker::error::{Error, Kind};
use crate::docker::inspect::Summary;
use crate::docker::version::{EngineVersion, Host};
use crate::id::{ContainerKey, InstanceId, SessionId};
use crate::policy::Capacity;
use crate::session::blueprint::LABEL_INSTANCE;
use crate::session::record::Event;
use crate::store::{Inventory, Page, Store, marked_instance};

use super::disk;

/// How long the engine may take to answer all that is asked of it in one look.
pub const ENGINE_WAIT_MAX: Duration = Duration::from_secs(4);
/// How long the disk may take to answer all that is asked of it in one look.
const DISK_WAIT_MAX: Duration = Duration::from_secs(4);
/// Events of commands that one look reads.
pub const EVENTS_MAX: usize = 2_000;
/// Events of commands that one look reads of one session.
const EVENTS_PER_SESSION_MAX: usize = 50;
/// How the names of our containers begin, and those of the predecessor.
const NAME_PREFIX: &str = "sandboxd-";

/// Where things are on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The state directory.
    pub state_dir: PathBuf,
    /// The file of the token key.
    pub key_file: PathBuf,
    /// Where workspaces are kept, if any are.
    pub workspace_root: Option<PathBuf>,
}

/// The store, or why there is none.
#[derive(Clone, Debug)]
pub enum Stock {
    /// It is open.
    Open(Store),
    /// The state directory holds none.
    Nothing,
    /// It cannot be trusted.
    Broken(String),
    /// It could not be opened, for a reason that says nothing about it.
    Unseen(String),
}

/// What is looked at.
#[derive(Clone, Debug)]
pub struct Subjects {
    /// The store.
    pub stock: Stock,
    /// The engine.
    pub engine: Engine,
    /// Why the engine need not be asked, where it is known not to answer.
    pub engine_lost: Option<String>,
    /// The host's control groups.
    pub cgroups: Cgroups,
    /// Where things are on the disk.
    pub place: Place,
    /// The ceilings.
    pub capacity: Capacity,
    /// What time it is.
    pub clock: Clock,
}

impl Subjects {
    /// Looks at everything once, within the sum of the waits for engine and disk.
    pub(super) async fn look(&self) -> Seen {
        let before = self.inventory();
        let marker = self.marker();
        let instance = match (&before, &marker) {
            (Some(before), _) => Some(before.instance.clone()),
            (None, Ok(marker)) => marker.clone(),
            (None, Err(_)) => None,
        };
        let (engine, disk) = tokio::join!(self.ask_engine(instance), self.ask_disk());
        let store = match (&self.stock, before) {
            (Stock::Open(store), Some(before)) => read(store, before).await,
            (Stock::Open(_) | Stock::Nothing, _) => StoreSeen::Nothing,
            (Stock::Broken(why), _) => StoreSeen::Broken(why.clone()),
            (Stock::Unseen(why), _) => StoreSeen::Unseen(why.clone()),
        };
        let known = known_containers(&store, engine.ours.as_deref().unwrap_or_default());
        let running: Vec<&str> = engine
            .ours
            .iter()
            .flatten()
            .filter(|line| super::sessions::is_running(line.state))
            .map(|line| line.id.as_str())
            .collect();
        let usage_visible = running
            .first()
            .map(|_| running.iter().any(|id| self.cgroups.sample(id).is_some()));
        let groups = groups(&self.cgroups, &known, &still(&store, &running));
        Seen {
            now: self.clock.now(),
            capacity: self.capacity.clone(),
            store,
            marker,
            key: disk.key,
            engine: engine.engine,
            groups,
            ours: engine.ours,
            namesakes: engine.namesakes,
            usage_visible,
            root: disk.root,
            spaces: disk.spaces,
        }
    }

    fn inventory(&self) -> Option<Inventory> {
        match &self.stock {
            Stock::Open(store) => Some(store.inventory()),
            Stock::Nothing | Stock::Broken(_) | Stock::Unseen(_) => None,
        }
    }

    fn marker(&self) -> Look<Option<InstanceId>> {
        marked_instance(&self.place.state_dir).map_err(|error| chain(&error))
    }

    async fn ask_engine(&self, instance: Option<InstanceId>) -> Answers {
        if let Some(why) = &self.engine_lost {
            return Answers::none(why);
        }
        let engine = &self.engine;
        let asking = async {
            // The first call agrees on the version that the others use.
            let version = engine.version().await?;
            let ours = async {
                match &instance {
                    Some(instance) => {
                        let label = Label::new(LABEL_INSTANCE, instance.as_str());
                        engine.list(&label).await.map(Some)
                    }
                    None => Ok(None),
                }
            };
            let (host, ours, namesakes) =
                tokio::join!(engine.info(), ours, engine.list_named(NAME_PREFIX));
            let engine = host.map(|host| described(version, host))?;
            Ok::<_, Error>((engine, ours, namesakes))
        };
        match timeout(ENGINE_WAIT_MAX, asking).await {
            Err(_) => Answers::none(&format!("it gave no answer within {ENGINE_WAIT_MAX:?}")),
            Ok(Err(error)) => Answers::refused(&error),
            Ok(Ok((engine, ours, namesakes))) => Answers {
                engine,
                ours: match ours {
                    Ok(Some(ours)) => Ok(ours),
                    Ok(None) => Err("it is not known whose containers are ours".to_owned()),
                    Err(error) => Err(chain(&error)),
                },
                namesakes: namesakes.map_err(|error| chain(&error)),
            },
        }
    }

    async fn ask_disk(&self) -> disk::Answers {
        let place = self.place.clone();
        let late = disk::Answers::none(&place, "it gave no answer in time");
        let asking = tokio::task::spawn_blocking(move || disk::look(&place));
        match timeout(DISK_WAIT_MAX, asking).await {
            Ok(Ok(answers)) => answers,
            Ok(Err(panic)) => std::panic::resume_unwind(panic.into_panic()),
            Err(_) => late,
        }
    }
}

/// What the engine answered.
struct Answers {
    engine: EngineSeen,
    ours: Look<Vec<Summary>>,
    namesakes: Look<Vec<Summary>>,
}

impl Answers {
    fn none(why: &str) -> Self {
        let unseen = || Err(format!("the engine was not heard: {why}"));
        Self {
            engine: EngineSeen::Silent(why.to_owned()),
            ours: unseen(),
            namesakes: unseen(),
        }
    }

    fn refused(error: &Error) -> Self {
        let why = chain(error);
        let answers = Self::none(&why);
        match error.kind() {
            Kind::VersionRefused { .. } => Self {
                engine: EngineSeen::Refused(why),
                ..answers
            },
            _ => answers,
        }
    }
}

fn described(version: EngineVersion, host: Host) -> EngineSeen {
    EngineSeen::Answered {
        id: host.identity(),
        version: version.server,
        api: (version.api_max.major, version.api_max.minor),
        cgroup: host.cgroup_version,
        live_restore: host.live_restore,
    }
}

/// Reads the store once more, and notes what changed since.
async fn read(store: &Store, before: Inventory) -> StoreSeen {
    let after = store.inventory();
    let gone = |id: &SessionId| !after.sessions.contains_key(id);
    let changed = |id: &SessionId| before.sessions.get(id) != after.sessions.get(id);
    // The key of a record that is gone, or that has another by now.
    let departed: BTreeSet<ContainerKey> = before
        .sessions
        .iter()
        .filter(|(id, _)| gone(id) || changed(id))
        .filter_map(|(_, (_, status))| status.as_ref()?.key.clone())
        .collect();
    let sessions: BTreeMap<SessionId, SessionSeen> = after
        .sessions
        .iter()
        .map(|(id, (record, status))| {
            let session = SessionSeen {
                record: Arc::clone(record),
                status: status.clone(),
                motion: if changed(id) {
                    Motion::Changed
                } else {
                    Motion::Still
                },
            };
            (id.clone(), session)
        })
        .collect();
    let commands = commands(store.clone(), after.logs.clone()).await;
    let set_aside = store.recovered().map(std::path::Path::to_path_buf);
    StoreSeen::Read(Box::new(Contents {
        health: after.health,
        instance: after.instance,
        token_key_id: after.token_key_id,
        engine_id: after.engine_id,
        set_aside,
        sessions,
        departed,
        runs: after.runs,
        logs: after.logs,
        commands,
    }))
}

/// Reads the newest events of commands, on a thread where blocking hurts nobody.
async fn commands(store: Store, logs: BTreeSet<SessionId>) -> Look<Vec<(SessionId, u64, Event)>> {
    let reading = tokio::task::spawn_blocking(move || {
        let mut found = Vec::new();
        for id in logs {
            let wanted = EVENTS_PER_SESSION_MAX.min(EVENTS_MAX - found.len());
            if wanted == 0 {
                break;
            }
            let page = store
                .events(Some(&id), 0, Page::Newest(wanted))
                .map_err(|error| chain(&error))?;
            let commands = page
                .events
                .into_iter()
                .filter(|(_, event)| matches!(event.op.as_str(), "exec" | "run"));
            found.extend(commands.map(|(seq, event)| (id.clone(), seq, event)));
        }
        Ok(found)
    });
    match reading.await {
        Ok(found) => found,
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}

/// Names every container that our records or the engine know to be ours.
fn known_containers(store: &StoreSeen, ours: &[Summary]) -> BTreeSet<String> {
    let mut known: BTreeSet<String> = ours.iter().map(|line| line.id.clone()).collect();
    if let StoreSeen::Read(contents) = store {
        let statuses = contents
            .sessions
            .values()
            .filter_map(|one| one.status.as_ref());
        known.extend(statuses.flat_map(|status| status.containers().map(str::to_owned)));
    }
    known
}

/// Returns those of the running containers whose sessions were left alone meanwhile: what
/// is listed as running may have been removed by the time its group is looked for.
fn still<'r>(store: &StoreSeen, running: &[&'r str]) -> Vec<&'r str> {
    let StoreSeen::Read(contents) = store else {
        return running.to_vec();
    };
    let sessions = contents.sessions.values();
    let still: BTreeSet<&str> = sessions
        .filter(|one| one.motion == Motion::Still && one.is_settled())
        .filter_map(|one| one.status.as_ref()?.container.as_deref())
        .collect();
    let ours = running.iter().copied();
    ours.filter(|id| still.contains(id)).collect()
}

/// Counts the processes in the control groups of containers of ours.
///
/// Those that run must have a group: where none of them has one, the groups are kept
/// where they cannot be seen.
fn groups(
    cgroups: &Cgroups,
    known: &BTreeSet<String>,
    running: &[&str],
) -> Look<BTreeMap<String, usize>> {
    let mut found = cgroups.containers().map_err(|error| chain(&error))?;
    found.retain(|id, _| known.contains(id));
    if running.is_empty() || running.iter().any(|id| found.contains_key(*id)) {
        return Ok(found);
    }
    Err("no container that runs has a control group here".to_owned())
}
