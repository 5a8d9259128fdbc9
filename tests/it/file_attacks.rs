//! Attacks on the files of a session by the code in it: whatever a sandbox does to its tree,
//! no caller is shown a byte from outside of it, and nothing outside is changed.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufReader, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use serde_json::{Value, json};

use crate::support::api::{Api, WORKSPACES, settings, wait};
use crate::support::daemon::Daemon;
use crate::support::http::{TOKEN_HEADER, read_response};

/// Made by `scripts/lib.sh`; it has a perl, which can exchange two names at once.
const DEBIAN: &str = "sandboxd-test/debian:latest";
const SECRET: &str = "a secret of the host";
const INSIDE: &str = "what is inside";
/// Reads and writes under attack; `SANDBOXD_TEST_FILE_ATTACKS` has others.
const ATTACKS: usize = 20_000;
/// Calls in a row of one kind.
const BATCH: usize = 200;
/// By when what is odd in a tree has to be answered.
const PROMPT: Duration = Duration::from_secs(10);

fn start(image: Option<&str>) -> (Daemon, Api, PathBuf) {
    let mut changes = vec![WORKSPACES];
    let runtimes = image.map(|image| format!("bb={image}"));
    changes.extend(
        runtimes
            .iter()
            .map(|one| ("SANDBOXD_RUNTIMES", one.as_str())),
    );
    let daemon = Daemon::start(&settings(&changes));
    let api = Api::of(&daemon);
    let outside = daemon.dir().join("outside");
    fs::create_dir_all(outside.join("sub")).unwrap();
    for file in ["f", "sub/f"] {
        fs::write(outside.join(file), SECRET).unwrap();
    }
    (daemon, api, outside)
}

/// Proves that nothing outside was changed or added.
fn is_untouched(outside: &Path) {
    let mut names: Vec<_> = fs::read_dir(outside)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["f", "sub"]);
    assert_eq!(fs::read_dir(outside.join("sub")).unwrap().count(), 1);
    for file in ["f", "sub/f"] {
        assert_eq!(fs::read(outside.join(file)).unwrap(), SECRET.as_bytes());
    }
}

/// A kept connection: a hundred thousand calls would use up the ports.
struct Kept {
    reader: BufReader<TcpStream>,
    token: String,
}

impl Kept {
    fn of(daemon: &Daemon) -> Self {
        let address = daemon.url();
        let address = address
            .strip_prefix("http://")
            .unwrap()
            .trim_end_matches('/');
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_mins(1)))
            .unwrap();
        Self {
            reader: BufReader::new(stream),
            token: daemon.token().to_owned(),
        }
    }

    /// Makes a call; returns its status and its body.
    fn call(&mut self, path: &str, body: &[u8]) -> (u16, String) {
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\n{TOKEN_HEADER}: {}\r\ncontent-length: {}\r\n\r\n",
            self.token,
            body.len()
        );
        let whole = [head.as_bytes(), body].concat();
        self.reader.get_mut().write_all(&whole).unwrap();
        let reply = read_response(&mut self.reader).unwrap();
        (reply.status, reply.text())
    }
}

/// What is tried through a directory that may be a link: its path, its body, and whether
/// its success has to show what is inside.
fn attempts(n: usize) -> Vec<(&'static str, String, Vec<u8>, bool)> {
    let json = |value: Value| value.to_string().into_bytes();
    let file = |path: &str| json(json!({ "path": path }));
    vec![
        (
            "archive read",
            "/workspaces/a/read".to_owned(),
            file("d/f"),
            true,
        ),
        (
            "archive read_bytes",
            "/workspaces/a/read_bytes".to_owned(),
            file("d/sub/f"),
            false,
        ),
        (
            "archive ls",
            "/workspaces/a/ls".to_owned(),
            file("d"),
            false,
        ),
        (
            "native read",
            "/sessions/a/files/read".to_owned(),
            file("/workspace/d/sub/f"),
            true,
        ),
        (
            "native write",
            format!("/sessions/a/files/write?path=/workspace/d/new{}", n % 7),
            INSIDE.as_bytes().to_vec(),
            false,
        ),
        (
            "native write of what is there",
            "/sessions/a/files/write?path=/workspace/d/f".to_owned(),
            INSIDE.as_bytes().to_vec(),
            false,
        ),
        (
            "native remove",
            "/sessions/a/files/remove".to_owned(),
            file("/workspace/d/new1"),
            false,
        ),
        (
            "native mkdir",
            "/sessions/a/files/mkdir".to_owned(),
            file("/workspace/d/sub/deep"),
            false,
        ),
    ]
}

