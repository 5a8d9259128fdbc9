//! The written contract, checked case by case against the real daemon and engine.

use crate::support::case::{Book, Case, Server, run_case};
use crate::support::daemon::{Daemon, Ending};
use crate::support::http::Http;
use crate::support::scripted::Scripted;

const SESSIONS: &str = include_str!("../contract/sessions.json");
const RUNS: &str = include_str!("../contract/runs.json");
const FILES: &str = include_str!("../contract/files.json");

/// Runs every case of a profile on one daemon; panics with each that does not hold.
///
/// `CONTRACT_CASE=TEXT` in the environment leaves only the cases whose name contains it.
fn check(book: &str, profile: &str) {
    let book = Book::parse(book);
    let only = std::env::var("CONTRACT_CASE").unwrap_or_default();
    let in_profile = |case: &&Case| case.profile == profile && case.name.contains(&only);
    let cases: Vec<&Case> = book.cases.iter().filter(in_profile).collect();
    assert!(
        !cases.is_empty() || !only.is_empty(),
        "no case of profile {profile}"
    );
    let mut daemon = Daemon::start(&book.profiles[profile]);
    let mut failures = Vec::new();
    for case in &cases {
        let mut server = Server {
            http: daemon.http(),
            restart: &mut |ending| daemon.restart(ending),
        };
        let problems = run_case(case, &mut server);
        if !problems.is_empty() {
            failures.push(format!(
                "{}\n      {}",
                case.name,
                problems.join("\n      ")
            ));
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {} cases of the {profile} profile do not hold:\n  - {}",
        failures.len(),
        cases.len(),
        failures.join("\n  - ")
    );
}

#[test]
fn every_contract_case_of_the_base_profile_holds() {
    check(SESSIONS, "base");
}

#[test]
fn every_contract_case_of_the_tight_profile_holds() {
    check(SESSIONS, "tight");
}

#[test]
fn every_contract_case_of_the_tuned_profile_holds() {
    check(SESSIONS, "tuned");
}

#[test]
fn every_contract_case_of_the_unlimited_profile_holds() {
    check(SESSIONS, "unlimited");
}

#[test]
fn every_contract_case_of_the_runs_profile_holds() {
    check(RUNS, "runs");
}

#[test]
fn every_contract_case_of_the_files_profile_holds() {
    check(FILES, "files");
}

#[test]
fn every_contract_case_of_files_without_a_workspace_root_holds() {
    check(FILES, "files_alone");
}

#[test]
fn every_profile_has_a_test_and_no_two_cases_share_a_name() {
    let books = [SESSIONS, RUNS, FILES].map(Book::parse);
    let tested = [
        "base",
        "tight",
        "tuned",
        "unlimited",
        "runs",
        "files",
        "files_alone",
    ];
    let profiles = books.iter().flat_map(|book| book.profiles.keys());
    assert!(profiles.clone().eq(tested.iter()), "{profiles:?}");
    let cases = books.iter().flat_map(|book| &book.cases);
    let mut names: Vec<&str> = cases.map(|case| case.name.as_str()).collect();
    names.sort_unstable();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
}

const TRIAL: &str = r#"{"profiles": {"p": {}}, "cases": [{"name": "trial", "profile": "p", "steps": [
    {"do": "request", "call": "POST /sessions", "send": {}, "status": 200, "json": {}, "save": {"tok": "/token"}},
    {"do": "exec", "id": "{{id}}", "command": "echo hi", "output": "hi\n", "save": "said"},
    {"do": "restart", "by": "kill"},
    {"do": "request", "call": "GET /x?said={{said}}", "as": "{{tok}}", "status": 404, "json": {"detail": {"$type": "string"}}}
]}]}"#;

const BEGUN: &str = r#"{"profiles": {"p": {}}, "cases": [{"name": "begun", "profile": "p", "steps": [
    {"do": "begin", "as_name": "later", "ask": {"call": "POST /run/{{run}}", "send": {}, "status": 200, "json": {"n": 1}}},
    {"do": "join", "name": "later"}
]}]}"#;

const OPENED: (u16, &str) = (200, r#"{"session": {"session_id": "ID"}, "token": "t"}"#);

/// Runs the trial; returns its problems, the requests that it made, and its restarts.
fn try_trial(replies: &[(u16, &str)]) -> (Vec<String>, Vec<String>, Vec<Ending>) {
    let scripted = Scripted::start(replies);
    let mut endings = Vec::new();
    let mut server = Server {
        http: Http::new(scripted.port, "service-token"),
        restart: &mut |ending| endings.push(ending),
    };
    let problems = run_case(&Book::parse(TRIAL).cases[0], &mut server);
    (problems, scripted.requests(), endings)
}

#[test]
fn a_case_that_holds_has_no_problems_and_closes_what_it_opened() {
    let said = (200, r#"{"output": "hi\n"}"#);
    let missing = (404, r#"{"detail": "no"}"#);
    let (problems, requests, endings) = try_trial(&[OPENED, said, missing, (204, "")]);
    assert_eq!(problems, Vec::<String>::new());
    assert_eq!(requests[2], "GET /x?said=hi HTTP/1.1");
    assert_eq!(requests[3], "DELETE /sessions/ID?purge=true HTTP/1.1");
    assert_eq!(endings, [Ending::Kill]);
}

#[test]
fn a_request_that_was_begun_is_judged_when_it_is_joined() {
    for (reply, expected) in [
        (r#"{"n": 1}"#, vec![]),
        (r#"{"n": 2}"#, vec!["$.n: wanted 1, found 2"]),
    ] {
        let scripted = Scripted::start(&[(200, reply)]);
        let mut server = Server {
            http: Http::new(scripted.port, "service-token"),
            restart: &mut |_| {},
        };
        let problems = run_case(&Book::parse(BEGUN).cases[0], &mut server);
        assert_eq!(problems.len(), expected.len(), "{problems:?}");
        let as_expected = |(found, end): (&String, &str)| found.ends_with(end);
        assert!(
            problems.iter().zip(expected).all(as_expected),
            "{problems:?}"
        );
        let run = scripted.requests()[0].clone();
        let id = run
            .strip_prefix("POST /run/")
            .and_then(|rest| rest.get(..32));
        let is_id = |id: &str| id.bytes().all(|byte| byte.is_ascii_hexdigit());
        assert!(id.is_some_and(is_id), "{run}");
    }
}

#[test]
fn a_case_ends_at_the_step_that_does_not_hold_and_names_the_difference() {
    let said = (200, r#"{"output": "ho\n"}"#);
    let (problems, requests, endings) = try_trial(&[OPENED, said, (204, "")]);
    assert_eq!(problems.len(), 1, "{problems:?}");
    let difference = r#"/exec: $.output: wanted "hi\n", found "ho\n""#;
    assert!(
        problems[0].starts_with("step 1: POST /sessions/c-"),
        "{problems:?}"
    );
    assert!(problems[0].ends_with(difference), "{problems:?}");
    assert_eq!((requests.len(), endings.len()), (3, 0), "{requests:?}");

    let (problems, ..) = try_trial(&[(502, "down")]);
    assert_eq!(
        problems,
        ["step 0: POST /sessions: status 502, wanted 200: down"]
    );
}
