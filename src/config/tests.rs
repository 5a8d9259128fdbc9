//! Tests of loading as a whole, on hosts that exist in memory only.

use std::io;
use std::path::Path;

use clap::Parser as _;

use super::settings::{Kind, SETTINGS};
use super::*;
use crate::policy::{Home, Persist, sample};

/// A host: its environment, its files and a command line.
#[derive(Clone, Default)]
pub(super) struct Host {
    vars: BTreeMap<String, String>,
    files: BTreeMap<PathBuf, Vec<u8>>,
    args: Vec<String>,
}

impl Host {
    pub(super) const TOKEN: &str = "hunter2-hunter2-hunter2";

    /// A host that has a token and these variables.
    pub(super) fn with(vars: &[(&str, &str)]) -> Self {
        let host = Self::bare();
        let own = [("SANDBOXD_TOKEN", Self::TOKEN)];
        own.iter()
            .chain(vars)
            .fold(host, |host, (name, value)| host.var(name, value))
    }

    fn bare() -> Self {
        Self::default()
    }

    fn var(mut self, name: &str, value: &str) -> Self {
        self.vars.insert(name.to_owned(), value.to_owned());
        self
    }

    fn file(mut self, path: &str, bytes: &[u8]) -> Self {
        self.files.insert(PathBuf::from(path), bytes.to_vec());
        self
    }

    fn args(mut self, args: &[&str]) -> Self {
        self.args = args.iter().map(|&arg| arg.to_owned()).collect();
        self
    }

    fn load(&self) -> Result<Loaded, Problems> {
        let words = ["sandboxd".to_owned()].into_iter().chain(self.args.clone());
        let read = |path: &Path| match self.files.get(path) {
            Some(bytes) => Ok(bytes.clone().into()),
            None => Err(io::ErrorKind::NotFound.into()),
        };
        let around = Surroundings {
            vars: self.vars.clone(),
            cwd: PathBuf::from("/cwd"),
            read: &read,
        };
        Config::load(&Args::try_parse_from(words).unwrap(), &around)
    }

    fn problems(&self) -> Vec<String> {
        let problems = self.load().expect_err("there are problems").to_string();
        problems.lines().map(str::to_owned).collect()
    }
}

/// Loads what must load.
pub(super) fn loaded(host: &Host) -> Loaded {
    host.load().unwrap_or_else(|problems| panic!("{problems}"))
}

fn origin(loaded: &Loaded, name: &str) -> String {
    loaded.provenance[name].origin.to_string()
}

#[test]
fn a_token_is_all_that_is_required_and_the_rest_is_as_documented() {
    let Loaded {
        config,
        warnings,
        provenance,
    } = loaded(&Host::with(&[]));
    assert_eq!(warnings, [""; 0]);
    assert_eq!(config.policy.terms(), &sample::terms());
    assert_eq!(config.policy.home(), Home::Container);
    assert_eq!(
        (config.listen.host.as_str(), config.listen.port),
        ("127.0.0.1", 8080)
    );
    assert_eq!(config.state_dir, PathBuf::from("/var/lib/sandboxd"));
    assert_eq!(config.runtime_dir, PathBuf::from("/run/sandboxd"));
    assert_eq!(config.docker, "unix:///var/run/docker.sock");
    assert_eq!((config.prewarm, config.ui_enabled), (Prewarm::Yes, false));
    assert_eq!(
        (config.workspace_root, config.policy_overrides),
        (None, None)
    );
    assert_eq!(
        config.operation,
        Operation {
            cleanup_interval: Duration::from_mins(5),
            max_workers: 32,
            max_connections: 1024,
            max_body_bytes: 64 << 20,
            events_per_session: 10_000,
            service_events: 100_000,
            orphan_grace: Duration::from_mins(5),
            workspace_scan_interval: Duration::from_mins(1),
            max_archive_bytes: 16 << 30,
            on_corrupt_store: OnCorruptStore::Rebuild,
            backup_every: Some(Duration::from_hours(1)),
            backup_keep: 24,
            release_holds: Vec::new(),
            drain_timeout: Duration::from_secs(5),
        }
    );
    assert_eq!(
        config.log,
        Log {
            filter: "info".to_owned(),
            format: LogFormat::Text
        }
    );
    let names: Vec<&str> = provenance.keys().copied().collect();
    let mut all: Vec<&str> = SETTINGS.iter().map(|setting| setting.name).collect();
    all.sort_unstable();
    assert_eq!(names, all, "every setting is read");
}

