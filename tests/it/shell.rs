//! `sandboxctl shell` at a real terminal, in a real sandbox.

use std::process::{Command, Output};
use std::time::Duration;

use rustix::process::Signal;
use rustix::termios::{LocalModes, Termios};
use serde_json::{Value, json};

use crate::support::api::{Api, settings, wait};
use crate::support::daemon::{Daemon, Ending};
use crate::support::desk::Desk;

const SOON: Duration = Duration::from_secs(10);

fn start() -> (Daemon, Api) {
    let daemon = Daemon::start(&settings(&[]));
    let api = Api::of(&daemon);
    api.open_id("s");
    (daemon, api)
}

fn sandboxctl(daemon: &Daemon, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sandboxctl"));
    command.args(arguments);
    command.env("SANDBOXD_URL", daemon.url());
    command.env("SANDBOXD_TOKEN", daemon.token());
    command.env_remove("SANDBOXD_TOKEN_FILE");
    command
}

/// Sits down, and waits for the prompt.
fn sit(daemon: &Daemon, arguments: &[&str]) -> Desk {
    let mut desk = Desk::seat(&mut sandboxctl(daemon, arguments), (60, 12));
    desk.until_sees("# ");
    assert!(!is_cooked(&desk.modes()), "keys pass as they are");
    desk
}

/// Whether lines are edited, and keys make signals and are shown, as before.
fn is_cooked(modes: &Termios) -> bool {
    modes
        .local_modes
        .contains(LocalModes::ICANON | LocalModes::ISIG | LocalModes::ECHO)
}

fn terminals(api: &Api) -> Vec<Value> {
    let list = api.json(200, "GET /sessions/s/ttys", None);
    list["ttys"].as_array().unwrap().clone()
}

fn output(daemon: &Daemon, arguments: &[&str]) -> (Option<i32>, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = sandboxctl(daemon, arguments).output().unwrap();
    let text = [stdout, stderr].concat();
    (status.code(), String::from_utf8(text).unwrap())
}

#[test]
fn a_shell_is_typed_into_resized_and_ends_with_the_status_of_its_program() {
    let (daemon, api) = start();
    let mut desk = sit(&daemon, &["shell", "s", "-e", "NAME=me", "-w", "/tmp"]);
    desk.types("echo $NAME-$((40 + 2))-$(pwd)\r");
    desk.until_sees("me-42-/tmp");
    desk.types("stty size\r");
    desk.until_sees("12 60");
    desk.resizes((50, 20));
    wait("the terminal has the size of this one", SOON, || {
        (terminals(&api)[0]["cols"] == 50).then_some(())
    });
    desk.types("stty size\r");
    desk.until_sees("20 50");
    // Ctrl-C is a key for the program, not the end of this one.
    desk.types("echo be$((1))gun; sleep 60\r");
    desk.until_sees("be1gun");
    desk.types("\x03");
    desk.until_sees("# ");
    desk.types("exit 7\r");
    let (status, shown, modes) = desk.ends();
    assert_eq!(status.code(), Some(7), "{shown}");
    assert!(is_cooked(&modes));
    assert!(shown.contains("\x1b[?25h"), "the cursor shows: {shown:?}");
}

#[test]
fn a_shell_that_is_left_goes_on_and_can_be_come_back_to() {
    let (daemon, api) = start();
    let mut desk = sit(&daemon, &["shell", "s", "--", "sh"]);
    desk.types("echo m$((20 + 3))k; N=5\r");
    desk.until_sees("m23k");
    // Ctrl-P alone is the program's.
    desk.types("\x10\x11");
    let (status, shown, modes) = desk.ends();
    assert_eq!(status.code(), Some(0), "{shown}");
    assert!(is_cooked(&modes));
    let tty = terminals(&api)[0]["tty_id"].as_str().unwrap().to_owned();
    let back = format!("sandboxctl shell s --attach {tty} comes back to it");
    assert!(shown.contains(&back), "{shown}");

    let mut desk = Desk::seat(
        &mut sandboxctl(&daemon, &["shell", "s", "--attach", &tty]),
        (40, 10),
    );
    desk.until_sees("m23k");
    desk.types("exit $N\r");
    let (status, shown, _) = desk.ends();
    assert_eq!(status.code(), Some(5), "{shown}");
}

#[test]
fn the_terminal_is_as_before_however_a_shell_ends() {
    let (mut daemon, api) = start();
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        let desk = sit(&daemon, &["shell", "s"]);
        desk.signals(signal);
        let (status, shown, modes) = desk.ends();
        assert_eq!(status.code(), Some(128 + signal.as_raw()), "{shown}");
        assert!(is_cooked(&modes), "{shown}");
        assert!(shown.contains("--attach"), "{shown}");
    }
    assert_eq!(terminals(&api).len(), 3, "they go on");
    let gone = sit(&daemon, &["shell", "s"]);
    api.close("s", "");
    let (status, shown, modes) = gone.ends();
    assert_eq!(
        (status.code(), is_cooked(&modes)),
        (Some(125), true),
        "{shown}"
    );
    api.open_id("s");
    let cut = sit(&daemon, &["shell", "s"]);
    daemon.stop(Ending::Kill);
    let (status, shown, modes) = cut.ends();
    assert_eq!(
        (status.code(), is_cooked(&modes)),
        (Some(125), true),
        "{shown}"
    );
    assert!(shown.contains("error: "), "{shown}");
    let nobody = Desk::seat(&mut sandboxctl(&daemon, &["shell", "s"]), (60, 12));
    let (status, shown, modes) = nobody.ends();
    assert_eq!(
        (status.code(), is_cooked(&modes)),
        (Some(125), true),
        "{shown}"
    );
}

#[test]
fn what_needs_a_terminal_says_so_where_there_is_none() {
    let (daemon, api) = start();
    let (code, said) = output(&daemon, &["shell", "s"]);
    assert_eq!(code, Some(125), "{said}");
    assert!(said.contains("hint: exec and run need none"), "{said}");
    assert!(terminals(&api).is_empty());
    let unknown = Desk::seat(&mut sandboxctl(&daemon, &["shell", "none"]), (60, 12));
    let (status, shown, _) = unknown.ends();
    assert_eq!(status.code(), Some(125));
    assert!(shown.contains("No such session"), "{shown}");
}

#[test]
fn a_run_that_is_over_is_removed_and_one_that_goes_on_is_not() {
    let (daemon, api) = start();
    let begin = |argv: Value| {
        let run = api.json(201, "POST /sessions/s/runs", Some(&json!({"argv": argv})));
        run["run_id"].as_str().unwrap().to_owned()
    };
    let (short, long) = (begin(json!(["true"])), begin(json!(["sleep", "60"])));
    wait("it is over", SOON, || {
        let run = api.json(200, &format!("GET /sessions/s/runs/{short}"), None);
        (run["state"] == "exited").then_some(())
    });
    let (code, said) = output(&daemon, &["runs", "s", "--rm", &short]);
    assert_eq!((code, said), (Some(0), format!("{short}\n")));
    let (code, said) = output(&daemon, &["runs", "s", "--rm", &long]);
    assert_eq!(code, Some(5), "{said}");
    let (code, said) = output(&daemon, &["runs", "s", "--rm", &short]);
    assert_eq!(code, Some(3), "{said}");
    let list = api.json(200, "GET /sessions/s/runs", None);
    assert_eq!(list["runs"].as_array().unwrap().len(), 1);
}
