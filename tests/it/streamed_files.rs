//! Files of any size, sent and taken in as they come, and what is told of their changes.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::{Value, json};

use crate::disk::SmallDisk;
use crate::support::api::{at_once, wait};
use crate::support::daemon::Ending;
use crate::support::file_case::{FileCase, bytes, code, sha256};
use crate::support::http::read_response;
use crate::support::weight::Weight;

const SECRET: &str = "secret of the host";
/// Streamed readings and writings under an attack.
const ATTACKED: usize = 5_000;
const SOON: Duration = Duration::from_secs(10);

#[test]
fn a_file_is_sent_whole_or_in_part_and_only_if_it_is_another() {
    let case = FileCase::new(&[("SANDBOXD_MAX_READ_BYTES", "1000")]);
    let content = bytes(700_001);
    fs::write(case.host("f"), &content).unwrap();
    let whole = case.get("path=f", &[]);
    assert_eq!((whole.status, &whole.body), (200, &content));
    let etag = whole.header("etag").unwrap().to_owned();
    for (name, value) in [
        ("content-length", "700001"),
        ("accept-ranges", "bytes"),
        ("content-type", "application/octet-stream"),
        ("x-content-type-options", "nosniff"),
        ("content-disposition", "attachment; filename*=UTF-8''f"),
    ] {
        assert_eq!(whole.header(name), Some(value), "{name}");
    }
    assert!(whole.header("last-modified").unwrap().ends_with(" GMT"));

    let part = case.get("path=/workspace/f", &[("range", "bytes=262143-600000")]);
    assert_eq!(
        (part.status, &*part.body),
        (206, &content[262_143..=600_000])
    );
    assert_eq!(
        part.header("content-range"),
        Some("bytes 262143-600000/700001")
    );
    let several = case.get("path=f", &[("range", "bytes=0-1,4-5")]);
    assert_eq!((several.status, several.body.len()), (200, content.len()));
    let beyond = case.get("path=f", &[("range", "bytes=700001-")]);
    assert_eq!((beyond.status, code(&beyond)), (416, json!("out_of_range")));
    assert_eq!(beyond.header("content-range"), Some("bytes */700001"));

    let known = case.get("path=f", &[("if-none-match", &etag)]);
    assert_eq!((known.status, known.header("etag")), (304, Some(&*etag)));
    let other = case.get("path=f", &[("if-match", "\"other\"")]);
    assert_eq!(
        (other.status, code(&other)),
        (412, json!("precondition_failed"))
    );
    let range = ("range", "bytes=0-9");
    assert_eq!(
        case.get("path=f", &[("if-range", &etag), range]).status,
        206
    );
    fs::write(case.host("f"), &content[1..]).unwrap();
    assert_eq!(
        case.get("path=f", &[("if-range", &etag), range]).status,
        200
    );
    assert_eq!(case.get("path=f", &[("if-none-match", &etag)]).status, 200);

    let (mut stream, head) = case.begin("HEAD", "/sessions/s/file?path=f");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(head.contains("content-length: 700000\r\n"), "{head}");
    assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap(), 0);
}

#[test]
fn the_files_of_a_closed_session_are_sent_without_it() {
    let case = FileCase::new(&[]);
    let content = bytes(300_000);
    fs::write(case.host("f"), &content).unwrap();
    std::os::unix::fs::symlink("f", case.host("link")).unwrap();
    let etag = case.get("path=f", &[]).header("etag").unwrap().to_owned();
    case.api.close("s", "");
    let stored = |path: &str| {
        case.api
            .call("GET", &format!("/workspaces/s/file?path={path}"), None)
    };
    let whole = stored("f");
    assert_eq!((whole.status, &whole.body), (200, &content));
    assert_eq!(whole.header("etag"), Some(&*etag));
    for (path, status, expected) in [
        ("link", 400, "outside_workspace"),
        ("../s", 400, "outside_workspace"),
        ("nowhere", 404, "no_file"),
    ] {
        let refused = stored(path);
        assert_eq!(
            (refused.status, code(&refused)),
            (status, json!(expected)),
            "{path}"
        );
    }
    assert_eq!(case.get("path=f", &[]).status, 404);
}