#[test]
fn every_setting_refuses_nonsense_by_name() {
    for setting in SETTINGS.iter() {
        let nonsense = match setting.kind {
            Kind::Secret => "\n",
            Kind::Path | Kind::MaybePath => "/a\0b",
            Kind::Text | Kind::MaybeText => "\u{1b} \n",
            Kind::Filter => "sandboxd=nonsense=nonsense",
            Kind::Whole(..) | Kind::MaybeWhole(..) | Kind::Secs(_) | Kind::MaybeSecs(_) => "-1",
            Kind::MaybeSize | Kind::MaybeCpus | Kind::Flag | Kind::Choice(_) => "banana",
            Kind::Socket => "tcp://127.0.0.1:2375",
            Kind::Runtimes => "banana",
        };
        let problems = Host::with(&[]).var(setting.name, nonsense).problems();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].starts_with(setting.name), "{problems:?}");
        assert!(!problems[0].contains(char::is_control), "{problems:?}");
    }
}

#[test]
fn every_example_of_the_table_is_accepted() {
    for setting in SETTINGS.iter() {
        let host = Host::with(&[
            ("SANDBOXD_WORKSPACE_ROOT", "/ws"),
            ("SANDBOXD_RUNTIMES", "python=img"),
            ("SANDBOXD_MAX_SESSIONS", "5"),
        ])
        .file("/etc/sandboxd/sandboxd.env", b"")
        .file("/etc/sandboxd/token", b"0123456789abcdef0123456789abcdef\n");
        let loaded = loaded(&host.var(setting.name, setting.example));
        assert_eq!(origin(&loaded, setting.name), "environment");
    }
}

#[test]
fn empty_means_none_only_where_the_table_says_so() {
    for setting in SETTINGS.iter() {
        let result = Host::with(&[]).var(setting.name, "").load();
        assert_eq!(
            result.is_ok(),
            setting.kind.may_be_empty(),
            "{}",
            setting.name
        );
    }
    let empty = |name| Host::with(&[(name, "")]).problems().concat();
    assert_eq!(
        empty("SANDBOXD_WORK_DIR"),
        "SANDBOXD_WORK_DIR must not be empty; write a text, as in /srv/work, or leave it out"
    );
    assert_eq!(
        empty("SANDBOXD_PREWARM"),
        "SANDBOXD_PREWARM='' is not a boolean. Use one of 0, 1, false, no, off, on, true, yes."
    );
    let config = loaded(&Host::with(&[
        ("SANDBOXD_MEM_LIMIT", ""),
        ("SANDBOXD_MAX_SESSIONS", ""),
    ]));
    assert_eq!(config.config.policy.ceilings.mem_limit, None);
    assert_eq!(config.config.policy.capacity.max_sessions, None);
}

#[test]
fn values_keep_the_spellings_of_python() {
    let host = Host::with(&[
        ("SANDBOXD_MAX_READ_BYTES", " 1_000 "),
        ("SANDBOXD_CPUS", " 1e0 "),
        ("SANDBOXD_PERSIST_CONTAINERS", " YES "),
        ("SANDBOXD_IDLE_TIMEOUT", "+0"),
    ]);
    let policy = loaded(&host).config.policy;
    assert_eq!(policy.limits.max_read_bytes, 1000);
    assert_eq!(policy.ceilings.cpus.unwrap().nanos(), 1_000_000_000);
    assert_eq!(policy.lifetimes.persist, Persist::Yes);
    assert_eq!(policy.lifetimes.idle_timeout, Duration::ZERO);
}

