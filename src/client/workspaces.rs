//! The calls for whole workspaces: which there are, and their archives.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::unfold;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use hyper::ext::on_informational;
use hyper::header::{CONTENT_TYPE, EXPECT, HeaderValue};
use hyper::{Method, StatusCode};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

use super::calls::{Call, Client, Query, parsed};
use super::error::Error;
use super::pieces::ReplyPieces;
use crate::id::{Alias, SessionId, Tenant};
use crate::wire::workspaces::{ImportResponse, WorkspaceList};

/// The longest that an import may take; the service gives up at the same time.
pub const IMPORT_TIME_MAX: Duration = Duration::from_hours(6);

/// How long an import waits for the word to send its archive.
const GO_WAIT_MAX: Duration = Duration::from_secs(2);

/// Which workspaces to list; the default is the first thousand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkspaceListOptions {
    /// At most so many.
    pub limit: Option<u32>,
    /// The `next` of the page before.
    pub cursor: Option<String>,
}

/// How an archive is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ArchiveFormat {
    /// Plain tar.
    Tar,
    /// Tar compressed by zstd.
    #[default]
    TarZst,
}

impl ArchiveFormat {
    /// Returns it as the wire has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tar => "tar",
            Self::TarZst => "tar.zst",
        }
    }
}

/// Whether an import takes the place of files that are there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteOver {
    /// They are kept, and the import is refused.
    #[default]
    No,
    /// They go.
    Yes,
}

/// How an archive is taken in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportOptions {
    /// What becomes of files that are there.
    pub replace: WriteOver,
    /// The alias for an id that is not known yet.
    pub runtime: Option<Alias>,
    /// The tenant for an id that is not known yet.
    pub tenant: Option<Tenant>,
}

impl Client {
    /// Lists workspaces in the order of their ids, whether their sessions are open or not;
    /// needs the service token.
    pub async fn workspaces(&self, options: &WorkspaceListOptions) -> Result<WorkspaceList, Error> {
        let mut query = Query::default();
        query.add("limit", options.limit);
        query.add("cursor", options.cursor.as_deref());
        self.json(self.get(query.after("/workspaces"))).await
    }

    /// Begins to read a workspace as an archive; needs the service token.
    pub async fn export(
        &self,
        id: &SessionId,
        format: ArchiveFormat,
    ) -> Result<ReplyPieces, Error> {
        let mut query = Query::default();
        query.add("format", Some(format.as_str()));
        let call = self.get(query.after(&format!("/workspaces/{id}/export")));
        self.pieces(&call).await
    }

    /// Sends an archive into the workspace of a session that is new or closed, as its
    /// pieces come; needs the service token.
    ///
    /// An error among the pieces breaks the call off, and nothing is changed. The end of
    /// the channel is the end of the archive.
    pub async fn import(
        &self,
        id: &SessionId,
        options: &ImportOptions,
        pieces: mpsc::Receiver<io::Result<Bytes>>,
    ) -> Result<ImportResponse, Error> {
        let mut query = Query::default();
        match options.replace {
            WriteOver::No => {}
            WriteOver::Yes => query.add("replace", Some("true")),
        }
        query.add("runtime", options.runtime.as_ref());
        query.add("tenant", options.tenant.as_ref());
        let call = Call {
            method: Method::PUT,
            deadline: IMPORT_TIME_MAX,
            ..self.get(query.after(&format!("/workspaces/{id}/import")))
        };
        let (request, request_id) = self.request(&call);
        // What is refused at once is not sent: the reply could be lost under it.
        let go = Arc::new(Notify::new());
        let told = Arc::clone(&go);
        let frames = unfold((pieces, Some(go)), async |(mut pieces, go)| {
            if let Some(go) = go {
                // A service that does not say so is sent it all the same.
                drop(timeout(GO_WAIT_MAX, go.notified()).await);
            }
            let piece = pieces.recv().await?;
            Some((piece.map(Frame::data), (pieces, None)))
        });
        let mut request = request.map(|_| StreamBody::new(frames).boxed_unsync());
        on_informational(&mut request, move |said| {
            if said.status() == StatusCode::CONTINUE {
                told.notify_one();
            }
        });
        let headers = request.headers_mut();
        let kind = HeaderValue::from_static("application/octet-stream");
        headers.insert(CONTENT_TYPE, kind);
        headers.insert(EXPECT, HeaderValue::from_static("100-continue"));
        let body = self.exchange(&call, request, &request_id).await?;
        parsed(&call, &body)
    }
}
