//! The agent, spoken to directly: on this host, and as the first process of a container.

use std::time::{Duration, Instant};

use sandboxd::agent::protocol::frame::Frame;
use sandboxd::agent::protocol::message::{
    Bounds, Cause, Fetch, Filter, From, Keep, Request, Size, Stdin, Streams, Wait, Why,
};
use sandboxd::agent::protocol::output::Output;

use crate::support::agent_wire::{BOUNDS, Caller, LocalAgent, argv, fetch, shell, until};

mod boxed;
mod files;

const TERM: i32 = 15;
const KILL: i32 = 9;

fn local() -> (LocalAgent, Caller) {
    let agent = LocalAgent::start();
    let caller = agent.host.accept();
    (agent, caller)
}

fn text(output: &Output) -> String {
    let records = output
        .records
        .iter()
        .flat_map(|record| record.bytes.clone());
    String::from_utf8(records.collect()).unwrap()
}

fn all(limit: Option<u64>) -> Keep {
    Keep::All { limit }
}

fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap()
}

#[test]
fn a_command_is_told_with_its_output_its_code_and_its_end() {
    let (_agent, mut caller) = local();
    let (out, run) = caller.run(&shell("echo out; echo err >&2; exit 3"));
    let end = run.end.unwrap();
    assert_eq!((out.as_str(), end.cause), ("out\nerr\n", Cause::Exited));
    assert_eq!((end.code, end.signal), (Some(3), None));
    let (_, run) = caller.run(&shell("kill -9 $$"));
    let end = run.end.unwrap();
    assert_eq!(
        (end.cause, end.code, end.signal),
        (Cause::Exited, None, Some(KILL))
    );
}

#[test]
fn a_program_that_cannot_be_started_says_so_with_the_code_of_a_shell() {
    let (_agent, mut caller) = local();
    for (program, code, words) in [
        ("nosuch", 127, "sandboxd: nosuch: not found\n"),
        (
            "/etc/passwd",
            126,
            "sandboxd: /etc/passwd: permission denied\n",
        ),
        ("/", 126, "sandboxd: /: permission denied\n"),
    ] {
        let (out, run) = caller.run(&argv(&[program]));
        let end = run.end.unwrap();
        assert_eq!(
            (out.as_str(), end.cause, end.code),
            (words, Cause::StartFailed, Some(code))
        );
    }
    let mut start = shell("true");
    start.cwd = Some("/nowhere".to_owned());
    start.streams = Streams::Split;
    let (out, run) = caller.run(&start);
    assert_eq!(out, "sandboxd: /nowhere: no such directory\n");
    assert_eq!(
        (run.stderr_bytes, run.end.unwrap().code),
        (count(out.len()), Some(126))
    );
}

#[test]
fn a_run_has_its_variables_its_directory_its_user_and_no_descriptor_of_the_agent() {
    let (_agent, mut caller) = local();
    let mut start =
        shell("echo $A $SANDBOXD_RUN; pwd; id -u; id -g; echo $HOME; exec ls /proc/self/fd");
    start.env.insert("A".to_owned(), "one two".to_owned());
    start.cwd = Some("/usr".to_owned());
    start.user = Some("65534:12".to_owned());
    let (out, _) = caller.run(&start);
    let lines: Vec<&str> = out.lines().collect();
    let first = format!("one two {}", start.run);
    assert_eq!(lines[..4], [first.as_str(), "/usr", "65534", "12"]);
    // The last is the directory that is listed.
    assert_eq!(lines[5..], ["0", "1", "2", "3"]);
    start = shell("true");
    start.user = Some("nobody-here".to_owned());
    assert_eq!(caller.start(&start).unwrap_err().0, Why::User);
}

#[test]
fn children_begin_with_default_signals_and_die_before_the_agent() {
    let (_agent, mut caller) = local();
    let text = "grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status; cat /proc/self/oom_score_adj";
    let (out, _) = caller.run(&shell(text));
    assert!(out.contains("SigBlk:\t0000000000000000\n"), "{out}");
    // What the C library keeps for itself, 32 and 33, is ignored where it started the agent.
    let ignored = out.lines().find(|line| line.starts_with("SigIgn:"));
    let ignored = ignored.and_then(|line| line.split_whitespace().nth(1));
    let ignored = u64::from_str_radix(ignored.unwrap(), 16).unwrap();
    assert_eq!(ignored & !0x1_8000_0000, 0, "{out}");
    assert!(out.ends_with("1000\n"), "{out}");
}