#[test]
fn an_upload_is_there_whole_or_not_at_all_and_only_where_it_is_expected() {
    let case = FileCase::new(&[("SANDBOXD_MAX_UPLOAD_BYTES", "3000000")]);
    let content = bytes(3_000_000);
    let new = case.put("path=a/b/f", &[("if-none-match", "*")], &content);
    assert_eq!(new.status, 201, "{}", new.text());
    let told = new.json().unwrap();
    assert_eq!(told["path"], "/workspace/a/b/f");
    assert_eq!(told["size"], 3_000_000);
    assert_eq!(told["sha256"], sha256(&content));
    let etag = new.header("etag").unwrap().to_owned();
    assert_eq!(etag, format!("\"{}\"", told["etag"].as_str().unwrap()));
    assert_eq!(fs::read(case.host("a/b/f")).unwrap(), content);
    assert_eq!(case.get("path=a/b/f", &[]).header("etag"), Some(&*etag));
    assert_eq!(
        case.api.sh("s", "sha256sum a/b/f | cut -c1-64"),
        sha256(&content)
    );

    fs::set_permissions(case.host("a/b/f"), fs::Permissions::from_mode(0o751)).unwrap();
    let stale = case.put("path=a/b/f", &[("if-match", &etag)], b"stale");
    assert_eq!(
        (stale.status, code(&stale)),
        (412, json!("precondition_failed"))
    );
    let there = case.put("path=a/b/f", &[("if-none-match", "*")], b"there");
    assert_eq!(there.status, 412);
    let digest = format!("\"{}\"", sha256(&content));
    let replaced = case.put("path=a/b/f", &[("if-match", &digest)], b"new");
    assert_eq!(replaced.status, 200, "{}", replaced.text());
    assert_eq!(fs::read(case.host("a/b/f")).unwrap(), b"new");
    let mode = fs::metadata(case.host("a/b/f"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o751, "its mode stays");

    let large = case.put("path=a/b/f", &[], &bytes(3_000_001));
    assert_eq!((large.status, code(&large)), (413, json!("file_too_large")));
    for path in ["path=a", "path=a/b/f/g", "path=."] {
        let refused = case.put(path, &[], b"x");
        assert_eq!(
            (refused.status, code(&refused)),
            (409, json!("unwritable_file")),
            "{path}"
        );
    }
    assert_eq!(case.api.sh("s", "cd a/b; ls -A; cat f"), "f\nnew");
}

#[test]
fn an_upload_that_breaks_off_leaves_the_old_content_and_nothing_else() {
    let mut case = FileCase::new(&[]);
    fs::write(case.host("f"), "old").unwrap();
    for framing in ["content-length: 1000000", "transfer-encoding: chunked"] {
        let (name, value) = framing.split_once(": ").unwrap();
        let request = FileCase::request("PUT", "path=f", &[(name, value)]);
        let mut stream = case.api.http().begin(&request).unwrap();
        write!(stream, "8000\r\n").unwrap();
        stream.write_all(&bytes(0x8000)).unwrap();
        stream.shutdown(Shutdown::Both).unwrap();
    }
    let told = wait("both are on record", SOON, || {
        let events = case.api.events("s");
        let events = events["events"].as_array().unwrap();
        let uploads = events.iter().filter(|event| event["op"] == "upload");
        let oks: Vec<Value> = uploads.map(|event| event["ok"].clone()).collect();
        (oks.len() == 2).then_some(oks)
    });
    assert_eq!(told, [json!(false), json!(false)]);
    assert_eq!(fs::read(case.host("f")).unwrap(), b"old");
    assert_eq!(case.api.sh("s", "ls -A"), "f");

    let request = FileCase::request("PUT", "path=f", &[("content-length", "9000000")]);
    let mut stream = case.api.http().begin(&request).unwrap();
    // What is sent and taken is being written by now.
    stream.write_all(&bytes(8_000_000)).unwrap();
    case.daemon.restart(Ending::Kill);
    assert_eq!(fs::read(case.host("f")).unwrap(), b"old");
    assert_eq!(case.api.sh("s", "ls -A"), "f");
}

#[test]
fn a_full_disk_refuses_an_upload_and_keeps_the_old_content_alone() {
    for disk in [SmallDisk::mount("8m"), SmallDisk::ext4(16)] {
        let root = disk.path().join("ws");
        let case = FileCase::new(&[("SANDBOXD_WORKSPACE_ROOT", root.to_str().unwrap())]);
        assert_eq!(case.put("path=f", &[], b"old").status, 201);
        let refused = case.put("path=f", &[], &bytes(24 << 20));
        assert_eq!(refused.status, 507, "{}", refused.text());
        assert_eq!(code(&refused), "no_space");
        assert_eq!(case.api.sh("s", "ls -A; cat f"), "f\nold");
        let again = case.put("path=f", &[], &bytes(1 << 20));
        assert_eq!(again.status, 200, "{}", again.text());
    }
}

#[test]
fn no_byte_leaves_or_enters_through_a_directory_that_becomes_a_link() {
    let case = FileCase::new(&[]);
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("f"), SECRET).unwrap();
    let target = outside.path().display();
    // In the sandbox the same path leads to a directory of its own, which it may show.
    case.api.sh(
        "s",
        &format!("mkdir -p d {target}; echo own > {target}/f; echo inside > d/f; ln -s {target} l"),
    );
    let (one, other) = (case.host("d"), case.host("l"));
    let is_over = AtomicBool::new(false);
    let (n_read, n_written, n_exchanged) = (
        AtomicUsize::new(0),
        AtomicUsize::new(0),
        AtomicUsize::new(0),
    );
    std::thread::scope(|scope| {
        // From the host, since busybox cannot: nothing is ever missing then.
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).unwrap();
                n_exchanged.fetch_add(1, Ordering::Relaxed);
            }
        });
        let used = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            at_once(4, |nth| {
                for _ in 0..ATTACKED / 4 {
                    if nth % 2 == 0 {
                        let read = case.get("path=d/f", &[]);
                        assert!(!read.text().contains(SECRET), "{}", read.text());
                        n_read.fetch_add(usize::from(read.text() == "inside\n"), Ordering::Relaxed);
                    } else {
                        let written = case.put("path=d/g", &[], b"by the caller");
                        n_written.fetch_add(usize::from(written.status < 300), Ordering::Relaxed);
                    }
                }
            })
        }));
        is_over.store(true, Ordering::Relaxed);
        if let Err(panic) = used {
            std::panic::resume_unwind(panic);
        }
    });
    let names: Vec<_> = fs::read_dir(outside.path()).unwrap().collect();
    assert_eq!(names.len(), 1, "nothing was added outside: {names:?}");
    assert_eq!(
        fs::read_to_string(outside.path().join("f")).unwrap(),
        SECRET
    );
    let counts = [n_read, n_written, n_exchanged].map(AtomicUsize::into_inner);
    assert!(counts.iter().all(|count| 100 < *count), "{counts:?}");
    let [read, written, exchanged] = counts;
    eprintln!("of {ATTACKED}: {read} read inside, {written} written, {exchanged} exchanges");
}

