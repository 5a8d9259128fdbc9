//! Files that only the sandbox sees, worked on as the host works on those of workspaces.

mod answers;

use std::thread;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use answers::{answers, assert_same};

use crate::support::api::{Api, WORKSPACES, at_once, settings};
use crate::support::daemon::Daemon;
use crate::support::docker::{IMAGE, try_docker};

/// Made by `scripts/lib.sh`.
const DEBIAN: &str = "sandboxd-test/debian:latest";
/// Made by `scripts/lib.sh`: the static program `/busybox`, and no other file.
const SCRATCH: &str = "sandboxd-test/scratch:latest";
const BY_ENGINE: (&str, &str) = ("SANDBOXD_EXEC", "docker");
const MIB: usize = 1 << 20;

/// One session of an image.
struct Sandbox {
    _daemon: Daemon,
    api: Api,
}

impl Sandbox {
    fn start(image: &str, changes: &[(&str, &str)]) -> Self {
        assert!(
            try_docker(&["image", "inspect", image]).is_ok(),
            "the image {image} is missing: scripts/test.sh makes it"
        );
        let runtimes = format!("one={image}");
        let mut all = vec![("SANDBOXD_RUNTIMES", runtimes.as_str())];
        all.extend(changes);
        let daemon = Daemon::start(&settings(&all));
        let api = Api::of(&daemon);
        api.open_id("s");
        Self {
            _daemon: daemon,
            api,
        }
    }

    fn ask(&self, op: &str, asked: &Value) -> Value {
        let call = format!("POST /sessions/s/{op}");
        self.api.json(200, &call, Some(asked))
    }

    fn sh(&self, text: &str) -> String {
        self.api.sh("s", text)
    }

    fn write(&self, path: &str, bytes: &[u8]) {
        let asked = json!({"path": path, "content_b64": STANDARD.encode(bytes)});
        let wrote = self.ask("write", &asked);
        assert_eq!(wrote, json!({"path": path, "error": null}));
    }

    fn bytes(&self, path: &str) -> Vec<u8> {
        let read = self.ask("read_bytes", &json!({"path": path}));
        STANDARD
            .decode(read["content_b64"].as_str().unwrap())
            .unwrap()
    }

    fn read(&self, path: &str, offset: usize, limit: usize) -> String {
        let asked = json!({"path": path, "offset": offset, "limit": limit});
        let read = self.ask("read", &asked);
        read["content"].as_str().unwrap().to_owned()
    }

    fn edit(&self, path: &str, old: &str, new: &str) -> Value {
        let asked = json!({"path": path, "old_string": old, "new_string": new});
        self.ask("edit", &asked)
    }

    fn names(&self, path: &str) -> Vec<String> {
        let listed = self.ask("ls", &json!({"path": path}));
        let names = listed.as_array().unwrap().iter();
        names
            .map(|one| one["name"].as_str().unwrap().to_owned())
            .collect()
    }
}

/// Returns text of so many lines, each of 64 bytes.
fn lines(count: usize) -> String {
    let lines: Vec<String> = (0..count).map(|n| format!("{n:063}\n")).collect();
    lines.concat()
}

#[test]
fn answers_are_the_same_for_files_of_the_host_of_the_sandbox_and_without_any_agent() {
    let hosted = Sandbox::start(IMAGE, &[WORKSPACES]);
    let expected = answers(&hosted, "/workspace");
    assert_eq!(
        expected[7]["content"],
        "one\ntwo\n\n[... 1 more lines. Use offset=2 to read more.]"
    );
    assert_eq!(expected[28]["matches"].as_array().unwrap().len(), 1);
    let moved = |root: &str| -> Vec<Value> {
        let text = serde_json::to_string(&expected).unwrap();
        serde_json::from_str(&text.replace("/workspace/", &format!("{root}/"))).unwrap()
    };
    for root in ["/tmp", "/opt/new"] {
        assert_same(&answers(&hosted, root), &moved(root), "beside a workspace");
    }
    for image in [IMAGE, DEBIAN, SCRATCH] {
        let sandbox = Sandbox::start(image, &[]);
        for root in ["/workspace", "/tmp", "/opt/new"] {
            assert_same(
                &answers(&sandbox, root),
                &moved(root),
                &format!("{image} {root}"),
            );
        }
    }
    for image in [IMAGE, DEBIAN] {
        let sandbox = Sandbox::start(image, &[BY_ENGINE]);
        assert_eq!(sandbox.api.info("s")["exec"], "docker");
        let what = format!("{image} by the engine");
        assert_same(&answers(&sandbox, "/tmp"), &moved("/tmp"), &what);
    }
}