#[test]
fn one_id_runs_once() {
    let (_agent, mut caller) = local();
    let start = shell("echo once; sleep 0.2");
    assert!(caller.start(&start).unwrap().1);
    assert!(!caller.start(&start).unwrap().1);
    let mut other = start.clone();
    other.digest = "another".to_owned();
    assert_eq!(caller.start(&other).unwrap_err().0, Why::Conflict);
    let ended = caller.fetch(&start.run, 0, Wait::End).unwrap();
    assert_eq!(text(&ended), "once\n");
    let run = start.run.clone();
    caller.order(|ask| Request::Forget { ask, run }).unwrap();
    assert_eq!(caller.start(&start).unwrap_err().0, Why::NoRun);
    assert_eq!(
        caller.fetch(&start.run, 0, Wait::No).unwrap_err().0,
        Why::NoRun
    );
}

#[test]
fn a_deadline_ends_what_ignores_term_and_what_left_the_session() {
    let (_agent, mut caller) = local();
    let mut start = shell(
        "trap '' TERM; setsid sleep 1000 & (setsid sh -c 'sleep 1000 &' &); while :; do sleep 1; done",
    );
    start.timeout_ms = Some(200);
    let began = Instant::now();
    let (_, run) = caller.run(&start);
    let end = run.end.unwrap();
    assert_eq!((end.cause, end.code), (Cause::Timeout, None));
    assert!(Duration::from_millis(2200) <= began.elapsed());
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(carriers(&start.run), Vec::<String>::new());
}

/// Returns the processes of this host that carry the cookie of a run.
fn carriers(run: &str) -> Vec<String> {
    let cookie = format!("SANDBOXD_RUN={run}");
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let carries = |name: &String| {
        let environment = std::fs::read(format!("/proc/{name}/environ")).unwrap_or_default();
        String::from_utf8_lossy(&environment).contains(&cookie)
    };
    names.filter(carries).collect()
}

#[test]
fn a_run_that_heeds_term_ends_at_once_with_what_it_wrote() {
    let (_agent, mut caller) = local();
    let start = shell("trap 'echo bye; exit 5' TERM; sleep 1000 & wait");
    caller.start(&start).unwrap();
    until("the trap is set", || !carriers(&start.run).is_empty());
    std::thread::sleep(Duration::from_millis(100));
    let began = Instant::now();
    let run = start.run.clone();
    caller.order(|ask| Request::Stop { ask, run }).unwrap();
    let output = caller.fetch(&start.run, 0, Wait::End).unwrap();
    let run: sandboxd::agent::protocol::message::Run =
        serde_json::from_slice(&output.end.clone().unwrap()).unwrap();
    let end = run.end.unwrap();
    assert_eq!(
        (text(&output).as_str(), end.cause, end.code),
        ("bye\n", Cause::Stopped, Some(5))
    );
    assert!(began.elapsed() < Duration::from_secs(1));
}

#[test]
fn a_signal_on_request_is_told_apart() {
    let (_agent, mut caller) = local();
    let start = shell("sleep 1000");
    caller.start(&start).unwrap();
    let run = start.run.clone();
    caller
        .order(|ask| Request::Signal {
            ask,
            run,
            signal: TERM,
        })
        .unwrap();
    let output = caller.fetch(&start.run, 0, Wait::End).unwrap();
    let run: sandboxd::agent::protocol::message::Run =
        serde_json::from_slice(&output.end.unwrap()).unwrap();
    let end = run.end.unwrap();
    assert_eq!((end.cause, end.signal), (Cause::Signal, Some(TERM)));
    let run = start.run.clone();
    let refused = caller.order(|ask| Request::Signal {
        ask,
        run,
        signal: TERM,
    });
    assert_eq!(refused.unwrap_err().0, Why::Over);
}