#[test]
fn files_of_a_gibibyte_leave_the_memory_of_the_daemon_as_it_is() {
    const SPREAD_KIB: usize = 24 << 10;
    let case = FileCase::new(&[]);
    fs::File::create(case.host("huge"))
        .unwrap()
        .set_len(1 << 30)
        .unwrap();
    fs::write(case.host("small"), bytes(1 << 20)).unwrap();
    assert_eq!(case.get("path=small", &[]).status, 200);
    assert_eq!(case.put("path=small", &[], &bytes(1 << 20)).status, 200);
    let weight = Weight(case.daemon.pid());
    let before = weight.resident_kib();
    let began = Instant::now();
    let (mut stream, head) = case.begin("GET", "/sessions/s/file?path=huge");
    assert!(head.contains("content-length: 1073741824\r\n"), "{head}");
    let mut buffer = vec![1; 1 << 20];
    let mut n_bytes = 0;
    loop {
        match stream.read(&mut buffer).unwrap() {
            0 => break,
            n => n_bytes += n,
        }
    }
    assert_eq!(n_bytes, 1 << 30);
    eprintln!("1 GiB out in {:?}", began.elapsed());

    let began = Instant::now();
    let request = FileCase::request("PUT", "path=in", &[("content-length", "67108864")]);
    let mut stream = case.api.http().begin(&request).unwrap();
    for _ in 0..64 {
        stream.write_all(&buffer).unwrap();
    }
    let reply = read_response(&mut BufReader::new(stream)).unwrap();
    assert_eq!(reply.status, 201, "{}", reply.text());
    eprintln!("64 MiB in within {:?}", began.elapsed());
    let peak = weight.resident_kib_peak();
    assert!(
        peak < before + SPREAD_KIB,
        "{before} KiB before, {peak} KiB at most"
    );
}

