//! Lists every route once; router, index, API document and the law of callers follow it.
//!
//! A new route is a row here and a handler that takes a caller of [`crate::api::auth`].

use axum::routing::on;

use crate::api::routes::{Route, Verb};
use crate::api::{
    archives, backup, files, holds, lifecycle, log, metrics, native, paths, runs, service,
    sessions, socket, streamed, sweep, tickets, ttys, watch, workspaces,
};

/// All routes, in the order in which people read about them.
pub(super) static TABLE: &[Route] = &[
    Route::new(Verb::Get, "/", "Shows what is served here", |verb| {
        on(verb, service::index)
    })
    .public()
    .answers("ServiceIndex"),
    Route::new(Verb::Get, "/healthz", "Tells how the service is", |verb| {
        on(verb, service::health)
    })
    .public()
    .quiet()
    .answers("ServiceHealth"),
    Route::new(
        Verb::Get,
        "/readyz",
        "Tells whether the service can do its work: 503 when the engine or the store cannot",
        |verb| on(verb, service::ready),
    )
    .public()
    .quiet()
    .answers("ServiceHealth"),
    Route::new(Verb::Get, "/docs", "Shows the routes as a page", |verb| {
        on(verb, service::docs)
    })
    .public(),
    Route::new(
        Verb::Get,
        "/openapi.json",
        "Shows the routes as an OpenAPI document",
        |verb| on(verb, service::openapi),
    )
    .public(),
    Route::new(
        Verb::Get,
        "/policy",
        "Shows runtimes and ceilings",
        |verb| on(verb, service::policy),
    )
    .answers("ServicePolicy"),
    Route::new(
        Verb::Get,
        "/events",
        "Shows what was done in all sessions and what became of them; as server-sent events \
            it goes on",
        |verb| on(verb, log::log),
    )
    .query(log::LOG_QUERY)
    .answers("ServiceEvents"),
    Route::new(
        Verb::Get,
        "/metrics",
        "Counts sessions, operations and requests, in the text format of Prometheus",
        |verb| on(verb, metrics::metrics),
    )
    .quiet(),
    Route::new(
        Verb::Get,
        "/doctor",
        "Checks the service's invariants over store, engine and disk",
        |verb| on(verb, service::doctor),
    )
    .answers("DoctorReport"),
    Route::new(
        Verb::Get,
        "/backup",
        "Sends a backup of the store as it is at this moment, as JSON lines with a digest",
        |verb| on(verb, backup::backup),
    )
    .query(backup::BACKUP_QUERY),
    Route::new(
        Verb::Post,
        "/sessions",
        "Opens a session, or attaches to one",
        |verb| on(verb, sessions::open),
    )
    .query(sessions::OPEN_QUERY)
    .takes("CreateSessionRequest")
    .answers("SessionCreated"),
    Route::new(
        Verb::Get,
        "/sessions",
        "Lists sessions in the order of opening",
        |verb| on(verb, sessions::list),
    )
    .query(sessions::LIST_QUERY)
    .answers("SessionList"),
    Route::new(
        Verb::Get,
        "/sessions/{session_id}",
        "Describes a session",
        |verb| on(verb, sessions::describe),
    )
    .for_session()
    .query(sessions::DESCRIBE_QUERY)
    .answers("SessionInfo"),
    Route::new(
        Verb::Get,
        "/sessions/{session_id}/explain",
        "Explains a session: what it should be, what it is, what comes next, and why",
        |verb| on(verb, lifecycle::explain),
    )
    .for_session()
    .answers("SessionExplanation"),
    Route::new(
        Verb::Post,
        "/sessions/{session_id}/hibernate",
        "Puts a session to sleep that nothing uses, and waits until its sandbox has stopped",
        |verb| on(verb, lifecycle::hibernate),
    )
    .answers("SessionInfo"),
    Route::new(
        Verb::Post,
        "/sessions/{session_id}/wake",
        "Wakes a session, and waits until its sandbox runs",
        |verb| on(verb, lifecycle::wake),
    )
    .answers("SessionInfo"),
    Route::new(
        Verb::Delete,
        "/sessions/{session_id}",
        "Closes a session",
        |verb| on(verb, sessions::close),
    )
    .for_session()
    .query(sessions::CLOSE_QUERY)
    .answers_nothing(),
    Route::new(
        Verb::Get,
        "/sessions/{session_id}/events",
        "Shows what was done in a session",
        |verb| on(verb, sessions::events),
    )
    .for_session()
    .query(sessions::EVENTS_QUERY)
    .answers("SessionEvents"),
    Route::new(
        Verb::Post,
        "/sessions/{session_id}/exec",
        "Runs a shell command and waits for it",
        |verb| on(verb, sessions::exec),
    )
    .for_session()
    .takes("ExecRequest")
    .answers("ExecResponse"),
    Route::new(
        Verb::Post,
        "/sessions/{session_id}/read",
        "Reads lines of a text",
        |verb| on(verb, files::read),
    )
    .for_session()
    .takes("ReadRequest")
    .answers("ReadResponse"),
    Route::new(
        Verb::Post,
        "/sessions/{session_id}/read_bytes",
        "Reads a whole file",
        |verb| on(verb, files::read_bytes),
    )
    .for_session()
    .takes("PathRequest")
    .answers("ReadBytesResponse"),
    Route::new(
        Verb::Post,
        "/sessions/{session_id}/write",
        "Replaces a file",
        |verb| on(verb, files::write),
    )
    .for_session()
    .takes("WriteRequest")
    .answers("WriteResponse"),
    Route::new(
        Verb::Post,
        "/sessions/{session_id}/edit",
        "Replaces a text within a file",
        |verb| on(verb, files::edit),
    )
    .for_session()
    .takes("EditRequest")
    .answers("EditResponse"),
    Route::new(
        Verb::Post,
        "/sessions/{session_id}/exists",
        "Tells whether a regular file is there",
        |verb| on(verb, files::exists),
    )
    .for_session()
    .takes("PathRequest")
    .answers("ExistsResponse"),
    Route::new(
        Verb::Post,
        "/sessions/{session_id}/ls",
        "Lists a directory",
        |verb| on(verb, files::ls),
    )
    .for_session()
    .takes("PathRequest")
    .answers("FileEntries"),
    Route::new(
        Verb::Post,
        "/sessions/{session_id}/glob",
        "Finds files by a pattern",
        |verb| on(verb, files::glob),
    )
    .for_session()
    .takes("GlobRequest")
    .answers("FileEntries"),
    Route::new(
        Verb::Post,
        "/sessions/{session_id}/grep",
        "Finds lines by a regular expression",
        |verb| on(verb, files::grep),
    )
    .for_session()
    .takes("GrepRequest")
    .answers("GrepResponse"),
    Route::new(
        Verb::Post,
        "/sessions/{session_id}/files/read",
        "Reads a whole file without the sandbox",
        |verb| on(verb, native::read),
    )
    .for_session()
    .takes("PathRequest")
    .answers_bytes(),
    Route::new(
        Verb::Post,
        "/sessions/{session_id}/files/write",
        "Replaces a file without the sandbox",
        |verb| on(verb, native::write),
    )
    .for_session()
    .query(paths::PATH_QUERY)
    .takes_bytes()
    .answers_nothing(),
    Route::new(
        Verb::Post,
        "/sessions/{session_id}/files/stat",
        "Describes a file or a directory without the sandbox",
        |verb| on(verb, native::stat),
    )
    .for_session()
    .takes("PathRequest")
    .answers("FileEntry"),
    Route::new(
        Verb::Post,
        "/sessions/{session_id}/files/list",
        "Lists a directory without the sandbox",
        |verb| on(verb, native::list),
    )
    .for_session()
    .takes("PathRequest")
    .answers("FileEntries"),
    Route::new(
        Verb::Post,
        "/sessions/{session_id}/files/realpath",
        "Resolves a path without the sandbox",
        |verb| on(verb, native::realpath),
    )
    .for_session()
    .takes("PathRequest")
    .answers("RealpathResponse"),
    Route::new(
        Verb::Post,
        "/sessions/{session_id}/files/mkdir",
        "Makes a directory and those above it without the sandbox",
        |verb| on(verb, native::mkdir),
    )
    .for_session()
    .takes("PathRequest")
    .answers_nothing(),
    Route::new(
        Verb::Post,
        "/sessions/{session_id}/files/remove",
        "Removes a file or a tree without the sandbox",
        |verb| on(verb, native::remove),
    )
    .for_session()
    .takes("PathRequest")
    .answers_nothing(),
    Route::new(
        Verb::Get,
        "/sessions/{session_id}/file",
        "Sends a file of any size, or a range of it",
        |verb| on(verb, streamed::download),
    )
    .for_session()
    .query(paths::PATH_QUERY)
    .answers_file(),
    Route::new(
        Verb::Head,
        "/sessions/{session_id}/file",
        "Tells the size and the tag of a file",
        |verb| on(verb, streamed::download),
    )
    .for_session()
    .query(paths::PATH_QUERY)
    .answers_file(),
    Route::new(
        Verb::Put,
        "/sessions/{session_id}/file",
        "Replaces a file by the body, as it comes",
        |verb| on(verb, streamed::upload),
    )
    .for_session()
    .query(paths::PATH_QUERY)
    .takes_bytes()
    .makes("Uploaded"),
    Route::new(
        Verb::Get,
        "/sessions/{session_id}/files/watch",
        "Tells of changes in a directory as they happen",
        |verb| on(verb, watch::watch),
    )
    .for_session()
    .query(watch::QUERY)
    .answers_events("FileChange"),
    Route::new(
        Verb::Post,
        "/sessions/{session_id}/run",
        "Runs a program and waits for it",
        |verb| on(verb, runs::run),
    )
    .for_session()
    .takes("RunRequest")
    .answers("RunResponse"),
    Route::new(
        Verb::Post,
        "/sessions/{session_id}/runs",
        "Starts a program in the background; the same request again finds it",
        |verb| on(verb, runs::start),
    )
    .for_session()
    .takes("StartRunRequest")
    .makes("Run"),
    Route::new(
        Verb::Get,
        "/sessions/{session_id}/runs",
        "Lists the runs that were started in the background",
        |verb| on(verb, runs::list),
    )
    .for_session()
    .answers("RunList"),
    Route::new(
        Verb::Get,
        "/sessions/{session_id}/runs/{run_id}",
        "Describes a run",
        |verb| on(verb, runs::describe),
    )
    .for_session()
    .answers("Run"),
    Route::new(
        Verb::Delete,
        "/sessions/{session_id}/runs/{run_id}",
        "Forgets a run that is over, with its output",
        |verb| on(verb, runs::forget),
    )
    .for_session()
    .answers_nothing(),
    Route::new(
        Verb::Get,
        "/sessions/{session_id}/runs/{run_id}/output",
        "Shows what a run wrote and writes",
        |verb| on(verb, runs::output),
    )
    .for_session()
    .query(runs::OUTPUT_QUERY)
    .streams("OutputLine"),
    Route::new(
        Verb::Post,
        "/sessions/{session_id}/runs/{run_id}/stdin",
        "Gives a run input, as fast as it takes it",
        |verb| on(verb, runs::stdin),
    )
    .for_session()
    .query(runs::STDIN_QUERY)
    .takes_bytes()
    .answers_nothing(),
    Route::new(
        Verb::Post,
        "/sessions/{session_id}/runs/{run_id}/signal",
        "Sends a signal to a run's processes",
        |verb| on(verb, runs::signal),
    )
    .for_session()
    .takes("SignalRequest")
    .answers_nothing(),
    Route::new(
        Verb::Post,
        "/sessions/{session_id}/runs/{run_id}/stop",
        "Stops a run; without effect where there is none",
        |verb| on(verb, runs::stop),
    )
    .for_session()
    .answers_nothing(),
    Route::new(
        Verb::Post,
        "/sessions/{session_id}/ttys",
        "Opens a terminal",
        |verb| on(verb, ttys::open),
    )
    .for_session()
    .takes("TtyRequest")
    .answers("TtyCreated"),
    Route::new(
        Verb::Get,
        "/sessions/{session_id}/ttys",
        "Lists the terminals that are open",
        |verb| on(verb, ttys::list),
    )
    .for_session()
    .answers("TtyList"),
    Route::new(
        Verb::Delete,
        "/sessions/{session_id}/ttys/{tty_id}",
        "Ends a terminal",
        |verb| on(verb, ttys::close),
    )
    .for_session()
    .answers_nothing(),
    Route::new(
        Verb::Get,
        "/sessions/{session_id}/ttys/{tty_id}/ws",
        "Attaches to a terminal over WebSocket",
        |verb| on(verb, socket::open),
    )
    .for_session()
    .query(socket::QUERY)
    .answers_socket(),
    Route::new(
        Verb::Post,
        "/sessions/{session_id}/tickets",
        "Makes a ticket for one WebSocket, good once within 30 seconds",
        |verb| on(verb, tickets::create),
    )
    .for_session()
    .answers("TicketCreated"),
    Route::new(
        Verb::Post,
        "/workspaces/{session_id}/ls",
        "Lists a directory of a stored workspace",
        |verb| on(verb, workspaces::ls),
    )
    .takes("PathRequest")
    .answers("FileEntries"),
    Route::new(
        Verb::Post,
        "/workspaces/{session_id}/read",
        "Reads lines of a text of a stored workspace",
        |verb| on(verb, workspaces::read),
    )
    .takes("ReadRequest")
    .answers("ReadResponse"),
    Route::new(
        Verb::Post,
        "/workspaces/{session_id}/read_bytes",
        "Reads a whole file of a stored workspace",
        |verb| on(verb, workspaces::read_bytes),
    )
    .takes("PathRequest")
    .answers("ReadBytesResponse"),
    Route::new(
        Verb::Post,
        "/workspaces/{session_id}/tree",
        "Lists what lies below a directory of a stored workspace",
        |verb| on(verb, workspaces::tree),
    )
    .takes("TreeRequest")
    .answers("TreeResponse"),
    Route::new(
        Verb::Post,
        "/workspaces/trees",
        "Lists the trees of several stored workspaces",
        |verb| on(verb, workspaces::trees),
    )
    .takes("TreesRequest")
    .answers("TreesResponse"),
    Route::new(
        Verb::Get,
        "/workspaces/{session_id}/file",
        "Sends a file of a stored workspace, or a range of it",
        |verb| on(verb, streamed::stored),
    )
    .query(paths::PATH_QUERY)
    .answers_file(),
    Route::new(
        Verb::Head,
        "/workspaces/{session_id}/file",
        "Tells the size and the tag of a file of a stored workspace",
        |verb| on(verb, streamed::stored),
    )
    .query(paths::PATH_QUERY)
    .answers_file(),
    Route::new(
        Verb::Get,
        "/workspaces",
        "Lists workspaces, whether their sessions are open or not",
        |verb| on(verb, archives::list),
    )
    .query(archives::LIST_QUERY)
    .answers("WorkspaceList"),
    Route::new(
        Verb::Get,
        "/workspaces/{session_id}/export",
        "Packs a workspace into an archive",
        |verb| on(verb, archives::export),
    )
    .query(archives::EXPORT_QUERY)
    .answers_archive(),
    Route::new(
        Verb::Put,
        "/workspaces/{session_id}/import",
        "Takes an archive into the workspace of an id that is new or closed",
        |verb| on(verb, archives::import),
    )
    .query(archives::IMPORT_QUERY)
    .takes_archive()
    .answers("ImportResponse"),
    Route::new(
        Verb::Delete,
        "/workspaces/{session_id}",
        "Removes everything that an id ever had",
        |verb| on(verb, workspaces::purge),
    )
    .query(workspaces::PURGE_QUERY)
    .answers_nothing(),
    Route::new(
        Verb::Get,
        "/holds",
        "Lists what holds the service back from acting on its own",
        |verb| on(verb, holds::list),
    )
    .answers("HoldList"),
    Route::new(
        Verb::Post,
        "/sweep",
        "Goes through everything now, and lists what is idle, expired or nobody's; or only lists \
            what the next sweep takes",
        |verb| on(verb, sweep::sweep),
    )
    .query(sweep::SWEEP_QUERY)
    .answers("SweepReport"),
    Route::new(Verb::Delete, "/holds/{name}", "Lets go of a hold", |verb| {
        on(verb, holds::release)
    })
    .answers_nothing(),
];
