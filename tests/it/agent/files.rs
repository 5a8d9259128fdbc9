//! The agent's program as it works on files.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use sandboxd::agent::protocol::files::{
    Ask, Kind, Links, Meta, PROGRAM, Page, Say, Trouble, Until, VERSION,
};
use sandboxd::agent::protocol::frame::Decoder;
use sandboxd::agent::protocol::message::{Cause, Keep, Request, Stdin, Streams, Wait};
use sandboxd::agent::protocol::output::Stream;

use crate::support::agent_wire::{BoxedAgent, Caller, argv, shell, until};
use crate::support::docker::{IMAGE, need_image};

use super::local;

const NOT_FOUND: Trouble = Trouble::Errno(2);
const DENIED: Trouble = Trouble::Errno(13);

/// One run that works on files.
struct Clerk<'c> {
    caller: &'c mut Caller,
    run: String,
    decoder: Decoder,
    seq: u64,
}

impl<'c> Clerk<'c> {
    fn begin(caller: &'c mut Caller) -> Self {
        assert_eq!(caller.hello.files, VERSION);
        let mut start = argv(&PROGRAM);
        start.stdin = Stdin::Open;
        start.streams = Streams::Split;
        start.output = Keep::All { limit: None };
        assert!(caller.start(&start).unwrap().1);
        Self {
            caller,
            run: start.run,
            decoder: Decoder::default(),
            seq: 0,
        }
    }

    fn ask(&mut self, ask: &Ask) {
        let mut bytes = Vec::new();
        ask.put(&mut bytes).unwrap();
        for piece in bytes.chunks(32 << 10) {
            self.caller.input(&self.run, piece, false).unwrap();
        }
    }

    fn hear(&mut self) -> Say {
        loop {
            if let Some(say) = self.decoder.next_as(Say::parse).unwrap() {
                return say;
            }
            let output = self.caller.fetch(&self.run, self.seq, Wait::Some).unwrap();
            assert!(output.end.is_none(), "it has ended: {output:?}");
            for record in output.records {
                self.seq = record.seq + 1;
                assert_eq!(
                    record.stream,
                    Stream::Out,
                    "{:?}",
                    String::from_utf8(record.bytes.into())
                );
                self.decoder.push(&record.bytes);
            }
        }
    }

    fn said(&mut self, ask: &Ask) -> Say {
        self.ask(ask);
        self.hear()
    }

    fn open(&mut self, path: &Path) -> Say {
        self.said(&Ask::Open {
            path: path.as_os_str().as_encoded_bytes().to_vec(),
            links: Links::Followed,
            most: u64::MAX,
        })
    }

    fn draft(&mut self, path: &Path, parents: bool) -> Say {
        let path = path.as_os_str().as_encoded_bytes().to_vec();
        self.said(&Ask::Draft { path, parents })
    }

    fn commit(&mut self, bytes: &[u8]) -> Say {
        self.ask(&Ask::Data(bytes.to_vec()));
        self.said(&Ask::Commit { expected: None })
    }

