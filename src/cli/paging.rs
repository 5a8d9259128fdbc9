//! Prints pages of events, and looks for further ones.

use std::io;
use std::time::Duration;

use serde::Serialize;

use super::args::Output;
use super::failure::{Failure, sentence};
use super::printer::{Headers, Printer};
use crate::client::Error;

/// How the events of a log are shown as a table.
#[derive(Debug)]
pub(super) struct Columns<T> {
    /// The headers, as wide as the cells.
    pub(super) names: [&'static str; 7],
    /// The cells of an event.
    pub(super) row: fn(&T) -> Vec<String>,
}

impl<T: Serialize> Columns<T> {
    /// Prints the events of a page.
    pub(super) fn print(
        &self,
        printer: &mut Printer<'_>,
        headers: Headers,
        events: &[T],
    ) -> io::Result<()> {
        match printer.output() {
            Output::Json => events.iter().try_for_each(|event| printer.json_line(event)),
            Output::Table => {
                let rows = events.iter().map(self.row).collect();
                printer.table(headers, &self.names, rows)
            }
        }
    }
}

/// Says which events are gone between the last that was shown and the first that is kept.
pub(super) fn tell_gap(printer: &mut Printer<'_>, after: u64, first_seq: u64) {
    let next = after.saturating_add(1);
    if next < first_seq {
        let last = first_seq - 1;
        printer.note(&format!("events {next} to {last} are no longer kept"));
    }
}

/// Asks for a page, again and again while that may help.
pub(super) async fn look<T>(
    printer: &mut Printer<'_>,
    poll: Duration,
    ask: impl AsyncFn() -> Result<T, Error>,
) -> Result<T, Failure> {
    let mut told = false;
    loop {
        match ask().await {
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
