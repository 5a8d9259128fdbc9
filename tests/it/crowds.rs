//! Many at once, many in a row, and much that was left over, on the real engine.
//!
//! In full size (`SANDBOXD_FAULTS=whole`) there are 2,000 commands around the moment of
//! falling asleep; how long two daemons churn is `SANDBOXD_TEST_CHURN_SECS`.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::api::{Api, WORKSPACES, at_once, settings, wait};
use crate::support::daemon::{Daemon, Ending};
use crate::support::docker::{IMAGE, INSTANCE_LABEL, labelled, running};
use crate::support::http::Response;
use crate::support::raw_engine::RawEngine;
use crate::support::whole;

/// By when everything that was begun is whole or gone.
const SETTLED: Duration = Duration::from_mins(1);
/// What a caller sees as at once, on a machine that does other things as well.
const PROMPT: Duration = Duration::from_secs(5);

/// Returns the ids of the sessions that are listed.
fn listed(api: &Api) -> Vec<String> {
    let all = api.json(200, "GET /sessions", None);
    let sessions = all["sessions"].as_array().unwrap().iter();
    sessions
        .map(|session| session["session_id"].as_str().unwrap().to_owned())
        .collect()
}

/// Checks that a reply refuses at the ceiling of sandboxes, with all that a caller needs.
#[track_caller]
fn assert_refused_at(limit: u64, reply: &Response) {
    let body = reply.json().unwrap();
    assert_eq!(reply.status, 429, "{body}");
    let ceiling = &body["ceiling"];
    let named = [&ceiling["name"], &ceiling["limit"], &ceiling["scope"]];
    assert_eq!(
        named,
        [&json!("max_sessions"), &json!(limit), &json!("service")],
        "{body}"
    );
    assert_eq!(ceiling["used"], limit, "starting ones count: {body}");
    let detail = body["detail"].as_str().unwrap();
    assert!(detail.contains("Release an idle session"), "{detail}");
    let who = body["freed_by"].as_str().unwrap();
    assert!(who.contains("putting it to sleep"), "{who}");
    assert!(reply.header("retry-after").is_some(), "{body}");
}

#[test]
fn a_hundred_parallel_opens_at_a_ceiling_of_five_give_exactly_five() {
    const CEILING: usize = 5;
    let mut daemon = Daemon::start(&settings(&[WORKSPACES, ("SANDBOXD_MAX_SESSIONS", "5")]));
    let api = Api::of(&daemon);
    let open = |n: usize, round: &str| {
        let asked = json!({"session_id": format!("{round}{n}")});
        api.call("POST", "/sessions", Some(&asked))
    };
    let replies = at_once(100, |n| open(n, "a"));
    let (opened, refused): (Vec<_>, Vec<_>) = replies.iter().partition(|r| r.status == 200);
    assert_eq!((opened.len(), refused.len()), (CEILING, 95));
    for reply in refused {
        assert_refused_at(5, reply);
    }
    assert_eq!(labelled(&daemon.label()).len(), CEILING);
    for id in listed(&api) {
        api.close(&id, "?purge=true");
    }
    eprintln!("100 at once: {CEILING} opened, 95 refused");
    // The same where the daemon is killed in the middle of the rush.
    for (round, millis) in [40, 120, 400].into_iter().enumerate() {
        let acknowledged = rush_amid_a_kill(&mut daemon, round, Duration::from_millis(millis));
        let there = listed(&api);
        for id in &acknowledged {
            assert!(there.contains(id), "{id} of {there:?}");
        }
        let left = CEILING.checked_sub(there.len()).expect("never too many");
        let replies = at_once(20, |n| open(n, &format!("more{round}-")));
        let opened = replies.iter().filter(|reply| reply.status == 200).count();
        assert_eq!(opened, left, "{there:?} were there");
        wait("five run", SETTLED, || {
            (running(&daemon.label()).len() == CEILING).then_some(())
        });
        eprintln!(
            "killed after {millis} ms: {} acknowledged, {} whole, {left} more fit",
            acknowledged.len(),
            there.len()
        );
        for id in listed(&api) {
            api.close(&id, "?purge=true");
        }
    }
}

