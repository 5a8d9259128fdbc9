//! Terminals in sandboxes on the real engine, over a real `WebSocket`.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::api::{Api, WORKSPACES, settings, wait};
use crate::support::daemon::{Daemon, Ending};
use crate::support::docker::docker;
use crate::support::terminal::{Coming, Seat};

const SOON: Duration = Duration::from_secs(10);

fn start(changes: &[(&str, &str)]) -> (Daemon, Api) {
    let daemon = Daemon::start(&settings(changes));
    let api = Api::of(&daemon);
    api.open_id("s");
    (daemon, api)
}

/// Opens a terminal of session `s`.
fn open(api: &Api, asked: &Value) -> String {
    let made = api.json(200, "POST /sessions/s/ttys", Some(asked));
    assert_eq!(made["tty_id"], made["run_id"]);
    made["tty_id"].as_str().unwrap().to_owned()
}

fn listed(api: &Api) -> Vec<Value> {
    let list = api.json(200, "GET /sessions/s/ttys", None);
    list["ttys"].as_array().unwrap().clone()
}

#[test]
fn a_shell_answers_what_is_typed_and_its_exit_is_told() {
    let (daemon, api) = start(&[]);
    let tty = open(
        &api,
        &json!({"cols": 60, "rows": 10, "env": {"NAME": "me"}}),
    );
    let mut seat = Seat::at(&daemon, "s", &tty, "");
    seat.hears_writer(true);
    assert_eq!(seat.size(), (60, 10));
    seat.types("echo $NAME-$((40 + 2))-$TERM-$(tty)\n");
    seat.until_sees("me-42-xterm-256color-/dev/pts/");
    let shown = listed(&api);
    assert_eq!(shown.len(), 1, "{shown:?}");
    assert_eq!(shown[0]["tty_id"], tty.as_str());
    assert_eq!(
        (&shown[0]["cols"], &shown[0]["rows"], &shown[0]["viewers"]),
        (&json!(60), &json!(10), &json!(1))
    );
    assert_eq!(shown[0]["has_writer"], true);
    seat.types("exit 7\n");
    assert_eq!(
        seat.hears(),
        json!({"type": "exit", "exit_code": 7, "reason": "exited"})
    );
    assert_eq!(seat.ends().0, 1000);
    wait("the terminal is listed no more", SOON, || {
        listed(&api).is_empty().then_some(())
    });
}

#[test]
fn a_change_of_size_reaches_the_program_and_all_who_look() {
    let (daemon, api) = start(&[]);
    let tty = open(&api, &json!({}));
    let mut writer = Seat::at(&daemon, "s", &tty, "");
    writer.hears_writer(true);
    let mut viewer = Seat::at(&daemon, "s", &tty, "?mode=view");
    viewer.hears_writer(false);
    writer.types("stty size\n");
    writer.until_sees("24 80");
    // Who does not write changes nothing.
    viewer.says(&json!({"type": "resize", "cols": 10, "rows": 5}));
    viewer.types("echo unheard\n");
    writer.says(&json!({"type": "resize", "cols": 132, "rows": 43}));
    for seat in [&mut writer, &mut viewer] {
        seat.until("132 columns", |seat| seat.size() == (132, 43));
    }
    writer.types("stty size\n");
    for seat in [&mut writer, &mut viewer] {
        seat.until_sees("43 132");
        assert!(!seat.sees().contains("unheard"));
    }
    assert_eq!(listed(&api)[0]["cols"], 132);
}

#[test]
fn whoever_comes_back_sees_the_screen_as_it_is() {
    let (daemon, api) = start(&[]);
    let tty = open(&api, &json!({}));
    let mut seat = Seat::at(&daemon, "s", &tty, "");
    seat.types("echo on-the-first-screen\n");
    seat.until_sees("\non-the-first-screen");
    seat.types("printf '\\033[?1049h\\033[2J\\033[5;9Hful%s' lscreen; sleep 1000\n");
    seat.until("the alternate screen", |seat| {
        seat.sees().trim() == "fullscreen"
    });
    drop(seat);
    let mut seat = Seat::at(&daemon, "s", &tty, "");
    seat.hears_writer(true);
    assert_eq!(seat.screens, 1);
    assert_eq!(seat.sees().trim(), "fullscreen");
    seat.types("\u{3}");
    seat.types("printf '\\033[?1049l'\n");
    seat.until_sees("on-the-first-screen");
}