#[test]
fn a_download_ends_broken_where_its_file_shrinks_and_in_time_where_it_grows() {
    let case = FileCase::new(&[]);
    let length = 64 << 20;
    let content = bytes(length);
    for (name, then) in [("shrinks", 1_000), ("grows", 65 << 20)] {
        fs::write(case.host(name), &content).unwrap();
        let (mut stream, _) = case.begin("GET", &format!("/sessions/s/file?path={name}"));
        let file = fs::OpenOptions::new()
            .write(true)
            .open(case.host(name))
            .unwrap();
        file.set_len(then).unwrap();
        let mut got = Vec::new();
        // It may be told by a reset too.
        match stream.read_to_end(&mut got) {
            Ok(_) | Err(_) => {}
        }
        assert!(content.starts_with(&got), "{name}");
        assert_eq!(
            got.len() == length,
            name == "grows",
            "{name}: {}",
            got.len()
        );
    }
}

#[test]
fn a_download_keeps_its_session_open_but_no_caller_from_closing_it() {
    let case = FileCase::new(&[
        ("SANDBOXD_IDLE_TIMEOUT", "2"),
        ("SANDBOXD_CLEANUP_INTERVAL", "1"),
    ]);
    fs::File::create(case.host("huge"))
        .unwrap()
        .set_len(1 << 30)
        .unwrap();
    let before = Weight(case.daemon.pid()).descriptors();
    let (stream, _) = case.begin("GET", "/sessions/s/file?path=huge");
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(case.api.call("GET", "/sessions/s", None).status, 200);
    drop(stream);
    wait("the idle session is closed", SOON * 2, || {
        (case.api.call("GET", "/sessions/s", None).status == 404).then_some(())
    });
    case.api.open_id("s");
    let (stream, _) = case.begin("GET", "/sessions/s/file?path=huge");
    let began = Instant::now();
    case.api.close("s", "?purge=true");
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    drop(stream);
    wait("nothing is left open", SOON, || {
        (Weight(case.daemon.pid()).descriptors() <= before + 4).then_some(())
    });
}