/// Asks for a hundred sessions at once, kills the daemon so long after, and starts it
/// again; returns the sessions whose opening was acknowledged.
fn rush_amid_a_kill(daemon: &mut Daemon, round: usize, after: Duration) -> Vec<String> {
    let http = daemon.http();
    let acknowledged = thread::scope(|scope| {
        let rush = scope.spawn(move || {
            at_once(100, |n| {
                let id = format!("rush{round}-{n}");
                let asked = json!({"session_id": id});
                let reply = Api::request_on(&http, "POST", "/sessions", Some(&asked));
                reply.is_ok_and(|reply| reply.status == 200).then_some(id)
            })
        });
        thread::sleep(after);
        daemon.stop(Ending::Kill);
        rush.join().unwrap()
    });
    daemon.start_again();
    acknowledged.into_iter().flatten().collect()
}

/// Falls idle for about as long as it takes to fall asleep, and then runs a command, so
/// many times; returns how often that woke the session.
fn use_at_the_deadline(api: &Api, lane: usize, turns: usize) -> usize {
    /// Milliseconds before and after the deadline of a second.
    const AROUND: [u64; 9] = [800, 940, 975, 990, 1000, 1010, 1025, 1050, 1100];
    let id = format!("lane{lane}");
    let mut woken = 0;
    for turn in 1..=turns {
        thread::sleep(Duration::from_millis(AROUND[(lane + turn) % AROUND.len()]));
        let ran = api.exec(&id, "echo x >>used; wc -l <used");
        assert_eq!(
            (&ran["exit_code"], &ran["output"]),
            (&json!(0), &json!(format!("{turn}\n"))),
            "{id}, command {turn}: {ran}"
        );
        let reset = &ran["reset_reason"];
        assert!(reset.is_null() || reset == "hibernated", "{ran}");
        woken += usize::from(!reset.is_null());
    }
    woken
}

#[test]
fn commands_at_the_very_moment_of_falling_asleep_all_succeed() {
    let (lanes, turns) = if whole() { (20, 100) } else { (10, 16) };
    let daemon = Daemon::start(&settings(&[
        WORKSPACES,
        ("SANDBOXD_HIBERNATE_IDLE_AFTER", "1"),
        ("SANDBOXD_MAX_SESSIONS", "100"),
    ]));
    let api = Api::of(&daemon);
    let woken: usize = at_once(lanes, |lane| {
        api.open_id(&format!("lane{lane}"));
        use_at_the_deadline(&api, lane, turns)
    })
    .into_iter()
    .sum();
    let count = lanes * turns;
    eprintln!("{count} commands around the deadline, {woken} of them woke their session");
    assert!(
        0 < woken && woken < count,
        "the deadline was in their midst"
    );
}

/// Returns the number of a process of a session with the moment of its start.
fn process(api: &Api, id: &str, pid: &str) -> String {
    api.sh(id, &format!("cut -d ' ' -f 1,22 </proc/{pid}/stat"))
}

#[test]
fn twenty_restarts_keep_the_processes_of_five_sessions() {
    let ids = ["a", "b", "c", "d", "e"];
    let mut daemon = Daemon::start(&settings(&[WORKSPACES]));
    let api = Api::of(&daemon);
    let before = ids.map(|id| {
        api.open_id(id);
        let pid = api.sh(id, "sleep 3000 >/dev/null & echo $!");
        (api.container(id), process(&api, id, &pid), pid)
    });
    let began = Instant::now();
    for n in 0..20 {
        daemon.restart([Ending::Terminate, Ending::Kill][n % 2]);
        for (id, (_, process_before, pid)) in ids.iter().zip(&before) {
            assert_eq!(&process(&api, id, pid), process_before, "restart {n}, {id}");
        }
    }
    eprintln!("20 restarts in {:?}", began.elapsed());
    for (id, (container, ..)) in ids.iter().zip(&before) {
        assert_eq!(&api.container(id), container);
        assert_eq!(api.info(id)["incarnation"], 1);
    }
    assert_eq!(labelled(&daemon.label()).len(), ids.len());
}