#[test]
fn errors_keep_the_documented_words_and_say_what_is_accepted() {
    for (name, value, said) in [
        (
            "SANDBOXD_PORT",
            "abc",
            "SANDBOXD_PORT='abc' is not valid: it is not a whole number; write a whole number \
             from 0 to 65535, as in 9000",
        ),
        (
            "SANDBOXD_PORT",
            "65536",
            "SANDBOXD_PORT='65536' is not valid: it is not from 0 to 65535; write a whole number \
             from 0 to 65535, as in 9000",
        ),
        (
            "SANDBOXD_UI_ENABLED",
            "maybe",
            "SANDBOXD_UI_ENABLED='maybe' is not a boolean. Use one of 0, 1, false, no, off, on, \
             true, yes.",
        ),
        (
            "SANDBOXD_DEFAULT_RUNTIME",
            "x",
            "SANDBOXD_DEFAULT_RUNTIME: default_runtime 'x' is not in runtimes (coding, node, \
             python)",
        ),
        (
            "SANDBOXD_HIBERNATE_IDLE_AFTER",
            "60",
            "SANDBOXD_HIBERNATE_IDLE_AFTER: hibernate_idle_after needs workspace_root: the \
             container of a session is then the only copy of its files; set workspace_root or \
             leave hibernate_idle_after empty",
        ),
        (
            "SANDBOXD_EVICT_IDLE_AFTER",
            "60",
            "SANDBOXD_EVICT_IDLE_AFTER: evict_idle_after needs workspace_root: hibernating a \
             session whose files live only in its container would discard them silently; set \
             workspace_root or leave evict_idle_after empty",
        ),
        (
            "SANDBOXD_MAX_OPEN_SESSIONS",
            "5",
            "SANDBOXD_MAX_OPEN_SESSIONS: max_open_sessions (5) is below max_sessions (20): a \
             session has to exist to be resident; raise max_open_sessions to 20 or lower \
             max_sessions to 5",
        ),
        (
            "SANDBOXD_RUNTIMES",
            "a=@nosuch;cpus=x",
            "SANDBOXD_RUNTIMES entry 'a' names the built-in runtime 'nosuch', which does not \
             exist; there are",
        ),
    ] {
        let problems = Host::with(&[(name, value)]).problems();
        assert!(problems[0].starts_with(said), "{problems:?}");
    }
    assert_eq!(
        Host::bare().problems(),
        [
            "SANDBOXD_TOKEN is required. It authorises opening a session, and a session can run \
             commands on this host — generate a long random value."
        ]
    );
}

#[test]
fn all_problems_are_reported_at_once() {
    let problems = Host::bare()
        .file("/etc/s.env", b"nonsense\nSANDBOXD_CPUS=nan\n")
        .var("SANDBOXD_RUNTIMES", "a,b=@nosuch")
        .var("SANDBOXD_MAX_SESSIONS", "x")
        .var("SANDBOXD_MAX_OPEN_SESSIONS", "5")
        .var("SANDBOXD_EVICT_IDLE_AFTER", "1")
        .var("DOCKER_HOST", "ssh://there")
        .args(&["--config", "/etc/s.env", "--port", "x"])
        .problems();
    let starts = [
        "/etc/s.env:1: there is no '='",
        "SANDBOXD_TOKEN is required",
        "DOCKER_HOST='ssh://there' is not valid: only unix sockets",
        "--port='x' is not valid",
        "SANDBOXD_RUNTIMES entry 'a' is not 'alias=image'",
        "SANDBOXD_RUNTIMES entry 'b' names the built-in",
        "SANDBOXD_MAX_SESSIONS='x' is not valid",
        "/etc/s.env:2: SANDBOXD_CPUS='nan' is not valid",
        "SANDBOXD_EVICT_IDLE_AFTER: evict_idle_after needs",
    ];
    assert_eq!(problems.len(), starts.len(), "{problems:#?}");
    for (problem, start) in problems.iter().zip(starts) {
        assert!(problem.starts_with(start), "{start}: {problems:#?}");
    }
}

#[test]
fn the_command_line_beats_the_environment_beats_the_file_beats_the_default() {
    let name = "SANDBOXD_STATE_DIR";
    let mut host = Host::with(&[]);
    let seen = |host: &Host| {
        let loaded = loaded(host);
        (
            loaded.config.state_dir.display().to_string(),
            origin(&loaded, name),
        )
    };
    let row = |path: &str, from: &str| (path.to_owned(), from.to_owned());
    assert_eq!(seen(&host), row("/var/lib/sandboxd", "default"));
    host = host.var("STATE_DIRECTORY", "/systemd:/other");
    assert_eq!(
        seen(&host),
        row("/systemd", "environment (STATE_DIRECTORY)")
    );
    host = host
        .file(
            "/cwd/s.env",
            b"# ours\nSANDBOXD_STATE_DIR=/first\nSANDBOXD_STATE_DIR=/file\n",
        )
        .var("SANDBOXD_CONFIG", "s.env");
    assert_eq!(seen(&host), row("/file", "/cwd/s.env:3"));
    host = host.var(name, "env");
    assert_eq!(seen(&host), row("/cwd/env", "environment"));
    host = host.args(&["--state-dir", "/flag"]);
    assert_eq!(seen(&host), row("/flag", "--state-dir"));
}

