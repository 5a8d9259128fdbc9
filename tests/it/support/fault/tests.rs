//! The rules of faults, apart from any engine.

use super::{Action, Broken, Faults, Plan, Seeded, Which};
use crate::support::fault::plan::Rule;

fn decide(faults: &Faults, lines: &[&str]) -> Vec<Action> {
    let decided = lines.iter().map(|line| faults.decide(line).action);
    decided.collect()
}

const CALLS: [&str; 6] = [
    "POST /v1.41/containers/create?name=a HTTP/1.1",
    "GET /_ping HTTP/1.1",
    "POST /v1.41/containers/abc/start HTTP/1.1",
    "GET /v1.41/containers/abc/json HTTP/1.1",
    "POST /v1.41/containers/def/start HTTP/1.1",
    "GET /v1.41/containers/json?all=1 HTTP/1.1",
];

#[test]
fn a_rule_is_about_the_nth_of_its_own_calls() {
    let plan = Plan::nth("POST", "/containers/*/start", 2, Action::DropReply);
    let decided = decide(&Faults::new(plan), &CALLS);
    let at: Vec<_> = (0..6).filter(|n| decided[*n] != Action::Pass).collect();
    assert_eq!(at, [4]);
}

#[test]
fn the_first_rule_that_is_meant_decides() {
    let plan = Plan {
        rules: vec![
            Rule::new("POST", "/containers/*/start", Which::Nth(2), Action::Hang),
            Rule::new("*", "/containers/**", Which::Every, Action::DropRequest),
        ],
        seeded: None,
    };
    let decided = decide(&Faults::new(plan), &CALLS);
    assert_eq!(decided[1], Action::Pass);
    assert_eq!(decided[2], Action::DropRequest);
    assert_eq!(decided[4], Action::Hang);
}

#[test]
fn a_plan_is_written_and_read_as_json() {
    let text = r#"{"rules":[{"method":"GET","path":"/events","which":"every","action":{"stall_events":{"after":2}}},{"method":"POST","path":"/exec/*/start","which":{"nth":1},"action":{"corrupt_frame":{"length":1073741824}}},{"method":"GET","path":"/info","which":{"nth":3},"action":{"answer":{"status":200,"body":"<html>"}}}]}"#;
    let plan = Plan::parse(text);
    assert_eq!(
        plan.rules[1].action,
        Action::CorruptFrame(Broken::Length(1 << 30))
    );
    assert_eq!(serde_json::to_string(&plan).unwrap(), text);
}

#[test]
fn a_seed_decides_the_same_each_time_and_its_log_says_it_again() {
    let seeded = Plan {
        rules: Vec::new(),
        seeded: Some(Seeded {
            seed: 7,
            percent: 40,
            actions: vec![Action::DropReply, Action::Hang, Action::Replay],
        }),
    };
    let lines: Vec<&str> = CALLS.iter().copied().cycle().take(60).collect();
    let faults = Faults::new(seeded.clone());
    let decided = decide(&faults, &lines);
    let hit = decided.iter().filter(|one| **one != Action::Pass).count();
    assert!((12..36).contains(&hit), "{hit}");
    assert_eq!(decide(&Faults::new(seeded), &lines), decided);
    let again = Plan::parse(&serde_json::to_string(&faults.log().as_plan()).unwrap());
    assert_eq!(decide(&Faults::new(again), &lines), decided);
}
