//! `sandboxctl explain`.

use super::args::{OneSession, Output};
use super::exit::Exit;
use super::failure::Failure;
use super::printer::Printer;
use super::text::instant;
use crate::client::Client;
use crate::wire::error::Ceiling;
use crate::wire::explain::{NextStep, SessionExplanation};

pub(super) async fn explain(
    client: &Client,
    printer: &mut Printer<'_>,
    args: &OneSession,
) -> Result<Exit, Failure> {
    let explained = client.explain(&args.id).await?;
    match printer.output() {
        Output::Json => printer.json(&explained)?,
        Output::Table => printer.pairs(&pairs(&explained))?,
    }
    Ok(Exit::OK)
}

fn pairs(explained: &SessionExplanation) -> Vec<(&'static str, String)> {
    let container = &explained.container;
    let mut pairs = vec![
        ("Should be", explained.aim.clone()),
        ("Is", explained.phase.clone()),
        ("Since", instant(explained.since)),
    ];
    let failed = (0 < explained.attempts).then(|| explained.attempts.to_string());
    let told = [
        ("Reason", explained.reason.clone()),
        ("Failed attempts", failed),
        ("Last error", explained.last_error.clone()),
    ];
    pairs.extend(
        told.into_iter()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    pairs.extend([
        (
            "Next",
            explained.next.as_ref().map_or_else(|| "-".to_owned(), next),
        ),
        ("In use by", explained.lease_count.to_string()),
        (
            "Container",
            container.name.clone().unwrap_or_else(|| "-".to_owned()),
        ),
        ("Container is", container.state.clone()),
    ]);
    if !explained.drift.is_empty() {
        pairs.push(("Drifted", explained.drift.join(", ")));
    }
    pairs.extend(explained.ceilings.iter().map(|of| ("Ceiling", ceiling(of))));
    pairs
}

fn next(next: &NextStep) -> String {
    match next.at {
        Some(at) => format!("{} at {}", next.step, instant(at)),
        None => next.step.clone(),
    }
}

fn ceiling(of: &Ceiling) -> String {
    format!("{} {} of {} ({})", of.name, of.used, of.limit, of.scope)
}