/// Containers that were made and never started, removed when dropped.
struct Leftovers(Vec<String>);

/// How many speak to the engine at once.
const HANDS: usize = 6;

impl Leftovers {
    /// Makes so many with a label.
    fn make(count: usize, label: (&str, &str)) -> Self {
        let asked = json!({
            "Image": IMAGE,
            "Cmd": ["true"],
            "Labels": {label.0: label.1},
            "HostConfig": {"NetworkMode": "none"},
        });
        let made = at_once(HANDS, |hand| {
            let engine = RawEngine::real();
            let mine = (0..count).filter(|n| n % HANDS == hand);
            mine.map(|_| {
                let (status, made) = engine.json("POST /containers/create", Some(&asked));
                assert_eq!(status, 201, "{made}");
                made["Id"].as_str().unwrap().to_owned()
            })
            .collect::<Vec<_>>()
        });
        Self(made.concat())
    }
}

impl Drop for Leftovers {
    fn drop(&mut self) {
        at_once(HANDS, |hand| {
            let engine = RawEngine::real();
            for id in self.0.iter().skip(hand).step_by(HANDS) {
                let (status, why) =
                    engine.json(&format!("DELETE /containers/{id}?force=true"), None);
                // The last few are no more too many, so the daemon removes them as well.
                if !matches!(status, 204 | 404 | 409) {
                    eprintln!("left behind: container {id}: {why}");
                }
            }
        });
    }
}

/// Fills a directory with a file of that many bytes on the disk, and some small ones.
fn fill(dir: &Path, bytes: u64) {
    fs::create_dir_all(dir).unwrap();
    for n in 0..100 {
        fs::write(dir.join(format!("small{n}")), "x").unwrap();
    }
    let large = dir.join("large");
    let length = bytes.to_string();
    let status = Command::new("fallocate")
        .args(["--length", &length])
        .arg(&large)
        .status();
    assert!(status.unwrap().success(), "{}", large.display());
}

#[test]
fn leftover_containers_and_directories_do_not_delay_serving() {
    const CONTAINERS: usize = 300;
    const DIRECTORIES: usize = 200;
    let bytes: u64 = if whole() { 20 << 30 } else { 2 << 30 };
    let mut daemon = Daemon::start(&settings(&[
        WORKSPACES,
        ("SANDBOXD_CLEANUP_INTERVAL", "1"),
        ("SANDBOXD_ORPHAN_GRACE", "1"),
        ("SANDBOXD_WORKSPACE_SCAN_INTERVAL", "1"),
        ("SANDBOXD_WORKSPACE_SIZE", "1g"),
    ]));
    let api = Api::of(&daemon);
    api.open_id("kept");
    let container = api.container("kept");
    let start = |daemon: &mut Daemon| {
        let began = Instant::now();
        daemon.start_again();
        began.elapsed()
    };
    daemon.stop(Ending::Terminate);
    let before = start(&mut daemon);
    daemon.stop(Ending::Terminate);

    let ours = daemon.label();
    let (name, instance) = ours.split_once('=').unwrap();
    let another = uuid::Uuid::new_v4().to_string();
    assert_eq!(name, INSTANCE_LABEL);
    let strays = Leftovers::make(CONTAINERS / 2, (name, instance));
    let foreign = Leftovers::make(CONTAINERS / 2, (name, &another));
    let root = daemon.dir().join("ws");
    let each = bytes / u64::try_from(DIRECTORIES).unwrap();
    for n in 0..DIRECTORIES {
        // Half of them remains of purges, and half of them nobody's.
        let dir = match n % 2 {
            0 => root.join(format!(".trash/{n:032x}/workspace")),
            _ => root.join(format!("stored{n}/workspace")),
        };
        fill(&dir, each);
    }

    let after = start(&mut daemon);
    let timed = |what: &str, act: &dyn Fn()| {
        let began = Instant::now();
        act();
        let took = began.elapsed();
        assert!(took < PROMPT, "{what} took {took:?}");
        took
    };
    let command = timed("a command", &|| assert_eq!(api.sh("kept", "echo hi"), "hi"));
    let listing = timed("a listing", &|| assert_eq!(listed(&api), ["kept"]));
    let opening = timed("an opening", &|| drop(api.open_id("new")));
    eprintln!(
        "{CONTAINERS} containers and {} MiB left over: start {before:?} before, {after:?} with \
         them; command {command:?}, listing {listing:?}, opening {opening:?}",
        bytes >> 20
    );
    assert!(after < before + PROMPT, "{before:?}, then {after:?}");
    let began = Instant::now();
    wait("the remains of purges are gone", SETTLED, || {
        timed("a command", &|| assert_eq!(api.sh("new", "echo hi"), "hi"));
        let trash = root.join(".trash");
        (trash.read_dir().unwrap().next().is_none()).then_some(())
    });
    eprintln!("the remains of purges went in {:?}", began.elapsed());
    assert!(root.join("stored1/workspace/large").exists());
    assert_eq!(api.container("kept"), container);
    assert_eq!(
        labelled(&format!("{name}={another}")).len(),
        foreign.0.len()
    );
    // More than a fifth of all that is ours: somebody has to look.
    assert_eq!(labelled(&ours).len(), strays.0.len() + 2);
}

