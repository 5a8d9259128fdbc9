//! Loads the configuration, group by group, and checks what spans groups.

use std::path::{Path, PathBuf};

use super::problem::Place;
use super::reader::{ConfigFile, Layers, Reader, setting};
use super::settings::PREFIX;
use super::{
    Args, Config, Exec, Listen, Loaded, Log, LogFormat, OnCorruptStore, Operation, Origin, Problem,
    Problems, Surroundings, Within, file, runtimes, syntax, warnings,
};
use crate::id::Alias;
use crate::policy::{
    Capacity, Catalogue, Ceilings, Home, Interior, InvalidPolicy, Lifetimes, Limits, Persist,
    Policy, Prewarm, RunLimits, Terms, builtins,
};
use crate::secret::Secret;
use crate::session::Hold;

/// The credential of systemd that holds the service token.
const TOKEN_CREDENTIAL: &str = "service-token";
/// The credential of systemd that holds the token key.
const KEY_CREDENTIAL: &str = "token-key";

pub(super) fn load(args: &Args, around: &Surroundings<'_>) -> Result<Loaded, Problems> {
    let layers = Layers {
        args,
        around,
        file: None,
    };
    let mut reader = Reader::new(layers);
    read_file(&mut reader);
    let token = service_token(&mut reader);
    let places = places(&mut reader);
    let prewarm = prewarm(&mut reader);
    let exec = exec(&mut reader);
    let listen = listen(&mut reader);
    let ui_enabled = reader.flag("SANDBOXD_UI_ENABLED");
    let operation = operation(&mut reader);
    let log = log(&mut reader);
    let policy = policy(&mut reader, places.home());
    let (Some(service_token), Some(policy), true) = (token, policy, reader.problems.is_empty())
    else {
        return Err(Problems(reader.problems));
    };
    let config = Config {
        listen,
        service_token,
        token_key_file: places.token_key_file,
        state_dir: places.state_dir,
        runtime_dir: places.runtime_dir,
        workspace_root: places.workspace_root,
        docker: places.docker,
        within: places.within,
        exec,
        prewarm,
        ui_enabled,
        policy_overrides: places.policy_overrides,
        operation,
        log,
        policy,
    };
    let warnings = warnings::of(&config, &reader.layers);
    Ok(Loaded {
        config,
        provenance: reader.shown,
        warnings,
    })
}

/// Reads the file of settings, where one is named, into the layers.
fn read_file(reader: &mut Reader<'_>) {
    let Some(path) = reader.maybe_path("SANDBOXD_CONFIG") else {
        return;
    };
    let text = match read_text(reader.layers.around, &path) {
        Ok(text) => text,
        Err(why) => {
            let place = reader.place("SANDBOXD_CONFIG");
            let problem = Problem::Unreadable { place, path, why };
            return reader.fail("SANDBOXD_CONFIG", problem);
        }
    };
    let (entries, bad) = file::parse(&text);
    for bad in bad {
        let problem = Problem::BadLine {
            path: path.clone(),
            line: bad.line,
            why: bad.why.to_owned(),
        };
        reader.fail("SANDBOXD_CONFIG", problem);
    }
    reader.layers.file = Some(ConfigFile { path, entries });
}

fn read_text(around: &Surroundings<'_>, path: &Path) -> Result<zeroize::Zeroizing<String>, String> {
    let bytes = (around.read)(path).map_err(|error| error.to_string())?;
    match std::str::from_utf8(&bytes) {
        Ok(text) => Ok(text.to_owned().into()),
        Err(_) => Err("it is not UTF-8".to_owned()),
    }
}

/// Ranks the layer of a value: the lower, the stronger.
fn rank(origin: &Origin) -> u8 {
    match origin {
        Origin::CommandLine(_) => 0,
        Origin::Environment => 1,
        Origin::File { .. } => 2,
        Origin::Neighbour(_) => 3,
        Origin::Credential(_) => 4,
        Origin::Default => 5,
    }
}