/// By hand: `SANDBOXD_TEST_OLD_AGENT=PROGRAM cargo test --test it -- --ignored older_agent`,
/// with the agent of a version that does not work on files.
#[test]
#[ignore = "it needs the program of an older agent"]
fn an_older_agent_goes_on_and_its_files_are_worked_on_by_commands() {
    let old = std::env::var("SANDBOXD_TEST_OLD_AGENT").unwrap();
    let hosted = answers(&Sandbox::start(IMAGE, &[WORKSPACES]), "/workspace");
    let sandbox = Sandbox::start(IMAGE, &[("SANDBOXD_AGENT", &old)]);
    assert_eq!(sandbox.api.info("s")["exec"], "agent");
    let began = Instant::now();
    let answered = answers(&sandbox, "/workspace");
    eprintln!("answered by commands in {:?}", began.elapsed());
    assert_same(&answered, &hosted, "by an older agent");
}

#[test]
fn a_large_file_is_written_and_edited_whole_and_a_slice_of_a_larger_one_is_read() {
    let agent = ("SANDBOXD_EXEC", "agent");
    for (image, exec) in [(SCRATCH, agent), (DEBIAN, agent), (IMAGE, BY_ENGINE)] {
        let changes = [
            ("SANDBOXD_MAX_READ_BYTES", "8000000"),
            ("SANDBOXD_TMPFS_SIZE", "128m"),
            exec,
        ];
        let sandbox = Sandbox::start(image, &changes);
        let mut whole = lines(5 * MIB / 64);
        let began = Instant::now();
        sandbox.write("/tmp/large.txt", whole.as_bytes());
        eprintln!("{image}: 5 MiB written in {:?}", began.elapsed());
        assert_eq!(sandbox.bytes("/tmp/large.txt"), whole.as_bytes());
        let began = Instant::now();
        let edited = sandbox.edit(
            "/tmp/large.txt",
            &format!("{:063}", 40_000),
            "the one\nand another",
        );
        eprintln!("{image}: 5 MiB edited in {:?}", began.elapsed());
        assert_eq!(edited["occurrences"], 1, "{edited}");
        whole = whole.replace(&format!("{:063}", 40_000), "the one\nand another");
        assert_eq!(sandbox.bytes("/tmp/large.txt"), whole.as_bytes());
        // Only what is read of it is bounded.
        assert_eq!(sandbox.names("/tmp"), ["large.txt"]);
        if image != DEBIAN {
            continue;
        }
        sandbox.sh("seq -f %063.0f 0 1048575 > /tmp/huge.txt");
        let began = Instant::now();
        let slice = sandbox.read("/tmp/huge.txt", 1_000_000, 2);
        eprintln!("{image}: two lines of 64 MiB read in {:?}", began.elapsed());
        let expected = format!(
            "{:063}\n{:063}\n\n[... 48574 more lines. Use offset=1000002 to read more.]",
            1_000_000, 1_000_001
        );
        assert_eq!(slice, expected);
        assert_eq!(sandbox.read("/tmp/huge.txt", 1_048_576, 2), "[End of file]");
        let refused = "[Error: File is 67108864 bytes, over the 8000000-byte read limit.";
        let all = sandbox.read("/tmp/huge.txt", 0, 1_048_576);
        assert!(all.starts_with(refused), "{all}");
        assert_eq!(sandbox.bytes("/tmp/huge.txt"), b"");
        let edited = sandbox.edit("/tmp/huge.txt", "1", "2");
        assert!(
            edited["error"]
                .as_str()
                .unwrap()
                .starts_with("File is 67108864 bytes"),
            "{edited}"
        );
        // In another encoding the lines can only be told by reading all of it.
        sandbox.sh("head -c 4000000 /tmp/huge.txt | iconv -t UTF-16 > /tmp/wide.txt");
        let slice = sandbox.read("/tmp/wide.txt", 60_000, 1);
        assert!(
            slice.contains(" more lines. Use offset=60001 to read more.]"),
            "{slice}"
        );
    }
}

