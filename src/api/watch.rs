//! Tells of changes in a directory as server-sent events.

use std::io;

use axum::body::Body;
use axum::http::{Request, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::stream::try_unfold;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::api::auth::SessionCaller;
use crate::api::edge::stopping;
use crate::api::error::Failure;
use crate::api::output::HEARTBEAT;
use crate::api::routes::{Param, ParamKind};
use crate::api::validate::Form;
use crate::api::{paths, query, reply};
use crate::control::files::{GivenPath, Watching};
use crate::wire::files::FileChange;
use crate::workspace::Alteration;

pub(super) const QUERY: &[Param] = &[
    Param {
        name: "path",
        about: "The directory, relative to the work directory or absolute; the work directory when left out",
        kind: ParamKind::Text,
    },
    paths::PATH_B64,
];

pub(super) async fn watch(
    caller: SessionCaller,
    request: Request<Body>,
) -> Result<Response<Body>, Failure> {
    let path = read_path(request.uri().query().unwrap_or_default());
    let path = caller.checked(path).await?;
    let stopping = stopping(&request);
    drop(request);
    let watching = caller.control().watch_files(caller.id(), &path).await?;
    let telling = Telling {
        watching: Some(watching),
        path,
        stopping,
        is_greeted: false,
    };
    let body = try_unfold(telling, |mut telling| async {
        let event = telling.next().await;
        Ok::<_, io::Error>(event.map(|event| (event, telling)))
    });
    Ok(reply::going_on(
        "text/event-stream",
        Body::from_stream(body),
    ))
}

fn read_path(text: &str) -> Result<GivenPath, Failure> {
    let mut form = Form::query();
    let fields = query::fields(text, ["path", "path_b64"]);
    let path = paths::optional(&mut form, &fields);
    form.finish()?;
    Ok(path.unwrap_or_else(|| ".".to_owned().into()))
}

/// Events on their way to a listener.
struct Telling {
    /// `None` once nothing follows.
    watching: Option<Watching>,
    path: GivenPath,
    stopping: CancellationToken,
    is_greeted: bool,
}

impl Telling {
    /// Waits for what is written next; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        let watching = self.watching.as_mut()?;
        if !self.is_greeted {
            // From here on nothing is missed, and the listener knows that.
            self.is_greeted = true;
            return Some(Bytes::from_static(b": watching\n\n"));
        }
        let change = tokio::select! {
            biased;
            () = self.stopping.cancelled() => None,
            change = watching.next() => change,
            () = sleep(HEARTBEAT) => return Some(Bytes::from_static(b":\n\n")),
        };
        let change = change?;
        if change == Alteration::Gone {
            self.watching = None;
        }
        Some(event(&told(self.path.as_bytes(), change)))
    }
}

fn event(change: &FileChange) -> Bytes {
    let data = serde_json::to_string(change).expect("a wire type has only text keys");
    format!("event: {}\ndata: {data}\n\n", change.kind).into()
}

fn told(directory: &[u8], change: Alteration) -> FileChange {
    let (kind, name, from) = match change {
        Alteration::Created(name) => ("created", Some(name), None),
        Alteration::Modified(name) => ("modified", Some(name), None),
        Alteration::Removed(name) => ("removed", Some(name), None),
        Alteration::Moved { from, to } => ("moved", Some(to), Some(from)),
        Alteration::Overflow => ("overflow", None, None),
        Alteration::Gone => ("gone", None, None),
    };
    let path = name.map_or_else(|| directory.to_vec(), |name| below(directory, &name));
    let from = from.map(|from| below(directory, &from));
    let b64 = |path: &[u8]| {
        std::str::from_utf8(path)
            .is_err()
            .then(|| STANDARD.encode(path))
    };
    FileChange {
        kind: kind.to_owned(),
        path: String::from_utf8_lossy(&path).into_owned(),
        path_b64: b64(&path),
        from_b64: from.as_deref().and_then(b64),
        from: from.map(|from| String::from_utf8_lossy(&from).into_owned()),
    }
}

/// Returns the path of a name as the request spelled the directory.
fn below(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let end = directory.iter().rposition(|byte| *byte != b'/');
    let mut path = directory
        .get(..end.map_or(0, |end| end + 1))
        .unwrap_or_default()
        .to_vec();
    path.push(b'/');
    path.extend_from_slice(name);
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_told_below_the_directory_as_it_was_spelled() {
        let moved = Alteration::Moved {
            from: b"\xff".to_vec(),
            to: b"b".to_vec(),
        };
        let text = event(&told(b"src/", moved));
        assert_eq!(
            text,
            "event: moved\ndata: {\"kind\":\"moved\",\"path\":\"src/b\",\"from\":\"src/\u{fffd}\",\"from_b64\":\"c3JjL/8=\"}\n\n"
        );
        let gone = event(&told(b".", Alteration::Gone));
        assert_eq!(
            gone,
            "event: gone\ndata: {\"kind\":\"gone\",\"path\":\".\"}\n\n"
        );
        assert_eq!(told(b"/", Alteration::Created(b"x".to_vec())).path, "/x");
    }
}