#[test]
fn what_a_run_leaves_in_the_background_lives_on_and_may_go_on_writing() {
    let (_agent, mut caller) = local();
    let mark = tempfile::NamedTempFile::new().unwrap();
    let path = mark.path().display();
    let start = shell(&format!(
        "(sleep 0.3; head -c 300000 /dev/zero; echo alive > {path}) & echo started"
    ));
    let began = Instant::now();
    let (out, run) = caller.run(&start);
    assert_eq!(
        (out.as_str(), run.end.unwrap().code),
        ("started\n", Some(0))
    );
    assert!(began.elapsed() < Duration::from_millis(300));
    until("the child writes", || {
        std::fs::read_to_string(mark.path()).unwrap() == "alive\n"
    });
}

#[test]
fn output_of_200_mb_flows_whole_while_the_agent_stays_small() {
    let (agent, mut caller) = local();
    let size: u64 = 200 << 20;
    let mut start = shell(&format!("head -c {size} /dev/zero"));
    start.output = all(None);
    let began = Instant::now();
    caller.start(&start).unwrap();
    let (mut seq, mut got) = (0, 0);
    loop {
        let output = caller.fetch(&start.run, seq, Wait::End).unwrap();
        assert_eq!(output.gap, None);
        for record in &output.records {
            assert_eq!((record.seq, record.offset), (seq, got));
            seq += 1;
            got += count(record.bytes.len());
        }
        if output.end.is_some() {
            break;
        }
    }
    let took = began.elapsed();
    eprintln!("{} MB/s", u128::from(size) / 1000 / took.as_millis());
    assert_eq!(got, size);
    let status = std::fs::read_to_string(format!("/proc/{}/status", agent.process.id())).unwrap();
    let peak = status
        .lines()
        .find(|line| line.starts_with("VmHWM"))
        .unwrap();
    let peak: u64 = peak.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(peak < 8 << 10, "{peak} KiB at most");
}

#[test]
fn a_ring_drops_the_oldest_and_says_so_and_never_has_the_run_wait() {
    let (_agent, mut caller) = local();
    let mut start = shell("head -c 5000000 /dev/zero");
    start.output = Keep::Newest { limit: None };
    caller.start(&start).unwrap();
    until("the run ends", || {
        caller.list().iter().all(|run| run.end.is_some())
    });
    let output = caller.fetch(&start.run, 0, Wait::No).unwrap();
    let (lost, kept) = output.gap.unwrap();
    assert_eq!((lost, kept), (0, output.records[0].seq));
    let run = caller.list().remove(0);
    assert_eq!((run.truncated, run.stdout_bytes), (true, 5_000_000));
}

#[test]
fn a_run_that_writes_beyond_its_limit_is_ended_with_what_was_within() {
    let (_agent, mut caller) = local();
    let mut start = shell("yes");
    start.output = all(Some(100_000));
    let (out, run) = caller.run(&start);
    assert_eq!(
        (out.len(), run.end.unwrap().cause),
        (100_000, Cause::OutputLimit)
    );
    let mut start = shell("head -c 300000 /dev/zero; echo more >&2");
    start.output = Keep::First(1000);
    let (out, run) = caller.run(&start);
    assert_eq!(
        (out.len(), run.truncated, run.stdout_bytes),
        (1000, true, 300_005)
    );
}

#[test]
fn streams_that_are_apart_come_in_the_order_of_arrival_and_can_be_asked_for_alone() {
    let (_agent, mut caller) = local();
    let mut start = shell("printf 'aé'; sleep 0.1; printf oops >&2; sleep 0.1; printf 'bc'");
    start.streams = Streams::Split;
    let (out, _) = caller.run(&start);
    assert_eq!(out, "aéoopsbc");
    let mut wanted = fetch(&start.run, 0, Wait::No);
    wanted.streams = Filter::Err;
    let ask = caller.ask_output(&wanted);
    let output = caller.output(ask).unwrap();
    assert_eq!(
        (text(&output).as_str(), output.end.is_some()),
        ("oops", true)
    );
    let wanted = Fetch {
        from: From::Offset(1),
        streams: Filter::Out,
        ..wanted
    };
    let ask = caller.ask_output(&wanted);
    assert_eq!(text(&caller.output(ask).unwrap()), "ébc");
}