#[test]
fn one_writes_at_a_time_and_whoever_takes_over_does() {
    let (daemon, api) = start(&[]);
    let tty = open(&api, &json!({}));
    let mut first = Seat::at(&daemon, "s", &tty, "");
    first.hears_writer(true);
    let mut second = Seat::at(&daemon, "s", &tty, "");
    second.hears_writer(false);
    second.says(&json!({"type": "take"}));
    first.hears_writer(false);
    second.hears_writer(true);
    first.types("echo never\n");
    second.types("echo tak$((1))en\n");
    for seat in [&mut first, &mut second] {
        seat.until_sees("tak1en");
        assert!(!seat.sees().contains("never"));
    }
    drop(second);
    first.hears_writer(true);
    first.types("echo aga$((1))in\n");
    first.until_sees("aga1in");
}

#[test]
fn a_terminal_outlives_the_daemon_and_is_painted_by_the_next() {
    let (mut daemon, api) = start(&[]);
    let tty = open(&api, &json!({"cols": 70, "rows": 12}));
    let mut seat = Seat::at(&daemon, "s", &tty, "");
    seat.types("x=kept; echo bef$((1))ore\n");
    seat.until_sees("bef1ore");
    drop(seat);
    daemon.restart(Ending::Kill);
    let mut seat = Seat::at(&daemon, "s", &tty, "");
    seat.hears_writer(true);
    assert_eq!((seat.screens, seat.size()), (1, (70, 12)));
    assert!(seat.sees().contains("bef1ore"), "{}", seat.sees());
    seat.types("echo $x-aft$((1))er\n");
    seat.until_sees("kept-aft1er");
    assert_eq!(listed(&api).len(), 1);
}

#[test]
fn a_daemon_that_stops_says_so_and_leaves_the_terminal_running() {
    let (mut daemon, api) = start(&[]);
    let tty = open(&api, &json!({}));
    let mut seat = Seat::at(&daemon, "s", &tty, "");
    seat.types("echo he$((1))re\n");
    seat.until_sees("he1re");
    let ended = std::thread::spawn(move || (seat.ends(), seat.sees()));
    daemon.stop(Ending::Terminate);
    assert_eq!(ended.join().unwrap().0.0, 1001);
    daemon.start_again();
    let mut seat = Seat::at(&daemon, "s", &tty, "?mode=view");
    seat.until_sees("he1re");
}

#[test]
fn a_terminal_ends_on_request_and_with_its_container_and_says_why() {
    let (daemon, api) = start(&[WORKSPACES]);
    let tty = open(&api, &json!({"argv": ["sleep", "1000"]}));
    let mut seat = Seat::at(&daemon, "s", &tty, "?mode=view");
    seat.hears_writer(false);
    api.json(204, &format!("DELETE /sessions/s/ttys/{tty}"), None);
    assert_eq!(seat.hears()["reason"], "stopped");
    assert_eq!(seat.ends().0, 1000);
    api.json(204, &format!("DELETE /sessions/s/ttys/{tty}"), None);

    let tty = open(&api, &json!({}));
    let mut seat = Seat::at(&daemon, "s", &tty, "");
    seat.hears_writer(true);
    docker(&["kill", &api.container("s")]);
    assert_eq!(
        seat.hears(),
        json!({"type": "exit", "exit_code": null, "reason": "container_lost"})
    );
    assert_eq!(seat.ends().0, 1000);
    let coming = Coming {
        token: Some(daemon.token()),
        ..Coming::default()
    };
    wait("the terminal is known to be lost", SOON, || {
        let refused = Seat::come(&daemon, "s", &tty, &coming).err();
        (refused == Some(410)).then_some(())
    });
}