#[test]
fn what_only_the_sandbox_sees_is_streamed_within_the_bounds_of_such_work() {
    let case = FileCase::new(&[("SANDBOXD_MAX_READ_BYTES", "100000")]);
    let content = bytes(100_000);
    let put = case.put("path=/tmp/f", &[], &content);
    assert_eq!(put.status, 200, "{}", put.text());
    assert_eq!(put.json().unwrap()["sha256"], sha256(&content));
    let got = case.get("path=/tmp/f", &[("range", "bytes=10-19")]);
    assert_eq!((got.status, &*got.body), (206, &content[10..20]));
    let etag = got.header("etag").unwrap();
    assert_eq!(
        case.get("path=/tmp/f", &[("if-none-match", etag)]).status,
        304
    );
    case.api.sh(
        "s",
        "ln -s /tmp/f link; head -c 100001 /dev/zero > /tmp/large",
    );
    assert_eq!(case.get("path=link", &[]).body, content);
    let large = case.get("path=/tmp/large", &[]);
    assert_eq!((large.status, code(&large)), (413, json!("file_too_large")));
    let large = case.put("path=/tmp/f", &[], &bytes(100_001));
    assert_eq!((large.status, code(&large)), (413, json!("file_too_large")));
    let conditional = case.put("path=/tmp/f", &[("if-none-match", "*")], b"x");
    assert_eq!(
        (conditional.status, code(&conditional)),
        (409, json!("by_sandbox"))
    );
    assert_eq!(case.get("path=/tmp", &[]).status, 400);
    assert_eq!(case.get("path=/tmp/nowhere", &[]).status, 404);
    assert_eq!(case.get("path=/tmp/f", &[]).body, content);
}

#[test]
fn a_write_or_edit_replaces_only_the_file_that_if_match_names() {
    let case = FileCase::new(&[]);
    let post = |op: &str, body: &Value| {
        case.api
            .call("POST", &format!("/sessions/s/{op}"), Some(body))
    };
    let write = |if_match: &str| {
        let body = json!({"path": "f", "content_b64": "b25l", "if_match": if_match});
        post("write", &body)
    };
    assert_eq!(code(&write("1-2")), "file_changed", "nothing is there");
    let first = post("write", &json!({"path": "f", "content_b64": "b25l"}));
    let etag = first.json().unwrap()["etag"].as_str().unwrap().to_owned();
    for tag in [etag.clone(), sha256(b"one")] {
        let written = write(&tag);
        assert_eq!(
            written.json().unwrap()["error"],
            Value::Null,
            "{}",
            written.text()
        );
    }
    let refused = write(&etag);
    assert_eq!(
        (refused.status, code(&refused)),
        (409, json!("file_changed"))
    );
    let edit = |if_match: &str| {
        post(
            "edit",
            &json!({"path": "f", "old_string": "one", "new_string": "two", "if_match": if_match}),
        )
    };
    assert_eq!(code(&edit(&sha256(b"other"))), "file_changed");
    let edited = edit(&sha256(b"one")).json().unwrap();
    assert_eq!(edited["occurrences"], 1, "{edited}");
    let read = post("read_bytes", &json!({"path": "f"})).json().unwrap();
    assert_eq!(
        (&read["content_b64"], &read["etag"]),
        (&json!("dHdv"), &edited["etag"])
    );
}

