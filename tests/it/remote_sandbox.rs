//! The Rust client's sandbox and archive against a real daemon on the real engine.

use std::time::Duration;

use futures_util::future::join_all;
use sandboxd::client::{
    Client, CloseFirst, Endpoint, Existing, FileLines, GrepOptions, InvalidSandbox,
    OperationFailure, Purge, RemoteSandbox, RemoteSandboxBuilder, ReplaceText, SESSION_ENDED,
    SearchHidden, TreeBounds, WorkspaceArchive,
};
use sandboxd::id::SessionId;
use sandboxd::secret::Secret;
use sandboxd::wire::exec::ExecRequest;
use serde_json::json;

use crate::support::api::{Api, WORKSPACES, settings, wait};
use crate::support::daemon::{Daemon, Ending};
use crate::support::docker::labelled;
use crate::support::source::read;

// The examples as users have them; here only their tours are called.
#[expect(dead_code, unreachable_pub, reason = "it is a program")]
#[path = "../../examples/application.rs"]
mod application_example;
#[expect(dead_code, unreachable_pub, reason = "it is a program")]
#[path = "../../examples/workspace_archive.rs"]
mod archive_example;
#[expect(dead_code, unreachable_pub, reason = "it is a program")]
#[path = "../../examples/client.rs"]
mod client_example;
#[expect(dead_code, unreachable_pub, reason = "it is a program")]
#[path = "../../examples/remote_sandbox.rs"]
mod sandbox_example;

fn start(changes: &[(&str, &str)]) -> (Daemon, Api) {
    let daemon = Daemon::start(&settings(changes));
    let api = Api::of(&daemon);
    (daemon, api)
}

fn wait_for<F: Future>(future: F) -> F::Output {
    tokio::runtime::Runtime::new().unwrap().block_on(future)
}

fn token(daemon: &Daemon) -> Secret {
    Secret::new(daemon.token().to_owned())
}

fn builder(daemon: &Daemon, id: &str) -> RemoteSandboxBuilder {
    RemoteSandbox::builder(&daemon.url(), &token(daemon)).session_id(id)
}

fn sandbox(daemon: &Daemon, id: &str) -> RemoteSandbox {
    builder(daemon, id).build().unwrap()
}

fn archive(daemon: &Daemon) -> WorkspaceArchive {
    WorkspaceArchive::new(&daemon.url(), &token(daemon)).unwrap()
}

fn id(text: &str) -> SessionId {
    SessionId::parse(text).unwrap()
}

#[test]
fn the_examples_of_the_client_do_what_they_say() {
    let (daemon, _api) = start(&[WORKSPACES]);
    let (url, token) = (daemon.url(), daemon.token());
    wait_for(async {
        client_example::tour(&url, token).await.unwrap();
        sandbox_example::tour(&url, token).await.unwrap();
        archive_example::tour(&url, token).await.unwrap();
        application_example::tour(&url, token).await.unwrap();
    });
    assert!(labelled(&daemon.label()).is_empty());
}

#[test]
fn every_example_in_the_documentation_of_the_client_is_one_that_is_run() {
    let sources = read(&["src/client"], &[".rs"]);
    let mut shown = Vec::new();
    for source in &sources {
        let lines: Vec<&str> = source.text.lines().collect();
        for (index, line) in lines.iter().enumerate() {
            let Some(fence) = line
                .strip_prefix("//! ```")
                .or(line.strip_prefix("/// ```"))
            else {
                continue;
            };
            let next = lines.get(index + 1).copied().unwrap_or_default();
            let name = next
                .split_once("[doc = include_str!(\"../../examples/")
                .and_then(|(_, rest)| rest.strip_suffix(".rs\")]"));
            match name {
                Some(name) => shown.push(name.to_owned()),
                None => assert!(
                    fence.is_empty() || fence == "text",
                    "{}: show an example of examples/ instead, which a test runs",
                    source.at(index + 1)
                ),
            }
        }
    }
    shown.sort();
    assert_eq!(shown, ["client", "remote_sandbox", "workspace_archive"]);
}