#[test]
fn a_directory_of_many_names_is_listed_and_searched_whole() {
    for changes in [&[][..], &[BY_ENGINE]] {
        let sandbox = Sandbox::start(IMAGE, changes);
        sandbox.sh("mkdir /tmp/many && cd /tmp/many && seq -w 20000 | sed 's/^/a-rather-long-name-number-/' | xargs touch && echo found > a-rather-long-name-number-20000");
        let began = Instant::now();
        let names = sandbox.names("/tmp/many");
        eprintln!("20,000 names listed in {:?}", began.elapsed());
        assert_eq!(names.len(), 20_000);
        assert_eq!(names[19_999], "a-rather-long-name-number-20000");
        let globbed = sandbox.ask("glob", &json!({"pattern": "*-1?999", "path": "/tmp/many"}));
        assert_eq!(globbed.as_array().unwrap().len(), 10);
        let began = Instant::now();
        let grepped = sandbox.ask("grep", &json!({"pattern": "found", "path": "/tmp/many"}));
        eprintln!("20,000 files searched in {:?}", began.elapsed());
        let expected = json!([{"path": "/tmp/many/a-rather-long-name-number-20000", "line_number": 1, "line": "found"}]);
        assert_eq!(grepped["matches"], expected);
    }
}

#[test]
fn names_survive_whatever_is_in_them() {
    let sandbox = Sandbox::start(IMAGE, &[]);
    sandbox.sh(
        r#"mkdir /tmp/odd && cd /tmp/odd && echo it > 'a b' && echo it > "line
feed" && echo it > "it's \"quoted\"" && echo it > -rf && echo it > "$(printf 'bad\377')" && mkdir "$(printf 'dir\376')" && echo it > "$(printf 'dir\376')/f""#,
    );
    let listed = sandbox.ask("ls", &json!({"path": "/tmp/odd"}));
    let names: Vec<&str> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "dir\u{fffd}",
            "-rf",
            "a b",
            "bad\u{fffd}",
            "it's \"quoted\"",
            "line\nfeed"
        ]
    );
    assert_eq!(listed[3]["name_b64"], STANDARD.encode(b"bad\xff"));
    let globbed = sandbox.ask("glob", &json!({"pattern": "*", "path": "/tmp/odd"}));
    assert_eq!(globbed.as_array().unwrap().len(), 6);
    let grepped = sandbox.ask("grep", &json!({"pattern": "^it$", "path": "/tmp/odd"}));
    let paths: Vec<&str> = grepped["matches"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["path"].as_str().unwrap())
        .collect();
    let expected = [
        "/tmp/odd/-rf",
        "/tmp/odd/a b",
        "/tmp/odd/bad\u{fffd}",
        "/tmp/odd/dir\u{fffd}/f",
        "/tmp/odd/it's \"quoted\"",
        "/tmp/odd/line\nfeed",
    ];
    assert_eq!(paths, expected);
    for name in ["a b", "line\nfeed", "it's \"quoted\"", "-rf"] {
        let path = format!("/tmp/odd/{name}");
        assert_eq!(sandbox.bytes(&path), b"it\n");
        sandbox.write(&path, b"written");
        assert_eq!(sandbox.bytes(&path), b"written");
    }
    let long = format!("/tmp/{}", "n".repeat(300));
    assert_eq!(
        sandbox.read(&long, 0, 1),
        format!("Error: File '{long}' not found")
    );
}

#[test]
fn links_are_followed_as_commands_follow_them_and_what_is_no_file_is_refused() {
    let sandbox = Sandbox::start(IMAGE, &[WORKSPACES]);
    sandbox.sh(
        "cd /workspace && echo outside > /tmp/f && ln -s /tmp/f link && ln -s link twice && ln -s /tmp/new dangling && ln -s loop loop && mkdir /tmp/d && ln -s /tmp/d dir && mkfifo /tmp/fifo && echo in > /tmp/d/x",
    );
    assert_eq!(sandbox.bytes("link"), b"outside\n");
    assert_eq!(sandbox.read("twice", 0, 9), "outside");
    let edited = sandbox.edit("twice", "outside", "changed");
    assert_eq!(edited["path"], "/workspace/twice", "{edited}");
    assert_eq!(sandbox.sh("cat /tmp/f; ls -l | grep -c ^l"), "changed\n5");
    let wrote = sandbox.ask(
        "write",
        &json!({"path": "dangling", "content_b64": STANDARD.encode("new")}),
    );
    assert_eq!(wrote["error"], Value::Null);
    assert_eq!(sandbox.sh("cat /tmp/new"), "new");
    assert_eq!(
        sandbox.ask("exists", &json!({"path": "twice"}))["exists"],
        true
    );
    assert_eq!(
        sandbox.ask("exists", &json!({"path": "loop"}))["exists"],
        false
    );
    assert_eq!(sandbox.names("dir"), ["x"]);
    assert_eq!(sandbox.names("/tmp/d/../d"), ["x"]);
    let told = sandbox.read("loop", 0, 1);
    assert!(told.contains("Too many levels of symbolic links"), "{told}");
    for path in ["/tmp/fifo", "/dev/zero", "/dev/tty"] {
        let name = path.rsplit('/').next().unwrap();
        let told = sandbox.read(path, 0, 1);
        assert_eq!(
            told,
            format!("[Error reading file: {name} is not a regular file]")
        );
        assert_eq!(sandbox.bytes(path), b"");
        let wrote = sandbox.ask("write", &json!({"path": path, "content_b64": ""}));
        assert!(
            wrote["error"]
                .as_str()
                .unwrap()
                .contains("not a regular file"),
            "{wrote}"
        );
    }
    // What says that it is empty is read all the same.
    assert!(sandbox.read("/proc/self/status", 0, 1).starts_with("Name:"));
    assert!(!sandbox.bytes("/proc/version").is_empty());
    // What the kernel tells of itself is not walked through.
    let grepped = sandbox.ask(
        "grep",
        &json!({"pattern": "^changed$", "path": "/", "glob": "f"}),
    );
    assert_eq!(grepped["matches"][0]["path"], "/tmp/f", "{grepped}");
    let skipped: Vec<&str> = grepped["skipped"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["path"].as_str().unwrap())
        .collect();
    assert!(
        skipped.contains(&"/proc") && skipped.contains(&"/sys"),
        "{grepped}"
    );
}