#[test]
fn a_container_that_swaps_a_directory_for_a_link_yields_not_one_byte_from_outside() {
    let (daemon, api, outside) = start(Some(DEBIAN));
    api.open_id("a");
    api.sh("a", "mkdir -p d/sub");
    for file in ["d/f", "d/sub/f"] {
        api.sh("a", &format!("printf '{INSIDE}' > {file}"));
    }
    // The kernel's renameat2 with RENAME_EXCHANGE: there is never a moment without a `d`.
    let swap =
        r#"$a = "d"; $b = "l"; while (1) { syscall(316, -100, $a, -100, $b, 2) == 0 or die $! }"#;
    let link = format!("ln -s {} l", outside.display());
    api.sh("a", &link);
    let attack = json!({"argv": ["perl", "-e", swap]});
    let run = api.json(201, "POST /sessions/a/runs", Some(&attack));
    let attacks =
        std::env::var("SANDBOXD_TEST_FILE_ATTACKS").map_or(ATTACKS, |times| times.parse().unwrap());
    let mut met: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    let mut kept = Kept::of(&daemon);
    for n in (0..attacks).step_by(BATCH) {
        let attempts = attempts(n / BATCH);
        let (what, path, body, shows) = &attempts[n / BATCH % attempts.len()];
        for _ in 0..BATCH {
            let (status, text) = kept.call(path, body);
            assert!(!text.contains(SECRET), "{what}: {status} {text}");
            assert!(
                !text.contains("YSBzZWNyZX"),
                "{what} in base64: {status} {text}"
            );
            if status < 300 {
                met.entry(what).or_default().0 += 1;
                assert!(!shows || text.contains(INSIDE), "{what}: {status} {text}");
            } else {
                met.entry(what).or_default().1 += 1;
                assert!(matches!(status, 400 | 404 | 409), "{what}: {status} {text}");
            }
        }
    }
    let state = api.json(
        200,
        &format!("GET /sessions/a/runs/{}", run["run_id"].as_str().unwrap()),
        None,
    );
    assert_eq!(
        state["state"], "running",
        "the attack went on to the end: {state}"
    );
    eprintln!("{attacks} calls under attack, those of each kind that worked and not: {met:?}");
    let both_ways = |(what, (worked, refused)): (&&str, &(u64, u64))| {
        // What is removed or made once is there or gone for the next.
        0 < *refused && (0 < *worked || what.ends_with("remove"))
    };
    assert!(met.iter().all(both_ways), "{met:?}");
    is_untouched(&outside);
    api.close("a", "?purge=true");
    is_untouched(&outside);
}

#[test]
fn planted_links_lead_nowhere_on_the_host() {
    let (daemon, api, outside) = start(None);
    for id in ["a", "neighbour"] {
        api.open_id(id);
    }
    api.sh("neighbour", &format!("printf '{SECRET}' > f"));
    let neighbour = daemon.dir().join("ws/neighbour/workspace");
    let hostname = fs::read_to_string("/etc/hostname").unwrap();
    fs::write(daemon.dir().join("ws/neighbour/workspace/f"), SECRET).unwrap();
    let targets = [
        outside.join("f").display().to_string(),
        neighbour.join("f").display().to_string(),
        "../../neighbour/workspace/f".to_owned(),
        "/etc/passwd".to_owned(),
        "/etc/hostname".to_owned(),
        "/var/run/docker.sock".to_owned(),
        "/proc/self/root/etc/hostname".to_owned(),
        "/proc/self/cwd".to_owned(),
    ];
    for (n, target) in targets.iter().enumerate() {
        api.sh(
            "a",
            &format!("ln -s {target} link{n}; mkdir deep{n}; ln -s {target} deep{n}/link"),
        );
        for path in [format!("link{n}"), format!("deep{n}/link")] {
            let absolute = json!({"path": format!("/workspace/{path}")});
            let relative = json!({ "path": path });
            for (call, body) in [
                ("/workspaces/a/read", &relative),
                ("/workspaces/a/read_bytes", &relative),
                ("/workspaces/a/ls", &relative),
                ("/sessions/a/files/read", &absolute),
                ("/sessions/a/files/list", &absolute),
                ("/sessions/a/files/realpath", &absolute),
            ] {
                let reply = api.call("POST", call, Some(body));
                let text = reply.text();
                assert!(
                    matches!(reply.status, 400 | 409),
                    "{call} {target}: {} {text}",
                    reply.status
                );
                assert!(!text.contains(SECRET), "{call} {target}: {text}");
            }
            // These see what the sandbox sees, which is not the host.
            for call in ["read", "read_bytes"] {
                let body = json!({"path": path, "offset": 0, "limit": 10});
                let reply = api.json(200, &format!("POST /sessions/a/{call}"), Some(&body));
                let text = reply.to_string();
                assert!(!text.contains(SECRET), "{call} {target}: {text}");
                assert!(!text.contains(hostname.trim()), "{call} {target}: {text}");
            }
        }
    }
    // A write replaces the link or goes to where it leads within the sandbox.
    for n in 0..targets.len() {
        let body = json!({"path": format!("link{n}"), "content_b64": "bmV3"});
        api.call("POST", "/sessions/a/write", Some(&body));
        let path = format!("/sessions/a/files/write?path=/workspace/deep{n}/link");
        api.call("POST", &path, Some(&json!("new")));
    }
    assert_eq!(fs::read_to_string(neighbour.join("f")).unwrap(), SECRET);
    assert_eq!(fs::read_to_string("/etc/hostname").unwrap(), hostname);
    is_untouched(&outside);
    api.close("a", "?purge=true");
    is_untouched(&outside);
    assert_eq!(fs::read_to_string(neighbour.join("f")).unwrap(), SECRET);
}