#[test]
fn a_remote_sandbox_is_opened_by_its_first_use_and_once_however_many_come_at_once() {
    let (daemon, api) = start(&[WORKSPACES, ("SANDBOXD_EXECUTE_TIMEOUT", "41")]);
    let sandbox = sandbox(&daemon, "s");
    let none = api.json(200, "GET /sessions", None);
    assert_eq!(none["sessions"], json!([]));
    wait_for(async {
        assert!(!sandbox.alive().await);
        assert_eq!(sandbox.info().await.unwrap(), None);
        let all = (0..10).map(|n| {
            let sandbox = sandbox.clone();
            tokio::spawn(async move { sandbox.execute(&format!("echo {n}")).await })
        });
        for (n, ran) in join_all(all).await.into_iter().enumerate() {
            assert_eq!(ran.unwrap().unwrap().output, format!("{n}\n"));
        }
        assert_eq!(sandbox.server_timeout(), Some(Duration::from_secs(41)));
        assert!(sandbox.alive().await);
        let usage = sandbox.usage().await.unwrap().unwrap();
        assert!(0 < usage.memory_limit_bytes.unwrap());
    });
    assert_eq!(labelled(&daemon.label()).len(), 1);
    let opened = api.json(200, "GET /sessions", None);
    assert_eq!(opened["sessions"].as_array().unwrap().len(), 1);
}

#[test]
fn a_remote_sandbox_reads_writes_and_searches_files_and_tells_what_fails() {
    let (daemon, _api) = start(&[WORKSPACES]);
    let sandbox = sandbox(&daemon, "s");
    wait_for(async {
        let path = sandbox.write("a/b.txt", "one\ntwo\ntwo\n").await.unwrap();
        assert_eq!(path, "/workspace/a/b.txt");
        let second = FileLines {
            offset: 1,
            limit: 1,
        };
        let text = sandbox.read("a/b.txt", second).await.unwrap();
        assert!(text.starts_with("two\n\n[... 1 more lines."), "{text}");
        let twice = sandbox.edit(&path, ("two", "2"), ReplaceText::Once).await;
        let twice = twice.unwrap_err();
        assert!(twice.explain().contains("found 2 times"), "{twice:?}");
        let edit = sandbox.edit(&path, ("two", "2"), ReplaceText::Everywhere);
        assert_eq!(edit.await.unwrap().occurrences, 2);
        sandbox.write("a/.env", "2").await.unwrap();
        sandbox
            .write("Error", "Error: File 'Error' not found")
            .await
            .unwrap();
        sandbox.write("empty", "").await.unwrap();

        let found = sandbox.grep("^2$", &GrepOptions::default()).await.unwrap();
        assert_eq!(found.matches.len(), 2);
        let options = GrepOptions {
            path: Some("a".to_owned()),
            hidden: SearchHidden::Yes,
            ..GrepOptions::default()
        };
        assert_eq!(
            sandbox.grep("^2$", &options).await.unwrap().matches.len(),
            3
        );
        let names = |entries: Vec<sandboxd::wire::files::FileEntry>| -> Vec<String> {
            entries.into_iter().map(|entry| entry.name).collect()
        };
        assert_eq!(
            names(sandbox.ls(".").await.unwrap()),
            ["a", "Error", "empty"]
        );
        assert_eq!(names(sandbox.glob("*.txt", "/").await.unwrap()), ["b.txt"]);
        assert!(sandbox.exists("a/b.txt").await.unwrap());
        assert!(!sandbox.exists("a").await.unwrap());

        // What a file says is not taken for what the service says.
        let lines = FileLines::default();
        let says = sandbox.read("Error", lines).await.unwrap();
        assert_eq!(says, "Error: File 'Error' not found");
        assert_eq!(sandbox.read_bytes("empty").await.unwrap(), "");
        for failure in [
            sandbox.read("gone", lines).await.unwrap_err(),
            sandbox.read_bytes("gone").await.unwrap_err(),
        ] {
            assert!(matches!(failure, OperationFailure::Told(_)), "{failure:?}");
            assert_eq!(failure.explain(), "Error: File 'gone' not found");
        }
        let directory = sandbox.read_bytes("a").await.unwrap_err();
        assert_eq!(directory.explain(), "Error: 'a' is a directory");
        let bad = sandbox
            .grep("[", &GrepOptions::default())
            .await
            .unwrap_err();
        assert!(bad.explain().starts_with("Error: "), "{bad:?}");
    });
}

