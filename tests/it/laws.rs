//! Laws of the sources: each walks them and names every line that breaks it.
//!
//! A law is a function from sources to breaches, so that it can be tried on a source that
//! breaks it. The tables say what belongs where; an entry changes with the architecture.

use std::collections::BTreeMap;

use crate::support::source::{Named, Source, Word, is_identifier, program, read};

mod broken;

const LINES_MAX: usize = 600;

const WORDS: &[&str] = &["cause", "clock", "id", "news", "quantity", "secret", "wire"];

/// Lowest first. A module names modules of lower layers, and of its own layer those above
/// it in `src/lib.rs`; modules of the layer of adapters never name one another.
const LAYERS: &[&[&str]] = &[
    WORDS,
    &["image", "policy", "session"],
    ADAPTERS,
    &["reconcile", "sandbox"],
    &["verify"],
    &["control"],
    &["api", "client", "cli", "config", "telemetry", "daemon"],
];

const ADAPTERS: &[&str] = &[
    "activity",
    "store",
    "docker",
    "cgroup",
    "workspace",
    "agent",
];

/// What a module never names, although it lies lower.
const BARRED: &[(&str, &[&str])] = &[("api", &["store", "docker", "reconcile"])];

/// Modules of the client's side, with what they may name beyond the words.
const CLIENT_SIDE: &[(&str, &[&str])] = &[
    ("client", &[]),
    ("cli", &["client"]),
    ("bin/sandboxctl", &["client", "cli"]),
];

/// The agent is a program of its own, under laws of its own.
const AGENT: &str = "src/bin/sandbox-agent/";

/// Crates, or parts of them, and the only places that name them.
const HOMES: &[(&str, &[&str])] = &[
    ("axum", &["src/api/"]),
    ("clap", COMMAND_LINE),
    ("clap_complete", COMMAND_LINE),
    ("hyperlocal", &["src/docker/"]),
    (
        "rustix::fs",
        &[
            "src/workspace/",
            "src/store/",
            "src/verify/disk",
            "src/agent/dock",
        ],
    ),
    ("sled", &["src/store/"]),
    ("tabled", COMMAND_LINE),
];

const COMMAND_LINE: &[&str] = &[
    "src/cli/",
    "src/config/args.rs",
    "src/config/check.rs",
    "src/bin/",
];

/// Names by which code holds the engine, and its calls that change what is on the host.
const ENGINE_NAMES: &[&str] = &["engine", "docker"];
const ENGINE_CHANGES: &[&str] = &[
    "build",
    "create",
    "kill",
    "pause",
    "prune",
    "pull",
    "remove",
    "remove_image",
    "rename",
    "start",
    "stop",
    "unpause",
    "update",
];
const EXECUTOR: &[&str] = &["src/docker/", "src/reconcile/execute"];

/// Calls by which something reaches the disk through sled; one file makes them all.
const STORE_CALLS: &[&str] = &["apply_batch", "flush_async", "open_tree", "transaction"];

fn is_within(source: &Source, places: &[&str]) -> bool {
    places.iter().any(|place| {
        let is_file = source.path.strip_suffix(".rs") == place.strip_suffix('/');
        is_file || source.path.starts_with(place)
    })
}

fn is_agent(source: &Source) -> bool {
    source.path.starts_with(AGENT)
}

fn layer_of(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

/// Returns the modules of the library in the order of `src/lib.rs`, each with its line.
fn library(sources: &[Source]) -> Vec<(String, usize)> {
    let root = sources.iter().find(|source| source.path == "src/lib.rs");
    let words = root.map(Source::words).unwrap_or_default();
    words
        .windows(3)
        .filter(|window| window[0].text == "mod" && window[2].text == ";")
        .map(|window| (window[1].text.clone(), window[1].line))
        .collect()
}

/// Returns the module of the library that a source belongs to, or the program that it is.
fn owner_of(source: &Source) -> Option<String> {
    match source.module()[..] {
        [] => None,
        ["bin", program, ..] => Some(format!("bin/{program}")),
        [module, ..] => Some(module.to_owned()),
    }
}

/// Returns the module of the library that a path leads to, when it leads to another one.
fn target_of<'a>(source: &Source, named: &'a Named) -> Option<&'a str> {
    let parts = &named.parts;
    let is_program = source.path.starts_with("src/bin/");
    let root = match parts[0].as_str() {
        "sandboxd" if is_program => 1,
        "crate" if !is_program => 1,
        "super" if !is_program => {
            let ups = parts.iter().take_while(|part| *part == "super").count();
            if ups != source.module().len() {
                return None;
            }
            ups
        }
        _ => return None,
    };
    let target = parts.get(root)?.as_str();
    (owner_of(source).as_deref() != Some(target)).then_some(target)
}