fn service_token(reader: &mut Reader<'_>) -> Option<Secret> {
    let file = reader.maybe_path("SANDBOXD_TOKEN_FILE");
    let file = file.map(|path| (path, reader.place("SANDBOXD_TOKEN_FILE")));
    let own = reader.layers.find(setting("SANDBOXD_TOKEN"));
    let own = own.filter(|found| !found.text.is_empty());
    let (place, token) = match (own, file) {
        (Some(found), file)
            if file
                .as_ref()
                .is_none_or(|(_, place)| rank(&found.origin) <= rank(&place.origin)) =>
        {
            let place = Place {
                name: "SANDBOXD_TOKEN",
                origin: found.origin,
            };
            (place, Secret::new(found.text))
        }
        (_, Some((path, place))) => {
            let token = token_of_file(reader, &place, &path)?;
            let origin = Origin::Credential(path);
            let name = "SANDBOXD_TOKEN";
            (Place { name, origin }, token)
        }
        (_, None) => token_of_credential(reader)?,
    };
    if !is_sendable(token.expose()) {
        reader.fail("SANDBOXD_TOKEN", Problem::BadToken(place));
        return None;
    }
    reader.show_secret("SANDBOXD_TOKEN", place.origin);
    Some(token)
}

fn token_of_file(reader: &mut Reader<'_>, place: &Place, path: &Path) -> Option<Secret> {
    let why = match read_text(reader.layers.around, path) {
        Ok(text) if text.trim().is_empty() => "it is empty".to_owned(),
        Ok(text) => return Some(Secret::new(text.trim().to_owned())),
        Err(why) => why,
    };
    let problem = Problem::Unreadable {
        place: place.clone(),
        path: path.to_owned(),
        why,
    };
    reader.fail("SANDBOXD_TOKEN_FILE", problem);
    None
}

fn token_of_credential(reader: &mut Reader<'_>) -> Option<(Place, Secret)> {
    let Some(path) = credential(reader.layers.around, TOKEN_CREDENTIAL) else {
        reader.fail("SANDBOXD_TOKEN", Problem::NoToken);
        return None;
    };
    let place = Place {
        name: "SANDBOXD_TOKEN",
        origin: Origin::Credential(path.clone()),
    };
    let token = token_of_file(reader, &place, &path)?;
    Some((place, token))
}

/// Returns the path of a credential that systemd passed on.
fn credential(around: &Surroundings<'_>, name: &str) -> Option<PathBuf> {
    let dir = around.vars.get("CREDENTIALS_DIRECTORY")?;
    let path = Path::new(dir).join(name);
    // A credential that is there and cannot be read is reported when it is used.
    match (around.read)(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Ok(_) | Err(_) => Some(path),
    }
}

/// Says whether a header can carry a token and have it arrive unchanged.
fn is_sendable(token: &str) -> bool {
    token.trim() == token && token.bytes().all(|b| (b' '..=b'~').contains(&b))
}

struct Places {
    state_dir: PathBuf,
    runtime_dir: PathBuf,
    workspace_root: Option<PathBuf>,
    token_key_file: Option<PathBuf>,
    policy_overrides: Option<PathBuf>,
    docker: String,
    within: Within,
}

impl Places {
    fn home(&self) -> Home {
        match self.workspace_root {
            Some(_) => Home::Host,
            None => Home::Container,
        }
    }
}