#[test]
fn the_largest_file_that_the_service_reads_comes_whole() {
    let (daemon, _api) = start(&[WORKSPACES]);
    let sandbox = sandbox(&daemon, "s");
    let bytes: Vec<u8> = (0..8_388_608_u32).map(|n| n.to_le_bytes()[1]).collect();
    wait_for(async {
        sandbox.write("large", &bytes).await.unwrap();
        assert_eq!(sandbox.read_bytes("large").await.unwrap(), bytes);
        sandbox.execute("echo >> large").await.unwrap();
        let over = sandbox.read_bytes("large").await.unwrap_err();
        assert!(
            over.explain().contains("over the 8388608-byte read limit"),
            "{over:?}"
        );
    });
}

#[test]
fn a_sandbox_is_usable_after_a_stop_and_after_the_service_ended_its_session() {
    let (daemon, api) = start(&[WORKSPACES]);
    let sandbox = sandbox(&daemon, "s");
    wait_for(async {
        sandbox.write("f", "kept").await.unwrap();
        sandbox.stop(Purge::No).await.unwrap();
        assert!(!sandbox.alive().await);
        assert_eq!(sandbox.execute("cat f").await.unwrap().output, "kept");
        assert_eq!(sandbox.take_reset(), None);
    });
    // As an operator would, or the service where the session is idle for too long.
    api.close("s", "");
    wait_for(async {
        assert_eq!(sandbox.execute("cat f").await.unwrap().output, "kept");
        let reset = sandbox.take_reset().unwrap();
        assert_eq!(reset.reset_reason.as_deref(), Some(SESSION_ENDED));
        sandbox.stop(Purge::Yes).await.unwrap();
        sandbox.stop(Purge::Yes).await.unwrap();
        assert!(
            !sandbox.exists("f").await.unwrap(),
            "opened anew, without files"
        );
        sandbox.stop(Purge::Yes).await.unwrap();
    });
    assert!(labelled(&daemon.label()).is_empty());
}

#[test]
fn a_session_that_was_reaped_as_idle_is_opened_again() {
    let (daemon, api) = start(&[
        WORKSPACES,
        ("SANDBOXD_IDLE_TIMEOUT", "1"),
        ("SANDBOXD_CLEANUP_INTERVAL", "1"),
    ]);
    let sandbox = sandbox(&daemon, "s");
    wait_for(async { sandbox.write("f", "kept").await.unwrap() });
    wait("the session is reaped", Duration::from_secs(20), || {
        (api.call("GET", "/sessions/s", None).status == 404).then_some(())
    });
    wait_for(async {
        assert_eq!(sandbox.read_bytes("f").await.unwrap(), "kept");
        assert!(sandbox.take_reset().is_some());
    });
}

#[test]
fn a_purge_of_a_sandbox_that_was_never_started_removes_what_its_id_had() {
    let (daemon, api) = start(&[WORKSPACES]);
    wait_for(async {
        let earlier = sandbox(&daemon, "closed");
        earlier.write("f", "x").await.unwrap();
        earlier.stop(Purge::No).await.unwrap();
        sandbox(&daemon, "open").write("f", "x").await.unwrap();
        for name in ["closed", "open", "never"] {
            let files = daemon.dir().join("ws").join(name);
            assert_eq!(files.exists(), name != "never");
            sandbox(&daemon, name).stop(Purge::Yes).await.unwrap();
            assert!(!files.exists(), "{name}");
        }
    });
    assert_eq!(api.call("GET", "/sessions/open", None).status, 404);
    assert!(labelled(&daemon.label()).is_empty());
}

#[test]
fn an_id_that_is_in_use_is_refused_unless_it_is_to_be_shared() {
    let (daemon, _api) = start(&[WORKSPACES]);
    wait_for(async {
        sandbox(&daemon, "s").write("f", "x").await.unwrap();
        let failure = sandbox(&daemon, "s").exists("f").await.unwrap_err();
        assert_eq!(failure.status(), Some(409), "{failure:?}");
        for existing in [Existing::Join, Existing::Require] {
            let other = builder(&daemon, "s").existing(existing).build().unwrap();
            assert!(other.exists("f").await.unwrap());
        }
        let nothing = builder(&daemon, "t").existing(Existing::Require);
        let failure = nothing.build().unwrap().start().await.unwrap_err();
        assert_eq!(failure.status(), Some(404), "{failure:?}");
    });
}