/// Applies `judge` to each arrow between modules: who names, whom it names.
fn arrows(sources: &[Source], judge: impl Fn(&str, &str) -> Option<String>) -> Vec<String> {
    let mut breaches = Vec::new();
    for source in sources.iter().filter(|source| !is_agent(source)) {
        let Some(owner) = owner_of(source) else {
            continue;
        };
        for named in source.named() {
            let target = target_of(source, &named);
            if let Some(breach) = target.and_then(|target| judge(&owner, target)) {
                breaches.push(format!("{}: {breach}", source.at(named.line)));
            }
        }
    }
    breaches
}

fn upward_arrows(sources: &[Source]) -> Vec<String> {
    let library = library(sources);
    let place = |module: &str| library.iter().position(|(name, _)| name == module);
    arrows(sources, |owner, target| {
        let (from, to) = (layer_of(owner)?, layer_of(target)?);
        let is_adapter = ADAPTERS.contains(&owner);
        let points_down = to < from || (to == from && !is_adapter && place(target) < place(owner));
        (!points_down).then(|| format!("{owner} names {target}"))
    })
}

fn misplaced_modules(sources: &[Source]) -> Vec<String> {
    let library = library(sources);
    let mut breaches = Vec::new();
    let mut highest = 0;
    for (module, line) in &library {
        match layer_of(module) {
            None => breaches.push(format!(
                "src/lib.rs:{line}: {module} is in no layer of LAYERS"
            )),
            Some(layer) if layer < highest => {
                breaches.push(format!(
                    "src/lib.rs:{line}: {module} is listed above its layer"
                ));
            }
            Some(layer) => highest = layer,
        }
    }
    breaches
}

fn barred_arrows(sources: &[Source]) -> Vec<String> {
    arrows(sources, |owner, target| {
        let barred = BARRED
            .iter()
            .any(|(name, barred)| *name == owner && barred.contains(&target));
        barred.then(|| format!("{owner} names {target}"))
    })
}

fn server_side_in_the_client(sources: &[Source]) -> Vec<String> {
    arrows(sources, |owner, target| {
        let (_, allowed) = CLIENT_SIDE.iter().find(|(name, _)| *name == owner)?;
        let is_allowed = WORDS.contains(&target) || allowed.contains(&target);
        // An item of the crate's root is no module of the server.
        (layer_of(target).is_some() && !is_allowed).then(|| format!("{owner} names {target}"))
    })
}

fn crates_away_from_home(sources: &[Source]) -> Vec<String> {
    let mut breaches = Vec::new();
    for source in sources.iter().filter(|source| !is_agent(source)) {
        for named in source.named() {
            for (name, homes) in HOMES {
                let is_named = name
                    .split("::")
                    .eq(named.parts.iter().take(name.split("::").count()));
                if is_named && !is_within(source, homes) {
                    breaches.push(format!(
                        "{}: {name} outside {homes:?}",
                        source.at(named.line)
                    ));
                }
            }
        }
    }
    breaches
}

fn host_time_outside_the_clock(sources: &[Source]) -> Vec<String> {
    let reads_time = |named: &Named| {
        let path = named.parts.join("::");
        let last = named.parts.last().map_or("", String::as_str);
        path.starts_with("std::time::Instant")
            || last == "clock_gettime"
            || ["SystemTime::now", "Timestamp::now", "Zoned::now"]
                .iter()
                .any(|read| path.ends_with(read))
    };
    let outside = sources
        .iter()
        .filter(|source| source.path != "src/clock.rs" && !is_agent(source));
    let found = outside.flat_map(|source| {
        let named = source.named().into_iter().filter(reads_time);
        named.map(|named| format!("{}: {}", source.at(named.line), named.parts.join("::")))
    });
    found.collect()
}