/// How long two daemons churn.
fn churn_time() -> Duration {
    let asked = std::env::var("SANDBOXD_TEST_CHURN_SECS");
    let secs = asked.map_or(30, |secs| secs.parse().unwrap());
    Duration::from_secs(secs)
}

/// One of two daemons that share an engine.
struct Side {
    name: &'static str,
    daemon: Daemon,
    /// Sessions that stay, with their container and a process in it.
    stay: Vec<(String, String, String)>,
}

/// What a side did.
#[derive(Debug, Default)]
struct Done {
    kills: usize,
    sessions: usize,
    commands: usize,
    /// Requests that were made again, since their daemon was killed or just began.
    repeats: usize,
}

impl Side {
    fn start(name: &'static str) -> Self {
        let daemon = Daemon::start(&settings(&[
            WORKSPACES,
            ("SANDBOXD_CLEANUP_INTERVAL", "1"),
            ("SANDBOXD_ORPHAN_GRACE", "2"),
            ("SANDBOXD_MAX_SESSIONS", "100"),
        ]));
        let api = Api::of(&daemon);
        let stay = (0..3).map(|n| {
            let id = format!("{name}-stays{n}");
            api.open_id(&id);
            let pid = api.sh(&id, "sleep 30000 >/dev/null & echo $!");
            (id.clone(), api.container(&id), process(&api, &id, &pid))
        });
        let stay = stay.collect();
        Self { name, daemon, stay }
    }

    /// Opens, uses and ends sessions until the end, while the daemon is killed again and
    /// again; everything that was begun is over then.
    fn churn(&mut self, end: Instant) -> Done {
        let is_over = AtomicBool::new(false);
        let name = self.name;
        let mut done = Done::default();
        thread::scope(|scope| {
            let lanes: Vec<_> = (0..3)
                .map(|lane| {
                    let caller = Caller(Api::of(&self.daemon), 0);
                    let (is_over, name) = (&is_over, format!("{name}-{lane}"));
                    scope.spawn(move || caller.lead_lives(&name, is_over))
                })
                .collect();
            while Instant::now() < end {
                let pause = 400 + uuid::Uuid::new_v4().as_u128() % 4_000;
                thread::sleep(Duration::from_millis(u64::try_from(pause).unwrap()));
                // Without a look before: it is killed at any moment.
                self.daemon.restart(Ending::Kill);
                done.kills += 1;
                self.assert_all_stay(&Api::of(&self.daemon));
            }
            is_over.store(true, Ordering::Relaxed);
            for lane in lanes {
                let led = lane.join().unwrap();
                done.sessions += led.sessions;
                done.commands += led.commands;
                done.repeats += led.repeats;
            }
        });
        done
    }

    /// Checks that nobody took what stays away.
    fn assert_all_stay(&self, api: &Api) {
        for (id, container, before) in &self.stay {
            let (pid, _) = before.split_once(' ').unwrap();
            assert_eq!(&process(api, id, pid), before, "{id}");
            assert_eq!(&api.container(id), container, "{id}");
        }
    }

