//! Holds the rows of the table of settings that say how the daemon works.

use super::Group::{Commands, Logs, Operation};
use super::Kind::{Choice, Filter, MaybePath, MaybeSecs, MaybeText, Secs, Whole};
use super::Preset::{Is, Nothing};
use super::Setting;
use super::table::{BASE, BYTES_MAX};

/// The bytes of the largest body that is accepted: 16 MiB.
const BODY_BYTES_MIN: u64 = 16 << 20;

/// What is done with commands, how much work there is, and what is said of it.
pub(super) const ROWS: &[Setting] = &[
    Setting {
        name: "SANDBOXD_EXECUTE_TIMEOUT",
        kind: Secs(1),
        default: Is("300"),
        group: Commands,
        doc: "Seconds that one command may run at most.",
        nuance: "A caller may ask for less, never for more.",
        example: "60",
        shown_by: "each_setting::a_command_runs_no_longer_than_is_set_whatever_its_caller_asks_for",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_MAX_RUNNING_COMMANDS",
        kind: Whole(1, 100_000),
        default: Is("256"),
        group: Commands,
        doc: "Commands in flight over all sessions.",
        nuance: "Beyond it a caller is told to come back later.",
        example: "64",
        shown_by: "commands::at_the_ceiling_of_running_commands_the_next_is_refused",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_MAX_SESSION_COMMANDS",
        kind: Whole(1, 10_000),
        default: Is("64"),
        group: Commands,
        doc: "Commands in flight in one session, background runs and terminals with them.",
        nuance: "Beyond it a caller is told to come back later; other sessions notice nothing.",
        example: "16",
        shown_by: "runs_foreground::the_ceiling_of_a_session_names_itself_and_leaves_others_their_places",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_MAX_SESSION_TTYS",
        kind: Whole(1, 1_000),
        default: Is("16"),
        group: Commands,
        doc: "Terminals in one session.",
        nuance: "They count within SANDBOXD_MAX_SESSION_COMMANDS as well.",
        example: "4",
        shown_by: "terminals::what_has_no_sense_is_refused_and_bounds_are_told",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_BACKGROUND_TIMEOUT",
        kind: MaybeSecs(1),
        default: Nothing("they end with their sandbox"),
        group: Commands,
        doc: "Seconds that a background run or a terminal may go on at most.",
        nuance: "SANDBOXD_EXECUTE_TIMEOUT does not bound them. A caller may ask for less.",
        example: "86400",
        shown_by: "each_setting::a_background_run_goes_on_no_longer_than_is_set",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_RUN_OUTPUT_LIMIT",
        kind: Whole(1, 1 << 30),
        default: Is("10485760"),
        group: Commands,
        doc: "Bytes that a run with a waiting caller may write before it is ended.",
        nuance: "Both streams together. Such output is held in memory until the run ends; \
            background runs have their ring instead.",
        example: "1048576",
        shown_by: "runs_foreground::output_beyond_the_limit_ends_a_run_and_output_within_it_is_whole",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_RUN_RING_BYTES",
        kind: Whole(65_536, 64 << 20),
        default: Is("1048576"),
        group: Commands,
        doc: "Bytes of output kept of one run, for followers that come late or come back.",
        nuance: "Held in the sandbox, within its memory ceiling. The oldest output goes first.",
        example: "4194304",
        shown_by: "runs_adoption::a_run_that_waits_for_a_reader_waits_through_a_kill_of_the_daemon_and_loses_nothing",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_SESSION_RINGS_BYTES",
        kind: Whole(65_536, 1 << 30),
        default: Is("8388608"),
        group: Commands,
        doc: "Bytes of output kept of all runs of one sandbox.",
        nuance: "What ended longest ago goes first.",
        example: "33554432",
        shown_by: "each_setting::of_all_runs_of_a_sandbox_as_much_output_is_kept_as_is_set",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_RUN_KEEP",
        kind: Secs(1),
        default: Is("600"),
        group: Commands,
        doc: "Seconds for which an ended run and its output are kept.",
        nuance: "Its sandbox has to go on for the output; how it ended is known without.",
        example: "3600",
        shown_by: "runs_adoption::a_run_is_forgotten_when_it_was_over_for_as_long_as_runs_are_kept",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_EXEC",
        kind: Choice(&["agent", "docker"]),
        default: Is("agent"),
        group: Commands,
        doc: "How commands reach sandboxes.",
        nuance: "With agent a small program is the first process of each sandbox and runs \
            commands in a millisecond; where it cannot run, commands go by the engine. With \
            docker they always do, at some 50 ms each and without background runs and \
            terminals. Holds for containers that are made from then on.",
        example: "docker",
        shown_by: "inside::answers_are_the_same_for_files_of_the_host_of_the_sandbox_and_without_any_agent",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_AGENT",
        kind: MaybePath,
        default: Nothing("the program in the daemon itself"),
        group: Commands,
        doc: "The agent's program: a static executable for the engine's architecture.",
        nuance: "Needed where the engine runs on another architecture than the daemon was \
            built for. Read at start.",
        example: "/usr/local/lib/sandboxd/sandbox-agent",
        shown_by: "reach::where_the_agent_cannot_run_containers_are_made_without_it",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_MAX_READ_BYTES",
        kind: Whole(1, BYTES_MAX),
        default: Is("8388608"),
        group: Operation,
        doc: "Bytes of the largest file that is read whole.",
        nuance: "A slice of a larger file is served; then it bounds what is returned. Each \
            read holds its file in memory.",
        example: "33554432",
        shown_by: "each_setting::a_file_is_read_whole_up_to_the_size_that_is_set",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_MAX_UPLOAD_BYTES",
        kind: Whole(1, BYTES_MAX),
        default: Is("10737418240"),
        group: Operation,
        doc: "Bytes of the largest file that is taken in by `PUT /sessions/{id}/file`.",
        nuance: "Holds for files of the work directory, which are written as they come and \
            take no memory; what only the sandbox can write is bounded by \
            SANDBOXD_MAX_READ_BYTES. Downloads have no such bound.",
        example: "1073741824",
        shown_by: "streamed_files::an_upload_is_there_whole_or_not_at_all_and_only_where_it_is_expected",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_MAX_ARCHIVE_BYTES",
        kind: Whole(1 << 20, BYTES_MAX),
        default: Is("17179869184"),
        group: Operation,
        doc: "Bytes of the largest archive of a workspace that is exported or imported.",
        nuance: "Counted before compression, headers included; an import is also held to \
            SANDBOXD_WORKSPACE_SIZE. An export that would be larger breaks off, so that \
            nobody takes it for whole.",
        example: "1073741824",
        shown_by: "archives::a_hostile_archive_is_refused_whole_and_reaches_nothing",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_MAX_WORKERS",
        kind: Whole(1, 1_024),
        default: Is("32"),
        group: Operation,
        doc: "Calls to the engine in flight at once.",
        nuance: "Half of them at most are for starting, stopping and removing, so that these \
            never keep a command from its sandbox. Raise it where many sessions start at the \
            same time and the engine keeps up.",
        example: "64",
        shown_by: "each_setting::the_workers_bound_how_much_is_started_at_once",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_MAX_CONNECTIONS",
        kind: Whole(1, 1_000_000),
        default: Is("1024"),
        group: Operation,
        doc: "Connections of clients at once.",
        nuance: "When all are taken, further ones wait for a second and are then refused with \
            503. Each takes a file descriptor: where the limit of the process, which the \
            daemon raises as far as it may, is too low for them and for the commands, fewer \
            are served and the log says so.",
        example: "4096",
        shown_by: "each_setting::as_many_connections_are_served_as_are_set",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_MAX_BODY_BYTES",
        kind: Whole(BODY_BYTES_MIN, BYTES_MAX),
        default: Is("67108864"),
        group: Operation,
        doc: "Bytes of request bodies held at once, over all requests.",
        nuance: "A body that does not fit beside the others is refused with 503; bodies of \
            up to 16 KiB do not count. At least 16777216, the largest body. Reading bodies \
            takes up to twice that in memory.",
        example: "33554432",
        shown_by: "limits::bodies_and_output_without_end_fit_into_96_mib",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_EVENTS_PER_SESSION",
        kind: Whole(200, 1_000_000),
        default: Is("10000"),
        group: Operation,
        doc: "Events kept of each session; older ones are dropped.",
        nuance: "They are on disk and outlive a restart of the daemon.",
        example: "2000",
        shown_by: "each_setting::of_each_session_as_many_events_are_kept_as_are_set",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_SERVICE_EVENTS",
        kind: Whole(1_000, 10_000_000),
        default: Is("100000"),
        group: Operation,
        doc: "Events kept of the service as a whole; older ones are dropped.",
        nuance: "The log of `GET /events` and `sandboxctl events`: what was done in all \
            sessions, and what became of them. It outlives the sessions and a restart of the \
            daemon; an event takes some 400 bytes on disk.",
        example: "1000000",
        shown_by: "service_log::what_is_older_than_what_is_kept_is_told_to_be_gone",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_CLEANUP_INTERVAL",
        kind: Secs(1),
        default: Is("300"),
        group: Operation,
        doc: "Seconds between two looks at everything.",
        nuance: "Deadlines are met on time in between: this bounds how long a surprise on the \
            host goes unseen.",
        example: "60",
        shown_by: "ownership::only_strays_of_ours_go_and_only_after_two_looks_and_a_grace",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_ORPHAN_GRACE",
        kind: Secs(0),
        default: Is("300"),
        group: Operation,
        doc: "Seconds for which a container of ours that no record explains is left alone.",
        nuance: "Leaves time to restore a store from a backup before its containers go.",
        example: "3600",
        shown_by: "ownership::only_strays_of_ours_go_and_only_after_two_looks_and_a_grace",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_WORKSPACE_SCAN_INTERVAL",
        kind: Secs(1),
        default: Is("60"),
        group: Operation,
        doc: "Seconds between two rounds of measuring workspaces.",
        nuance: "A round measures, one after the other and at a fifth of a processor at most, \
            the workspaces of running sandboxes, those that were used since they were last \
            measured, and others once a day. So long may a sandbox stay above \
            SANDBOXD_WORKSPACE_SIZE unseen.",
        example: "15",
        shown_by: "workspace_size::a_sandbox_that_fills_its_workspace_is_stopped_and_wakes_once_files_were_removed",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_ON_CORRUPT_STORE",
        kind: Choice(&["rebuild", "refuse"]),
        default: Is("rebuild"),
        group: Operation,
        doc: "What is done at start about a store that is lost or corrupt.",
        nuance: "With rebuild it is set aside under a dated name, never deleted, and the \
            records are made anew from the containers and the workspaces, with the same \
            tokens; nothing is reaped, expired or swept until `sandboxctl release \
            store_rebuilt`. With refuse the daemon ends with exit code 65.",
        example: "refuse",
        shown_by: "ownership::a_corrupt_store_ends_with_65_and_is_left_alone",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_BACKUP_EVERY",
        kind: Secs(0),
        default: Is("3600"),
        group: Operation,
        doc: "Seconds between two copies of the store, in STATE_DIR/backups; 0 keeps none.",
        nuance: "None is made while nothing has changed since the last. A copy is a backup for \
            `sandboxd restore`, of one moment and without the token key, which lies beside it.",
        example: "600",
        shown_by: "backup::copies_of_the_store_are_kept_while_it_changes_and_the_oldest_go",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_BACKUP_KEEP",
        kind: Whole(1, 10_000),
        default: Is("24"),
        group: Operation,
        doc: "Copies of the store that are kept.",
        nuance: "The oldest goes once there is one more. Each takes some kilobytes a session.",
        example: "168",
        shown_by: "backup::copies_of_the_store_are_kept_while_it_changes_and_the_oldest_go",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_RELEASE_HOLDS",
        kind: MaybeText,
        default: Nothing("no hold is released"),
        group: Operation,
        doc: "Holds that are let go of at this start, separated by commas: store_rebuilt, \
            engine_changed, workspace_root_changed.",
        nuance: "Does what `sandboxctl release` does, for one start: take it out again \
            afterwards. A store that is lost at this very start, or whose containers are not on \
            record again yet, is not confirmed by it.",
        example: "store_rebuilt",
        shown_by: "store_disasters::a_setting_confirms_an_earlier_rebuild_and_never_the_one_of_its_own_start",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_DRAIN_TIMEOUT",
        kind: Secs(0),
        default: Is("5"),
        group: Operation,
        doc: "Seconds that requests in flight get to finish when the daemon stops.",
        nuance: "Keep TimeoutStopSec= above it. Sandboxes are left running whatever it is.",
        example: "30",
        shown_by: "each_setting::what_is_under_way_gets_as_long_as_is_set_when_the_service_stops",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_LOG",
        flag: Some("log"),
        kind: Filter,
        default: Is("info"),
        group: Logs,
        doc: "How much is logged: a level, or directives for single modules.",
        nuance: "Directives are separated by commas, the more specific one wins.",
        example: "info,sandboxd::reconcile=debug",
        shown_by: "each_setting::the_log_has_the_levels_and_the_form_that_are_set",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_LOG_FORMAT",
        flag: Some("log-format"),
        kind: Choice(&["text", "json"]),
        default: Is("text"),
        group: Logs,
        doc: "The form of the log.",
        nuance: "text is for people; json has one object a line for programs.",
        example: "json",
        shown_by: "each_setting::the_log_has_the_levels_and_the_form_that_are_set",
        ..BASE
    },
];
