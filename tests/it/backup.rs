//! Backups of a service that runs and of one that does not, and what a restored one becomes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::store_disasters::{SETTLED, exec, holds, ids, pid, sandboxctl, wait_for_adoption};
use crate::support::api::{Api, WORKSPACES, settings, wait};
use crate::support::daemon::{Daemon, Ending};
use crate::support::docker::labelled;
use crate::support::fake::FakeEngine;

/// Reads a backup that has to be whole: its lines.
fn lines(text: &str) -> Vec<Value> {
    let contents = sandboxd::store::Contents::read(text.as_bytes());
    contents.unwrap_or_else(|error| panic!("{error}\n{text}"));
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.collect()
}

/// Returns the sessions of a backup that are open, with their marks but for the last use.
fn open_in(lines: &[Value]) -> BTreeMap<String, Value> {
    let records = lines.iter().filter_map(|line| line.get("session"));
    records
        .filter(|record| record["marks"]["closed"].is_null())
        .map(|record| {
            let id = record["spec"]["id"].as_str().unwrap();
            let mut marks = record["marks"].clone();
            // A use is noted a moment later than it is answered.
            marks["last_used"].take();
            (id.to_owned(), marks)
        })
        .collect()
}

/// Returns all files below a directory with their contents.
fn tree(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(tree(&path));
        } else {
            let bytes = fs::read(&path).unwrap_or_default();
            files.insert(path, bytes);
        }
    }
    files
}