fn places(reader: &mut Reader<'_>) -> Places {
    let places = Places {
        state_dir: reader.path("SANDBOXD_STATE_DIR"),
        runtime_dir: reader.path("SANDBOXD_RUNTIME_DIR"),
        workspace_root: reader.maybe_path("SANDBOXD_WORKSPACE_ROOT"),
        token_key_file: token_key_file(reader),
        policy_overrides: reader.maybe_path("SANDBOXD_POLICY_OVERRIDES"),
        docker: reader.checked("SANDBOXD_DOCKER_HOST", syntax::socket),
        within: within(reader),
    };
    if let Some(root) = &places.workspace_root {
        for (name, dir) in [
            ("SANDBOXD_STATE_DIR", &places.state_dir),
            ("SANDBOXD_RUNTIME_DIR", &places.runtime_dir),
        ] {
            if dir.starts_with(root) {
                let problem = Problem::DirInWorkspaces {
                    place: reader.place(name),
                    dir: dir.clone(),
                    root: root.clone(),
                };
                reader.fail(name, problem);
            }
        }
    }
    places
}

fn within(reader: &mut Reader<'_>) -> Within {
    match reader
        .checked("SANDBOXD_CONTAINER", syntax::container)
        .as_str()
    {
        "auto" => Within::Unknown,
        "none" => Within::No,
        name => Within::Container(name.to_owned()),
    }
}

fn token_key_file(reader: &mut Reader<'_>) -> Option<PathBuf> {
    let name = "SANDBOXD_TOKEN_KEY_FILE";
    if let Some(path) = reader.maybe_path(name) {
        return Some(path);
    }
    let path = credential(reader.layers.around, KEY_CREDENTIAL)?;
    let shown = path.display().to_string();
    reader.show(name, shown, Origin::Credential(path.clone()));
    Some(path)
}

fn prewarm(reader: &mut Reader<'_>) -> Prewarm {
    if reader.flag("SANDBOXD_PREWARM") {
        Prewarm::Yes
    } else {
        Prewarm::No
    }
}

fn listen(reader: &mut Reader<'_>) -> Listen {
    let host = |text: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | ':' | '-' | '_' | '%');
        if text.chars().all(plain) {
            Ok(text.to_owned())
        } else {
            Err("it is neither an address nor a name".to_owned())
        }
    };
    Listen {
        host: reader.checked("SANDBOXD_HOST", host),
        port: reader.whole("SANDBOXD_PORT"),
    }
}

fn operation(reader: &mut Reader<'_>) -> Operation {
    Operation {
        cleanup_interval: reader.secs("SANDBOXD_CLEANUP_INTERVAL"),
        max_workers: reader.whole("SANDBOXD_MAX_WORKERS"),
        max_connections: reader.whole("SANDBOXD_MAX_CONNECTIONS"),
        max_body_bytes: reader.whole("SANDBOXD_MAX_BODY_BYTES"),
        events_per_session: reader.whole("SANDBOXD_EVENTS_PER_SESSION"),
        service_events: reader.whole("SANDBOXD_SERVICE_EVENTS"),
        orphan_grace: reader.secs("SANDBOXD_ORPHAN_GRACE"),
        workspace_scan_interval: reader.secs("SANDBOXD_WORKSPACE_SCAN_INTERVAL"),
        max_archive_bytes: reader.whole("SANDBOXD_MAX_ARCHIVE_BYTES"),
        on_corrupt_store: reader.choice(
            "SANDBOXD_ON_CORRUPT_STORE",
            &[
                ("rebuild", OnCorruptStore::Rebuild),
                ("refuse", OnCorruptStore::Refuse),
            ],
        ),
        backup_every: Some(reader.secs("SANDBOXD_BACKUP_EVERY")).filter(|every| !every.is_zero()),
        backup_keep: reader.whole("SANDBOXD_BACKUP_KEEP"),
        release_holds: holds(reader),
        drain_timeout: reader.secs("SANDBOXD_DRAIN_TIMEOUT"),
    }
}

fn holds(reader: &mut Reader<'_>) -> Vec<Hold> {
    let parse = |text: &str| {
        text.split(',')
            .map(|name| {
                let name = name.trim();
                Hold::parse(name).ok_or_else(|| format!("there is no hold {name:?}"))
            })
            .collect::<Result<Vec<Hold>, String>>()
    };
    reader
        .take("SANDBOXD_RELEASE_HOLDS", parse)
        .unwrap_or_default()
}

