//! What an application asks of the service, conversation by conversation: the flows of
//! `examples/remote-sandbox` with the Rust client.
//!
//! usage: `SANDBOXD_TOKEN=… application [URL]`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use sandboxd::client::{
    Client, CloseFirst, Endpoint, Existing, FileLines, GrepOptions, ListOptions, Purge,
    RemoteSandbox, Usage, WorkspaceArchive,
};
use sandboxd::secret::Secret;
use uuid::Uuid;

/// An application, which holds the service's token and no Docker socket.
struct Application {
    client: Client,
    archive: WorkspaceArchive,
    tenant: Uuid,
}

impl Application {
    fn new(url: &str, token: &Secret) -> Result<Self, Box<dyn Error>> {
        let client = Client::new(Endpoint::parse(url)?).with_token(token)?;
        Ok(Self {
            archive: WorkspaceArchive::on(&client),
            client,
            tenant: Uuid::new_v4(),
        })
    }

    /// The sandbox of a conversation. Nothing is sent before it is used.
    fn sandbox_for(&self, conversation: Uuid) -> Result<RemoteSandbox, Box<dyn Error>> {
        let tenant = self.tenant.simple().to_string();
        let (prefix, _) = tenant.split_at(8);
        let sandbox = RemoteSandbox::on(&self.client)
            .session_id(format!("{prefix}-c-{}", conversation.simple()))
            .tenant(tenant)
            .existing(Existing::Join)
            .build()?;
        Ok(sandbox)
    }

    /// One turn of the agent: the tools that it calls.
    async fn turn(&self, conversation: Uuid) -> Result<(), Box<dyn Error>> {
        let sandbox = self.sandbox_for(conversation)?;
        sandbox.write("notes/plan.txt", "alpha\nneedle\n").await?;
        let ran = sandbox.execute("cat notes/plan.txt").await?;
        assert_eq!(ran.output, "alpha\nneedle\n");
        let found = sandbox.grep("needle", &GrepOptions::default()).await?;
        assert_eq!(found.matches.len(), 1, "{found:?}");
        Ok(())
    }

    /// What an operator looks at.
    async fn watch(&self, sandbox: &RemoteSandbox) -> Result<(), Box<dyn Error>> {
        let health = self.client.health().await?;
        println!("{} sandboxes are resident", health.sessions);
        let options = ListOptions {
            usage: Usage::Sample,
            ..ListOptions::default()
        };
        let listed = self.client.sessions(&options).await?;
        let id = sandbox.session_id();
        let ours = listed
            .sessions
            .iter()
            .find(|one| one.session_id == id.as_str());
        let usage = ours.and_then(|one| one.usage.as_ref());
        println!("{id} uses {:?}", usage.ok_or("it is not among the live")?);
        let events = self.client.events(id, 0, None).await?;
        assert!(!events.events.is_empty());
        Ok(())
    }

    /// What a user is shown, whether the sandbox runs or not.
    async fn show(&self, sandbox: &RemoteSandbox) -> Result<(), Box<dyn Error>> {
        let id = sandbox.session_id();
        let text = self
            .archive
            .read(id, "notes/plan.txt", FileLines::default())
            .await?;
        assert_eq!(text, "alpha\nneedle");
        Ok(())
    }

    /// A conversation was deleted: everything goes that its id ever had, whatever became of
    /// the session.
    async fn delete(&self, conversation: Uuid) -> Result<(), Box<dyn Error>> {
        let sandbox = self.sandbox_for(conversation)?;
        let id = sandbox.session_id();
        self.archive.purge(id, CloseFirst::Yes).await?;
        let gone = self.archive.ls(id, ".").await;
        assert_eq!(gone.err().and_then(|error| error.status()), Some(404));
        Ok(())
    }
}

/// Goes through it.
pub async fn tour(url: &str, token: &str) -> Result<(), Box<dyn Error>> {
    let application = Application::new(url, &Secret::new(token.to_owned()))?;
    let conversation = Uuid::new_v4();
    application.turn(conversation).await?;
    // A later turn, by a process that knows nothing of the first one, finds its files.
    let sandbox = application.sandbox_for(conversation)?;
    let ran = sandbox.execute("cat notes/plan.txt").await?;
    assert_eq!(ran.output, "alpha\nneedle\n");
    application.watch(&sandbox).await?;
    application.show(&sandbox).await?;
    sandbox.stop(Purge::No).await?;
    application.show(&sandbox).await?;
    application.delete(conversation).await?;
    // One that never had a sandbox can be deleted as well.
    application.delete(Uuid::new_v4()).await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1);
    let url = url.as_deref().unwrap_or("http://127.0.0.1:8080");
    #[expect(clippy::disallowed_methods, reason = "an example has no configuration")]
    let token = std::env::var("SANDBOXD_TOKEN")?;
    tour(url, &token).await
}