#[test]
fn a_name_that_is_not_utf_8_is_used_by_its_bytes() {
    let case = FileCase::new(&[]);
    let b64 = "ZC/mLnR4dA=="; // d/\xe6.txt
    let put = case.put("path_b64=ZC_mLnR4dA", &[], b"one");
    assert_eq!(put.status, 201, "{}", put.text());
    assert_eq!(case.get("path_b64=ZC%2FmLnR4dA%3D%3D", &[]).text(), "one");
    assert_eq!(
        case.api.sh(
            "s",
            "cd d; for f in *; do printf %s \"$f\" | od -An -tx1 | tr -d ' '; done"
        ),
        "e62e747874"
    );
    let post = |op: &str, body: Value| {
        let reply = case
            .api
            .call("POST", &format!("/sessions/s/{op}"), Some(&body));
        assert_eq!(reply.status, 200, "{op}: {}", reply.text());
        reply
    };
    let listed = post("ls", json!({"path": "d"})).json().unwrap();
    assert_eq!(listed[0]["name_b64"], "5i50eHQ=");
    assert_eq!(listed[0]["path_b64"], b64);
    let found = post("glob", json!({"pattern": "*.txt"})).json().unwrap();
    assert_eq!(found[0]["path_b64"], b64);
    let read = post("read", json!({"path_b64": b64})).json().unwrap();
    assert_eq!(read["content"], "one");
    let edit = json!({"path_b64": b64, "old_string": "one", "new_string": "two"});
    assert_eq!(post("edit", edit).json().unwrap()["occurrences"], 1);
    let whole = json!({"path_b64": "L3dvcmtzcGFjZS9kL+YudHh0"});
    assert_eq!(post("files/read", whole.clone()).text(), "two");
    let stored = case.api.call(
        "POST",
        "/workspaces/s/read_bytes",
        Some(&json!({"path_b64": b64})),
    );
    assert_eq!(stored.json().unwrap()["content_b64"], "dHdv");
    assert_eq!(
        post("exists", json!({"path_b64": b64})).json().unwrap()["exists"],
        true
    );
    for body in [
        json!({"path": "f", "path_b64": b64}),
        json!({"path_b64": "*"}),
        json!({}),
    ] {
        let refused = case.api.call("POST", "/sessions/s/read", Some(&body));
        assert_eq!(refused.status, 422, "{body}: {}", refused.text());
    }
    let outside = json!({"path_b64": "L3RtcC/m"});
    let refused = case.api.call("POST", "/sessions/s/read", Some(&outside));
    assert_eq!((refused.status, code(&refused)), (409, json!("by_sandbox")));
}

#[test]
fn a_session_that_sleeps_is_not_woken_for_its_files() {
    let case = FileCase::new(&[
        ("SANDBOXD_MAX_SESSIONS", "1"),
        ("SANDBOXD_EVICT_IDLE_AFTER", "0"),
    ]);
    case.api.sh("s", "echo kept > f");
    case.api.open_id("t");
    assert_eq!(case.api.wait_for("s", "hibernated")["state"], "hibernated");
    let etag = case.get("path=f", &[]).header("etag").unwrap().to_owned();
    let put = case.put("path=f", &[("if-match", &etag)], b"new");
    assert_eq!(put.status, 200, "{}", put.text());
    let (mut watch, _) = case.begin("GET", "/sessions/s/files/watch");
    assert_eq!(case.put("path=g", &[], b"x").status, 201);
    let mut told = String::new();
    while !told.contains("./g\"}") {
        assert_ne!(watch.read_line(&mut told).unwrap(), 0, "{told}");
    }
    assert_eq!(case.api.info("s")["phase"], "hibernated");
    // What only the sandbox sees takes one, and tells that it is another.
    let woken = case.put("path=/tmp/f", &[], b"x");
    assert_eq!(woken.status, 200, "{}", woken.text());
    assert_eq!(woken.json().unwrap()["reset_reason"], "hibernated");
    assert_eq!(case.api.sh("s", "cat f g"), "newx");
}

#[test]
fn transfers_beyond_what_a_session_may_have_are_told_to_come_back() {
    let case = FileCase::new(&[]);
    let huge = fs::File::create(case.host("huge")).unwrap();
    huge.set_len(1 << 30).unwrap();
    let begin = |_| case.begin("GET", "/sessions/s/file?path=huge");
    let streams: Vec<_> = (0..32).map(begin).collect();
    let refused = case.get("path=huge", &[]);
    assert_eq!(
        (refused.status, code(&refused)),
        (429, json!("file_ceiling"))
    );
    assert!(refused.header("retry-after").is_some());
    let ceiling = &refused.json().unwrap()["ceiling"];
    assert_eq!(ceiling["scope"], "session:s");
    assert_eq!(
        (&ceiling["limit"], &ceiling["used"]),
        (&json!(32), &json!(32))
    );
    assert_eq!(case.api.sh("s", "echo hi"), "hi", "commands have their own");
    drop(streams);
    wait("there is room again", SOON, || {
        let range = ("range", "bytes=0-0");
        (case.get("path=huge", &[range]).status == 206).then_some(())
    });
}
