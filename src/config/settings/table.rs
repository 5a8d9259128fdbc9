//! Holds the rows of the table of settings.

use super::Group::{Access, Capacity, Ceilings, Interior, Lifetimes, Places, Runtimes};
use super::Kind::{
    Flag, MaybeCpus, MaybePath, MaybeSecs, MaybeSize, MaybeText, MaybeWhole, Path, Secret, Secs,
    Socket, Text, Whole,
};
use super::Preset::{Is, Nothing, Required};
use super::{Kind, Setting};
use crate::policy::valid::{CPU_SHARES_MAX, CPU_SHARES_MIN, PIDS_MAX};

/// The most sessions that can be asked for.
const COUNT_MAX: u64 = 1_000_000;
/// The largest file that can be asked for: 1 TiB.
pub(super) const BYTES_MAX: u64 = 1 << 40;
/// The largest user number but the one that means nobody.
const UID_MAX: u64 = 4_294_967_294;

/// What most settings have in common.
pub(super) const BASE: Setting = Setting {
    name: "",
    flag: None,
    instead: None,
    kind: Text,
    default: Required,
    group: Access,
    doc: "",
    nuance: "",
    example: "",
    shown_by: "",
};

/// What is set up and allowed.
pub(super) const ROWS: &[Setting] = &[
    Setting {
        name: "SANDBOXD_HOST",
        flag: Some("host"),
        kind: Text,
        default: Is("127.0.0.1"),
        group: Access,
        doc: "The address on which the daemon listens.",
        nuance: "There is no TLS: keep it on the loopback, or on a private network behind a \
            proxy that has TLS. Inside a container it has to be 0.0.0.0.",
        example: "0.0.0.0",
        shown_by: "each_setting::it_listens_where_host_and_port_say_and_names_a_port_that_was_picked",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_PORT",
        flag: Some("port"),
        kind: Whole(0, 65_535),
        default: Is("8080"),
        group: Access,
        doc: "The TCP port on which the daemon listens.",
        nuance: "With 0 the system picks a free port, which the log names.",
        example: "9000",
        shown_by: "each_setting::it_listens_where_host_and_port_say_and_names_a_port_that_was_picked",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_TOKEN",
        kind: Secret,
        default: Required,
        group: Access,
        doc: "The service token: who holds it opens sessions, and a session runs commands \
            on this host.",
        nuance: "Callers send it in the header X-Sandbox-Token. There is no flag, since every user of the host reads the command lines of others. Where \
            both this and SANDBOXD_TOKEN_FILE are set, the environment wins over the \
            file, and in one place this wins.",
        example: "$(openssl rand -base64 32)",
        shown_by: "each_setting::the_token_is_the_one_of_the_setting_or_of_the_file",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_TOKEN_FILE",
        kind: MaybePath,
        default: Nothing("the systemd credential service-token, if any"),
        group: Access,
        doc: "The file that holds the service token.",
        nuance: "White space around the token does not count. Keep it readable by the \
            daemon's user only; with systemd prefer LoadCredential=service-token:FILE, \
            which needs no setting.",
        example: "/etc/sandboxd/token",
        shown_by: "each_setting::the_token_is_the_one_of_the_setting_or_of_the_file",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_TOKEN_KEY_FILE",
        kind: MaybePath,
        default: Nothing("the systemd credential token-key, or STATE_DIR/token.key"),
        group: Access,
        doc: "The file that holds the 32 bytes from which session tokens are derived.",
        nuance: "With another key the tokens of open sessions no longer hold, so a store \
            refuses a key that is not its own. Set it to keep the key apart from the \
            state directory and its backups.",
        example: "/etc/sandboxd/token.key",
        shown_by: "ownership::a_foreign_token_key_ends_with_78_and_changes_nothing",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_UI_ENABLED",
        kind: Flag,
        default: Is("false"),
        group: Access,
        doc: "Whether a dashboard is served.",
        nuance: "Accepted and without effect: this version has no dashboard, and says so at \
            start.",
        example: "true",
        shown_by: "each_setting::a_setting_without_effect_is_told_at_the_start",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_CONFIG",
        flag: Some("config"),
        kind: MaybePath,
        default: Nothing("no file is read"),
        group: Places,
        doc: "A file of settings: lines of NAME=VALUE.",
        nuance: "The environment wins over it. It cannot name another file. A file that \
            cannot be read keeps the daemon from starting.",
        example: "/etc/sandboxd/sandboxd.env",
        shown_by: "each_setting::a_file_of_settings_is_read_and_the_environment_wins_over_it",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_STATE_DIR",
        flag: Some("state-dir"),
        instead: Some("STATE_DIRECTORY"),
        kind: Path,
        default: Is("/var/lib/sandboxd"),
        group: Places,
        doc: "Where the daemon keeps its store and its key.",
        nuance: "One daemon owns it at a time. It marks the containers that belong to it, so \
            a new one finds none of the old containers. Under systemd StateDirectory= \
            provides it.",
        example: "/srv/sandboxd/state",
        shown_by: "each_setting::the_state_lies_in_the_state_directory",
    },
    Setting {
        name: "SANDBOXD_RUNTIME_DIR",
        flag: Some("runtime-dir"),
        instead: Some("RUNTIME_DIRECTORY"),
        kind: Path,
        default: Is("/run/sandboxd"),
        group: Places,
        doc: "Where the sockets of sandboxes live while they run.",
        nuance: "May be empty after a boot. Keep it short: the path of a socket has at most \
            107 bytes. The engine has to see the same path.",
        example: "/run/sandboxd-test",
        shown_by: "each_setting::the_sockets_of_sandboxes_lie_in_the_runtime_directory",
    },
    Setting {
        name: "SANDBOXD_WORKSPACE_ROOT",
        flag: Some("workspace-root"),
        kind: MaybePath,
        default: Nothing("files live in their container and go with it"),
        group: Places,
        doc: "Where the files of sessions live on the host, a directory for each session.",
        nuance: "Set it wherever files matter: then they outlive containers, idle sessions \
            can be put to sleep, and files are read without a sandbox. The engine has to \
            see the same path. It must not hold the state directory.",
        example: "/srv/sandboxd/workspaces",
        shown_by: "sessions::a_container_that_is_not_kept_goes_with_the_close_and_its_files_stay",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_DOCKER_HOST",
        flag: Some("docker-host"),
        instead: Some("DOCKER_HOST"),
        kind: Socket,
        default: Is("unix:///var/run/docker.sock"),
        group: Places,
        doc: "The unix socket of the Docker Engine.",
        nuance: "Who can write to it is root on the host. Only unix sockets are accepted: \
            workspaces and the engine have to share one file system.",
        example: "unix:///run/user/1000/docker.sock",
        shown_by: "engine_faults::an_engine_whose_socket_is_gone_is_known_survived_and_over",
    },
    Setting {
        name: "SANDBOXD_CONTAINER",
        default: Is("auto"),
        group: Places,
        doc: "The container that the daemon itself runs in: `auto`, `none`, or an id or name.",
        nuance: "`auto` finds out, from what the kernel says of the process and the engine of \
            its containers. In a container the state, the runtime and the workspace directory \
            have to lie in volumes or directories of the host, which the daemon then names to \
            the engine by their paths there; one that does not keeps it from starting. `none` \
            is for a container that sees the same paths as the engine. A name is for one \
            that `auto` does not recognise.",
        example: "sandboxd",
        shown_by: "in_container::a_container_that_the_operator_names_is_found_or_is_an_error",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_POLICY_OVERRIDES",
        kind: MaybePath,
        default: Nothing("the policy is that of these settings"),
        group: Places,
        doc: "A JSON file of changes to the policy, laid over these settings.",
        nuance: "Accepted and without effect: this version takes no live changes of the \
            policy, and says so at start. A change of these settings needs a restart, which \
            leaves sandboxes running.",
        example: "/etc/sandboxd/policy.json",
        shown_by: "each_setting::a_setting_without_effect_is_told_at_the_start",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_RUNTIMES",
        kind: Kind::Runtimes,
        default: Nothing("coding, python and node"),
        group: Runtimes,
        doc: "The allowlist: the runtimes that clients may name, and what each may use.",
        nuance: "Clients cannot name an image, only an alias of this list. The syntax is \
            below.",
        example: "python=python:3.12-slim,data=@python-datascience;mem_limit=4g",
        shown_by: "operator::a_container_is_made_with_the_documented_settings",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_DEFAULT_RUNTIME",
        kind: MaybeText,
        default: Nothing("the first runtime of the list"),
        group: Runtimes,
        doc: "The alias that a session gets when its client names none.",
        nuance: "It has to be in the allowlist.",
        example: "python",
        shown_by: "each_setting::a_file_of_settings_is_read_and_the_environment_wins_over_it",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_PREWARM",
        kind: Flag,
        default: Is("true"),
        group: Runtimes,
        doc: "Whether ready images are pulled in the background at start.",
        nuance: "Without it the first session of each runtime waits for its image. Turn it \
            off where images are brought in by hand.",
        example: "false",
        shown_by: "each_setting::ready_images_are_fetched_at_the_start_only_where_that_is_set",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_MAX_SESSIONS",
        kind: MaybeWhole(0, COUNT_MAX),
        default: Is("20"),
        group: Capacity,
        doc: "How many sandboxes may run at once; empty for no bound.",
        nuance: "Times the largest memory ceiling it is the worst case in memory, which \
            `sandboxd check` computes. At the ceiling an open is refused, unless \
            SANDBOXD_EVICT_IDLE_AFTER lets another session give way.",
        example: "50",
        shown_by: "crowds::a_hundred_parallel_opens_at_a_ceiling_of_five_give_exactly_five",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_MAX_OPEN_SESSIONS",
        kind: MaybeWhole(0, COUNT_MAX),
        default: Nothing("no bound"),
        group: Capacity,
        doc: "How many sessions may be open, running or asleep; empty for no bound.",
        nuance: "Never below SANDBOXD_MAX_SESSIONS, which is 20 where it is not set. At the \
            ceiling the session that has slept longest is closed; its files stay.",
        example: "200",
        shown_by: "sessions::at_the_ceiling_of_open_sessions_the_longest_sleeper_is_closed",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_MAX_SESSIONS_PER_TENANT",
        kind: MaybeWhole(0, COUNT_MAX),
        default: Nothing("no bound"),
        group: Capacity,
        doc: "How many open sessions one tenant may have; empty for no bound.",
        nuance: "Counts sessions that were opened with the same tenant label. Sessions \
            without a label are never counted.",
        example: "5",
        shown_by: "sessions::a_tenants_ceiling_holds_in_a_race_and_a_close_frees_the_place",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_EVICT_IDLE_AFTER",
        kind: MaybeSecs(0),
        default: Nothing("no session gives way"),
        group: Capacity,
        doc: "Seconds of idleness after which a session may be put to sleep to make room.",
        nuance: "Needs SANDBOXD_WORKSPACE_ROOT and only matters at SANDBOXD_MAX_SESSIONS. The \
            next use wakes the session under the same token.",
        example: "60",
        shown_by: "sessions::the_most_idle_session_sleeps_for_another_and_never_more_than_the_ceiling_run",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_OPEN_QUEUE_MAX",
        kind: Whole(0, 10_000),
        default: Is("100"),
        group: Capacity,
        doc: "Openings that may wait at a ceiling at once; 0 has none wait.",
        nuance: "Who asks with `POST /sessions?wait=SECONDS` waits for a place, first come \
            first served. Beyond this many an opening is refused at once, as without `wait`. \
            Each holds a connection.",
        example: "20",
        shown_by: "lifecycle::an_opening_that_waited_in_vain_is_refused_as_without_a_wait",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_OPEN_WAIT_MAX",
        kind: Secs(0),
        default: Is("300"),
        group: Capacity,
        doc: "Seconds that an opening may wait at a ceiling at most.",
        nuance: "Who asks for more waits this long.",
        example: "60",
        shown_by: "lifecycle::an_opening_that_waited_in_vain_is_refused_as_without_a_wait",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_MEM_LIMIT",
        kind: MaybeSize,
        default: Is("1g"),
        group: Ceilings,
        doc: "Memory of one sandbox; empty for no bound.",
        nuance: "What lies in its /tmp counts. A runtime may have its own. At least 6m.",
        example: "512m",
        shown_by: "each_setting::a_sandbox_has_the_ceilings_and_the_inside_that_are_set",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_MEMSWAP_LIMIT",
        kind: MaybeSize,
        default: Nothing("the memory ceiling: no swap"),
        group: Ceilings,
        doc: "Memory and swap of one sandbox together.",
        nuance: "At least the memory ceiling, and without effect where that is empty.",
        example: "2g",
        shown_by: "each_setting::a_sandbox_has_the_ceilings_and_the_inside_that_are_set",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_CPUS",
        kind: MaybeCpus,
        default: Is("2.0"),
        group: Ceilings,
        doc: "Processors of one sandbox; empty for no bound.",
        nuance: "A sandbox may use them all the time: this is a ceiling, not a share. The \
            engine refuses more than the host has.",
        example: "0.5",
        shown_by: "each_setting::a_sandbox_has_the_ceilings_and_the_inside_that_are_set",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_CPU_SHARES",
        kind: MaybeWhole(CPU_SHARES_MIN, CPU_SHARES_MAX),
        default: Nothing("the engine's 1024"),
        group: Ceilings,
        doc: "The weight of one sandbox where sandboxes compete for processors.",
        nuance: "Without effect while there are processors to spare.",
        example: "512",
        shown_by: "each_setting::a_sandbox_has_the_ceilings_and_the_inside_that_are_set",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_PIDS_LIMIT",
        kind: MaybeWhole(1, PIDS_MAX),
        default: Is("512"),
        group: Ceilings,
        doc: "Processes and threads of one sandbox; empty for no bound.",
        nuance: "Keep it set: it is what stops a fork bomb.",
        example: "256",
        shown_by: "each_setting::a_sandbox_has_the_ceilings_and_the_inside_that_are_set",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_NETWORK_MODE",
        kind: MaybeText,
        default: Is("none"),
        group: Ceilings,
        doc: "The Docker network of sandboxes; empty for the engine's default.",
        nuance: "none cuts them off. bridge reaches the internet, the host and other \
            sandboxes. host shares the network of the host, its loopback included.",
        example: "bridge",
        shown_by: "each_setting::a_sandbox_has_the_ceilings_and_the_inside_that_are_set",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_OCI_RUNTIME",
        kind: MaybeText,
        default: Nothing("the engine's default"),
        group: Ceilings,
        doc: "The OCI runtime that runs sandboxes.",
        nuance: "The engine has to know it by this name. runsc (gVisor) puts a second kernel \
            between a sandbox and the host.",
        example: "runsc",
        shown_by: "each_setting::the_oci_runtime_is_the_one_that_is_set",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_WORKSPACE_SIZE",
        kind: MaybeSize,
        default: Nothing("no bound but the disk"),
        group: Ceilings,
        doc: "What may lie in one workspace; empty for no bound.",
        nuance: "Counted as the disk has it, in blocks, so a file with holes counts for less \
            than its length. Needs SANDBOXD_WORKSPACE_ROOT. Writes through the API that would \
            go beyond it are refused. What commands write is found by measuring \
            (SANDBOXD_WORKSPACE_SCAN_INTERVAL): the sandbox is then stopped, and wakes again \
            once files were removed through the API. A runtime may have its own. At least 1m.",
        example: "10g",
        shown_by: "workspace_size::a_sandbox_that_fills_its_workspace_is_stopped_and_wakes_once_files_were_removed",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_WORK_DIR",
        kind: Text,
        default: Is("/workspace"),
        group: Interior,
        doc: "The absolute path inside a sandbox where commands run and files live.",
        nuance: "Holds for all runtimes, whatever their own configuration says. A plain path \
            of letters, digits and . _ - +.",
        example: "/srv/work",
        shown_by: "each_setting::a_sandbox_has_the_ceilings_and_the_inside_that_are_set",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_TMPFS_SIZE",
        kind: MaybeText,
        default: Is("64m"),
        group: Interior,
        doc: "The size of the in-memory /tmp; empty for a /tmp on disk.",
        nuance: "Counts within the memory ceiling. More mount options may follow a comma.",
        example: "256m",
        shown_by: "each_setting::a_sandbox_has_the_ceilings_and_the_inside_that_are_set",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_SANDBOX_UID",
        kind: MaybeWhole(1, UID_MAX),
        default: Nothing("the image's own user"),
        group: Interior,
        doc: "The user of runtimes that name a configuration; ready images keep their own.",
        nuance: "Built images get an account of this number. The workspace belongs to it, for \
            which the daemon has to be root or this user.",
        example: "1000",
        shown_by: "operator::a_container_is_made_with_the_documented_settings",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_IDLE_TIMEOUT",
        kind: Secs(0),
        default: Is("1800"),
        group: Lifetimes,
        doc: "Seconds without use after which a session is closed.",
        nuance: "A session with a command in flight is not idle. Its files stay where \
            SANDBOXD_WORKSPACE_ROOT is set, and go with it otherwise.",
        example: "3600",
        shown_by: "sessions::an_idle_session_is_reaped_on_time_and_a_busy_one_is_not",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_HIBERNATE_IDLE_AFTER",
        kind: MaybeSecs(0),
        default: Nothing("sessions sleep only to make room"),
        group: Lifetimes,
        doc: "Seconds without use after which a session is put to sleep, also where nobody \
            needs its place.",
        nuance: "Needs SANDBOXD_WORKSPACE_ROOT, and has no effect where it is not below \
            SANDBOXD_IDLE_TIMEOUT, which then counts from falling asleep. The next use wakes \
            the session under the same token; processes that it left are gone.",
        example: "300",
        shown_by: "lifecycle::an_idle_session_sleeps_on_time_although_there_is_room_and_a_busy_one_does_not",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_WORKSPACE_TTL",
        kind: MaybeSecs(0),
        default: Nothing("workspaces stay"),
        group: Lifetimes,
        doc: "Seconds without use after which the workspace of a closed session is \
            removed.",
        nuance: "Needs SANDBOXD_WORKSPACE_ROOT to have an effect. Counts from last use, by \
            the daemon's own record. Removed means gone.",
        example: "604800",
        shown_by: "lifetimes::a_workspace_goes_when_it_was_unused_for_its_time_whatever_the_dates_of_its_files",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_PERSIST_CONTAINERS",
        kind: Flag,
        default: Is("false"),
        group: Lifetimes,
        doc: "Whether a session that stops keeps its container, with what was installed in \
            it.",
        nuance: "Costs disk until the session is purged or SANDBOXD_CONTAINER_TTL passes.",
        example: "true",
        shown_by: "sessions::a_close_keeps_what_is_to_be_kept_and_a_purge_keeps_nothing",
        ..BASE
    },
    Setting {
        name: "SANDBOXD_CONTAINER_TTL",
        kind: MaybeSecs(0),
        default: Nothing("kept containers stay"),
        group: Lifetimes,
        doc: "Seconds after its stop at which a kept container is removed.",
        nuance: "Only with SANDBOXD_PERSIST_CONTAINERS. The workspace stays; without \
            SANDBOXD_WORKSPACE_ROOT the files go with their container.",
        example: "86400",
        shown_by: "lifetimes::a_kept_container_goes_when_it_has_stood_still_for_its_time_and_the_files_stay",
        ..BASE
    },
];
