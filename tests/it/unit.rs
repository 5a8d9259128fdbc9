//! The daemon as a systemd service.

use std::fs;
use std::process::Command;
use std::time::Duration;

use crate::support::daemon::{Daemon, Ending, Settings};
use crate::support::notify::NotifySocket;

const UNIT: &str = include_str!("../../systemd/sandboxd.service");

/// The unit with its program at a place where there is one.
fn installed_unit() -> String {
    let program = concat!("ExecStart=", env!("CARGO_BIN_EXE_sandboxd"));
    let lines = UNIT.lines().map(|line| {
        if line.starts_with("ExecStart=") {
            program
        } else {
            line
        }
    });
    lines.fold(String::new(), |text, line| text + line + "\n")
}

#[test]
fn the_unit_file_is_what_systemd_understands() {
    let dir = tempfile::tempdir().unwrap();
    let unit = dir.path().join("sandboxd.service");
    fs::write(&unit, installed_unit()).unwrap();
    let output = Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .arg(&unit)
        .output()
        .unwrap_or_else(|error| {
            panic!("start systemd-analyze: {error}\nit comes with the package systemd; `bash scripts/test.sh` installs it")
        });
    let complaints = String::from_utf8_lossy(&output.stderr);
    // Complaints about units of the machine itself are none of ours.
    let ours: Vec<&str> = complaints
        .lines()
        .filter(|line| line.contains("sandboxd"))
        .collect();
    assert!(
        output.status.success() && ours.is_empty(),
        "{}: {complaints}",
        output.status
    );
}

#[test]
fn the_unit_survives_the_engine_and_keeps_the_sandboxes() {
    let says = |line: &str| UNIT.lines().any(|found| found == line);
    for line in [
        "Type=notify",
        "WatchdogSec=30",
        "Wants=docker.service",
        "Restart=always",
        "RestartPreventExitStatus=64 78",
        "KillMode=mixed",
        "RuntimeDirectoryPreserve=yes",
    ] {
        assert!(says(line), "{line} is missing");
    }
    assert!(
        !UNIT.contains("\nRequires="),
        "a restart of the engine would stop the service"
    );
}

#[test]
fn the_daemon_tells_systemd_that_it_is_ready() {
    let mut socket = NotifySocket::open();
    let path = socket.path().to_str().unwrap().to_owned();
    let settings = [
        ("NOTIFY_SOCKET", path.as_str()),
        ("SANDBOXD_RUNTIMES", "bb={{image}}"),
        ("SANDBOXD_PREWARM", "0"),
    ];
    let settings: Settings = settings
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
    let _daemon = Daemon::start(&settings);
    assert_eq!(
        socket.wait_for("READY=", Duration::from_secs(10)),
        "READY=1"
    );
}

#[test]
fn the_daemon_feeds_the_watchdog_and_says_when_it_stops() {
    let mut socket = NotifySocket::open();
    let path = socket.path().to_str().unwrap().to_owned();
    let settings = [
        ("NOTIFY_SOCKET", path.as_str()),
        ("WATCHDOG_USEC", "600000"),
        ("SANDBOXD_RUNTIMES", "bb={{image}}"),
        ("SANDBOXD_PREWARM", "0"),
    ];
    let settings: Settings = settings
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
    let mut daemon = Daemon::start(&settings);
    let within = Duration::from_secs(10);
    socket.wait_for("READY=", within);
    let fed = socket.count_for("WATCHDOG=1", Duration::from_secs(2));
    assert!((5..=12).contains(&fed), "fed {fed} times in 2 s");
    let status = daemon.stop(Ending::Terminate);
    assert_eq!(status.code(), Some(0));
    assert_eq!(socket.wait_for("STOPPING=", within), "STOPPING=1");
    let first = |word| socket.place_of(word);
    assert!(first("READY=1") < first("STOPPING=1"));
}
