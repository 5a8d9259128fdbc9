//! Lists everything that can be found, with its check, its gravity and its remedy.

/// How grave a finding is, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// As it should be, or worth knowing.
    Ok,
    /// Nothing is broken, and something should be changed.
    Warn,
    /// It could not be seen.
    Unknown,
    /// An invariant is broken.
    Fail,
}

impl Level {
    /// Returns the word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Unknown => "unknown",
            Self::Fail => "fail",
        }
    }
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident: $check:literal $name:literal $level:ident $remedy:literal;)*) => {
        /// What can be found.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Kind { $($(#[$doc])* $kind),* }

        impl Kind {
            /// Everything that can be found, in the order of the page.
            pub const ALL: &'static [Self] = &[$(Self::$kind),*];

            /// Returns the invariant or the part that it is about.
            pub const fn check(self) -> &'static str {
                match self { $(Self::$kind => $check),* }
            }

            /// Returns its stable name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name),* }
            }

            /// Returns how grave it is.
            pub const fn level(self) -> Level {
                match self { $(Self::$kind => Level::$level),* }
            }

            /// Returns what to do about it; empty where nothing has to be done.
            pub const fn remedy(self) -> &'static str {
                match self { $(Self::$kind => $remedy),* }
            }
        }
    };
}

kinds! {
    /// The records are sound, and their containers are there.
    SessionsSound: "I1" "sessions_sound" Ok "";
    /// A session waits for its first start, a wake or an end.
    SessionMoving: "I1" "session_moving" Ok "";
    /// A start keeps failing.
    StartFails: "I1" "start_fails" Warn "mend what the last error names; the start is tried again with growing pauses";
    /// The only copy of a session's files is gone.
    FilesLost: "I1" "files_lost" Warn "its next command starts empty and says so; set SANDBOXD_WORKSPACE_ROOT so that files outlive containers";
    /// A status is of a later intent than its record.
    StatusAhead: "I1" "status_ahead" Fail "the store lost a record that it had acknowledged: keep a copy of STATE_DIR, and purge the session by its id";
    /// A session is settled as running and never began a life.
    NeverBegan: "I1" "never_began" Fail "purge the session by its id, or close and open it";
    /// A container is known without the key that would prove it ours.
    Keyless: "I1" "container_without_key" Fail "purge the session by its id, or close and open it";
    /// Two records own one container.
    KeyShared: "I1" "key_shared" Fail "keep a copy of STATE_DIR, and purge one of the sessions by its id";
    /// Two records have one place in the order of opening.
    OrderShared: "I1" "order_shared" Fail "listings may be in another order than that of opening; purge one of the sessions by its id";
    /// The container of a running session is not there.
    ContainerMissing: "I1" "container_missing" Fail "a running sandboxd parks the session at its next look, and its next use starts a container; if this stays, restart sandboxd";
    /// The container of a running session is another's by its labels.
    ContainerForeign: "I1" "container_foreign" Fail "remove or rename the container that has taken the name; the session then gets one of its own";
    /// The container of a running session does not run.
    ContainerStopped: "I1" "container_stopped" Fail "a running sandboxd parks the session at its next look, and its next use starts the container; if this stays, restart sandboxd";
    /// The containers could not be listed.
    ContainersUnseen: "I1" "containers_unseen" Unknown "see the line about the engine, and look again";
    /// The records could not be read.
    RecordsUnseen: "I1" "records_unseen" Unknown "see the line about the store, and look again";

    /// The token key is the one that all tokens are derived from.
    KeySound: "key" "key_sound" Ok "";
    /// Others can read the token key, or write it.
    KeyOpen: "key" "key_open" Warn "chmod 600 the file; whoever read it can make every session's token";
    /// The token key is gone.
    KeyMissing: "key" "key_missing" Fail "put the file back from a backup before sandboxd is restarted: without it no session's token is good";
    /// The token key is not the one that tokens were derived from.
    KeyOther: "key" "key_other" Fail "put back the key that this state directory was used with";
    /// The token key could not be read.
    KeyUnseen: "key" "key_unseen" Unknown "let this user read the file, or run as the daemon's user";

    /// Every session that ran has its workspace, or none are kept.
    WorkspacesSound: "I2" "workspaces_sound" Ok "";
    /// A session ran and its workspace is not there.
    WorkspaceMissing: "I2" "workspace_missing" Fail "restore WORKSPACE_ROOT/ID/workspace from a backup before the session is used; else close the session with purge";
    /// A workspace does not say whom it belongs to.
    SidecarMissing: "I2" "sidecar_missing" Warn "nothing is lost while the store is well, but a rebuilt store would not know this session; its next start writes the file";
    /// Another directory is in place of the workspace root.
    RootOther: "I2" "workspace_root_other" Fail "mount or put back the directory with the workspaces; sessions wait for it, or for sandboxctl release workspace_root_changed, which accepts the one that is there";
    /// The workspace root could not be listed.
    WorkspacesUnseen: "I2" "workspaces_unseen" Unknown "mount WORKSPACE_ROOT, or let this user read it, and look again";

    /// Every container of ours is named by a record.
    ContainersExplained: "I3" "containers_explained" Ok "";
    /// Containers of other daemons share the engine.
    OtherInstances: "I3" "other_instances" Ok "";
    /// Containers are named as the predecessor named them.
    Predecessors: "I3" "predecessor_containers" Ok "they are never touched; remove them by hand once their sessions are not needed";
    /// Containers are named like ours and carry no label of ours.
    Unlabelled: "I3" "unlabelled_containers" Ok "they are never touched; remove them by hand if nobody needs them";
    /// A container of ours is named by no record.
    StrayContainer: "I3" "stray_container" Fail "sandboxd removes it after SANDBOXD_ORPHAN_GRACE, unless more than a fifth of all containers are strays: then rather the records are missing, and STATE_DIR is not the one they were made with";
    /// Two containers carry the key of one record.
    TwinContainer: "I3" "twin_container" Fail "remove with docker rm --force the one whose id the session's status does not name";
    /// A container runs although its session is asleep or over.
    RunsUnasked: "I3" "runs_unasked" Fail "a running sandboxd stops it at its next look; if this stays, restart sandboxd";

    /// No process is left of a container that the engine does not run.
    NoGhosts: "I4" "no_ghosts" Ok "";
    /// Processes are left of a container that the engine does not run.
    Ghost: "I4" "ghost" Fail "end the processes that its control group lists in cgroup.procs, and its containerd-shim; restarting the host does both";
    /// The control groups could not be seen.
    GroupsUnseen: "I4" "groups_unseen" Unknown "run sandboxd on the engine's host, or in a container mount that host's /sys/fs/cgroup there, to be read";

    /// Nothing remains of what was purged.
    NothingRemains: "I5" "nothing_remains" Ok "";
    /// A directory belongs to no record.
    UnrecordedWorkspace: "I5" "workspace_without_record" Ok "it is never swept: open a session of its id to use it, or sandboxctl purge ID to remove it";
    /// Something in the workspace root is no workspace.
    StrangeEntry: "I5" "strange_entry" Ok "it is never touched; move it elsewhere if nobody needs it here";
    /// Something was set aside for removal and is still there.
    TrashOld: "I5" "trash_not_emptied" Warn "see the daemon's log for what keeps it from removing WORKSPACE_ROOT/.trash; the next resync tries again";
    /// Events remain of a session that has no record.
    LogWithoutRecord: "I5" "log_without_record" Fail "sandboxctl purge ID removes them";
    /// Runs remain of a session that has no record.
    RunWithoutRecord: "I5" "run_without_record" Fail "sandboxctl purge ID removes them";

    /// The ceilings hold.
    CeilingsHold: "I6" "ceilings_hold" Ok "";
    /// More sandboxes are resident than may be.
    ResidentOver: "I6" "resident_over" Fail "raise SANDBOXD_MAX_SESSIONS, or close sessions; nothing opens or wakes until there is room";
    /// More sessions are open than may be.
    OpenOver: "I6" "open_over" Fail "raise SANDBOXD_MAX_OPEN_SESSIONS, or close sessions; nothing opens until there is room";
    /// A tenant has more open sessions than it may.
    TenantOver: "I6" "tenant_over" Fail "raise SANDBOXD_MAX_SESSIONS_PER_TENANT, or close sessions of the tenant";
    /// More containers run than sandboxes may be resident.
    RunningOver: "I6" "running_over" Fail "see the lines of I3 for those that should not run; raise SANDBOXD_MAX_SESSIONS if all of them should";

    /// The store takes writes and is ours.
    StoreSound: "I7" "store_sound" Ok "";
    /// There is no store yet.
    NoStore: "I7" "no_store" Warn "check SANDBOXD_STATE_DIR; the first start of sandboxd makes the store";
    /// The store was begun anew.
    StoreBegunAnew: "I7" "store_begun_anew" Warn "see the daemon's log for what was found again; keep the store that was set aside until nothing is missed";
    /// The file system of the store is full.
    StoreFull: "I7" "store_full" Fail "free space on the file system of SANDBOXD_STATE_DIR; the store heals by itself";
    /// The store takes no writes.
    StoreDegraded: "I7" "store_degraded" Fail "see the daemon's log, mend the disk under SANDBOXD_STATE_DIR; the store is opened again by itself";
    /// The store cannot be opened.
    StoreBroken: "I7" "store_broken" Fail "leave the state directory as it is and put it back from a backup, or follow what the daemon says at its start";
    /// The store could not be read for a reason that says nothing about it.
    StoreUnseen: "I7" "store_unseen" Unknown "mend what the detail names, and look again";
    /// The state directory does not say that it was ever initialised.
    MarkerMissing: "I7" "marker_missing" Fail "put STATE_DIR/initialised back from a backup: without it the next start takes the directory for a new one";
    /// The state directory is of another instance than its store.
    MarkerOther: "I7" "marker_other" Fail "the store or the file STATE_DIR/initialised was copied from elsewhere: put back the one that belongs here";
    /// The marker could not be read.
    MarkerUnseen: "I7" "marker_unseen" Unknown "let this user read STATE_DIR/initialised, or run as the daemon's user";

    /// No command claims an exit code that its ending contradicts.
    EndingsSound: "I8" "endings_sound" Ok "";
    /// A command claims an exit code that its ending contradicts.
    EndingContradicts: "I8" "ending_contradicts" Fail "do not trust that command's reported ending, and report this as a bug of sandboxd";
    /// Events could not be read.
    EventsUnseen: "I8" "events_unseen" Unknown "see the line about the store, and look again";

    /// The engine answers.
    EngineSound: "engine" "engine_sound" Ok "";
    /// The engine has limits that are mended in a later one.
    EngineOld: "engine" "engine_old" Warn "upgrade to Docker 25 or later when you can: this one can leave processes behind when it is killed in the middle of a start (I4)";
    /// Restarting the engine ends every sandbox.
    NoLiveRestore: "engine" "no_live_restore" Warn "set \"live-restore\": true in /etc/docker/daemon.json, so that sandboxes go on while Docker is restarted or upgraded";
    /// The engine speaks no version that is spoken here.
    EngineRefused: "engine" "engine_refused" Fail "run an engine of a version that README.md names";
    /// It is another engine than before.
    EngineOther: "engine" "engine_other" Fail "point SANDBOXD_DOCKER_HOST at the engine that the sandboxes live on; nothing of another is swept";
    /// The engine does not answer.
    EngineUnseen: "engine" "engine_unseen" Unknown "check that Docker runs and that SANDBOXD_DOCKER_HOST names its socket; a frozen one has to be restarted";

    /// What sandboxes use is read from the host.
    GroupsSound: "cgroups" "groups_sound" Ok "";
    /// What sandboxes use cannot be read from the host.
    UsageUnseen: "cgroups" "usage_unseen" Warn "usage is asked of the agent of each sandbox, or else of the engine, which is slower; run sandboxd on the engine's host, or in a container mount that host's /sys/fs/cgroup there, to be read";

    /// There is room on the disk.
    SpaceSound: "disk" "space_sound" Ok "";
    /// There is little room on the disk.
    SpaceLow: "disk" "space_low" Warn "free space or purge sessions that nobody needs; without space nothing opens (507)";
    /// The room on the disk could not be seen.
    SpaceUnseen: "disk" "space_unseen" Unknown "mount the directory, or let this user read it, and look again";

    /// The clock is ahead of everything that was written down.
    ClockSound: "clock" "clock_sound" Ok "";
    /// The clock is behind what was written down.
    ClockBehind: "clock" "clock_behind" Warn "set the clock by NTP; nothing is reaped early meanwhile";
}