#[test]
fn a_file_keeps_its_mode_and_owner_and_what_is_mounted_is_written_to_in_its_place() {
    let root = Sandbox::start(IMAGE, &[]);
    root.sh(
        "echo a > /tmp/f && chown 77:88 /tmp/f && chmod 640 /tmp/f && cp /etc/hosts /tmp/hosts",
    );
    root.write("/tmp/f", b"b");
    assert_eq!(root.edit("/tmp/f", "b", "c")["occurrences"], 1);
    assert_eq!(
        root.sh("stat -c '%a %u %g' /tmp/f; cat /tmp/f"),
        "640 77 88\nc"
    );
    root.write("/tmp/new/f", b"b");
    assert_eq!(
        root.sh("stat -c '%a %u %g' /tmp/new /tmp/new/f"),
        "755 0 0\n644 0 0"
    );
    // Something is mounted there: it is written to in its place.
    assert_eq!(
        root.edit("/etc/hosts", "127.0.0.1", "127.0.0.2")["occurrences"],
        1
    );
    assert!(root.sh("cat /etc/hosts").starts_with("127.0.0.2"));
}

#[test]
fn nobody_sees_half_of_a_file_and_edits_at_once_lose_nothing() {
    let sandbox = Sandbox::start(IMAGE, &[("SANDBOXD_MAX_SESSION_COMMANDS", "64")]);
    sandbox.write("/tmp/whole", &vec![b'a'; 4 * MIB]);
    // Looks at the file for as long as it is written, and counts what is neither.
    sandbox.sh("(while [ ! -e /tmp/over ]; do n=$(wc -c < /tmp/whole); [ $n = 4194304 ] || echo $n >> /tmp/odd; done; touch /tmp/seen) >/dev/null 2>&1 &");
    for letter in b'b'..=b'h' {
        sandbox.write("/tmp/whole", &vec![letter; 4 * MIB]);
    }
    sandbox.write("/tmp/over", b"");
    assert_eq!(
        sandbox.sh(
            "while [ ! -e /tmp/seen ]; do sleep 0.1; done; cat /tmp/odd 2>/dev/null; ls -A /tmp"
        ),
        "over\nseen\nwhole"
    );
    let slots: Vec<String> = (0..8).map(|n| format!("slot{n}=old\n")).collect();
    let slots = slots.concat();
    sandbox.write("/tmp/edited", slots.as_bytes());
    at_once(8, |n| {
        let edited = sandbox.edit(
            "/tmp/edited",
            &format!("slot{n}=old"),
            &format!("slot{n}=new"),
        );
        assert_eq!(edited["occurrences"], 1, "{edited}");
    });
    assert_eq!(
        sandbox.bytes("/tmp/edited"),
        slots.replace("old", "new").as_bytes()
    );
}

