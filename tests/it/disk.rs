//! What a full disk refuses, what it does not, and how that ends.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::json;
use tempfile::{NamedTempFile, TempDir};

use crate::support::api::{Api, WORKSPACES, settings, wait};
use crate::support::daemon::{Daemon, Ending};
use crate::support::docker::labelled;
use crate::support::proxy::Proxy;

/// By when the store heals once there is space, and some for a busy machine.
const HEALED: Duration = Duration::from_secs(20);
/// By when it heals on a machine with nothing else to do.
const HEALED_SOON: Duration = Duration::from_secs(10);
const OPENINGS_MAX: usize = 60;

/// A file system of its own, and a file that fills it.
pub(crate) struct SmallDisk {
    mount: TempDir,
    /// The image that a block device is made of.
    _image: Option<NamedTempFile>,
}

impl SmallDisk {
    pub(crate) fn mount(size: &str) -> Self {
        let options = format!("size={size}");
        Self::mounted(&["-t", "tmpfs", "-o", &options, "tmpfs"], None)
    }

    /// Mounts an ext4 of so many MiB, on a loop device.
    pub(crate) fn ext4(mib: u64) -> Self {
        let image = NamedTempFile::new().unwrap();
        image.as_file().set_len(mib << 20).unwrap();
        let made = Command::new("mkfs.ext4")
            .args(["-q", "-F", "-m", "0"])
            .arg(image.path())
            .status();
        assert!(
            made.is_ok_and(|status| status.success()),
            "mkfs.ext4 failed"
        );
        let path = image.path().to_str().unwrap().to_owned();
        Self::mounted(&["-o", "loop", &path], Some(image))
    }

    fn mounted(args: &[&str], image: Option<NamedTempFile>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount").args(args).arg(dir.path()).status();
        assert!(
            mounted.is_ok_and(|status| status.success()),
            "this test mounts a file system and needs the right to do so"
        );
        Self {
            mount: dir,
            _image: image,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.mount.path()
    }

    /// Takes all the space that is left.
    fn fill(&self) {
        use std::io::Write as _;
        let path = self.path().join("filler");
        let mut filler = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .unwrap();
        // Smaller and smaller pieces, to the last byte.
        for size in [1 << 20, 4096, 1] {
            while filler.write_all(&vec![b'x'; size]).is_ok() {}
        }
    }

    fn free(&self) {
        fs::remove_file(self.path().join("filler")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount")
            .arg("--lazy")
            .arg(self.path())
            .status();
        if !unmounted.is_ok_and(|status| status.success()) {
            eprintln!("left behind: the mount {}", self.path().display());
        }
    }
}

#[test]
fn a_full_state_directory_refuses_openings_and_nothing_else() {
    refuses_openings_and_nothing_else(&SmallDisk::mount("24m"));
}

#[test]
fn a_full_block_device_refuses_openings_and_nothing_else() {
    refuses_openings_and_nothing_else(&SmallDisk::ext4(24));
}

fn refuses_openings_and_nothing_else(disk: &SmallDisk) {
    let state = disk.path().join("state");
    let mut daemon = Daemon::start(&settings(&[
        WORKSPACES,
        ("SANDBOXD_STATE_DIR", state.to_str().unwrap()),
        ("SANDBOXD_MAX_SESSIONS", "1000"),
    ]));
    let api = Api::of(&daemon);
    let token = api.open_id("first");
    api.open_id("leaves");
    api.open_id("purged");
    let mut acknowledged = vec!["first".to_owned()];
    let refused = (0..OPENINGS_MAX).find_map(|n| {
        disk.fill();
        let id = format!("more-{n}");
        let reply = api.call("POST", "/sessions", Some(&json!({"session_id": id})));
        match reply.status {
            200 => acknowledged.push(id),
            507 => return Some(reply),
            status => panic!("{status}: {}", reply.text()),
        }
        None
    });
    let refused = refused.expect("the disk never filled");
    assert_eq!(refused.json().unwrap()["code"], "no_space");
    let health = api.json(200, "GET /healthz", None);
    assert_eq!(health["status"], "degraded");
    let reason = health["reasons"][0].to_string();
    assert!(
        reason.contains("store: ") && reason.contains("space"),
        "{reason}"
    );
    assert_eq!(api.call("GET", "/readyz", None).status, 503);
    assert_eq!(
        api.with_token(&token).sh("first", "echo hi > f; cat f"),
        "hi"
    );
    api.close("leaves", "");
    assert_eq!(api.call("GET", "/sessions/leaves", None).status, 404);
    api.json(204, "DELETE /workspaces/purged?close=true", None);
    assert!(!daemon.dir().join("ws/purged").exists());
    let listed = api.json(200, "GET /sessions", None);
    assert_eq!(
        listed["sessions"].as_array().unwrap().len(),
        acknowledged.len()
    );

    disk.free();
    wait("the store has healed", HEALED_SOON, || {
        (api.json(200, "GET /healthz", None)["status"] == "ok").then_some(())
    });
    api.open_id("later");
    acknowledged.push("later".to_owned());
    daemon.restart(Ending::Kill);
    let listed = api.json(200, "GET /sessions", None);
    let found: Vec<_> = listed["sessions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|session| session["session_id"].as_str().unwrap())
        .collect();
    assert_eq!(found, acknowledged);
    assert_eq!(api.with_token(&token).sh("first", "cat f"), "hi");
}

#[test]
fn a_full_workspace_root_refuses_openings_before_the_engine_is_asked() {
    let proxy = Proxy::start();
    let disk = SmallDisk::mount("1m");
    let root = disk.path().join("ws");
    let daemon = Daemon::start(&settings(&[
        ("SANDBOXD_WORKSPACE_ROOT", root.to_str().unwrap()),
        ("SANDBOXD_DOCKER_HOST", &proxy.address()),
    ]));
    let api = Api::of(&daemon);
    disk.fill();
    let asked = json!({"session_id": "a"});
    let refused = api.call("POST", "/sessions", Some(&asked));
    assert_eq!(refused.status, 507, "{}", refused.text());
    assert_eq!(refused.json().unwrap()["code"], "no_space");
    assert_eq!(proxy.calls("POST"), Vec::<String>::new());
    assert_eq!(api.call("GET", "/sessions/a", None).status, 404);
    wait("nothing is left of it", HEALED, || {
        (!root.join("a").exists()).then_some(())
    });
    disk.free();
    api.open_id("a");
    assert_eq!(api.sh("a", "echo hi > f; cat f"), "hi");
    assert_eq!(labelled(&daemon.label()).len(), 1);
}
