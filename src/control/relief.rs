//! Says who can free a ceiling that refused, by its stable name.

/// The ceilings that refuse, each with who can free it.
const RELIEF: &[(&str, &str)] = &[
    (
        "max_open_sessions",
        "whoever has a session open, by closing it; a sleeping one that nobody uses gives way by itself; the operator, by SANDBOXD_MAX_OPEN_SESSIONS",
    ),
    (
        "max_sessions_per_tenant",
        "callers of this tenant, by closing one of its sessions; the operator, by SANDBOXD_MAX_SESSIONS_PER_TENANT",
    ),
    (
        "max_sessions",
        "whoever has a sandbox running, by closing its session or putting it to sleep; the operator, by SANDBOXD_MAX_SESSIONS, or by SANDBOXD_EVICT_IDLE_AFTER, with which idle ones give way by themselves",
    ),
    (
        "max_running_commands",
        "whoever has a command running in any session, as it ends or is stopped; the operator, by SANDBOXD_MAX_RUNNING_COMMANDS",
    ),
    (
        "max_session_commands",
        "callers of this session, as a command, a run or a terminal of it ends or is stopped; the operator, by SANDBOXD_MAX_SESSION_COMMANDS",
    ),
    (
        "max_session_ttys",
        "callers of this session, by closing a terminal of it; the operator, by SANDBOXD_MAX_SESSION_TTYS",
    ),
    (
        "tty_viewers",
        "whoever looks at this terminal, by leaving it",
    ),
    (
        "run_readers",
        "callers of this session who follow output, by ending that",
    ),
    (
        "run_input_pieces",
        "the run, by reading the input that waits for it, or whoever stops it",
    ),
    ("run_signals", "nobody has to: it is over in a moment"),
    (
        "archives",
        "whoever exports or imports a workspace, as that ends",
    ),
    (
        "file_transfers",
        "whoever uploads or downloads a file in this scope, as that ends",
    ),
    (
        "file_watches",
        "whoever watches a directory in this scope, by ending that",
    ),
    (
        "fs.inotify.max_user_instances",
        "the operator, by this setting of the host's kernel, or whoever watches a directory, by ending that",
    ),
    (
        "fs.inotify.max_user_watches",
        "the operator, by this setting of the host's kernel, or whoever watches a directory, by ending that",
    ),
    (
        "workspace_size",
        "callers of this session, by removing files; the operator, by workspace_size",
    ),
    (
        "max_body_bytes",
        "whoever sends a large body now, as it has come; the operator, by SANDBOXD_MAX_BODY_BYTES",
    ),
    (
        "max_connections",
        "whoever holds connections that are idle, by closing them; the operator, by SANDBOXD_MAX_CONNECTIONS",
    ),
];

/// Returns who can free a ceiling, in words for its reader.
pub fn freed_by(ceiling: &str) -> Option<&'static str> {
    let found = RELIEF.iter().find(|(name, _)| *name == ceiling);
    found.map(|(_, who)| *who)
}