#[test]
fn an_id_or_a_tenant_that_the_service_would_refuse_is_refused_when_made() {
    let (daemon, api) = start(&[]);
    for (id, tenant) in [("../x", "t"), ("a\n", "t"), ("s", "-t"), ("s", "")] {
        let made = builder(&daemon, id).tenant(tenant).build();
        assert!(matches!(made, Err(InvalidSandbox::Id(_))), "{id} {tenant}");
        let asked = json!({"session_id": id, "tenant": tenant});
        assert_eq!(api.call("POST", "/sessions", Some(&asked)).status, 422);
    }
}

#[test]
fn failures_of_a_real_service_are_returned_with_their_status() {
    let (mut daemon, _api) = start(&[WORKSPACES, ("SANDBOXD_MAX_SESSIONS", "1")]);
    wait_for(async {
        let first = sandbox(&daemon, "one");
        first.start().await.unwrap();
        let full = sandbox(&daemon, "two").execute("true").await.unwrap_err();
        assert_eq!((full.status(), full.retryable()), (Some(429), true));
        let stranger = Secret::new("nobody's".to_owned());
        let stranger = RemoteSandbox::builder(&daemon.url(), &stranger).build();
        let refused = stranger.unwrap().execute("true").await.unwrap_err();
        assert_eq!(refused.status(), Some(401));
        let slow = ExecRequest {
            command: "sleep 30".to_owned(),
            timeout_seconds: Some(1),
            ..ExecRequest::default()
        };
        let ran = first.execute_with(&slow).await.unwrap();
        assert_eq!(ran.exit_code, Some(124));
    });
    daemon.stop(Ending::Kill);
    wait_for(async {
        let nobody = sandbox(&daemon, "one").execute("true").await.unwrap_err();
        assert_eq!((nobody.status(), nobody.retryable()), (None, true));
    });
}

#[test]
fn the_archive_reads_files_without_a_session_and_fails_with_the_status() {
    let (daemon, api) = start(&[WORKSPACES]);
    let archive = archive(&daemon);
    wait_for(async {
        let sandbox = sandbox(&daemon, "s");
        sandbox.write("src/a.py", "1\n2\n3\n").await.unwrap();
        sandbox.stop(Purge::No).await.unwrap();
        let entries = archive.ls(&id("s"), "/workspace/src").await.unwrap();
        assert_eq!(entries[0].path, "src/a.py");
        assert!(entries[0].modified_at.is_some());
        let lines = FileLines {
            offset: 1,
            limit: 2,
        };
        let text = archive.read(&id("s"), "src/a.py", lines).await.unwrap();
        assert_eq!(text, "2\n3");
        let bytes = archive.read_bytes(&id("s"), "src/a.py").await.unwrap();
        assert_eq!(bytes, "1\n2\n3\n");
        let ids = [id("s"), id("none")];
        let trees = archive.trees(&ids, ".", TreeBounds::default()).await;
        let codes: Vec<_> = trees
            .unwrap()
            .into_iter()
            .map(|one| one.status_code)
            .collect();
        assert_eq!(codes, [None, Some(404)]);

        let status = |error: sandboxd::client::Error| error.status();
        let lines = FileLines::default();
        let failed = [
            status(archive.ls(&id("none"), ".").await.unwrap_err()),
            status(archive.ls(&id("s"), "gone").await.unwrap_err()),
            status(archive.read(&id("s"), "../x", lines).await.unwrap_err()),
            status(archive.read_bytes(&id("s"), "gone").await.unwrap_err()),
        ];
        assert_eq!(failed, [Some(404), Some(404), Some(400), Some(404)]);
        let session = api.open_id("t");
        let endpoint = Endpoint::parse(&daemon.url()).unwrap();
        let client = Client::new(endpoint)
            .with_token(&Secret::new(session))
            .unwrap();
        let refused = WorkspaceArchive::on(&client).ls(&id("t"), ".").await;
        assert_eq!(status(refused.unwrap_err()), Some(401));
        let open = archive.purge(&id("t"), CloseFirst::No).await.unwrap_err();
        assert_eq!(status(open), Some(409));
        archive.purge(&id("t"), CloseFirst::Yes).await.unwrap();
    });
    let (bare, _api) = start(&[]);
    let nothing = wait_for(self::archive(&bare).ls(&id("s"), "."));
    assert_eq!(nothing.unwrap_err().status(), Some(409));
}
