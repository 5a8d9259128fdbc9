//! A sandbox of a service, used by commands and files, stopped, and used again.
//!
//! usage: `SANDBOXD_TOKEN=… remote_sandbox [URL]`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use sandboxd::client::{
    Existing, FileLines, GrepOptions, OperationFailure, Purge, RemoteSandbox, ReplaceText,
};
use sandboxd::secret::Secret;
use sandboxd::wire::exec::ExecRequest;

/// Goes through it.
pub async fn tour(url: &str, token: &str) -> Result<(), Box<dyn Error>> {
    // Nothing is sent yet; an id or a tenant that the service would refuse is refused here.
    let sandbox = RemoteSandbox::builder(url, &Secret::new(token.to_owned()))
        .session_id("acme-9f1c2d34")
        .tenant("acme")
        .existing(Existing::Join)
        .build()?;

    // The first operation opens the session.
    let ran = sandbox.execute("echo hello; exit 3").await?;
    assert_eq!((ran.output.as_str(), ran.exit_code), ("hello\n", Some(3)));

    let slow = ExecRequest {
        command: "sleep 60".to_owned(),
        timeout_seconds: Some(1),
        ..ExecRequest::default()
    };
    assert_eq!(sandbox.execute_with(&slow).await?.exit_code, Some(124));

    let path = sandbox.write("notes/a.txt", "one\ntwo\n").await?;
    let edit = ("two", "three");
    let edited = sandbox.edit(&path, edit, ReplaceText::Once).await?;
    assert_eq!(edited.occurrences, 1);
    let text = sandbox.read(&path, FileLines::default()).await?;
    assert_eq!(text, "one\nthree");
    let found = sandbox.grep("^t", &GrepOptions::default()).await?;
    assert!(found.matches.iter().all(|found| found.line == "three"));

    // What fails is told, by the same type whatever it is.
    match sandbox.read("missing.txt", FileLines::default()).await {
        Err(failure @ OperationFailure::Told(_)) => println!("{}", failure.explain()),
        other => return Err(format!("not so: {other:?}").into()),
    }

    // The end of a turn: the container may go, the files stay.
    sandbox.stop(Purge::No).await?;
    assert_eq!(sandbox.read_bytes(&path).await?, "one\nthree\n");

    // The conversation is gone: so is everything that the id ever had.
    sandbox.stop(Purge::Yes).await?;
    assert!(!sandbox.alive().await);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1);
    let url = url.as_deref().unwrap_or("http://127.0.0.1:8080");
    #[expect(clippy::disallowed_methods, reason = "an example has no configuration")]
    let token = std::env::var("SANDBOXD_TOKEN")?;
    tour(url, &token).await
}
