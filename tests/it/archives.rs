//! Carries workspaces off and back over HTTP, and holds imports against hostile archives.

use std::fs;
use std::io::{BufReader, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use serde_json::json;
use tar::{EntryType, Header};

use crate::support::api::{Api, WORKSPACES, settings, wait};
use crate::support::daemon::{Daemon, Ending};
use crate::support::docker::{IMAGE, docker};
use crate::support::http::{Request, Response, read_response};

fn daemon(changes: &[(&str, &str)]) -> (Daemon, Api) {
    let mut all = vec![WORKSPACES];
    all.extend(changes);
    let daemon = Daemon::start(&settings(&all));
    let api = Api::of(&daemon);
    (daemon, api)
}

fn put(path: &str, body: &[u8]) -> Request {
    Request {
        method: "PUT".to_owned(),
        path: path.to_owned(),
        headers: vec![("content-type".to_owned(), "application/x-tar".to_owned())],
        body: Some(body.to_vec()),
    }
}

fn import(api: &Api, id: &str, query: &str, body: &[u8]) -> Response {
    let path = format!("/workspaces/{id}/import{query}");
    api.http().send(&put(&path, body)).unwrap()
}

fn export(api: &Api, id: &str, format: &str) -> Response {
    let path = format!("/workspaces/{id}/export?format={format}");
    let reply = api.http().get(&path).unwrap();
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply
}

/// A member as a hostile hand would write it.
fn member(path: &str, kind: u8, link: &str, content: &[u8]) -> Vec<u8> {
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::new(kind));
    header.set_size(content.len().try_into().unwrap());
    header.set_mode(0o6755);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(1_600_000_000);
    let fields = header.as_old_mut();
    fields.name[..path.len()].copy_from_slice(path.as_bytes());
    fields.linkname[..link.len()].copy_from_slice(link.as_bytes());
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

fn file(path: &str, content: &str) -> Vec<u8> {
    member(path, b'0', "", content.as_bytes())
}

fn archive(members: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = members.concat();
    bytes.resize(bytes.len() + 1_024, 0);
    bytes
}

fn n_entries(dir: &Path) -> usize {
    fs::read_dir(dir).map_or(0, Iterator::count)
}

/// Nothing is left of what was not taken in.
fn is_clean(daemon: &Daemon) {
    let ws = daemon.dir().join("ws");
    for name in [".incoming", ".trash"] {
        let dir = ws.join(name);
        wait("it is empty", Duration::from_secs(10), || {
            (n_entries(&dir) == 0).then_some(())
        });
    }
}

#[test]
fn a_workspace_goes_into_another_id_whole() {
    let (daemon, api) = daemon(&[]);
    api.open_id("a");
    api.sh(
        "a",
        "mkdir -p d/deep && echo one > d/deep/f && chmod 750 d && echo run > x && chmod 755 x \
         && ln x also-x && ln -s ../outside/$(basename $PWD) link && touch -d 2020-01-01 x \
         && touch \"$(printf 'odd\\n\\377 name')\" && head -c 3000000 /dev/urandom > large",
    );
    let sums = api.sh("a", "find . -type f | sort | xargs -d '\\n' md5sum 2>/dev/null || find . -type f -exec md5sum {} + | sort");
    for (format, content_type) in [
        ("tar", "application/x-tar"),
        ("tar.zst", "application/zstd"),
    ] {
        let reply = export(&api, "a", format);
        assert_eq!(reply.header("content-type"), Some(content_type));
        let named = format!("attachment; filename=\"a.{format}\"");
        assert_eq!(reply.header("content-disposition"), Some(&*named));
        // It is open, and its files may be in use.
        let refused = import(&api, "a", "?replace=true", &reply.body);
        assert_eq!(
            (refused.status, code(&refused)),
            (409, "session_open".to_owned())
        );
        let id = format!("copy-of-{}", format.replace('.', "-"));
        let taken = import(&api, &id, "", &reply.body);
        assert_eq!(taken.status, 200, "{}", taken.text());
        let told = taken.json().unwrap();
        assert_eq!(told["session_id"], id.as_str());
        assert_eq!((&told["files"], &told["links"]), (&json!(5), &json!(1)));
        let seen = api.json(200, "GET /workspaces?limit=1000", None);
        let listed = seen["workspaces"].as_array().unwrap().iter();
        let listed = listed
            .clone()
            .find(|one| one["session_id"] == id.as_str())
            .unwrap()
            .clone();
        assert_eq!(
            (&listed["open"], &listed["runtime"]),
            (&json!(false), &json!("bb"))
        );
        // It is found by whoever opens the id.
        api.open(&json!({"session_id": id, "attach": true}));
        let copied = api.sh(&id, "find . -type f | sort | xargs -d '\\n' md5sum 2>/dev/null || find . -type f -exec md5sum {} + | sort");
        assert_eq!(copied, sums);
        assert_eq!(
            api.sh(
                &id,
                "stat -c '%a %Y' d x | head -1; readlink link; date -r x +%Y"
            ),
            api.sh(
                "a",
                "stat -c '%a %Y' d x | head -1; readlink link; date -r x +%Y"
            )
        );
        api.close(&id, "");
        let refused = import(&api, &id, "", &archive(&[file("new", "new")]));
        assert_eq!(
            (refused.status, code(&refused)),
            (409, "workspace_not_empty".to_owned())
        );
        let taken = import(&api, &id, "?replace=true", &archive(&[file("new", "new")]));
        assert_eq!(taken.status, 200, "{}", taken.text());
        api.open_id(&id);
        assert_eq!(api.sh(&id, "ls"), "new");
    }
    is_clean(&daemon);
}

fn code(reply: &Response) -> String {
    let body = reply.json().unwrap_or_default();
    body["code"].as_str().unwrap_or_default().to_owned()
}

/// Archives that are made to do harm, where `outside` is a file that they are after, with
/// what refuses them.
fn hostile(outside: &str) -> Vec<(&'static str, Vec<u8>, u16)> {
    let mut truncated = archive(&[file("a", &"x".repeat(5_000))]);
    truncated.truncate(3_000);
    let mut flipped = archive(&[file("a", "x")]);
    flipped[20] ^= 1;
    let of_size = |bytes: u64| {
        let mut header = Header::new_gnu();
        header.set_size(bytes);
        header.set_mode(0o644);
        header.as_old_mut().name[0] = b'z';
        header.set_cksum();
        header.as_bytes().to_vec()
    };
    // Each frame is a megabyte of zeros in a few bytes.
    let packed = |bytes: &[u8]| compress_to_vec(bytes, CompressionLevel::Fastest);
    let mut bomb = packed(&of_size(99 << 20));
    bomb.extend(packed(&vec![0; 1 << 20]).repeat(99));
    vec![
        ("an absolute name", archive(&[file("/evil", "x")]), 400),
        ("a name that climbs", archive(&[file("../evil", "x")]), 400),
        (
            "a name that climbs further",
            archive(&[file("a/../../../evil", "x")]),
            400,
        ),
        (
            "a file through a link",
            archive(&[member("l", b'2', "../../..", b""), file("l/precious", "x")]),
            400,
        ),
        (
            "a file through an absolute link",
            archive(&[member("l", b'2', "/tmp", b""), file("l/evil", "x")]),
            400,
        ),
        (
            "a hard link to the outside",
            archive(&[member("h", b'1', outside, b"")]),
            400,
        ),
        (
            "a hard link through a link",
            archive(&[
                member("l", b'2', "../../..", b""),
                member("h", b'1', "l/precious", b""),
            ]),
            400,
        ),
        ("holes", archive(&[member("sparse", b'S', "", b"")]), 400),
        ("an end too soon", truncated, 400),
        ("a flipped bit", flipped, 400),
        ("no archive", b"hello".repeat(500), 400),
        (
            "rubbish behind the mark of zstd",
            b"\x28\xb5\x2f\xfdrubbish".to_vec(),
            400,
        ),
        ("a compressed bomb", bomb, 413),
        (
            "a directory in place of a file",
            archive(&[file("a", "x"), file("a/b", "x")]),
            400,
        ),
        (
            "a file of a terabyte that never comes",
            of_size(1 << 40),
            400,
        ),
    ]
}

#[test]
fn a_hostile_archive_is_refused_whole_and_reaches_nothing() {
    let (daemon, api) = daemon(&[("SANDBOXD_MAX_ARCHIVE_BYTES", "104857600")]);
    let ws = daemon.dir().join("ws");
    let precious = daemon.dir().join("precious");
    fs::write(&precious, "untouched").unwrap();
    for (what, bytes, status) in hostile(precious.to_str().unwrap()) {
        let refused = import(&api, "victim", "", &bytes);
        assert_eq!(refused.status, status, "{what}: {}", refused.text());
        let expected = if status == 413 {
            "archive_too_large"
        } else {
            "bad_archive"
        };
        assert_eq!(code(&refused), expected, "{what}");
        assert!(!ws.join("victim").exists(), "{what}");
    }
    assert_eq!(fs::read_to_string(&precious).unwrap(), "untouched");
    assert!(!ws.join("evil").exists() && !daemon.dir().join("evil").exists());
    is_clean(&daemon);
}

#[test]
fn devices_are_passed_by_dangerous_bits_go_and_the_later_of_two_members_stays() {
    let (daemon, api) = daemon(&[]);
    let members = [
        member("disk", b'4', "", b""),
        member("tty", b'3', "", b""),
        member("pipe", b'6', "", b""),
        file("suid", "#!/bin/sh"),
        file("twice", "first"),
        file("twice", "second"),
        member("out", b'2', "/etc/passwd", b""),
    ];
    let taken = import(&api, "tamed", "", &archive(&members));
    assert_eq!(taken.status, 200, "{}", taken.text());
    assert_eq!(taken.json().unwrap()["n_skipped"], 3);
    let tamed = daemon.dir().join("ws/tamed/workspace");
    let mode = fs::metadata(tamed.join("suid")).unwrap().mode();
    assert_eq!(mode & 0o7777, 0o755);
    assert_eq!(fs::read_to_string(tamed.join("twice")).unwrap(), "second");
    assert_eq!(n_entries(&tamed), 3);
    // A link that leads out is a link for the sandbox, and none for the host.
    let asked = json!({"path": "out", "limit": 9});
    let read = api.call("POST", "/workspaces/tamed/read", Some(&asked));
    assert_eq!(read.status, 400);
}

/// Sends an endless row of members until the other side has had enough.
fn flood(api: &Api, path: &str, member: &[u8], n_members: u64) -> Response {
    let length = u64::try_from(member.len()).unwrap() * n_members;
    let request = Request {
        method: "PUT".to_owned(),
        path: path.to_owned(),
        headers: vec![("content-length".to_owned(), length.to_string())],
        body: None,
    };
    let mut stream = api.http().begin(&request).unwrap();
    let mut reading = BufReader::new(stream.try_clone().unwrap());
    let reader = std::thread::spawn(move || read_response(&mut reading));
    let piece = member.repeat(1_000);
    for _ in 0..n_members / 1_000 {
        if stream.write_all(&piece).is_err() {
            break;
        }
    }
    reader.join().unwrap().unwrap()
}

#[test]
fn more_members_than_may_be_and_a_sender_that_leaves_are_refused_and_leave_nothing() {
    let (daemon, api) = daemon(&[]);
    let tiny = member("./", b'5', "", b"");
    let refused = flood(&api, "/workspaces/many/import?format=tar", &tiny, 1_001_000);
    assert_eq!(
        (refused.status, &*code(&refused)),
        (413, "archive_too_large")
    );
    // Half of a body, and then nobody.
    let whole = archive(&[file("a", &"x".repeat(200_000))]);
    let mut request = put("/workspaces/half/import", &whole[..100_000]);
    request
        .headers
        .push(("content-length".to_owned(), whole.len().to_string()));
    let body = request.body.take().unwrap();
    let mut stream = api.http().begin(&request).unwrap();
    stream.write_all(&body).unwrap();
    wait("it is being unpacked", Duration::from_secs(10), || {
        (n_entries(&daemon.dir().join("ws/.incoming")) == 1).then_some(())
    });
    drop(stream);
    is_clean(&daemon);
    let ws = daemon.dir().join("ws");
    assert!(!ws.join("many/workspace").exists() && !ws.join("half/workspace").exists());
}

#[test]
fn an_import_that_the_daemon_did_not_survive_leaves_the_old_files_and_goes_at_the_next_start() {
    let (mut daemon, api) = daemon(&[("SANDBOXD_CLEANUP_INTERVAL", "1")]);
    api.open_id("a");
    api.sh("a", "echo old > f");
    api.close("a", "");
    let whole = archive(&[file("f", "new"), file("g", &"x".repeat(200_000))]);
    let mut request = put("/workspaces/a/import?replace=true", &[]);
    request
        .headers
        .push(("content-length".to_owned(), whole.len().to_string()));
    request.body = None;
    let mut stream = api.http().begin(&request).unwrap();
    stream.write_all(&whole[..100_000]).unwrap();
    let incoming = daemon.dir().join("ws/.incoming");
    wait("it is being unpacked", Duration::from_secs(10), || {
        (n_entries(&incoming) == 1).then_some(())
    });
    daemon.restart(Ending::Kill);
    is_clean(&daemon);
    let api = Api::of(&daemon);
    api.open_id("a");
    assert_eq!(api.sh("a", "cat f; ls"), "old\nf");
}

/// Begins an export and reads the first of it.
fn begin_export(api: &Api, path: &str) -> BufReader<std::net::TcpStream> {
    let request = Request {
        method: "GET".to_owned(),
        path: path.to_owned(),
        ..Request::default()
    };
    let mut reading = BufReader::new(api.http().begin(&request).unwrap());
    let mut some = vec![0; 1 << 20];
    reading.read_exact(&mut some).unwrap();
    assert!(some.starts_with(b"HTTP/1.1 200"));
    reading
}

#[test]
fn an_export_ends_with_its_caller_and_breaks_off_where_the_workspace_goes() {
    let (daemon, api) = daemon(&[]);
    api.open_id("a");
    api.sh("a", "truncate -s 8G holes && echo small > zz");
    // As many as may be packed at once, and all of their callers leave.
    let callers: Vec<_> = (0..4)
        .map(|_| begin_export(&api, "/workspaces/a/export?format=tar"))
        .collect();
    let full = api.call("GET", "/workspaces/a/export", None);
    assert_eq!((full.status, &*code(&full)), (429, "archive_ceiling"));
    drop(callers);
    let began = Instant::now();
    let mut last = begin_export(&api, "/workspaces/a/export?format=tar");
    assert!(
        began.elapsed() < Duration::from_secs(8),
        "{:?}",
        began.elapsed()
    );
    // A purge waits for no reader; the reader is told that it has no whole archive.
    api.json(204, "DELETE /workspaces/a?close=true", None);
    assert!(!daemon.dir().join("ws/a/workspace").exists());
    let mut ending = Vec::new();
    let mut buffer = vec![0; 1 << 20];
    let broken = loop {
        match last.read(&mut buffer) {
            Ok(0) => break !ending.ends_with(b"\r\n0\r\n\r\n"),
            Ok(n_read) => {
                ending.extend_from_slice(&buffer[..n_read]);
                let keep = ending.len().saturating_sub(16);
                ending.drain(..keep);
            }
            Err(_) => break true,
        }
    };
    assert!(broken, "an export of a purged workspace looked whole");
    let gone = api.call("GET", "/workspaces/a/export", None);
    assert_eq!((gone.status, &*code(&gone)), (404, "no_workspace"));
}

#[test]
fn workspaces_are_listed_in_pages_with_their_use_and_also_without_a_record() {
    let (daemon, api) = daemon(&[("SANDBOXD_WORKSPACE_SCAN_INTERVAL", "1")]);
    api.open(&json!({"session_id": "b", "tenant": "acme"}));
    api.sh(
        "b",
        "head -c 1000000 /dev/urandom > f && ln f g && mkdir d && echo x > d/x",
    );
    api.open_id("c");
    api.close("c", "");
    let ws = daemon.dir().join("ws");
    fs::create_dir_all(ws.join("a-stray/workspace/d")).unwrap();
    fs::create_dir_all(ws.join("no-workspace")).unwrap();
    fs::create_dir_all(ws.join("-no-id/workspace")).unwrap();
    let all = wait("all are measured", Duration::from_secs(20), || {
        let all = api.json(200, "GET /workspaces", None);
        let rows = all["workspaces"].as_array().unwrap();
        let is_measured = rows.iter().all(|row| row["bytes"].is_u64());
        (is_measured && rows[1]["files"] == 2).then(|| all.clone())
    });
    let rows = all["workspaces"].as_array().unwrap();
    let ids: Vec<&str> = rows
        .iter()
        .map(|row| row["session_id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["a-stray", "b", "c"]);
    assert_eq!(all["next"], json!(null));
    let [stray, open, closed] = rows.as_slice() else {
        panic!("{all}");
    };
    assert_eq!(
        (&stray["open"], &stray["runtime"], &stray["last_used"]),
        (&json!(false), &json!(null), &json!(null))
    );
    assert_eq!(
        (&open["open"], &open["runtime"], &open["tenant"]),
        (&json!(true), &json!("bb"), &json!("acme"))
    );
    let bytes = open["bytes"].as_u64().unwrap();
    assert!((1_000_000..1_200_000).contains(&bytes), "{bytes}");
    assert!(open["last_used"].is_f64() && closed["last_used"].is_f64());
    assert_eq!(
        (&closed["open"], &closed["files"]),
        (&json!(false), &json!(0))
    );
    let first = api.json(200, "GET /workspaces?limit=2", None);
    assert_eq!(first["next"], "b");
    let second = api.json(200, "GET /workspaces?limit=2&cursor=b", None);
    assert_eq!(second["workspaces"][0]["session_id"], "c");
    assert_eq!(second["next"], json!(null));
    api.json(422, "GET /workspaces?limit=0", None);
    api.json(422, "GET /workspaces?cursor=../x", None);
    let token = api.open(&json!({"session_id": "d"}))["token"]
        .as_str()
        .unwrap()
        .to_owned();
    // It shows every tenant's, so a session's own token is no good for it.
    for call in [
        "GET /workspaces",
        "GET /workspaces/d/export",
        "PUT /workspaces/x/import",
    ] {
        api.with_token(&token).json(401, call, None);
    }
}

#[test]
fn sandboxctl_carries_a_workspace_off_and_back_and_says_why_it_does_not() {
    let (daemon, api) = daemon(&[]);
    api.open_id("a");
    api.sh("a", "mkdir d && head -c 5000000 /dev/urandom > d/f");
    let sum = api.sh("a", "md5sum d/f");
    let run = |args: &[&str], input: &[u8]| {
        let mut child = Command::new(env!("CARGO_BIN_EXE_sandboxctl"))
            .args(args)
            .env("SANDBOXD_URL", daemon.url())
            .env("SANDBOXD_TOKEN", daemon.token())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        // What is refused is not read to its end.
        let feeding = std::thread::spawn(move || drop(stdin.write_all(&input)));
        let output = child.wait_with_output().unwrap();
        feeding.join().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), output.stdout, said)
    };
    let (exit, archive, said) = run(&["export", "a"], b"");
    assert_eq!(exit, Some(0), "{said}");
    assert!(archive.starts_with(b"\x28\xb5\x2f\xfd"));
    let (exit, id, said) = run(&["import", "b"], &archive);
    assert_eq!((exit, id.as_slice()), (Some(0), &b"b\n"[..]), "{said}");
    let (exit, _, said) = run(&["import", "b"], &archive);
    assert_eq!(exit, Some(5), "{said}");
    assert!(said.contains("hint: --replace"), "{said}");
    let (exit, _, said) = run(&["import", "a", "--replace"], &archive);
    assert_eq!(exit, Some(5), "{said}");
    let (exit, _, said) = run(&["import", "c"], b"no archive");
    assert_eq!(exit, Some(1), "{said}");
    let (_, listed, _) = run(&["workspaces", "--quiet"], b"");
    assert_eq!(listed, b"a\nb\n");
    api.open_id("b");
    assert_eq!(api.sh("b", "md5sum d/f"), sum);
}

#[test]
fn nothing_takes_the_place_of_files_that_a_container_of_the_service_before_works_on() {
    let (daemon, api) = daemon(&[]);
    let id = format!("rival-{}", std::process::id());
    let files = daemon.dir().join("ws").join(&id).join("workspace");
    fs::create_dir_all(&files).unwrap();
    fs::write(files.join("f"), "theirs").unwrap();
    let name = format!("sandboxd-{id}");
    let run = [
        "run", "--detach", "--rm", "--name", &name, IMAGE, "sleep", "120",
    ];
    docker(&run);
    let bytes = archive(&[file("f", "ours")]);
    let refused = import(&api, &id, "?replace=true", &bytes);
    docker(&["rm", "--force", &name]);
    assert_eq!(
        (refused.status, &*code(&refused)),
        (409, "workspace_in_use")
    );
    assert!(refused.text().contains(&name));
    assert_eq!(fs::read_to_string(files.join("f")).unwrap(), "theirs");
    assert_eq!(import(&api, &id, "?replace=true", &bytes).status, 200);
    assert_eq!(fs::read_to_string(files.join("f")).unwrap(), "ours");
}
