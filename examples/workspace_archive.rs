//! The files of a session that is closed, read without a sandbox and then removed.
//!
//! usage: `SANDBOXD_TOKEN=… workspace_archive [URL]`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use sandboxd::client::{CloseFirst, FileLines, Purge, RemoteSandbox, TreeBounds, WorkspaceArchive};
use sandboxd::secret::Secret;

/// Goes through it.
pub async fn tour(url: &str, token: &str) -> Result<(), Box<dyn Error>> {
    let token = Secret::new(token.to_owned());
    let sandbox = RemoteSandbox::builder(url, &token).build()?;
    sandbox.write("out/report.md", "# Done\n").await?;
    sandbox.stop(Purge::No).await?;

    // The session is closed. Its files are there, and no container starts for them.
    let archive = WorkspaceArchive::new(url, &token)?;
    let id = sandbox.session_id();
    for entry in archive.ls(id, "out").await? {
        println!("{} {:?} {:?}", entry.path, entry.size, entry.modified_at);
    }
    let path = "out/report.md";
    let text = archive.read(id, path, FileLines::default()).await?;
    assert_eq!(text, "# Done");
    let tree = archive.tree(id, ".", TreeBounds::default()).await?;
    assert_eq!(tree.entries.len(), 2);

    // A failure has the status that the service answered, to be passed on.
    let Err(missing) = archive.read_bytes(id, "gone.txt").await else {
        return Err("there is no such file".into());
    };
    assert_eq!(missing.status(), Some(404));

    archive.purge(id, CloseFirst::No).await?;
    let Err(purged) = archive.ls(id, ".").await else {
        return Err("it was removed".into());
    };
    assert_eq!(purged.status(), Some(404));
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