/// Returns the directories beside the store that one was renamed to.
fn set_aside(daemon: &Daemon) -> Vec<PathBuf> {
    let entries = fs::read_dir(daemon.dir().join("state")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let is_aside = |path: &PathBuf| path.to_string_lossy().contains("store.before-restore-");
    paths.filter(is_aside).collect()
}

/// Has `sandboxctl` write a backup to a file.
fn back_up(daemon: &Daemon, name: &str) -> String {
    let file = daemon.dir().join(name).to_str().unwrap().to_owned();
    let (code, said) = sandboxctl(daemon, &["backup", &file]);
    assert_eq!(code, 0, "{said}");
    file
}

#[test]
fn a_backup_under_load_is_of_one_moment_and_brings_back_all_that_was_answered() {
    let engine = FakeEngine::start();
    let many = [
        WORKSPACES,
        ("SANDBOXD_MAX_SESSIONS", "1000"),
        ("SANDBOXD_MAX_OPEN_SESSIONS", "1000"),
        ("SANDBOXD_MAX_SESSIONS_PER_TENANT", "1000"),
    ];
    let mut daemon = Daemon::on(&engine, &settings(&many));
    let api = Api::of(&daemon);
    let (tokens, over) = (Mutex::new(BTreeMap::new()), AtomicBool::new(false));
    let mut backups = Vec::new();
    thread::scope(|scope| {
        for n in 0..3 {
            let (api, tokens, over) = (&api, &tokens, &over);
            scope.spawn(move || {
                for round in 0.. {
                    if over.load(Ordering::Relaxed) || 60 < round {
                        return;
                    }
                    let id = format!("s{n}-{round}");
                    let token = api.open_id(&id);
                    tokens.lock().unwrap().insert(id, token);
                    // What is closed and purged meanwhile is in it or not, and never half.
                    let passing = format!("p{n}-{round}");
                    api.open_id(&passing);
                    api.close(&passing, "?purge=true");
                }
            });
        }
        for _ in 0..5 {
            thread::sleep(Duration::from_millis(150));
            let before: BTreeSet<String> = tokens.lock().unwrap().keys().cloned().collect();
            let reply = api.call("GET", "/backup", None);
            assert_eq!(reply.status, 200);
            backups.push((before, reply.text()));
        }
        over.store(true, Ordering::Relaxed);
    });
    let mut last_commit = 0;
    for (before, text) in &backups {
        let lines = lines(text);
        let open = open_in(&lines);
        let missing: Vec<&String> = before.iter().filter(|id| !open.contains_key(*id)).collect();
        assert!(missing.is_empty(), "answered and not in it: {missing:?}");
        let commit = lines[0]["header"]["commit"].as_u64().unwrap();
        assert!(last_commit <= commit, "each is of a later moment");
        last_commit = commit;
        let statuses = lines
            .iter()
            .filter(|line| line.get("status").is_some())
            .count();
        let records = lines
            .iter()
            .filter(|line| line.get("session").is_some())
            .count();
        assert_eq!(statuses, records, "a record and its status go together");
    }
    let (before, text) = backups.pop().unwrap();
    assert!(!before.is_empty());
    daemon.stop(Ending::Kill);
    let file = daemon.dir().join("b.jsonl");
    fs::write(&file, text).unwrap();
    let (code, said) = daemon.run(&["restore", file.to_str().unwrap(), "--force"]);
    assert_eq!(code, 0, "{said}");
    daemon.start_again();
    wait_for_adoption(&api);
    let listed: BTreeSet<String> = ids(&api).into_iter().collect();
    // Those that came after it are taken over from the host.
    for (id, token) in &*tokens.lock().unwrap() {
        assert!(listed.contains(id), "{id}");
        assert_eq!(api.with_token(token).info(id)["session_id"], json!(id));
    }
}

/// Kills a daemon, puts a backup of five sessions in the place of its store, and starts it
/// with lifetimes so short that all of them would be over.
fn restore_over(daemon: &mut Daemon, file: &str) {
    daemon.stop(Ending::Kill);
    let (code, said) = daemon.run(&["restore", file]);
    assert_eq!(code, 73, "{said}");
    assert!(said.contains("--force"), "{said}");
    let (code, said) = daemon.run(&["restore", file, "--force"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("restored 5 sessions as of"), "{said}");
    assert_eq!(set_aside(daemon).len(), 1, "nothing is deleted");
    // So soon that all of it would go, if it were up to time.
    for (name, secs) in [
        ("SANDBOXD_IDLE_TIMEOUT", "2"),
        ("SANDBOXD_WORKSPACE_TTL", "2"),
        ("SANDBOXD_CLEANUP_INTERVAL", "1"),
        ("SANDBOXD_ORPHAN_GRACE", "1"),
    ] {
        daemon.set(name, secs);
    }
    daemon.start_again();
}

#[test]
fn a_restored_older_store_ends_nothing_that_came_after_it() {
    let mut daemon = Daemon::start(&settings(&[WORKSPACES]));
    let api = Api::of(&daemon);
    let kept = api.with_token(&api.open_id("kept"));
    kept.sh("kept", "echo kept > f");
    let closed = api.with_token(&api.open_id("closed"));
    closed.sh("closed", "echo closed > f");
    let purged = api.with_token(&api.open_id("purged"));
    purged.sh("purged", "echo gone > f");
    let woken = api.with_token(&api.open_id("woken"));
    api.json(200, "POST /sessions/woken/hibernate", None);
    let again = api.with_token(&api.open_id("again"));
    api.close("again", "");
    let file = back_up(&daemon, "b.jsonl");

    // What the backup does not know.
    let new = api.with_token(&api.open_id("new"));
    new.sh("new", "echo new > f");
    let sleeper = new.sh("new", "sleep 9999 > /dev/null 2>&1 & echo $!");
    woken.sh("woken", "echo up > f");
    let anew = api.with_token(&api.open_id("again"));
    anew.sh("again", "echo again > f");
    api.close("closed", "");
    api.close("purged", "?purge=true");
    let running = ["kept", "new", "woken", "again"];
    let lives = running.map(|id| (api.container(id), pid(&api.container(id))));

    restore_over(&mut daemon, &file);
    wait_for_adoption(&api);
    thread::sleep(Duration::from_secs(6));

    assert_eq!(holds(&api), ["store_rebuilt"]);
    let health = api.json(200, "GET /healthz", None);
    let reason = health["reasons"][0].as_str().unwrap();
    assert!(reason.contains("a backup of"), "{reason}");
    assert_eq!(
        running.map(|id| (api.container(id), pid(&api.container(id)))),
        lives,
        "what ran runs on, in its container"
    );
    assert_eq!(new.sh("new", &format!("kill -0 {sleeper} && cat f")), "new");
    assert_eq!(kept.sh("kept", "cat f"), "kept");
    assert_eq!(woken.sh("woken", "cat f"), "up");
    assert_eq!(anew.sh("again", "cat f"), "again");
    assert_eq!(
        exec(&again, "again").status,
        401,
        "its opening was over then"
    );
    assert_eq!(
        exec(&closed, "closed").status,
        401,
        "what was closed stays closed"
    );
    assert!(daemon.dir().join("ws/closed/workspace/f").exists());
    // Nothing tells that it was purged: it is asleep, and its files stay gone.
    assert_eq!(api.info("purged")["state"], "hibernated");
    assert_eq!(purged.sh("purged", "ls"), "");
    assert_eq!(labelled(&daemon.label()).len(), 5);

    let events = api.json(200, "GET /events?op=store_rebuilt", None);
    let told = &events["events"][0];
    assert!(
        told["detail"].as_str().unwrap().contains("restored"),
        "{told}"
    );
    let (code, said) = sandboxctl(&daemon, &["release", "store_rebuilt", "--yes"]);
    assert_eq!(code, 0, "{said}");
    assert!(holds(&api).is_empty());
    wait("sweeps are on again", SETTLED, || {
        ids(&api).is_empty().then_some(())
    });
}

#[test]
fn a_backup_that_cannot_be_used_changes_nothing() {
    let engine = FakeEngine::start();
    let mut daemon = Daemon::on(&engine, &settings(&[WORKSPACES]));
    let api = Api::of(&daemon);
    let a = api.with_token(&api.open_id("a"));
    let file = back_up(&daemon, "b.jsonl");
    let restore = |daemon: &Daemon, file: &str| daemon.run(&["restore", file, "--force"]);
    let (code, said) = restore(&daemon, &file);
    assert_eq!(code, 69, "{said}");
    let running = format!("a running sandboxd (pid {})", daemon.pid());
    assert!(said.contains(&running), "{said}");
    daemon.stop(Ending::Terminate);
    let state = daemon.dir().join("state");
    let before = tree(&state);
    let text = fs::read_to_string(&file).unwrap();
    let damaged = daemon.dir().join("damaged.jsonl");
    let (header, rest) = text.split_once('\n').unwrap();
    let newer = header.replace("\"version\":1", "\"version\":9");
    for (damage, told) in [
        (text.replace("\"a\"", "\"z\""), "the digest in its footer"),
        (
            text.replace("\"spec\":", "\"spec\"_"),
            "line 2 of the backup",
        ),
        (
            text.chars().take(text.len() / 2).collect(),
            "it was cut off",
        ),
        (format!("{text}{text}"), "counts"),
        (format!("{newer}\n{rest}"), "the digest in its footer"),
        (String::new(), "it is empty"),
        ("{\"a\":1}\n".to_owned(), "it was cut off"),
    ] {
        fs::write(&damaged, damage).unwrap();
        let (code, said) = restore(&daemon, damaged.to_str().unwrap());
        assert_eq!(code, 65, "{said}");
        assert!(said.contains(told), "{told}: {said}");
    }
    let other = Daemon::on(&engine, &settings(&[]));
    let foreign = back_up(&other, "b.jsonl");
    let (code, said) = restore(&daemon, &foreign);
    assert_eq!(code, 65, "{said}");
    assert!(said.contains("of instance"), "{said}");
    let (code, said) = restore(&daemon, "/nowhere/b.jsonl");
    assert_eq!(code, 74, "{said}");
    let locked = |files: BTreeMap<PathBuf, Vec<u8>>| {
        let files = files.into_iter();
        // Who held it last is written into it.
        let files = files.filter(|(path, _)| !path.ends_with("LOCK"));
        files.collect::<BTreeMap<_, _>>()
    };
    assert!(locked(tree(&state)) == locked(before), "nothing is changed");
    daemon.start_again();
    assert!(holds(&api).is_empty());
    assert_eq!(a.info("a")["session_id"], "a");
}

#[test]
fn a_backup_brings_its_tokens_to_an_empty_host_only_with_their_key() {
    let engine = FakeEngine::start();
    let mut daemon = Daemon::on(&engine, &settings(&[WORKSPACES]));
    let api = Api::of(&daemon);
    let a = api.with_token(&api.open_id("a"));
    assert_eq!(a.call("GET", "/backup", None).status, 401);
    let without = back_up(&daemon, "without.jsonl");
    let with = daemon.dir().join("with.jsonl");
    let with = with.to_str().unwrap();
    // The daemon that runs is asked for it.
    let (code, said) = daemon.run(&["backup", with, "--with-key"]);
    assert_eq!(code, 0, "{said}");
    let key = fs::read(daemon.dir().join("state/token.key")).unwrap();
    let in_base64 = {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD.encode(&key)
    };
    let holds_key = |file: &str| fs::read_to_string(file).unwrap().contains(&in_base64);
    assert!(holds_key(with) && !holds_key(&without));
    daemon.stop(Ending::Terminate);
    // Without one, it is read from the store: the same rows.
    let offline = daemon.dir().join("offline.jsonl");
    let (code, said) = daemon.run(&["backup", offline.to_str().unwrap()]);
    assert_eq!(code, 0, "{said}");
    let rows = |file: &str| {
        let lines = lines(&fs::read_to_string(file).unwrap());
        open_in(&lines)
    };
    assert_eq!(rows(offline.to_str().unwrap()), rows(&without));
    let state = daemon.dir().join("state");
    let empty = |daemon: &Daemon| {
        fs::remove_dir_all(&state).unwrap();
        let (code, said) = daemon.run(&["backup"]);
        assert_eq!(code, 66, "{said}");
    };
    empty(&daemon);
    let (code, said) = daemon.run(&["restore", &without]);
    assert_eq!(code, 78, "{said}");
    assert!(said.contains("--void-tokens"), "{said}");
    let (code, said) = daemon.run(&["restore", with]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(fs::read(state.join("token.key")).unwrap(), key);
    daemon.start_again();
    wait_for_adoption(&api);
    assert_eq!(a.info("a")["session_id"], "a", "its token is good");
    daemon.stop(Ending::Terminate);
    empty(&daemon);
    let (code, said) = daemon.run(&["restore", &without, "--void-tokens"]);
    assert_eq!(code, 0, "{said}");
    daemon.start_again();
    wait_for_adoption(&api);
    assert_eq!(ids(&api), ["a"]);
    assert_eq!(
        a.call("GET", "/sessions/a", None).status,
        401,
        "its token is void"
    );
    let attached = api.open(&json!({"session_id": "a", "attach": true}));
    let anew = api.with_token(attached["token"].as_str().unwrap());
    assert_eq!(anew.info("a")["session_id"], "a");
}

/// Returns the copies of the store that are kept.
fn copies(daemon: &Daemon) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(daemon.dir().join("state/backups")) else {
        return Vec::new();
    };
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut copies: Vec<PathBuf> = paths
        .filter(|path| path.extension().is_some_and(|kind| kind == "jsonl"))
        .collect();
    copies.sort();
    copies
}

#[test]
fn copies_of_the_store_are_kept_while_it_changes_and_the_oldest_go() {
    let engine = FakeEngine::start();
    let changes = [
        WORKSPACES,
        ("SANDBOXD_BACKUP_EVERY", "1"),
        ("SANDBOXD_BACKUP_KEEP", "2"),
    ];
    let mut daemon = Daemon::on(&engine, &settings(&changes));
    let api = Api::of(&daemon);
    let mut seen = BTreeSet::new();
    wait("four copies were made", SETTLED, || {
        let n = seen.len();
        api.open_id(&format!("s{n}"));
        api.close(&format!("s{n}"), "?purge=true");
        thread::sleep(Duration::from_millis(300));
        seen.extend(copies(&daemon));
        (4 <= seen.len()).then_some(())
    });
    let a = api.with_token(&api.open_id("a"));
    wait("the newest copy knows of it", SETTLED, || {
        let newest = copies(&daemon).pop()?;
        let text = fs::read_to_string(newest).ok()?;
        let is_there = open_in(&lines(&text)).contains_key("a");
        is_there.then_some(())
    });
    let kept = wait("two are kept", SETTLED, || {
        let kept = copies(&daemon);
        thread::sleep(Duration::from_millis(1_500));
        (kept.len() == 2 && kept == copies(&daemon)).then_some(kept)
    });
    thread::sleep(Duration::from_secs(3));
    assert_eq!(copies(&daemon), kept, "nothing has changed");
    daemon.stop(Ending::Kill);
    let (code, said) = daemon.run(&["restore", kept[1].to_str().unwrap(), "--force"]);
    assert_eq!(code, 0, "{said}");
    daemon.start_again();
    wait_for_adoption(&api);
    assert_eq!(a.info("a")["session_id"], "a");
}

#[test]
fn a_copy_that_cannot_be_kept_is_told_of_and_harms_nothing() {
    let engine = FakeEngine::start();
    let changes = [("SANDBOXD_BACKUP_EVERY", "1")];
    let daemon = Daemon::on(&engine, &settings(&changes));
    let api = Api::of(&daemon);
    let place = daemon.dir().join("state/backups");
    wait("the first copy is there", SETTLED, || {
        (!copies(&daemon).is_empty()).then_some(())
    });
    fs::remove_dir_all(&place).unwrap();
    fs::write(&place, "in the way").unwrap();
    let told = wait("it is told", SETTLED, || {
        api.open_id("a");
        api.close("a", "?purge=true");
        let page = api.json(200, "GET /events?op=backup", None);
        page["events"].as_array()?.first().cloned()
    });
    assert_eq!(told["ok"], false, "{told}");
    api.open_id("b");
    assert_eq!(api.json(200, "GET /healthz", None)["status"], "ok");
    fs::remove_file(&place).unwrap();
    wait("copies are kept again", SETTLED, || {
        (!copies(&daemon).is_empty()).then_some(())
    });
}
