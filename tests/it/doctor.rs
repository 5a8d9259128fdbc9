//! The verifier, on the real engine: what it finds, that it changes nothing, and that
//! claims which do not hold are found.

use serde_json::{Value, json};

use crate::support::api::{Api, WORKSPACES, settings};
use crate::support::claims::Claims;
use crate::support::daemon::{Daemon, Ending};

/// Returns the names of the findings of a level, with their subjects.
fn of_level(report: &Value, level: &str) -> Vec<String> {
    let findings = report["findings"].as_array().unwrap().iter();
    findings
        .filter(|finding| finding["level"] == level)
        .map(|finding| finding["name"].as_str().unwrap().to_owned())
        .collect()
}

fn doctor(daemon: &Daemon) -> Value {
    Api::of(daemon).json(200, "GET /doctor", None)
}

#[test]
fn a_healthy_service_is_clean_and_its_claims_hold_through_a_kill() {
    let mut daemon = Daemon::start(&settings(&[WORKSPACES]));
    let api = Api::of(&daemon);
    let mut claims = Claims::default();
    claims.open(&api, &json!({"session_id": "kept", "tenant": "acme"}));
    claims.write(&api, "kept", "text", b"kept\n");
    claims.write(&api, "kept", "it's bytes", &[0, 255, 10, 39, 128]);
    for id in ["closed", "purged", "lost-close", "lost-purge"] {
        claims.open(&api, &json!({ "session_id": id }));
        claims.write(&api, id, "f", id.as_bytes());
    }
    claims.close(&api, "closed");
    claims.purge(&api, "purged");
    claims.unacknowledged("lost-close");
    api.close("lost-purge", "?purge=true");
    claims.unacknowledged("lost-purge");
    claims.unacknowledged("lost-open");
    let report = doctor(&daemon);
    assert_eq!(of_level(&report, "fail"), Vec::<String>::new(), "{report}");
    assert_eq!(
        of_level(&report, "unknown"),
        Vec::<String>::new(),
        "{report}"
    );
    daemon.restart(Ending::Kill);
    claims.verify(&daemon);
    daemon.restart(Ending::Terminate);
    claims.verify(&daemon);
}

#[test]
fn claims_that_do_not_hold_are_all_found() {
    let daemon = Daemon::start(&settings(&[WORKSPACES]));
    let api = Api::of(&daemon);
    let mut claims = Claims::default();
    for id in ["a", "b", "c", "d", "e"] {
        claims.open(&api, &json!({ "session_id": id }));
        claims.write(&api, id, "f", b"as it was");
    }
    claims.may_have_written("e", "f");
    assert_eq!(claims.ids(), ["a", "b", "c", "d", "e"]);
    claims.close(&api, "b");
    let ws = |path: &str| daemon.dir().join("ws").join(path);
    // Nobody wrote it through the service, nobody acknowledged the close, the purge or
    // the opening, and the command was never run.
    std::fs::write(ws("a/workspace/f"), "changed").unwrap();
    std::fs::write(ws("b/workspace/f"), "changed").unwrap();
    api.close("c", "");
    claims.purged("d");
    api.open_id("unclaimed");
    std::fs::write(ws("e/workspace/f"), "changed").unwrap();
    claims.replied("e", "date", &json!({"exit_code": 0}));
    let violations = claims.violations(&daemon);
    for expected in [
        "a: f was 9 bytes long, and is",
        "b: f was 9 bytes long, and differs",
        "c: it was opened, and is not listed",
        "c: its token runs no command: 401",
        "d: it is listed, and nobody opened it",
        "d: it was purged, and /sessions/d answers 200",
        "d: it was purged, and its directory is there",
        "d: an old token is answered with 200",
        "e: no event tells that \"date\" ended as exit 0",
        "unclaimed: it is listed, and nobody opened it",
    ] {
        let found = violations.iter().any(|found| found.starts_with(expected));
        assert!(found, "{expected}: {violations:#?}");
    }
    assert_eq!(violations.len(), 11, "{violations:#?}");
}