#[test]
fn a_session_is_closed_under_those_who_look() {
    let (daemon, api) = start(&[]);
    let tty = open(&api, &json!({}));
    let mut seat = Seat::at(&daemon, "s", &tty, "");
    seat.hears_writer(true);
    api.close("s", "?purge=true");
    assert_eq!(seat.hears()["type"], "exit");
    assert_eq!(seat.ends().0, 1000);
}

#[test]
fn a_ticket_opens_one_socket_of_its_session_and_no_other() {
    let (daemon, api) = start(&[]);
    let token = api.open_id("other");
    let tty = open(&api, &json!({}));
    let ticket = |session: &str| {
        let made = api.json(200, &format!("POST /sessions/{session}/tickets"), None);
        format!("?ticket={}", made["ticket"].as_str().unwrap())
    };
    let come = |query: &str, token, origin| {
        let coming = Coming {
            query,
            token,
            origin,
        };
        Seat::come(&daemon, "s", &tty, &coming).err()
    };
    let query = ticket("s");
    assert_eq!(come(&query, None, None), None);
    assert_eq!(come(&query, None, None), Some(401), "a second time");
    assert_eq!(come(&ticket("other"), None, None), Some(401));
    assert_eq!(come("?ticket=", None, None), Some(401));
    assert_eq!(come("", None, None), Some(401));
    assert_eq!(come("", Some(&token), None), Some(401));
    // A ticket is for sockets alone.
    let path = format!("/sessions/s/ttys{}", ticket("s"));
    let bare = api.http().with_token(None);
    assert_eq!(bare.get(&path).unwrap().status, 401);

    let own = daemon.url();
    assert_eq!(come(&ticket("s"), None, Some(&own)), None);
    for foreign in ["http://evil.example", "null", &format!("{own}1")] {
        assert_eq!(come(&ticket("s"), None, Some(foreign)), Some(403));
        assert_eq!(come("", Some(daemon.token()), Some(foreign)), Some(403));
    }
}

#[test]
fn what_has_no_sense_is_refused_and_bounds_are_told() {
    let (daemon, api) = start(&[("SANDBOXD_MAX_SESSION_TTYS", "1")]);
    let tty = open(&api, &json!({}));
    let refused = api.json(429, "POST /sessions/s/ttys", Some(&json!({})));
    assert_eq!(
        refused["ceiling"],
        json!({"name": "max_session_ttys", "limit": 1, "used": 1, "scope": "session:s"})
    );
    let bad = json!({"cols": 1001});
    api.json(422, "POST /sessions/s/ttys", Some(&bad));
    let ws = |tty: &str| format!("GET /sessions/s/ttys/{tty}/ws");
    assert_eq!(api.json(400, &ws(&tty), None)["code"], "not_websocket");
    let coming = Coming {
        token: Some(daemon.token()),
        ..Coming::default()
    };
    for unknown in ["x", &"0".repeat(32)] {
        assert_eq!(
            Seat::come(&daemon, "s", unknown, &coming).err(),
            Some(404),
            "{unknown}"
        );
    }
    for text in [
        "take",
        r#"{"type":"resize","cols":0,"rows":1}"#,
        r#"{"type":"x"}"#,
    ] {
        let mut seat = Seat::at(&daemon, "s", &tty, "");
        seat.says_text(text);
        let (code, reason) = seat.ends();
        assert_eq!(code, 1008, "{text}");
        assert!(!reason.is_empty());
    }
    let mut seat = Seat::at(&daemon, "s", &tty, "");
    seat.types(&"x".repeat((64 << 10) + 1));
    assert_eq!(seat.ends().0, 1009);
}

#[test]
fn a_viewer_that_reads_nothing_slows_nobody_down() {
    let (daemon, api) = start(&[]);
    let tty = open(&api, &json!({}));
    let mut writer = Seat::at(&daemon, "s", &tty, "");
    writer.hears_writer(true);
    let mut lazy = Seat::at(&daemon, "s", &tty, "?mode=view");
    lazy.hears_writer(false);
    writer.types("seq 1 2000000 | tail -c 12000000; echo do$((1))ne\n");
    writer.until_sees("do1ne");
    // It is told the screen in place of what it missed.
    lazy.until_sees("do1ne");
    assert!(1 < lazy.screens, "{} screens", lazy.screens);
}
