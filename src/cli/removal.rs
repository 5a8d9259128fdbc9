//! `sandboxctl rm` and `purge`.

use serde::ser::{Serialize, SerializeMap as _, Serializer};

use super::args::{Output, PurgeIds, Rm};
use super::exit::Exit;
use super::failure::{Failure, sentence};
use super::printer::{Answer, Printer};
use crate::client::{Client, Error, Purge};
use crate::id::SessionId;

/// Ids that a question lists; more are counted.
const ASKED_IDS_MAX: usize = 5;

pub(super) async fn close(
    client: &Client,
    printer: &mut Printer<'_>,
    args: &Rm,
) -> Result<Exit, Failure> {
    let purge = args.purge();
    match purge {
        Purge::No => {}
        Purge::Yes if args.yes => {}
        Purge::Yes => {
            let question = format!("close {} and remove all files?", named(&args.ids));
            confirm(printer, &question)?;
        }
    }
    each(printer, &args.ids, "removed", async |id| {
        client.close(id, purge).await
    })
    .await
}

pub(super) async fn purge(
    client: &Client,
    printer: &mut Printer<'_>,
    args: &PurgeIds,
) -> Result<Exit, Failure> {
    if !args.yes {
        let question = format!("remove everything that {} ever had?", named(&args.ids));
        confirm(printer, &question)?;
    }
    let close = args.close();
    each(printer, &args.ids, "removed", async |id| {
        client.purge(id, close).await
    })
    .await
}

/// Has somebody say yes, or fails.
pub(super) fn confirm(printer: &mut Printer<'_>, question: &str) -> Result<(), Failure> {
    match printer.ask(question)? {
        Answer::Yes => Ok(()),
        Answer::No => Err(Failure::Declined),
        Answer::NobodyThere => Err(Failure::NobodyConfirmed),
    }
}

fn named(ids: &[SessionId]) -> String {
    let listed: Vec<&str> = ids
        .iter()
        .take(ASKED_IDS_MAX)
        .map(SessionId::as_str)
        .collect();
    let listed = listed.join(", ");
    match ids.len().checked_sub(ASKED_IDS_MAX) {
        None | Some(0) => listed,
        Some(n_more) => format!("{listed} and {n_more} more"),
    }
}

/// What became of one id.
#[derive(Debug)]
struct Outcome<'a> {
    session_id: &'a str,
    /// What was to be done, as a participle.
    deed: &'static str,
    is_done: bool,
    code: Option<String>,
    error: Option<String>,
}

impl Serialize for Outcome<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(4))?;
        map.serialize_entry("session_id", self.session_id)?;
        map.serialize_entry(self.deed, &self.is_done)?;
        map.serialize_entry("code", &self.code)?;
        map.serialize_entry("error", &self.error)?;
        map.end()
    }
}

/// Does something to one id after the other, and tells for each what became of it.
///
/// A failure of one does not keep the others, but where the service is away or
/// refuses the token, trying them would only take time.
pub(super) async fn each(
    printer: &mut Printer<'_>,
    ids: &[SessionId],
    deed: &'static str,
    act: impl AsyncFn(&SessionId) -> Result<(), Error>,
) -> Result<Exit, Failure> {
    let mut outcomes = Vec::new();
    let mut failures: Vec<Error> = Vec::new();
    for id in ids {
        let error = act(id).await.err();
        outcomes.push(Outcome {
            session_id: id.as_str(),
            deed,
            is_done: error.is_none(),
            code: error.as_ref().map(|error| error.code().to_owned()),
            error: error.as_ref().map(sentence),
        });
        match (error, printer.output()) {
            (None, Output::Table) => printer.line(id.as_str())?,
            (None, Output::Json) => {}
            (Some(error), _) => {
                let exit = Exit::of_error(&error);
                if 1 < ids.len() {
                    printer.error(&format!("{id}: {}", sentence(&error)), None);
                }
                failures.push(error);
                if matches!(exit, Exit::UNREACHABLE | Exit::AUTHENTICATION) {
                    break;
                }
            }
        }
    }
    match printer.output() {
        Output::Table => {}
        Output::Json => printer.json(&outcomes)?,
    }
    match ids.len() - outcomes.len() {
        0 => {}
        n_left => printer.note(&format!("{n_left} more were not tried")),
    }
    conclude(ids, failures)
}

/// Ends as the failures did where they are all of a kind and nothing succeeded.
fn conclude(ids: &[SessionId], mut failures: Vec<Error>) -> Result<Exit, Failure> {
    let n_failed = failures.len();
    let Some(last) = failures.pop() else {
        return Ok(Exit::OK);
    };
    let exit = Exit::of_error(&last);
    if ids.len() == 1 {
        return Err(Failure::Call(last));
    }
    let alike = failures.iter().all(|error| Exit::of_error(error) == exit);
    Ok(if alike && n_failed == ids.len() {
        exit
    } else {
        Exit::FAILED
    })
}