/// Fills a workspace with what a careless reader trips over.
fn fill_with_odd_files(api: &Api) {
    api.sh(
        "a",
        "mkfifo fifo && truncate -s 1099511627776 sparse && echo x > one; ln one two",
    );
    api.sh(
        "a",
        "n=$(printf '%0255d' 0); echo 255 > $n; mkdir dir; mkdir dir/$n; echo x > dir/$n/f",
    );
    api.sh(
        "a",
        r#"touch "$(printf 'new\nline')" 'sp ace' "quo'te" 'co:lon' ./-dash '*'"#,
    );
    api.sh(
        "a",
        r#"touch "$(printf 'bad\377name')"; mkdir locked; echo x > locked/f; chmod 0 locked"#,
    );
}

/// Makes a tree whose path no call of the kernel takes, as a program that goes down step by
/// step makes it.
fn make_deep(work_dir: &Path) {
    let name = "deep".repeat(25);
    let mut dir = fs::File::open(work_dir).unwrap();
    for _ in 0..1000 {
        rustix::fs::mkdirat(&dir, &name, Mode::RWXU).unwrap();
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        dir = rustix::fs::openat(&dir, &name, flags, Mode::empty())
            .unwrap()
            .into();
    }
    rustix::fs::symlinkat("/etc", &dir, "bottom").unwrap();
}

/// Everything that can be asked about a path.
fn questions(name: &str) -> [(&'static str, Value); 10] {
    let absolute = json!({"path": format!("/workspace/{name}")});
    let relative = json!({ "path": name });
    [
        ("/workspaces/a/read", json!({"path": name, "limit": 5})),
        ("/workspaces/a/read_bytes", relative.clone()),
        ("/workspaces/a/ls", relative.clone()),
        ("/sessions/a/files/read", absolute.clone()),
        ("/sessions/a/files/stat", absolute.clone()),
        ("/sessions/a/files/list", absolute),
        (
            "/sessions/a/read",
            json!({"path": name, "offset": 0, "limit": 5}),
        ),
        ("/sessions/a/read_bytes", relative.clone()),
        ("/sessions/a/exists", relative),
        (
            "/sessions/a/edit",
            json!({"path": name, "old_string": "x", "new_string": "y"}),
        ),
    ]
}

#[test]
fn odd_files_are_answered_promptly_listed_and_removed() {
    let (daemon, api, outside) = start(None);
    api.open_id("a");
    fill_with_odd_files(&api);
    UnixListener::bind(daemon.dir().join("ws/a/workspace/socket")).unwrap();
    make_deep(&daemon.dir().join("ws/a/workspace"));
    let began = Instant::now();
    let call = |path: &str, body: Value| {
        let reply = api.call("POST", path, Some(&body));
        assert!(
            began.elapsed() < PROMPT,
            "{path} {body} took {:?}",
            began.elapsed()
        );
        assert!(
            reply.status < 500,
            "{path} {body}: {} {}",
            reply.status,
            reply.text()
        );
        reply
    };
    for name in ["fifo", "socket", "sparse", "dir", "locked", "locked/f"] {
        for (path, body) in questions(name) {
            call(path, body);
        }
    }
    // A sparse file has no line to end, and is no reason to read a tebibyte.
    let found = call(
        "/sessions/a/grep",
        json!({"pattern": "x", "path": "/workspace"}),
    );
    assert!(found.text().contains("one"), "{}", found.text());
    let globbed = call(
        "/sessions/a/glob",
        json!({"pattern": "*", "path": "/workspace"}),
    );
    assert!(globbed.text().contains("co:lon"), "{}", globbed.text());
    let listed = call("/workspaces/a/ls", json!({"path": "."})).text();
    for name in [
        "fifo",
        "sparse",
        "sp ace",
        "quo'te",
        "co:lon",
        "-dash",
        "new\\nline",
        "name_b64",
    ] {
        assert!(listed.contains(name), "{name}: {listed}");
    }
    call(
        "/workspaces/a/tree",
        json!({"max_depth": 64, "max_entries": 10_000}),
    );
    // One name of a hard link is written, the other keeps what it had.
    call(
        "/sessions/a/write",
        json!({"path": "one", "content_b64": "bmV3"}),
    );
    assert_eq!(api.sh("a", "cat two"), "x");
    api.close("a", "?purge=true");
    let left = daemon.dir().join("ws/a");
    wait("everything of it is gone", Duration::from_secs(20), || {
        (!left.exists()).then_some(())
    });
    is_untouched(&outside);
}
