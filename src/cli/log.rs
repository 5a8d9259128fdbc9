//! `sandboxctl events` of the service as a whole.

use std::io;
use std::time::Duration;

use super::args::{self, Output};
use super::exit::Exit;
use super::failure::{Failure, sentence};
use super::printer::{Headers, Printer};
use super::text::instant;
use crate::client::{Client, EventOptions};
use crate::clock::Clock;
use crate::wire::events::{ServiceEvent, ServiceEvents};

// As wide as the cells below, for a header without any of them.
const NAMES: [&str; 7] = [
    "SEQ  ",
    "TIME                    ",
    "SESSION         ",
    "OP        ",
    "RESULT",
    "DETAIL      ",
    "TARGET",
];

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
        (Output::Table, false) | (_, true) => print(printer, printer.headers(), &page)?,
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
        let page = look(client, printer, &options, poll).await?;
        let after = options.after.unwrap_or_default();
        if after + 1 < page.first_seq {
            let last = page.first_seq - 1;
            printer.note(&format!(
                "events {} to {last} are no longer kept",
                after + 1
            ));
        }
        print(printer, Headers::Hidden, &page)?;
        latest = page.latest_seq;
        options.after = Some(page.next);
    }
}

/// Looks for what came after an event, again and again while that may help.
async fn look(
    client: &Client,
    printer: &mut Printer<'_>,
    options: &EventOptions,
    poll: Duration,
) -> Result<ServiceEvents, Failure> {
    let mut told = false;
    loop {
        match client.service_events(options).await {
            Ok(page) => {
                if told {
                    printer.note("the service is back");
                }
                return Ok(page);
            }
            Err(error) if error.retryable() => {
                if !told {
                    printer.note(&format!("{}; trying on", sentence(&error)));
                }
                told = true;
                tokio::time::sleep(poll).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn print(printer: &mut Printer<'_>, headers: Headers, page: &ServiceEvents) -> io::Result<()> {
    match printer.output() {
        Output::Json => page
            .events
            .iter()
            .try_for_each(|event| printer.json_line(event)),
        Output::Table => {
            let rows = page.events.iter().map(row).collect();
            printer.table(headers, &NAMES, rows)
        }
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
