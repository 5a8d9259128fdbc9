//! Runs whole commands against a service that answers from a script.

mod definition;
mod doctor;
mod events;
mod exec;
mod failing;
mod holds;
mod lifecycle;
mod removal;
mod runs;
mod sessions;
mod workspaces;

use clap::Parser as _;
use expect_test::Expect;
use serde_json::{Value, json};

use super::args::Args;
use super::printer::{Streams, Terminal};
use super::run;
use crate::client::scripted::{Reply, Scripted};
use crate::secret::Secret;

/// What a command left behind.
#[derive(Debug)]
struct Ran {
    exit: u8,
    stdout: String,
    stderr: String,
}

/// Who is there to answer a question, and with what.
#[derive(Clone, Copy)]
enum Person {
    Nobody,
    Typing(&'static str),
    /// Nobody, but for bytes on standard input.
    Piping(&'static [u8]),
}

async fn run_as(person: Person, url: &str, arguments: &[&str]) -> Ran {
    let head = ["sandboxctl", "--url", url];
    let all = head.iter().chain(arguments);
    let (mut input, terminal) = match person {
        Person::Nobody => (&b""[..], Terminal::Absent),
        Person::Typing(text) => (text.as_bytes(), Terminal::Attached),
        Person::Piping(bytes) => (bytes, Terminal::Absent),
    };
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let streams = Streams {
        stdin: &mut input,
        stdout: &mut stdout,
        stderr: &mut stderr,
        terminal,
    };
    let args = Args::try_parse_from(all).unwrap();
    let token = Some(Secret::new("hunter2".to_owned()));
    let exit = run(args, token, streams, std::future::pending()).await;
    Ran {
        exit: exit.code(),
        stdout: String::from_utf8(stdout).unwrap(),
        stderr: String::from_utf8(stderr).unwrap(),
    }
}

async fn ran(server: &Scripted, arguments: &[&str]) -> Ran {
    run_as(Person::Nobody, &server.url, arguments).await
}

async fn ran_once(reply: Reply, arguments: &[&str]) -> Ran {
    ran(&Scripted::serve([reply]).await, arguments).await
}

/// Checks a whole run against a snapshot.
fn check(ran: &Ran, expected: &Expect) {
    let Ran {
        exit,
        stdout,
        stderr,
    } = ran;
    expected.assert_eq(&format!("{stdout}--\n{stderr}--\nexit {exit}\n"));
}

fn session(id: &str) -> Value {
    json!({
        "session_id": id, "runtime": "python", "tenant": null, "alive": true,
        "state": "running", "created_at": 1_600_000_000.0,
        "last_activity": 1_600_000_900.0, "idle_seconds": 100.0, "usage": null
    })
}

fn no_content() -> Reply {
    Reply::Answer(204, String::new())
}