fn log(reader: &mut Reader<'_>) -> Log {
    let filter = |text: &str| {
        tracing_subscriber::EnvFilter::builder()
            .parse(text)
            .map(|_| text.to_owned())
            .map_err(|error| error.to_string())
    };
    let formats = [("text", LogFormat::Text), ("json", LogFormat::Json)];
    Log {
        filter: reader.checked("SANDBOXD_LOG", filter),
        format: reader.choice("SANDBOXD_LOG_FORMAT", &formats),
    }
}

fn exec(reader: &mut Reader<'_>) -> Exec {
    let program = reader.maybe_path("SANDBOXD_AGENT");
    if reader.choice("SANDBOXD_EXEC", &[("agent", true), ("docker", false)]) {
        Exec::Agent(program)
    } else {
        Exec::Docker
    }
}

fn policy(reader: &mut Reader<'_>, home: Home) -> Option<Policy> {
    let terms = Terms {
        catalogue: catalogue(reader),
        capacity: Capacity {
            max_sessions: reader.maybe_whole("SANDBOXD_MAX_SESSIONS"),
            max_open_sessions: reader.maybe_whole("SANDBOXD_MAX_OPEN_SESSIONS"),
            max_sessions_per_tenant: reader.maybe_whole("SANDBOXD_MAX_SESSIONS_PER_TENANT"),
            evict_idle_after: reader.maybe_secs("SANDBOXD_EVICT_IDLE_AFTER"),
        },
        ceilings: ceilings(reader),
        lifetimes: lifetimes(reader),
        interior: Interior {
            work_dir: reader.text("SANDBOXD_WORK_DIR"),
            tmpfs_size: reader.maybe_text("SANDBOXD_TMPFS_SIZE"),
            sandbox_uid: reader.maybe_whole("SANDBOXD_SANDBOX_UID"),
        },
        limits: Limits {
            execute_timeout: reader.secs("SANDBOXD_EXECUTE_TIMEOUT"),
            max_read_bytes: reader.whole("SANDBOXD_MAX_READ_BYTES"),
            max_upload_bytes: reader.whole("SANDBOXD_MAX_UPLOAD_BYTES"),
            max_running_commands: reader.whole("SANDBOXD_MAX_RUNNING_COMMANDS"),
            open_queue_max: reader.whole("SANDBOXD_OPEN_QUEUE_MAX"),
            open_wait_max: reader.secs("SANDBOXD_OPEN_WAIT_MAX"),
            runs: run_limits(reader),
        },
    };
    match Policy::new(terms, home) {
        Ok(policy) => Some(policy),
        Err(faults) => {
            for fault in faults {
                keep_fault(reader, fault);
            }
            None
        }
    }
}

/// Keeps what contradicts, unless one of the values only stands in for a bad one.
fn keep_fault(reader: &mut Reader<'_>, fault: InvalidPolicy) {
    let fields = fault.fields();
    let names: Vec<&'static str> = super::settings::SETTINGS
        .iter()
        .map(|setting| setting.name)
        .filter(|name| fields.iter().any(|field| is_variable_of(name, field)))
        .collect();
    if names.iter().any(|name| reader.has_failed(name)) {
        return;
    }
    let first = names.iter().find(|name| {
        fields
            .first()
            .is_some_and(|field| is_variable_of(name, field))
    });
    let name = first.expect("a field of the policy is a setting");
    let place = reader.place(name);
    reader.problems.push(Problem::Policy { place, fault });
}

fn is_variable_of(name: &str, field: &str) -> bool {
    name.strip_prefix(PREFIX)
        .is_some_and(|tail| tail.eq_ignore_ascii_case(field))
}

