//! The calls of the HTTP API, one by one.
//!
//! usage: `SANDBOXD_TOKEN=… client [URL]`

use std::error::Error;

use sandboxd::client::{Client, Endpoint, Purge};
use sandboxd::id::SessionId;
use sandboxd::secret::Secret;
use sandboxd::wire::exec::ExecRequest;
use sandboxd::wire::sessions::CreateSessionRequest;

/// Goes through it.
pub async fn tour(url: &str, token: &str) -> Result<(), Box<dyn Error>> {
    let client = Client::new(Endpoint::parse(url)?).with_token(&Secret::new(token.to_owned()))?;

    let opened = client.open(&CreateSessionRequest::default()).await?;
    let id = SessionId::parse(&opened.session.session_id)?;

    let request = ExecRequest {
        command: "echo hello".to_owned(),
        timeout_seconds: Some(5),
        ..ExecRequest::default()
    };
    let reply = client.exec(&id, &request).await?;
    assert_eq!(reply.output, "hello\n");

    client.close(&id, Purge::Yes).await?;
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
