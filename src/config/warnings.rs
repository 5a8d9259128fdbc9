//! Finds what is allowed and probably not meant.

use super::Config;
use super::reader::Layers;
use super::settings::{self, PREFIX};
use crate::policy::{Persist, Policy};

/// Characters of a service token below which it is worth a word.
const TOKEN_CHARS_MIN: usize = 16;
/// The most names that one source of settings is warned about.
const NAMES_WARNED_MAX: usize = 50;

/// Returns one sentence for each.
pub(super) fn of(config: &Config, layers: &Layers<'_>) -> Vec<String> {
    let mut warnings = unknown_names(layers);
    warnings.extend(file_oddities(layers));
    warnings.extend(of_access(config));
    warnings.extend(of_lifetimes(config));
    warnings.extend(of_ceilings(&config.policy));
    warnings
}

fn unknown_names(layers: &Layers<'_>) -> Vec<String> {
    let in_vars = layers
        .around
        .vars
        .keys()
        .filter(|name| name.starts_with(PREFIX))
        .filter_map(|name| Some(format!("{}.", unknown(name)?)))
        .take(NAMES_WARNED_MAX);
    let in_file = layers.file.iter().flat_map(|file| {
        file.entries
            .iter()
            .filter_map(|entry| {
                let said = unknown(&entry.name)?;
                Some(format!("{}:{}: {said}.", file.path.display(), entry.line))
            })
            .take(NAMES_WARNED_MAX)
    });
    in_vars.chain(in_file).collect()
}

/// Says that a name is unknown, unless it is known.
fn unknown(name: &str) -> Option<String> {
    if settings::find(name).is_some() || settings::is_quiet(name) {
        return None;
    }
    Some(match settings::nearest(name) {
        Some(nearest) => format!("{name} is not a setting; did you mean {nearest}"),
        None => format!("{name} is not a setting and has no effect"),
    })
}

fn file_oddities(layers: &Layers<'_>) -> Vec<String> {
    let Some(file) = &layers.file else {
        return Vec::new();
    };
    let mut warnings = Vec::new();
    for (nth, entry) in file.entries.iter().enumerate() {
        let at = format!("{}:{}: {}", file.path.display(), entry.line, entry.name);
        if entry.name == "SANDBOXD_CONFIG" {
            warnings.push(format!(
                "{at} has no effect: a file cannot name another one."
            ));
        }
        // A neighbour's variable is the neighbour's to set, in the environment.
        if settings::find(&entry.name).is_none() && settings::is_quiet(&entry.name) {
            warnings.push(format!("{at} has no effect in this file."));
        }
        let mut later = file.entries.iter().skip(nth + 1);
        if let Some(last) = later.find(|later| later.name == entry.name) {
            warnings.push(format!(
                "{at} has no effect: line {} sets it again.",
                last.line
            ));
        }
    }
    warnings.truncate(NAMES_WARNED_MAX);
    warnings
}

fn of_access(config: &Config) -> Vec<String> {
    let mut warnings = Vec::new();
    let host = config.listen.host.as_str();
    let address = host.parse::<std::net::IpAddr>();
    if host != "localhost" && !address.is_ok_and(|address| address.is_loopback()) {
        warnings.push(format!(
            "SANDBOXD_HOST={host} can be reached from beyond this host, and there is no TLS: \
             put a proxy or a private network in front."
        ));
    }
    if config.service_token.expose().chars().count() < TOKEN_CHARS_MIN {
        warnings.push(format!(
            "SANDBOXD_TOKEN is shorter than {TOKEN_CHARS_MIN} characters and may be guessed."
        ));
    }
    warnings
}

fn of_lifetimes(config: &Config) -> Vec<String> {
    let mut warnings = Vec::new();
    let lifetimes = &config.policy.lifetimes;
    if lifetimes.workspace_ttl.is_some() && config.workspace_root.is_none() {
        warnings.push(
            "SANDBOXD_WORKSPACE_TTL has no effect without SANDBOXD_WORKSPACE_ROOT.".to_owned(),
        );
    }
    match lifetimes.persist {
        Persist::No if lifetimes.container_ttl.is_some() => warnings.push(
            "SANDBOXD_CONTAINER_TTL has no effect without SANDBOXD_PERSIST_CONTAINERS.".to_owned(),
        ),
        Persist::No | Persist::Yes => {}
    }
    if config.policy.capacity.max_sessions == Some(0) {
        warnings.push("SANDBOXD_MAX_SESSIONS=0 refuses every session.".to_owned());
    }
    warnings
}

fn of_ceilings(policy: &Policy) -> Vec<String> {
    let mut warnings = Vec::new();
    for (alias, runtime) in policy.catalogue.iter() {
        let ceilings = policy.ceilings_of(runtime);
        if ceilings.network_mode.as_deref() == Some("host") {
            warnings.push(format!(
                "Runtime '{alias}' shares the network of the host, its loopback included."
            ));
        }
        if ceilings.pids_limit.is_none() {
            warnings.push(format!(
                "Runtime '{alias}' has no pids_limit: a fork bomb in it takes the host down."
            ));
        }
    }
    warnings
}