fn ceilings(reader: &mut Reader<'_>) -> Ceilings {
    Ceilings {
        mem_limit: reader.maybe_size("SANDBOXD_MEM_LIMIT"),
        memswap_limit: reader.maybe_size("SANDBOXD_MEMSWAP_LIMIT"),
        cpus: reader.maybe_cpus("SANDBOXD_CPUS"),
        cpu_shares: reader.maybe_whole("SANDBOXD_CPU_SHARES"),
        pids_limit: reader.maybe_whole("SANDBOXD_PIDS_LIMIT"),
        network_mode: reader.maybe_text("SANDBOXD_NETWORK_MODE"),
        oci_runtime: reader.maybe_text("SANDBOXD_OCI_RUNTIME"),
        workspace_size: reader.maybe_size("SANDBOXD_WORKSPACE_SIZE"),
    }
}

fn run_limits(reader: &mut Reader<'_>) -> RunLimits {
    RunLimits {
        per_session: reader.whole("SANDBOXD_MAX_SESSION_COMMANDS"),
        ttys_per_session: reader.whole("SANDBOXD_MAX_SESSION_TTYS"),
        background_timeout: reader.maybe_secs("SANDBOXD_BACKGROUND_TIMEOUT"),
        output_limit: reader.whole("SANDBOXD_RUN_OUTPUT_LIMIT"),
        ring_bytes: reader.whole("SANDBOXD_RUN_RING_BYTES"),
        rings_bytes: reader.whole("SANDBOXD_SESSION_RINGS_BYTES"),
        keep: reader.secs("SANDBOXD_RUN_KEEP"),
    }
}

fn lifetimes(reader: &mut Reader<'_>) -> Lifetimes {
    Lifetimes {
        idle_timeout: reader.secs("SANDBOXD_IDLE_TIMEOUT"),
        hibernate_idle_after: reader.maybe_secs("SANDBOXD_HIBERNATE_IDLE_AFTER"),
        workspace_ttl: reader.maybe_secs("SANDBOXD_WORKSPACE_TTL"),
        container_ttl: reader.maybe_secs("SANDBOXD_CONTAINER_TTL"),
        persist: if reader.flag("SANDBOXD_PERSIST_CONTAINERS") {
            Persist::Yes
        } else {
            Persist::No
        },
    }
}

fn catalogue(reader: &mut Reader<'_>) -> Catalogue {
    let shipped = builtins::default_catalogue();
    let wanted = reader.maybe_text("SANDBOXD_DEFAULT_RUNTIME");
    let (runtimes, first) = match allowlist(reader) {
        Some(list) => (list.runtimes, list.first),
        None if reader.has_failed("SANDBOXD_RUNTIMES") => return shipped,
        None => {
            let runtimes = shipped
                .iter()
                .map(|(a, r)| (a.clone(), r.clone()))
                .collect();
            (runtimes, shipped.default_alias().clone())
        }
    };
    let default = wanted
        .and_then(|text| Alias::parse(&text).ok())
        .unwrap_or(first);
    let shown = format!("{} runtimes, listed below", runtimes.len());
    if let Some(provenance) = reader.shown.get_mut("SANDBOXD_RUNTIMES") {
        provenance.shown = shown;
    }
    match Catalogue::new(runtimes, default) {
        Ok(catalogue) => catalogue,
        Err(fault) => {
            let name = "SANDBOXD_DEFAULT_RUNTIME";
            let place = reader.place(name);
            reader.fail(name, Problem::Catalogue { place, fault });
            shipped
        }
    }
}

fn allowlist(reader: &mut Reader<'_>) -> Option<runtimes::Allowlist> {
    let name = "SANDBOXD_RUNTIMES";
    let Some(found) = reader.layers.find(setting(name)) else {
        reader.show(name, String::new(), Origin::Default);
        return None;
    };
    reader.show(name, String::new(), found.origin);
    match runtimes::parse(&found.text) {
        Ok(list) => Some(list),
        Err(faults) => {
            let place = reader.place(name);
            for fault in faults {
                let place = place.clone();
                reader.fail(name, Problem::Runtimes { place, fault });
            }
            None
        }
    }
}