#[test]
fn the_token_comes_from_the_strongest_place_that_has_one() {
    let seen = |host: &Host| {
        let loaded = loaded(host);
        let token = loaded.config.service_token.expose().to_owned();
        (token, origin(&loaded, "SANDBOXD_TOKEN"))
    };
    let row = |token: &str, from: &str| (token.to_owned(), from.to_owned());
    let mut host = Host::bare()
        .var("CREDENTIALS_DIRECTORY", "/creds")
        .file("/creds/service-token", b"of-systemd-0123456789\n")
        .file("/cwd/token", b" of-file-0123456789abc \n")
        .file("/s.env", b"SANDBOXD_TOKEN=of-settings-0123456789\n");
    assert_eq!(
        seen(&host),
        row("of-systemd-0123456789", "/creds/service-token")
    );
    host = host.var("SANDBOXD_CONFIG", "/s.env");
    assert_eq!(seen(&host), row("of-settings-0123456789", "/s.env:1"));
    host = host.var("SANDBOXD_TOKEN_FILE", "token");
    assert_eq!(seen(&host), row("of-file-0123456789abc", "/cwd/token"));
    host = host.var("SANDBOXD_TOKEN", Host::TOKEN);
    assert_eq!(seen(&host), row(Host::TOKEN, "environment"));
    host = host.var("SANDBOXD_TOKEN", "");
    assert_eq!(seen(&host).1, "/cwd/token", "an empty token is none");
}

#[test]
fn a_token_file_must_be_there_and_hold_something_a_header_carries() {
    for (bytes, said) in [
        (
            None,
            "SANDBOXD_TOKEN_FILE='/t' cannot be read: entity not found",
        ),
        (
            Some(&b" \n"[..]),
            "SANDBOXD_TOKEN_FILE='/t' cannot be read: it is empty",
        ),
        (
            Some(b"\xff"),
            "SANDBOXD_TOKEN_FILE='/t' cannot be read: it is not UTF-8",
        ),
        (
            Some(b"hunter2\nmore"),
            "/t: SANDBOXD_TOKEN has white space at an end",
        ),
    ] {
        let mut host = Host::bare().var("SANDBOXD_TOKEN_FILE", "/t");
        if let Some(bytes) = bytes {
            host = host.file("/t", bytes);
        }
        let problems = host.problems();
        assert!(
            problems.len() == 1 && problems[0].starts_with(said),
            "{problems:?}"
        );
        assert!(!problems[0].contains("hunter2"));
    }
}

#[test]
fn the_token_key_is_a_file_a_credential_or_left_to_the_state_directory() {
    let host = Host::with(&[("CREDENTIALS_DIRECTORY", "/creds")]);
    assert_eq!(loaded(&host).config.token_key_file, None);
    let host = host.file("/creds/token-key", &[0xff; 32]);
    let found = loaded(&host);
    assert_eq!(
        found.config.token_key_file,
        Some(PathBuf::from("/creds/token-key"))
    );
    assert_eq!(
        origin(&found, "SANDBOXD_TOKEN_KEY_FILE"),
        "/creds/token-key"
    );
    let host = host.var("SANDBOXD_TOKEN_KEY_FILE", "key");
    assert_eq!(
        loaded(&host).config.token_key_file,
        Some(PathBuf::from("/cwd/key"))
    );
}

#[test]
fn no_secret_shows_in_debug_output_or_in_a_problem() {
    let host = Host::with(&[]);
    let found = loaded(&host);
    assert!(!format!("{found:?}").contains("hunter2"));
    for token in ["hunter2\u{e9}", " hunter2", "hunter2\r"] {
        let problems = host.clone().var("SANDBOXD_TOKEN", token).problems();
        assert!(
            problems.len() == 1 && !problems[0].contains("hunter2"),
            "{problems:?}"
        );
    }
}

