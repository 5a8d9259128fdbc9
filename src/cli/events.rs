//! `sandboxctl events`.

use std::io;
use std::time::Duration;

use super::args::Output;
use super::exit::Exit;
use super::failure::{Failure, sentence};
use super::printer::{Headers, Printer};
use super::text::instant;
use crate::client::Client;
use crate::id::SessionId;
use crate::wire::events::{SessionEvent, SessionEvents};

/// How long following rests between two looks.
pub(super) const POLL: Duration = Duration::from_secs(1);

/// Events that following takes at a look.
const LOOK_MAX: u32 = 200;

// As wide as the cells below, for a header without any of them.
const NAMES: [&str; 7] = [
    "SEQ  ",
    "TIME                    ",
    "OP        ",
    "RESULT",
    "TOOK     ",
    "DETAIL      ",
    "TARGET",
];

/// Shows one page.
pub(super) async fn show(
    client: &Client,
    printer: &mut Printer<'_>,
    id: &SessionId,
    (after, limit): (Option<u64>, Option<u32>),
) -> Result<Exit, Failure> {
    let page = client.events(id, after.unwrap_or_default(), limit).await?;
    match printer.output() {
        Output::Json => printer.json(&page)?,
        Output::Table => print(printer, printer.headers(), &page)?,
    }
    Ok(Exit::OK)
}

/// Shows what is there and what comes, until the session is gone.
///
/// The first look must succeed. After it the service may be away for as long as
/// it takes: nothing that it keeps is missed or shown twice.
pub(super) async fn follow(
    client: &Client,
    printer: &mut Printer<'_>,
    (id, after): (&SessionId, Option<u64>),
    poll: Duration,
) -> Result<Exit, Failure> {
    let mut after = after.unwrap_or_default();
    let mut page = client.events(id, after, None).await?;
    print(printer, printer.headers(), &page)?;
    loop {
        let latest_before = page.latest_seq;
        after = page.events.last().map_or(after, |event| event.seq);
        if page.events.len() < usize::try_from(LOOK_MAX).unwrap_or(usize::MAX) {
            tokio::time::sleep(poll).await;
        }
        page = look(client, printer, (id, after), poll).await?;
        if page.latest_seq < latest_before {
            printer.note("the session was opened anew, and its log begins again");
            page = look(client, printer, (id, 0), poll).await?;
        } else if after + 1 < page.first_seq {
            let last = page.first_seq - 1;
            printer.note(&format!(
                "events {} to {last} are no longer kept",
                after + 1
            ));
        }
        print(printer, Headers::Hidden, &page)?;
    }
}

/// Looks for what came after an event, again and again while that may help.
async fn look(
    client: &Client,
    printer: &mut Printer<'_>,
    (id, after): (&SessionId, u64),
    poll: Duration,
) -> Result<SessionEvents, Failure> {
    let mut error = match client.events(id, after, Some(LOOK_MAX)).await {
        Ok(page) => return Ok(page),
        Err(error) => error,
    };
    if error.retryable() {
        printer.note(&format!("{}; trying on", sentence(&error)));
    }
    while error.retryable() {
        tokio::time::sleep(poll).await;
        error = match client.events(id, after, Some(LOOK_MAX)).await {
            Ok(page) => {
                printer.note("the service is back");
                return Ok(page);
            }
            Err(error) => error,
        };
    }
    Err(error.into())
}

fn print(printer: &mut Printer<'_>, headers: Headers, page: &SessionEvents) -> io::Result<()> {
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

fn row(event: &SessionEvent) -> Vec<String> {
    let result = if event.ok { "ok" } else { "failed" };
    let took = format!("{:.1}ms", event.duration_ms);
    // Widths that most events keep to, so that the columns of what is followed
    // stay where they are.
    vec![
        format!("{:<5}", event.seq),
        format!("{:<24}", instant(event.at)),
        format!("{:<10}", event.op),
        format!("{result:<6}"),
        format!("{took:<9}"),
        format!("{:<12}", event.detail),
        event.target.clone(),
    ]
}
