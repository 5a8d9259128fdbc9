//! The files that sessions left, read without a sandbox.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Serialize;
use serde::de::{DeserializeOwned, Error as _};

use super::error::Error;
use super::remote::{FileLines, InvalidSandbox, TIMEOUT_DEFAULT};
use super::{Client, CloseFirst, Endpoint};
use crate::id::SessionId;
use crate::secret::Secret;
use crate::wire::files::{
    FileEntry, PathRequest, ReadBytesResponse, ReadRequest, ReadResponse, TreeRequest,
    TreeResponse, TreeResult, TreesRequest, TreesResponse,
};

/// How much of a tree is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeBounds {
    /// Levels, 1 to 64.
    pub max_depth: u64,
    /// Entries of each workspace, 1 to 100,000.
    pub max_entries: u64,
}

impl Default for TreeBounds {
    /// Six levels and 2,000 entries.
    fn default() -> Self {
        Self {
            max_depth: 6,
            max_entries: 2_000,
        }
    }
}

/// Reads stored workspaces; cheap to clone.
///
/// It reads what the service keeps on its disk, so that looking into an old conversation
/// starts no container and works whether its session is open or not. Unlike a
/// [`RemoteSandbox`](super::RemoteSandbox) it is not for an agent's tools but for an
/// application that answers its own users. So it never makes an empty listing of what went
/// wrong: every failure is an [`Error`], and its [`status`](Error::status) is what the
/// service answered, for the application to pass on; `None` where it was not reached.
///
/// It needs the service token, and a service with a workspace root. Do not hand that token
/// to a browser, nor a session's, which runs commands: look up whether your user may see
/// the files, and ask here.
///
/// Paths are relative to the workspace, or absolute as its sandbox saw them. A link on the
/// way and a `..` are refused with 400; listings leave links out.
///
/// This example is run against a daemon by the tests of the project:
///
/// ```no_run
#[doc = include_str!("../../examples/workspace_archive.rs")]
/// ```
#[derive(Clone, Debug)]
pub struct WorkspaceArchive(Client);

impl WorkspaceArchive {
    /// Makes one for the service at this URL, with the service's token; sends nothing.
    pub fn new(url: &str, token: &Secret) -> Result<Self, InvalidSandbox> {
        let client = Client::new(Endpoint::parse(url)?)
            .with_token(token)
            .map_err(InvalidSandbox::Token)?;
        Ok(Self(client.with_deadline(TIMEOUT_DEFAULT)))
    }

    /// Makes one that calls by a client with the service's token, and as it does.
    pub fn on(client: &Client) -> Self {
        Self(client.clone())
    }

    /// Lists a directory, directories first.
    pub async fn ls(&self, id: &SessionId, path: &str) -> Result<Vec<FileEntry>, Error> {
        let path = path.to_owned();
        self.ask(id, "ls", &PathRequest { path }).await
    }

    /// Reads lines of a text as a live session would.
    pub async fn read(
        &self,
        id: &SessionId,
        path: &str,
        lines: FileLines,
    ) -> Result<String, Error> {
        let request = ReadRequest {
            path: path.to_owned(),
            offset: lines.offset,
            limit: lines.limit,
        };
        let reply: ReadResponse = self.ask(id, "read", &request).await?;
        Ok(reply.content)
    }

    /// Reads a whole file.
    pub async fn read_bytes(&self, id: &SessionId, path: &str) -> Result<Bytes, Error> {
        let path = path.to_owned();
        let reply: ReadBytesResponse = self.ask(id, "read_bytes", &PathRequest { path }).await?;
        let bytes = STANDARD.decode(&reply.content_b64);
        bytes.map(Bytes::from).map_err(|error| Error::Malformed {
            call: format!("POST /workspaces/{id}/read_bytes"),
            source: serde_json::Error::custom(error),
        })
    }

    /// Lists what lies below a directory, breadth first.
    pub async fn tree(
        &self,
        id: &SessionId,
        path: &str,
        bounds: TreeBounds,
    ) -> Result<TreeResponse, Error> {
        let request = TreeRequest {
            path: path.to_owned(),
            max_depth: bounds.max_depth,
            max_entries: bounds.max_entries,
        };
        self.ask(id, "tree", &request).await
    }

    /// Lists what lies below a directory in each of up to 100 workspaces, in their order.
    ///
    /// One that cannot be listed fails alone: look at `error` and `status_code` of each.
    pub async fn trees(
        &self,
        ids: &[SessionId],
        path: &str,
        bounds: TreeBounds,
    ) -> Result<Vec<TreeResult>, Error> {
        let request = TreesRequest {
            sessions: ids.iter().map(SessionId::to_string).collect(),
            path: path.to_owned(),
            max_depth: bounds.max_depth,
            max_entries: bounds.max_entries,
        };
        let call = self.0.post("/workspaces/trees".to_owned(), &request);
        let reply: TreesResponse = self.0.json(call).await?;
        Ok(reply.results)
    }

    /// Removes everything that the id ever had, its open session too where that is asked.
    ///
    /// Succeeds where there is nothing to remove; an open session is a 409 otherwise.
    pub async fn purge(&self, id: &SessionId, close: CloseFirst) -> Result<(), Error> {
        self.0.purge(id, close).await
    }

    async fn ask<B: Serialize, T: DeserializeOwned>(
        &self,
        id: &SessionId,
        name: &str,
        body: &B,
    ) -> Result<T, Error> {
        let call = self.0.post(format!("/workspaces/{id}/{name}"), body);
        self.0.json(call).await
    }
}
