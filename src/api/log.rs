//! Answers with the log of the service, as a page or as events that go on.

use std::io;

use axum::body::Body;
use axum::http::header::HeaderName;
use axum::http::{Request, Response};
use bytes::Bytes;
use futures_util::stream::try_unfold;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api::auth::ServiceCaller;
use crate::api::edge::stopping;
use crate::api::error::Failure;
use crate::api::output::{Encoding, HEARTBEAT};
use crate::api::routes::{Param, ParamKind};
use crate::api::validate::{self, Form};
use crate::api::{query, reply};
use crate::control::Control;
use crate::control::log::Wanted;
use crate::wire::events::ServiceEvents;

/// Events of the largest page.
const PAGE_MAX: u64 = 1_000;
/// Events of a page where none is named.
const PAGE_DEFAULT: usize = 200;
/// What events are about.
const KINDS: &[&str] = &["operation", "lifecycle", "service"];
/// Where a reader of events goes on.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

pub(super) const LOG_QUERY: &[Param] = &[
    Param {
        name: "after",
        about: "Only those with a higher sequence number, the oldest first; the newest of all \
            when left out",
        kind: ParamKind::Number(0, None),
    },
    Param {
        name: "limit",
        about: "At most so many; 200 when left out",
        kind: ParamKind::Number(1, Some(PAGE_MAX)),
    },
    Param {
        name: "session",
        about: "Only those of this session",
        kind: ParamKind::Text,
    },
    Param {
        name: "tenant",
        about: "Only those of this tenant's sessions",
        kind: ParamKind::Text,
    },
    Param {
        name: "kind",
        about: "Only operations, what became of sessions, or neither",
        kind: ParamKind::OneOf(KINDS),
    },
    Param {
        name: "op",
        about: "Only this operation, such as exec, or this fact, such as hibernated",
        kind: ParamKind::Text,
    },
    Param {
        name: "since",
        about: "Only those from this moment on, in epoch seconds",
        kind: ParamKind::Number(0, None),
    },
];

pub(super) async fn log(
    caller: ServiceCaller,
    request: Request<Body>,
) -> Result<Response<Body>, Failure> {
    let mut wanted = read(request.uri().query().unwrap_or_default())?;
    let follows = Encoding::accepted(request.headers()) == Encoding::Events;
    if !follows {
        return Ok(reply::json(&caller.control().service_log(wanted).await?));
    }
    if let Some(last) = request.headers().get(LAST_EVENT_ID) {
        let last = last.to_str().ok().and_then(|text| text.trim().parse().ok());
        wanted.after = last.or(wanted.after);
    }
    // What may be refused is refused with a status.
    let first = caller.control().service_log(wanted.clone()).await?;
    let following = Following {
        control: caller.control().clone(),
        stopping: stopping(&request),
        page: Some(first),
        wanted,
    };
    let body = try_unfold(following, |mut following| async {
        let bytes = following.next().await?;
        Ok::<_, io::Error>(bytes.map(|bytes| (bytes, following)))
    });
    Ok(reply::going_on(
        "text/event-stream",
        Body::from_stream(body),
    ))
}

/// A reader who goes on with the log.
struct Following {
    control: Control,
    stopping: CancellationToken,
    wanted: Wanted,
    /// What was read and is not written yet.
    page: Option<ServiceEvents>,
}

impl Following {
    /// Waits for what is written next; `None` where the service stops.
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        let silent_until = Instant::now() + HEARTBEAT;
        loop {
            if let Some(page) = self.page.take() {
                let text = self.written(&page);
                if !text.is_empty() {
                    return Ok(Some(text.into()));
                }
            }
            if silent_until <= Instant::now() {
                return Ok(Some(Bytes::from_static(b":\n\n")));
            }
            let after = self.wanted.after.unwrap_or_default();
            let grows = self.control.service_log_grows(after, silent_until);
            if self.stopping.run_until_cancelled(grows).await.is_none() {
                return Ok(None);
            }
            let page = self.control.service_log(self.wanted.clone()).await;
            // Whoever follows comes back with the number of the last event.
            self.page = Some(page.map_err(|refusal| io::Error::other(refusal.to_string()))?);
        }
    }

    /// Writes a page, after what is kept no more, and goes on behind it.
    fn written(&mut self, page: &ServiceEvents) -> String {
        let after = self
            .wanted
            .after
            .unwrap_or(page.first_seq.saturating_sub(1));
        let mut text = String::new();
        if after + 1 < page.first_seq {
            let gap = format!(r#"{{"from":{},"to":{}}}"#, after + 1, page.first_seq);
            text.extend(["event: gap\ndata: ", &gap, "\n\n"]);
        }
        for event in &page.events {
            let json = serde_json::to_string(event).expect("wire types have only text keys");
            let seq = event.seq.to_string();
            text.extend([
                "event: ",
                &event.kind,
                "\nid: ",
                &seq,
                "\ndata: ",
                &json,
                "\n\n",
            ]);
        }
        self.wanted.after = Some(page.next.max(after));
        text
    }
}

fn read(text: &str) -> Result<Wanted, Failure> {
    let mut form = Form::query();
    let names = ["after", "limit", "session", "tenant", "kind", "op", "since"];
    let [after, limit, session, tenant, kind, op, since] = query::fields(text, names);
    let wanted = Wanted {
        after: form.optional(&after, |given| validate::at_least(given, 0)),
        limit: form
            .optional(&limit, |given| validate::page(given, PAGE_MAX))
            .unwrap_or(PAGE_DEFAULT),
        session: form.optional(&session, validate::session_id),
        tenant: form.optional(&tenant, validate::tenant),
        kind: form.optional(&kind, |given| validate::one_of(given, KINDS)),
        op: form.optional(&op, validate::text),
        since: form.optional(&since, validate::moment),
    };
    form.finish()?;
    Ok(wanted)
}
