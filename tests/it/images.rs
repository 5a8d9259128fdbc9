//! Sandboxes of images that have little in common: busybox, Debian, and one program alone.

use serde_json::{Value, json};

use crate::support::api::{Api, settings};
use crate::support::daemon::Daemon;
use crate::support::docker::try_docker;

/// Made by `scripts/lib.sh`.
const DEBIAN: &str = "sandboxd-test/debian:latest";
/// Made by `scripts/lib.sh`: the static program `/busybox`, and no other file.
const SCRATCH: &str = "sandboxd-test/scratch:latest";

fn start(image: &str) -> (Daemon, Api) {
    assert!(
        try_docker(&["image", "inspect", image]).is_ok(),
        "the image {image} is missing: scripts/test.sh makes it"
    );
    let runtimes = format!("one={image}");
    let daemon = Daemon::start(&settings(&[("SANDBOXD_RUNTIMES", &runtimes)]));
    let api = Api::of(&daemon);
    api.open_id("s");
    (daemon, api)
}

fn run(api: &Api, argv: &[&str]) -> Value {
    let id = uuid::Uuid::new_v4().simple().to_string();
    let asked = json!({"argv": argv, "run_id": id});
    api.json(200, "POST /sessions/s/run", Some(&asked))
}

#[test]
fn a_debian_runs_commands_by_its_agent() {
    let (_daemon, api) = start(DEBIAN);
    assert_eq!(api.info("s")["exec"], "agent");
    let told = api.sh("s", ". /etc/os-release && echo $ID && cat /proc/1/comm");
    assert_eq!(told, "debian\nsandbox-agent");
    let ran = run(&api, &["bash", "-c", "echo ${BASH_VERSINFO[0]}; exit 3"]);
    assert_eq!(
        (&ran["exit_code"], &ran["stdout"]),
        (&json!(3), &json!("5\n"))
    );
}

#[test]
fn an_image_that_holds_one_program_runs_it_and_says_that_it_has_no_shell() {
    let (_daemon, api) = start(SCRATCH);
    assert_eq!(api.info("s")["exec"], "agent");
    let ran = run(&api, &["/busybox", "echo", "alone"]);
    assert_eq!(
        (&ran["exit_code"], &ran["stdout"]),
        (&json!(0), &json!("alone\n"))
    );
    let ran = run(&api, &["nosuchprogram"]);
    assert_eq!(ran["exit_code"], 127, "{ran}");
    let ran = api.exec("s", "echo fine");
    assert_eq!(
        (&ran["exit_code"], &ran["reason"]),
        (&json!(127), &json!("start_failed")),
        "{ran}"
    );
    assert!(ran["output"].as_str().unwrap().contains("/bin/sh"), "{ran}");
}