fn shared_store_trees(sources: &[Source]) -> Vec<String> {
    let mut breaches = Vec::new();
    let mut owners: BTreeMap<String, String> = BTreeMap::new();
    let mut caller: Option<String> = None;
    for source in sources {
        let words = source.words();
        for window in words.windows(7) {
            // const TREE: &str = "name";
            if window[0].text == "const" && window[1].text == "TREE" {
                let name = &window[6].text;
                let owner = owners
                    .entry(name.clone())
                    .or_insert_with(|| source.path.clone());
                if *owner != source.path {
                    breaches.push(format!(
                        "{}: {name} belongs to {owner}",
                        source.at(window[6].line)
                    ));
                }
            }
            let call = STORE_CALLS.iter().find(|call| is_call(&window[..3], call));
            if let Some(call) = call {
                let caller = caller.get_or_insert_with(|| source.path.clone());
                if *caller != source.path || !is_within(source, &["src/store/"]) {
                    breaches.push(format!(
                        "{}: {call} belongs to one file of the store, {caller}",
                        source.at(window[1].line)
                    ));
                }
                if *call == "open_tree" && window[5].text != "TREE" {
                    breaches.push(format!(
                        "{}: a tree without a module that owns it",
                        source.at(window[1].line)
                    ));
                }
            }
        }
    }
    breaches
}

/// Whether three words are `.name(`.
fn is_call(words: &[Word], name: &str) -> bool {
    words[0].text == "." && words[1].text == name && words[2].text == "("
}

fn changes_outside_the_executor(sources: &[Source]) -> Vec<String> {
    let mut breaches = Vec::new();
    for source in sources.iter().filter(|source| !is_within(source, EXECUTOR)) {
        for window in source.words().windows(4) {
            let holder = window[0].text.as_str();
            let change = ENGINE_CHANGES
                .iter()
                .find(|change| is_call(&window[1..], change));
            if let Some(change) = change
                && ENGINE_NAMES.contains(&holder)
            {
                breaches.push(format!("{}: {holder}.{change}", source.at(window[0].line)));
            }
        }
    }
    breaches
}

fn bounds_without_a_name(sources: &[Source]) -> Vec<String> {
    let mut breaches = Vec::new();
    for source in sources {
        let words = source.words();
        let text = |at: usize| words.get(at).map_or("", |word| word.text.as_str());
        for (at, word) in words.iter().enumerate() {
            let made = match word.text.as_str() {
                "unbounded_channel" => Some(format!("{} has no bound", word.text)),
                "const" if is_ill_named_bound(text(at + 1)) => {
                    Some(format!("{} does not end in _MAX", text(at + 1)))
                }
                "channel" | "sync_channel"
                    if !matches!(text(at.wrapping_sub(1)), "fn" | "." | "mod")
                        && !is_unqueued(&words, at) =>
                {
                    unnamed_bound(&words, at + 1)
                }
                "new" if text(at.wrapping_sub(2)) == "Semaphore" => unnamed_bound(&words, at + 1),
                _ => None,
            };
            breaches.extend(made.map(|made| format!("{}: {made}", source.at(word.line))));
        }
    }
    breaches
}

fn is_ill_named_bound(name: &str) -> bool {
    name.starts_with("MAX_")
        || ["_LIMIT", "_CAP", "_CAPACITY", "_MAXIMUM"]
            .iter()
            .any(|end| name.ends_with(end))
}

/// Whether `channel` at `at` is of a kind that holds one value at most.
fn is_unqueued(words: &[Word], at: usize) -> bool {
    let module = at
        .checked_sub(2)
        .map_or("", |before| words[before].text.as_str());
    matches!(module, "oneshot" | "watch")
}