#[test]
fn a_file_that_becomes_a_fifo_again_and_again_keeps_nobody_waiting() {
    let sandbox = Sandbox::start(IMAGE, &[("SANDBOXD_EXECUTE_TIMEOUT", "20")]);
    sandbox.sh("mkdir /tmp/t; (cd /tmp/t; while [ ! -e over ]; do echo text > f.new; mv f.new f; mkfifo p; mv p f; ln -s /etc l; mv -T l f; rm -f f; done) >/dev/null 2>&1 &");
    let end = Instant::now() + Duration::from_secs(5);
    let mut seen = std::collections::BTreeMap::<String, usize>::new();
    let mut slowest = Duration::ZERO;
    while Instant::now() < end {
        let began = Instant::now();
        *seen.entry(sandbox.read("/tmp/t/f", 0, 9)).or_default() += 1;
        let grepped = sandbox.ask("grep", &json!({"pattern": "text|root", "path": "/tmp/t"}));
        assert_eq!(grepped["error"], Value::Null, "{grepped}");
        let wrote = sandbox.ask(
            "write",
            &json!({"path": "/tmp/t/f", "content_b64": STANDARD.encode("text\n")}),
        );
        *seen.entry(format!("write {}", wrote["error"])).or_default() += 1;
        slowest = slowest.max(began.elapsed());
    }
    eprintln!("slowest {slowest:?}: {seen:#?}");
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
    assert!(seen.contains_key("text"));
    sandbox.write("/tmp/t/over", b"");
    thread::sleep(Duration::from_millis(300));
    assert!(
        !sandbox
            .names("/tmp/t")
            .iter()
            .any(|name| name.contains("sandboxd"))
    );
}

#[test]
fn a_sandbox_that_stops_or_kills_whatever_works_on_its_files_harms_only_its_own_answers() {
    let sandbox = Sandbox::start(IMAGE, &[("SANDBOXD_EXECUTE_TIMEOUT", "3")]);
    // Reading it takes so long that what does so is found.
    sandbox.sh("yes text | head -c 30000000 > /tmp/f");
    let text = "text\n\n[... 5999999 more lines. Use offset=1 to read more.]";
    let attack = |signal: &str| {
        sandbox.sh(&format!(
            "(while [ ! -e /tmp/over ]; do killall -{signal} sandbox-files; done) >/dev/null 2>&1 &"
        ));
    };
    attack("STOP");
    let asked = json!({"path": "/tmp/f", "limit": 1});
    let mut refused = 0;
    for _ in 0..3 {
        let began = Instant::now();
        let reply = sandbox.api.call("POST", "/sessions/s/read", Some(&asked));
        assert!(
            began.elapsed() < Duration::from_secs(8),
            "{:?}",
            began.elapsed()
        );
        match reply.status {
            200 => assert_eq!(reply.json().unwrap()["content"], text),
            504 => refused += 1,
            other => panic!("{other}: {}", reply.text()),
        }
        // Meanwhile commands run, and files are written by the host or read by others.
        assert_eq!(sandbox.sh("head -n 1 /tmp/f"), "text");
    }
    eprintln!("{refused} of 3 readings were late");
    sandbox.sh("touch /tmp/over; sleep 0.2; rm /tmp/over");
    assert_eq!(sandbox.read("/tmp/f", 0, 1), text);
    attack("KILL");
    let (mut whole, mut broken) = (0, 0);
    for _ in 0..20 {
        let read = sandbox.read("/tmp/f", 0, 1);
        if read == text {
            whole += 1;
        } else {
            assert!(read.starts_with("[Error reading file: "), "{read}");
            broken += 1;
        }
    }
    eprintln!("{whole} readings were whole, {broken} broken off");
    sandbox.sh("touch /tmp/over; sleep 0.2");
    assert_eq!(sandbox.read("/tmp/f", 0, 1), text);
    let left = sandbox.sh("ps | grep -c '[s]andbox-files\\|[/]proc/self/exe files' || true");
    assert_eq!(left, "0");
}

#[test]
fn a_full_file_system_keeps_what_was_there_and_nothing_else() {
    let sandbox = Sandbox::start(SCRATCH, &[("SANDBOXD_TMPFS_SIZE", "1m")]);
    sandbox.write("/tmp/f", b"old");
    let large = STANDARD.encode(vec![7; 2 * MIB]);
    let wrote = sandbox.ask("write", &json!({"path": "/tmp/f", "content_b64": large}));
    let expected = "Failed to write file: No space left on device";
    assert_eq!(wrote, json!({"path": null, "error": expected}));
    assert_eq!(sandbox.bytes("/tmp/f"), b"old");
    assert_eq!(sandbox.names("/tmp"), ["f"]);
    sandbox.write("/tmp/f", &vec![7; MIB / 2]);
}
