//! `sandboxctl events` of the service as a whole.

use std::time::Duration;

use super::args::{self, Output};
use super::exit::Exit;
use super::failure::Failure;
use super::paging::{Columns, look, tell_gap};
use super::printer::{Headers, Printer};
use super::text::instant;
use crate::client::{Client, EventOptions};
use crate::clock::Clock;
use crate::wire::events::ServiceEvent;

const COLUMNS: Columns<ServiceEvent> = Columns {
    names: [
        "SEQ  ",
        "TIME                    ",
        "SESSION         ",
        "OP        ",
        "RESULT",
        "DETAIL      ",
        "TARGET",
    ],
    row,
};

/// Shows what is there, and where that is wanted what comes.
pub(super) async fn show(
    client: &Client,
    printer: &mut Printer<'_>,
    args: &args::Events,
    poll: Duration,
) -> Result<Exit, Failure> {
    let now = Clock::host().now();
    let filter = &args.filter;
    let mut options = EventOptions {
        after: args.after,
        limit: args.limit,
        session: args.id.clone(),
        tenant: filter.tenant.clone(),
        kind: filter.kind.clone(),
        op: filter.op.clone(),
        since: filter
            .since
            .map(|span| now.before(span).unwrap_or_default()),
    };
    let page = client.service_events(&options).await?;
    match (printer.output(), args.follow) {
        (Output::Json, false) => printer.json(&page)?,
        (Output::Table, false) | (_, true) => {
            COLUMNS.print(printer, printer.headers(), &page.events)?;
        }
    }
    if !args.follow {
        return Ok(Exit::OK);
    }
    let mut latest = page.latest_seq;
    options.after = Some(page.next);
    loop {
        if latest <= options.after.unwrap_or_default() {
            tokio::time::sleep(poll).await;
        }
        let page = look(printer, poll, async || {
            client.service_events(&options).await
        })
        .await?;
        tell_gap(printer, options.after.unwrap_or_default(), page.first_seq);
        COLUMNS.print(printer, Headers::Hidden, &page.events)?;
        latest = page.latest_seq;
        options.after = Some(page.next);
    }
}

fn row(event: &ServiceEvent) -> Vec<String> {
    let result = if event.ok { "ok" } else { "failed" };
    // Of what became of a session, the target is the session.
    let target = match event.kind.as_str() {
        "operation" => event.target.clone(),
        _ => String::new(),
    };
    let session = event.session_id.as_deref().unwrap_or("-");
    vec![
        format!("{:<5}", event.seq),
        format!("{:<24}", instant(event.at)),
        format!("{session:<16}"),
        format!("{:<10}", event.op),
        format!("{result:<6}"),
        format!("{:<12}", event.detail),
        target,
    ]
}