/// Says what is wrong with the first argument of the call at `at`; `None` where it is named
/// as a bound or comes from elsewhere, and where there is no call.
fn unnamed_bound(words: &[Word], at: usize) -> Option<String> {
    let mut rest = words[at..].iter().map(|word| word.text.as_str()).peekable();
    if rest.peek() == Some(&"::") {
        // A turbofish; none of those in use nests.
        rest.by_ref().find(|word| *word == ">");
    }
    if rest.next() != Some("(") {
        return None;
    }
    let mut depth = 0_usize;
    let mut argument = Vec::new();
    for word in rest {
        match word {
            "(" => depth += 1,
            ")" | "," if depth == 0 => break,
            ")" => depth -= 1,
            _ => {}
        }
        argument.push(word);
    }
    let is_bound = argument
        .iter()
        .any(|word| word.to_ascii_lowercase().ends_with("_max"));
    // A value that comes from elsewhere: the configuration has bounded it.
    let is_given = argument.iter().any(|word| is_identifier(word))
        && argument
            .iter()
            .all(|word| *word == word.to_ascii_lowercase())
        && !argument
            .iter()
            .any(|word| word.starts_with(|first: char| first.is_ascii_digit()));
    (!is_bound && !is_given && !argument.is_empty())
        .then(|| format!("{} is no bound with a name", argument.concat()))
}

fn long_files(sources: &[Source]) -> Vec<String> {
    let long = sources.iter().filter_map(|source| {
        let lines = source.text.lines().count();
        (LINES_MAX < lines).then(|| format!("{}: {lines} lines", source.path))
    });
    long.collect()
}

fn words_of_other_places(sources: &[Source]) -> Vec<String> {
    const FOREIGN: [&str; 2] = [concat!("/wo", "rk/"), concat!("sha", "red/")];
    let mut breaches = Vec::new();
    for source in sources {
        for (index, line) in source.text.lines().enumerate() {
            let named = FOREIGN.iter().find(|foreign| {
                let before = line.split_once(**foreign).map(|(before, _)| before);
                before.is_some_and(|before| {
                    !before.ends_with(|last: char| last.is_ascii_alphanumeric())
                })
            });
            breaches.extend(named.map(|foreign| format!("{}: {foreign}", source.at(index + 1))));
        }
    }
    breaches
}

fn assert_none(breaches: &[String]) {
    assert!(breaches.is_empty(), "\n  {}", breaches.join("\n  "));
}

#[test]
fn arrows_between_modules_point_down_only() {
    assert_none(&upward_arrows(&program()));
}

#[test]
fn the_library_lists_its_modules_lowest_layer_first() {
    assert_none(&misplaced_modules(&program()));
}

#[test]
fn the_api_never_names_the_store_the_engine_or_the_reconciler() {
    assert_none(&barred_arrows(&program()));
}

#[test]
fn the_client_side_names_nothing_of_the_server() {
    assert_none(&server_side_in_the_client(&program()));
}

#[test]
fn each_crate_is_named_in_its_home_alone() {
    assert_none(&crates_away_from_home(&program()));
}

#[test]
fn host_time_is_read_in_the_clock_alone() {
    assert_none(&host_time_outside_the_clock(&program()));
}

#[test]
fn each_store_tree_has_one_owning_module() {
    assert_none(&shared_store_trees(&program()));
}

#[test]
fn only_the_executor_changes_containers() {
    assert_none(&changes_outside_the_executor(&program()));
}

#[test]
fn every_bound_has_a_name_ending_in_max() {
    assert_none(&bounds_without_a_name(&program()));
}

#[test]
fn no_file_is_over_600_lines() {
    let dirs = ["src", "tests", "benches", "scripts"];
    assert_none(&long_files(&read(&dirs, &[".rs", ".py", ".sh"])));
}

#[test]
fn the_project_speaks_of_itself_alone() {
    let endings = [
        ".rs", ".md", ".toml", ".sh", ".py", ".json", ".service", ".html", "run",
    ];
    assert_none(&words_of_other_places(&read(&[""], &endings)));
}