#[test]
fn unknown_names_are_warned_about_and_those_of_neighbours_are_not() {
    let host = Host::with(&[
        ("SANDBOXD_MAX_SESION", "1"),
        ("SANDBOXD_QWERTZUIOP", "1"),
        ("SANDBOXD_URL", "http://127.0.0.1"),
        ("SANDBOXD_NATIVE_FILES", "true"),
        ("SANDBOXD_CONFIG", "/s.env"),
        ("PATH", "/bin"),
    ])
    .file(
        "/s.env",
        b"PORT=1\nSANDBOXD_CONFIG=x\nDOCKER_HOST=y\nSANDBOXD_PORT=1\nSANDBOXD_PORT=2\n",
    );
    assert_eq!(
        loaded(&host).warnings,
        [
            "SANDBOXD_MAX_SESION is not a setting; did you mean SANDBOXD_MAX_SESSIONS.",
            "SANDBOXD_QWERTZUIOP is not a setting and has no effect.",
            "/s.env:1: PORT is not a setting; did you mean SANDBOXD_PORT.",
            "/s.env:2: SANDBOXD_CONFIG has no effect: a file cannot name another one.",
            "/s.env:3: DOCKER_HOST has no effect in this file.",
            "/s.env:4: SANDBOXD_PORT has no effect: line 5 sets it again.",
        ]
    );
}

#[test]
fn what_is_allowed_and_probably_not_meant_is_warned_about() {
    let host = Host::with(&[
        ("SANDBOXD_TOKEN", "short"),
        ("SANDBOXD_HOST", "0.0.0.0"),
        ("SANDBOXD_WORKSPACE_TTL", "1"),
        ("SANDBOXD_CONTAINER_TTL", "1"),
        ("SANDBOXD_MAX_SESSIONS", "0"),
        ("SANDBOXD_PIDS_LIMIT", ""),
        ("SANDBOXD_RUNTIMES", "a=x;network_mode=host"),
    ]);
    let warnings = loaded(&host).warnings;
    assert_eq!(warnings.len(), 7, "{warnings:#?}");
    assert!(!warnings.concat().contains("short\""));
}

#[test]
fn the_store_never_lies_among_the_workspaces() {
    let host = Host::with(&[
        ("SANDBOXD_WORKSPACE_ROOT", "/srv"),
        ("SANDBOXD_STATE_DIR", "/srv/s"),
    ]);
    let problems = host.problems();
    assert!(
        problems[0].starts_with("SANDBOXD_STATE_DIR='/srv/s' lies in"),
        "{problems:?}"
    );
    let host = Host::with(&[
        ("SANDBOXD_WORKSPACE_ROOT", "/srv/s/ws"),
        ("SANDBOXD_STATE_DIR", "/srv/s"),
    ]);
    assert!(host.load().is_ok(), "the other way round is fine");
}

#[test]
fn what_is_not_utf8_is_refused_where_it_matters() {
    let host = Host::with(&[
        ("SANDBOXD_WORKSPACE_ROOT", "/a\u{fffd}"),
        ("LANG", "\u{fffd}"),
    ]);
    let problems = host.problems();
    assert!(
        problems.len() == 1 && problems[0].contains("it is not UTF-8"),
        "{problems:?}"
    );
}

#[test]
fn a_file_that_cannot_be_read_keeps_the_daemon_from_starting() {
    let problems = Host::with(&[]).args(&["--config", "/none"]).problems();
    assert_eq!(
        problems,
        ["--config='/none' cannot be read: entity not found"]
    );
}

#[test]
fn a_flood_of_problems_is_cut() {
    let text: String = (0..500)
        .map(|n| format!("x{n},"))
        .collect::<Vec<_>>()
        .concat();
    let problems = Host::with(&[("SANDBOXD_RUNTIMES", &text)])
        .load()
        .unwrap_err();
    let text = problems.to_string();
    assert_eq!(text.lines().count(), problem::PROBLEMS_SHOWN_MAX + 1);
    assert!(text.ends_with("and 400 more"));
}

proptest::proptest! {
    #[test]
    fn no_value_panics_and_every_problem_names_its_setting(
        nth in 0..SETTINGS.len(),
        text in "(\\PC{0,12}|-?[0-9_]{0,24}|[a-z]=@?[a-z]{0,6}(;[a-z_]{0,9}=[0-9a-z]{0,4}){0,2})",
    ) {
        let name = SETTINGS[nth].name;
        let result = Host::with(&[]).var(name, &text).load();
        let problems = result.err().map(|problems| problems.to_string()).unwrap_or_default();
        for line in problems.lines() {
            proptest::prop_assert!(line.starts_with(name), "{}", line);
        }
    }
}