    fn walk(&mut self, path: &Path) -> (Vec<String>, Page) {
        let begun = self.said(&Ask::Walk {
            path: path.as_os_str().as_encoded_bytes().to_vec(),
            hidden: true,
            depth: 512,
        });
        assert_eq!(begun, Say::Done);
        let mut found = Vec::new();
        loop {
            self.ask(&Ask::More { entries: 3 });
            loop {
                match self.hear() {
                    Say::Entry(entry) => found.push(String::from_utf8(entry.path).unwrap()),
                    Say::Page(Page::More) => break,
                    Say::Page(end) => return (found, end),
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    /// Ends its input, and waits for its end.
    fn end(self) {
        self.caller.input(&self.run, &[], true).unwrap();
        let output = self.caller.fetch(&self.run, self.seq, Wait::Over).unwrap();
        let end: sandboxd::agent::protocol::message::Run =
            serde_json::from_slice(&output.end.unwrap()).unwrap();
        let end = end.end.unwrap();
        assert_eq!((end.cause, end.code), (Cause::Exited, Some(0)));
    }
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn meta(said: Say) -> Meta {
    match said {
        Say::Meta(meta) => meta,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_draft_is_seen_whole_or_not_at_all() {
    let (_agent, mut caller) = local();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("new/f");
    let mut clerk = Clerk::begin(&mut caller);
    assert_eq!(clerk.draft(&file, false), Say::Failed(NOT_FOUND));
    assert_eq!(clerk.draft(&file, true), Say::Done);
    clerk.ask(&Ask::Data(b"half".to_vec()));
    assert_eq!(
        clerk.said(&Ask::More { entries: 1 }),
        Say::Failed(Trouble::Bad)
    );
    assert!(!file.exists());
    // Another one takes its place.
    assert_eq!(clerk.draft(&file, true), Say::Done);
    let made = meta(clerk.commit(b"whole"));
    assert_eq!(
        (made.kind, made.mode, made.tag.size),
        (Kind::File, 0o644, 5)
    );
    assert_eq!(fs::read(&file).unwrap(), b"whole");
    assert_eq!(
        clerk.said(&Ask::Commit { expected: None }),
        Say::Failed(Trouble::Bad)
    );
    // What changed meanwhile is not replaced.
    assert_eq!(clerk.draft(&file, false), Say::Done);
    fs::write(&file, "sooner").unwrap();
    clerk.ask(&Ask::Data(b"late".to_vec()));
    let expected = Some(made.tag);
    assert_eq!(
        clerk.said(&Ask::Commit { expected }),
        Say::Failed(Trouble::Changed)
    );
    assert_eq!(fs::read(&file).unwrap(), b"sooner");
    // Neither the end of the input nor a stop leaves anything.
    assert_eq!(clerk.draft(&file, false), Say::Done);
    clerk.ask(&Ask::Data(vec![7; 60_000]));
    clerk.end();
    assert_eq!(names(&dir.path().join("new")), ["f"]);
    let mut clerk = Clerk::begin(&mut caller);
    assert_eq!(clerk.draft(&file, false), Say::Done);
    clerk.ask(&Ask::Data(vec![7; 60_000]));
    let run = clerk.run.clone();
    caller
        .order(|ask| Request::Stop {
            ask,
            run: run.clone(),
        })
        .unwrap();
    let ended = caller.fetch(&run, 0, Wait::Over).unwrap();
    assert!(ended.end.is_some());
    assert_eq!(names(&dir.path().join("new")), ["f"]);
    assert_eq!(fs::read(&file).unwrap(), b"sooner");
}

#[test]
fn a_draft_keeps_what_was_there_and_goes_where_links_lead() {
    let (_agent, mut caller) = local();
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("f"), "old").unwrap();
    fs::set_permissions(at("f"), fs::Permissions::from_mode(0o4750)).unwrap();
    std::os::unix::fs::chown(at("f"), Some(77), Some(88)).unwrap();
    symlink("f", at("link")).unwrap();
    symlink(at("link"), at("twice")).unwrap();
    symlink("missing", at("dangling")).unwrap();
    symlink("loop", at("loop")).unwrap();
    let mut clerk = Clerk::begin(&mut caller);
    assert_eq!(clerk.draft(&at("twice"), false), Say::Done);
    meta(clerk.commit(b"new"));
    let kept = fs::symlink_metadata(at("f")).unwrap();
    assert_eq!(
        (kept.uid(), kept.gid(), kept.mode() & 0o7777),
        (77, 88, 0o750)
    );
    assert!(fs::symlink_metadata(at("link")).unwrap().is_symlink());
    assert_eq!(clerk.draft(&at("dangling"), false), Say::Done);
    meta(clerk.commit(b"made"));
    assert_eq!(fs::read(at("missing")).unwrap(), b"made");
    assert_eq!(
        clerk.draft(&at("loop"), false),
        Say::Failed(Trouble::Errno(40))
    );
    assert_eq!(
        clerk.draft(dir.path(), false),
        Say::Failed(Trouble::IsDirectory)
    );
    assert_eq!(
        clerk.draft(Path::new("/"), false),
        Say::Failed(Trouble::IsDirectory)
    );
    assert_eq!(
        clerk.draft(&at("f/x"), true),
        Say::Failed(Trouble::Errno(20))
    );
    assert_eq!(
        clerk.draft(Path::new("/dev/null"), false),
        Say::Failed(Trouble::Special)
    );
    assert_eq!(
        names(dir.path()),
        ["dangling", "f", "link", "loop", "missing", "twice"]
    );
}

#[test]
fn only_regular_files_are_opened_and_none_is_waited_for() {
    let (_agent, mut caller) = local();
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status();
    assert!(made.unwrap().success());
    let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
    let mut clerk = Clerk::begin(&mut caller);
    for path in [&fifo, &dir.path().join("socket"), Path::new("/dev/zero")] {
        assert_eq!(clerk.open(path), Say::Failed(Trouble::Special));
    }
    assert_eq!(clerk.open(dir.path()), Say::Failed(Trouble::IsDirectory));
    assert_eq!(clerk.open(&dir.path().join("no")), Say::Failed(NOT_FOUND));
    let range = Ask::Range {
        from: 0,
        most: 10,
        until: Until::End,
    };
    assert_eq!(clerk.said(&range), Say::Failed(Trouble::Bad));
    // One that says that it is empty has content all the same.
    assert_eq!(meta(clerk.open(Path::new("/proc/self/comm"))).tag.size, 0);
    assert_eq!(clerk.said(&range), Say::Bytes(b"sandbox-fi".to_vec()));
    assert_eq!(clerk.hear(), Say::Done);
    // One that grows is read as far as was asked for, and one that shrank as far as it goes.
    let file = dir.path().join("f");
    fs::write(&file, "12345").unwrap();
    meta(clerk.open(&file));
    fs::write(&file, "12345678901234567890").unwrap();
    assert_eq!(clerk.said(&range), Say::Bytes(b"1234567890".to_vec()));
    assert_eq!(clerk.hear(), Say::Done);
    fs::write(&file, "1").unwrap();
    assert_eq!(clerk.said(&range), Say::Bytes(b"1".to_vec()));
    assert_eq!(clerk.hear(), Say::Done);
    let beyond = Ask::Range {
        from: u64::MAX - 5,
        most: u64::MAX,
        until: Until::Zero,
    };
    assert_eq!(clerk.said(&beyond), Say::Done);
    clerk.end();
}

#[test]
fn a_walk_comes_in_the_order_of_paths_and_goes_only_so_deep() {
    let (_agent, mut caller) = local();
    let dir = tempfile::tempdir().unwrap();
    for name in ["b/z", "b/a/x", "b.txt", "a", "c/"] {
        let path = dir.path().join(name);
        if name.ends_with('/') {
            fs::create_dir_all(path).unwrap();
        } else {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
    }
    symlink("b", dir.path().join("l")).unwrap();
    let mut clerk = Clerk::begin(&mut caller);
    let (found, end) = clerk.walk(dir.path());
    assert_eq!(found, ["a", "b.txt", "b", "b/a", "b/a/x", "b/z", "c", "l"]);
    assert_eq!(end, Page::Last);
    let mut deep = dir.path().join("c");
    for _ in 0..600 {
        deep.push("d");
    }
    fs::create_dir_all(&deep).unwrap();
    let (found, end) = clerk.walk(dir.path());
    assert_eq!((found.len(), end), (8 + 512, Page::TooDeep));
    clerk.end();
}

#[test]
fn a_slow_reader_costs_no_memory_and_keeps_nobody_else_waiting() {
    let (agent, mut caller) = local();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("large");
    fs::File::create(&file).unwrap().set_len(1 << 30).unwrap();
    let mut clerk = Clerk::begin(&mut caller);
    meta(clerk.open(&file));
    clerk.ask(&Ask::Range {
        from: 0,
        most: u64::MAX,
        until: Until::End,
    });
    let anonymous = |pid: &str| -> u64 {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find(|line| line.starts_with("RssAnon:"));
        line.unwrap()
            .split_whitespace()
            .nth(1)
            .unwrap()
            .parse()
            .unwrap()
    };
    let run = clerk.run.clone();
    let find = format!("grep -l SANDBOXD_RUN={run} /proc/[0-9]*/environ 2>/dev/null");
    let (found, ended) = caller.run(&shell(&find));
    assert!(ended.end.is_some(), "others go on");
    let worker = found.trim().split('/').nth(2).unwrap().to_owned();
    std::thread::sleep(std::time::Duration::from_millis(300));
    let (own, agents) = (
        anonymous(&worker),
        anonymous(&agent.process.id().to_string()),
    );
    eprintln!("anonymous memory: {own} KiB of the run, {agents} KiB of the agent");
    assert!(own < 1024, "{own} KiB");
    // Its ring has a mebibyte.
    assert!(agents < 3072, "{agents} KiB");
    caller
        .order(|ask| Request::Stop {
            ask,
            run: run.clone(),
        })
        .unwrap();
    until("it ends", || {
        !Path::new(&format!("/proc/{worker}")).exists()
    });
}

#[test]
fn its_rights_are_those_of_a_command_and_a_bridge_carries_it_as_well() {
    need_image();
    let agent = BoxedAgent::start(IMAGE, &["--user", "4321:4322", "--tmpfs", "/own:mode=1777"]);
    let mut bridged = agent.bridge();
    let (_, ran) = bridged.run(&shell("echo a > /own/f; chmod 600 /own/f; mkdir /own/shut; echo a > /own/shut/f; chmod 555 /own/shut"));
    assert_eq!(ran.end.unwrap().code, Some(0));
    let mut clerk = Clerk::begin(&mut bridged);
    let made = |meta: Meta| (meta.mode, meta.uid, meta.gid, meta.tag.size);
    assert_eq!(clerk.draft(Path::new("/own/dir/new"), true), Say::Done);
    assert_eq!(made(meta(clerk.commit(b"new"))), (0o644, 4321, 4322, 3));
    assert_eq!(clerk.draft(Path::new("/own/f"), true), Say::Done);
    assert_eq!(made(meta(clerk.commit(b"bb"))), (0o600, 4321, 4322, 2));
    // Where nothing can be made beside it, it is written to in its place.
    assert_eq!(clerk.draft(Path::new("/own/shut/f"), true), Say::Done);
    let there = meta(clerk.said(&Ask::Stat {
        path: b"/own/shut/f".to_vec(),
        links: Links::Kept,
    }));
    let now = meta(clerk.commit(b"shorter and longer"));
    assert_eq!((now.tag.inode, now.tag.size), (there.tag.inode, 18));
    for path in ["/etc/f", "/own/shut/new", "/etc/passwd"] {
        assert_eq!(
            clerk.draft(Path::new(path), false),
            Say::Failed(DENIED),
            "{path}"
        );
    }
    assert_eq!(
        clerk.open(Path::new("/proc/1/environ")),
        Say::Failed(DENIED)
    );
    clerk.end();
}

#[test]
fn a_stream_that_breaks_leaves_nothing_of_a_draft_and_whoever_comes_next_ends_it() {
    let (agent, mut caller) = local();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("f");
    let mut clerk = Clerk::begin(&mut caller);
    assert_eq!(clerk.draft(&file, false), Say::Done);
    clerk.ask(&Ask::Data(vec![7; 60_000]));
    let run = clerk.run.clone();
    caller.hang_up();
    let mut next = agent.host.accept();
    let listed = next.list();
    assert_eq!((listed.len(), &listed[0].run), (1, &run));
    assert!(listed[0].end.is_none());
    next.order(|ask| Request::Stop {
        ask,
        run: run.clone(),
    })
    .unwrap();
    assert!(next.fetch(&run, 0, Wait::Over).unwrap().end.is_some());
    assert_eq!(names(dir.path()), [""; 0]);
}