#[test]
fn input_is_taken_piece_by_piece_and_refused_once_it_has_ended() {
    let (_agent, mut caller) = local();
    let mut start = shell("cat");
    start.stdin = Stdin::Open;
    caller.start(&start).unwrap();
    caller.input(&start.run, b"one ", false).unwrap();
    caller.input(&start.run, b"two", true).unwrap();
    let refused = caller.input(&start.run, b"three", false);
    assert_eq!(refused.unwrap_err().0, Why::Over);
    assert_eq!(
        text(&caller.fetch(&start.run, 0, Wait::End).unwrap()),
        "one two"
    );
    let mut start = shell("cat");
    start.stdin = Stdin::Text("é".repeat(200_000));
    start.output = all(None);
    assert_eq!(caller.run(&start).0, "é".repeat(200_000));
}

#[test]
fn unread_input_is_bounded_and_taken_back() {
    let (_agent, mut caller) = local();
    let mut start = shell("sleep 1000");
    start.stdin = Stdin::Open;
    caller.start(&start).unwrap();
    let piece = vec![b'x'; 64 << 10];
    let asks: Vec<u64> = (0..12)
        .map(|_| caller.ask_input(&start.run, &piece, false))
        .collect();
    // The pipe takes the first; eight wait; the others are refused.
    caller.wait_done(asks[0]).unwrap();
    assert_eq!(caller.wait_done(asks[11]).unwrap_err().0, Why::Ceiling);
    caller.cancel(asks[1]);
    let run = start.run.clone();
    caller.order(|ask| Request::Stop { ask, run }).unwrap();
    caller.fetch(&start.run, 0, Wait::End).unwrap();
    assert_eq!(caller.wait_done(asks[3]).unwrap_err().0, Why::Over);
}

#[test]
fn a_terminal_has_its_size_its_input_and_its_hangup() {
    let (_agent, mut caller) = local();
    let mut start = shell(
        "trap 'stty size' WINCH; stty size; tty; echo $TERM; read line; echo got $line; read line",
    );
    start.streams = Streams::Tty(Size { cols: 81, rows: 25 });
    start.stdin = Stdin::Open;
    caller.start(&start).unwrap();
    let mut seen = String::new();
    let mut seq = 0;
    let mut typed = false;
    while !seen.contains("got hi") {
        let output = caller.fetch(&start.run, seq, Wait::Some).unwrap();
        seq += count(output.records.len());
        seen += &text(&output);
        // The line discipline echoes at once, so what is typed too early comes in between.
        if !typed && seen.contains("xterm-256color\r\n") {
            caller.input(&start.run, b"hi\n", false).unwrap();
            typed = true;
        }
    }
    assert!(seen.contains("25 81\r\n/dev/pts/"), "{seen}");
    assert!(seen.contains("\r\nxterm-256color\r\n"), "{seen}");
    let size = Size {
        cols: 100,
        rows: 40,
    };
    let run = start.run.clone();
    caller
        .order(|ask| Request::Resize { ask, run, size })
        .unwrap();
    caller.input(&start.run, b"", true).unwrap();
    let output = caller.fetch(&start.run, seq, Wait::End).unwrap();
    assert!(text(&output).contains("40 100\r\n"), "{}", text(&output));
    assert!(output.end.is_some());
    assert_eq!(caller.list().remove(0).size, Some(size));
}

#[test]
fn a_stop_ends_a_shell_at_a_terminal_although_it_ignores_term() {
    let (_agent, mut caller) = local();
    let mut start = argv(&["bash", "--norc", "-i"]);
    start.streams = Streams::Tty(Size { cols: 80, rows: 24 });
    caller.start(&start).unwrap();
    caller.fetch(&start.run, 0, Wait::Some).unwrap();
    let began = Instant::now();
    let run = start.run.clone();
    caller.order(|ask| Request::Stop { ask, run }).unwrap();
    while caller
        .fetch(&start.run, 0, Wait::End)
        .unwrap()
        .end
        .is_none()
    {}
    assert!(began.elapsed() < Duration::from_secs(2));
}