    /// Checks that nothing is left but what stays.
    fn assert_no_strays(&self) {
        let api = Api::of(&self.daemon);
        self.assert_all_stay(&api);
        let mut wanted: Vec<&str> = self.stay.iter().map(|(_, c, _)| c.as_str()).collect();
        wanted.sort_unstable();
        wait("no container is left over", SETTLED, || {
            let mut found = labelled(&self.daemon.label());
            found.sort();
            (found == wanted).then_some(())
        });
        let root = self.daemon.dir().join("ws");
        wait("no directory is left over", SETTLED, || {
            let left = fs::read_dir(&root).unwrap().filter(|entry| {
                let name = entry.as_ref().unwrap().file_name();
                let name = name.to_string_lossy();
                !name.starts_with('.') && !name.contains("stays")
            });
            let trash = root.join(".trash");
            let is_clean = !trash.exists() || trash.read_dir().unwrap().next().is_none();
            (left.count() == 0 && is_clean).then_some(())
        });
        assert_eq!(listed(&api).len(), self.stay.len());
        let found = api.json(200, "GET /doctor", None);
        let counts = &found["counts"];
        assert_eq!(
            (&counts["fail"], &counts["unknown"]),
            (&json!(0), &json!(0)),
            "{found}"
        );
    }
}

/// A caller that asks again where its daemon was killed, and counts how often.
struct Caller(Api, usize);

impl Caller {
    /// Asks until there is an answer that is one; returns its status and body.
    fn insist(&mut self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let end = Instant::now() + SETTLED;
        loop {
            let reply = Api::request_on(self.0.http(), method, path, body);
            if let Ok(reply) = &reply {
                let told = reply.json().unwrap_or_default();
                let is_for_later = matches!(reply.status, 409 | 503) && told["retryable"] == true;
                if !is_for_later {
                    return (reply.status, told);
                }
            }
            assert!(Instant::now() < end, "{method} {path}: {reply:?}");
            self.1 += 1;
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn run(&mut self, id: &str, command: &str) {
        let asked = json!({"command": command});
        let (status, ran) = self.insist("POST", &format!("/sessions/{id}/exec"), Some(&asked));
        assert_eq!(status, 200, "{id}: {ran}");
        let seen = [&ran["exit_code"], &ran["output"], &ran["reset_reason"]];
        let wanted = [&json!(0), &json!(format!("{id}\n")), &Value::Null];
        assert_eq!(
            seen, wanted,
            "its container is the one of its opening: {ran}"
        );
    }

    /// Leads sessions from their opening to their purge, one after the other.
    fn lead_lives(mut self, name: &str, is_over: &AtomicBool) -> Done {
        let mut done = Done::default();
        while !is_over.load(Ordering::Relaxed) {
            let id = format!("{name}-{}", done.sessions);
            // Again under the same id: whether the first one succeeded is not known.
            let asked = json!({"session_id": id, "reuse": true});
            let (status, opened) = self.insist("POST", "/sessions", Some(&asked));
            assert_eq!(status, 200, "{id}: {opened}");
            self.run(&id, &format!("echo {id} >mine; cat mine"));
            for _ in 0..3 {
                self.run(&id, "cat mine");
            }
            let path = format!("/workspaces/{id}?close=true");
            let (status, why) = self.insist("DELETE", &path, None);
            assert_eq!(status, 204, "{id}: {why}");
            done.sessions += 1;
            done.commands += 4;
        }
        done.repeats = self.1;
        done
    }
}

#[test]
fn two_daemons_on_one_engine_churn_under_kills_without_strays_or_cross_removals() {
    let mut sides = [Side::start("left"), Side::start("right")];
    let end = Instant::now() + churn_time();
    let done = thread::scope(|scope| {
        let churns = sides.each_mut().map(|side| scope.spawn(|| side.churn(end)));
        churns.map(|churn| churn.join().unwrap())
    });
    eprintln!("churned for {:?}: {done:?}", churn_time());
    for (side, done) in sides.iter().zip(&done) {
        assert!(0 < done.kills && 0 < done.sessions, "{done:?}");
        side.assert_no_strays();
    }
}
