//! Shows that each law bites, on a source that breaks it.

use super::{
    LINES_MAX, assert_none, barred_arrows, bounds_without_a_name, changes_outside_the_executor,
    crates_away_from_home, host_time_outside_the_clock, long_files, misplaced_modules,
    server_side_in_the_client, shared_store_trees, upward_arrows, words_of_other_places,
};
use crate::support::source::{Source, without_test_files};

type Law = fn(&[Source]) -> Vec<String>;

/// Each law with a file that breaks it, and with how often.
const BROKEN: &[(Law, &str, &str, usize)] = &[
    (
        upward_arrows,
        "src/wire/error.rs",
        "use crate::session::Record;",
        1,
    ),
    (
        upward_arrows,
        "src/session/aim.rs",
        "fn f() { super::super::store::open() }",
        1,
    ),
    (
        upward_arrows,
        "src/clock.rs",
        "use super::control::{open, close};",
        2,
    ),
    (
        upward_arrows,
        "src/store/mod.rs",
        "use crate::{id, docker::Engine};",
        1,
    ),
    (upward_arrows, "src/clock.rs", "use crate::id::Nonce;", 1),
    (
        upward_arrows,
        "src/session/record.rs",
        "use crate::policy::Runtime; use super::aim;",
        0,
    ),
    (
        misplaced_modules,
        "src/lib.rs",
        "pub mod session; pub mod clock; pub mod utils;",
        2,
    ),
    (
        barred_arrows,
        "src/api/sessions.rs",
        "use crate::{control, store};",
        1,
    ),
    (barred_arrows, "src/control/open.rs", "use crate::store;", 0),
    (
        server_side_in_the_client,
        "src/cli/mod.rs",
        "use crate::{client, wire, control, config};",
        2,
    ),
    (
        server_side_in_the_client,
        "src/bin/sandboxctl.rs",
        "fn main() { sandboxd::daemon::run() }",
        1,
    ),
    (
        server_side_in_the_client,
        "src/bin/sandboxctl.rs",
        "fn main() { sandboxd::cli::run() }",
        0,
    ),
    (
        crates_away_from_home,
        "src/control/open.rs",
        "use sled; use rustix::{time, fs::openat2}; fn f(x: axum::Router) {}",
        3,
    ),
    (
        crates_away_from_home,
        "src/store/lock.rs",
        "use rustix::fs::flock; use sled::Db;",
        0,
    ),
    (
        crates_away_from_home,
        "src/config/args.rs",
        "use clap::Parser;",
        0,
    ),
    (
        crates_away_from_home,
        "src/config/file.rs",
        "use clap::Parser;",
        1,
    ),
    (
        host_time_outside_the_clock,
        "src/id.rs",
        "use std::time::{Duration, Instant}; fn f() { SystemTime::now(); jiff::Timestamp::now() }",
        3,
    ),
    (
        host_time_outside_the_clock,
        "src/id.rs",
        "fn f() { tokio::time::Instant::now() }",
        0,
    ),
    (
        host_time_outside_the_clock,
        "src/clock.rs",
        "fn f() { SystemTime::now() }",
        0,
    ),
    (
        shared_store_trees,
        "src/store/a.rs",
        "fn f() { db.open_tree(\"meta\")?; }",
        1,
    ),
    (
        shared_store_trees,
        "src/store/a.rs",
        "const TREE: &str = \"a\"; fn f() { db.open_tree(a::TREE)?; batch.apply_batch(x) }",
        0,
    ),
    (
        shared_store_trees,
        "src/control/a.rs",
        "fn f() { tree.apply_batch(x).unwrap(); }",
        1,
    ),
    (
        changes_outside_the_executor,
        "src/control/close.rs",
        "async fn f() { self.engine.stop(id).await; docker.remove(id).await }",
        2,
    ),
    (
        changes_outside_the_executor,
        "src/control/close.rs",
        "async fn f() { map.remove(id); engine.inspect(id).await }",
        0,
    ),
    (
        changes_outside_the_executor,
        "src/reconcile/execute.rs",
        "async fn f() { engine.stop(id).await }",
        0,
    ),
    (
        bounds_without_a_name,
        "src/a.rs",
        "const MAX_JOBS: usize = 1; fn f() { mpsc::channel(16); unbounded_channel(); Semaphore::new(JOBS) }",
        4,
    ),
    (
        bounds_without_a_name,
        "src/a.rs",
        "const JOBS_MAX: usize = 1; fn f() { mpsc::channel::<u8>(JOBS_MAX); oneshot::channel(); watch::channel(0); Semaphore::new(limits.jobs) }",
        0,
    ),
    (
        words_of_other_places,
        "README.md",
        concat!(
            "see /wo",
            "rk/x and sha",
            "red/y\n(sha",
            "red/y) unsha",
            "red/z"
        ),
        2,
    ),
];

#[test]
fn each_law_bites_on_a_source_that_breaks_it() {
    let root = Source::synthetic(
        "src/lib.rs",
        "pub mod clock; pub mod id; pub mod policy; pub mod session;",
    );
    for (law, path, text, n_breaches) in BROKEN {
        let broken = Source::synthetic(path, text);
        let sources = if *path == "src/lib.rs" {
            vec![broken]
        } else {
            vec![root.clone(), broken]
        };
        let breaches = law(&sources);
        assert_eq!(breaches.len(), *n_breaches, "{path}: {text}\n{breaches:#?}");
    }
}

#[test]
fn a_tree_with_two_owners_and_a_second_committer_are_found() {
    let owner = Source::synthetic(
        "src/store/a.rs",
        "const TREE: &str = \"a\"; fn f() { a.apply_batch(x)?; }",
    );
    let rival = Source::synthetic(
        "src/store/b.rs",
        "const TREE: &str = \"a\"; fn f() { b.transaction(|x| x)?; }",
    );
    assert_eq!(shared_store_trees(&[owner, rival]).len(), 2);
}

#[test]
fn a_file_that_is_too_long_is_found() {
    let long = Source::synthetic("src/a.rs", &"\n".repeat(LINES_MAX + 1));
    let full = Source::synthetic("src/b.rs", &"\n".repeat(LINES_MAX));
    assert_eq!(long_files(&[long, full]), ["src/a.rs: 601 lines"]);
}

#[test]
fn what_unit_tests_do_is_nobodys_business() {
    let parent = Source::synthetic(
        "src/id.rs",
        "#[cfg(test)]\nmod fixtures;\n#[cfg(test)] mod tests { use crate::control; }",
    );
    let fixtures = Source::synthetic("src/id/fixtures.rs", "use crate::control;");
    let kept = without_test_files(vec![parent, fixtures]);
    assert_eq!(kept.len(), 1);
    assert_none(&upward_arrows(&kept));
}