#[test]
fn a_request_that_was_taken_back_is_not_answered() {
    let (_agent, mut caller) = local();
    let start = shell("sleep 0.2; echo late");
    caller.start(&start).unwrap();
    let given_up = caller.ask_output(&fetch(&start.run, 0, Wait::Some));
    let kept = caller.ask_output(&fetch(&start.run, 0, Wait::End));
    caller.cancel(given_up);
    assert_eq!(text(&caller.output(kept).unwrap()), "late\n");
    // Answers come in the order of asking here, so it would have come before.
    assert_eq!(caller.list().len(), 1);
    assert!(!caller.was_answered(given_up));
}

#[test]
fn sixty_four_runs_at_once_are_all_told_and_one_more_is_refused() {
    let (_agent, mut caller) = local();
    let starts: Vec<_> = (0..64)
        .map(|n| shell(&format!("read x; echo {n}")))
        .collect();
    for start in &starts {
        let mut start = start.clone();
        start.stdin = Stdin::Open;
        caller.start(&start).unwrap();
    }
    assert_eq!(caller.start(&shell("true")).unwrap_err().0, Why::Ceiling);
    for start in &starts {
        caller.input(&start.run, b"\n", true).unwrap();
    }
    for (n, start) in starts.iter().enumerate() {
        let output = caller.fetch(&start.run, 0, Wait::End).unwrap();
        assert_eq!(text(&output), format!("{n}\n"));
    }
    caller.start(&shell("true")).unwrap();
}

#[test]
fn runs_go_on_while_the_stream_is_broken_and_the_newest_stream_counts() {
    let (mut agent, mut caller) = local();
    let start = shell("sleep 0.3; echo kept");
    caller.start(&start).unwrap();
    let life = caller.hello.life.clone();
    caller.hang_up();
    let mut caller = agent.host.accept();
    assert_eq!(caller.hello.life, life);
    assert_eq!(
        text(&caller.fetch(&start.run, 0, Wait::End).unwrap()),
        "kept\n"
    );
    agent.host.replace();
    caller.hang_up();
    let mut caller = agent.host.accept();
    assert_eq!(caller.list().len(), 1);
    let own = agent.host.dir().join("own.sock");
    let socket = std::os::unix::net::UnixStream::connect(own).unwrap();
    let carrier = crate::support::agent_wire::Carrier::Socket(socket);
    let mut newest = Caller::greet(carrier, BOUNDS);
    assert_eq!(newest.list().len(), 1);
    assert!(caller.is_closed());
}

#[test]
fn what_is_no_frame_closes_its_stream_and_nothing_else() {
    let (agent, mut caller) = local();
    let start = shell("sleep 0.3; echo kept");
    caller.start(&start).unwrap();
    caller.send_raw(&[0xFF; 64]);
    assert!(caller.is_closed());
    let mut caller = agent.host.accept();
    // A request that a newer daemon may know is refused, and the stream goes on.
    let mut future = Vec::new();
    let json = br#"{"op":"future","ask":4242}"#.to_vec();
    Frame::Message(json.into()).put(&mut future).unwrap();
    caller.send_raw(&future);
    assert_eq!(caller.wait_done(4242).unwrap_err().0, Why::Bad);
    assert_eq!(
        text(&caller.fetch(&start.run, 0, Wait::End).unwrap()),
        "kept\n"
    );
}

#[test]
fn ended_runs_are_forgotten_after_their_time() {
    let agent = LocalAgent::start();
    let bounds = Bounds {
        keep_ms: 100,
        ..BOUNDS
    };
    let mut caller = agent.host.accept_with(bounds);
    caller.run(&shell("true"));
    until("the run is forgotten", || caller.list().is_empty());
}

#[test]
fn an_idle_agent_is_small() {
    let (agent, mut caller) = local();
    caller.run(&shell("true"));
    let size = std::fs::metadata(crate::support::agent_wire::agent_program())
        .unwrap()
        .len();
    let status = std::fs::read_to_string(format!("/proc/{}/status", agent.process.id())).unwrap();
    let kib = |name: &str| -> u64 {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    let (anonymous, resident) = (kib("RssAnon"), kib("VmRSS"));
    eprintln!("{anonymous} KiB anonymous, {resident} KiB resident, {size} bytes on disk");
    assert!(anonymous <= 1 << 10 && resident <= 3 << 10 && size <= 2 << 20);
}
