//! `sandboxctl ls`, `get` and `open`.

use std::time::Duration;

use super::args::{Get, Ls, Open, Output};
use super::exit::Exit;
use super::failure::Failure;
use super::printer::Printer;
use super::text::{bytes, instant, span};
use crate::client::{Client, ListOptions, Usage};
use crate::wire::sessions::{CreateSessionRequest, SessionInfo, SessionUsage};

pub(super) async fn list(
    client: &Client,
    printer: &mut Printer<'_>,
    args: &Ls,
) -> Result<Exit, Failure> {
    let options = ListOptions {
        usage: args.usage(),
        tenant: args.tenant.clone(),
        state: args.state.map(Into::into),
        ..ListOptions::default()
    };
    let list = client.sessions(&options).await?;
    let sessions = &list.sessions;
    match printer.output() {
        _ if args.quiet => {
            for session in sessions {
                printer.line(&session.session_id)?;
            }
        }
        Output::Json => printer.json(&list)?,
        Output::Table => {
            let mut names = vec!["ID", "RUNTIME", "TENANT", "STATE", "IDLE", "AGE"];
            match options.usage {
                Usage::Skip => {}
                Usage::Sample => names.extend(["MEM", "CPU", "PIDS"]),
            }
            let rows = sessions.iter().map(|session| row(session, options.usage));
            printer.table(printer.headers(), &names, rows.collect())?;
        }
    }
    if list.next.is_some() {
        printer.note("the service cut the list; there are more sessions");
    }
    Ok(Exit::OK)
}

fn row(session: &SessionInfo, usage: Usage) -> Vec<String> {
    let mut row = vec![
        session.session_id.clone(),
        session.runtime.clone(),
        or_dash(session.tenant.clone()),
        phase(session).to_owned(),
        span(session.idle_seconds),
        span(age_secs(session)),
    ];
    match usage {
        Usage::Skip => {}
        Usage::Sample => {
            let sample = session.usage.clone().unwrap_or_default();
            row.extend([memory(&sample), cpu(&sample), pids(&sample)]);
        }
    }
    row
}

pub(super) async fn get(
    client: &Client,
    printer: &mut Printer<'_>,
    args: &Get,
) -> Result<Exit, Failure> {
    let session = client.session(&args.id, args.usage()).await?;
    match printer.output() {
        Output::Json => printer.json(&session)?,
        Output::Table => printer.pairs(&description(&session))?,
    }
    Ok(Exit::OK)
}

fn description(session: &SessionInfo) -> Vec<(&'static str, String)> {
    let yes_no = |yes| if yes { "yes" } else { "no" }.to_owned();
    let mut pairs = vec![
        ("ID", session.session_id.clone()),
        ("Runtime", session.runtime.clone()),
        ("Tenant", or_dash(session.tenant.clone())),
        ("State", session.state.clone()),
        ("Phase", phase(session).to_owned()),
        ("Alive", yes_no(session.alive)),
        ("Created", instant(session.created_at)),
        ("Last used", instant(session.last_activity)),
        ("Idle", span(session.idle_seconds)),
        ("Age", span(age_secs(session))),
    ];
    // What a service of another version does not tell is left out.
    let told = [
        ("Reason", session.reason.clone()),
        ("Container", session.container.clone()),
        ("Image", session.image.clone()),
        (
            "Exec",
            Some(session.exec.clone()).filter(|exec| !exec.is_empty()),
        ),
        (
            "Incarnation",
            (0 < session.incarnation).then(|| session.incarnation.to_string()),
        ),
        ("Drifted", session.drifted.then(|| yes_no(true))),
    ];
    pairs.extend(
        told.into_iter()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    if let Some(usage) = &session.usage {
        pairs.extend([
            ("Memory", memory(usage)),
            ("CPU", cpu(usage)),
            ("Processes", pids(usage)),
        ]);
    }
    pairs
}

pub(super) async fn open(
    client: &Client,
    printer: &mut Printer<'_>,
    args: &Open,
) -> Result<Exit, Failure> {
    let request = CreateSessionRequest {
        session_id: args.id.clone().map(Into::into),
        runtime: args.runtime.clone().map(Into::into),
        tenant: args.tenant.clone().map(Into::into),
        reuse: args.existing.reuse,
        attach: args.existing.attach,
    };
    let opened = match args.wait {
        None => client.open(&request).await?,
        Some(secs) => {
            client
                .open_within(&request, Duration::from_secs(secs))
                .await?
        }
    };
    match printer.output() {
        Output::Json => printer.json(&opened)?,
        Output::Table => {
            printer.line(&opened.session.session_id)?;
            if args.show_token {
                printer.line(&opened.token)?;
            }
        }
    }
    Ok(Exit::OK)
}

/// Returns the finer state, where the service tells it.
fn phase(session: &SessionInfo) -> &str {
    if session.phase.is_empty() {
        &session.state
    } else {
        &session.phase
    }
}

/// Counts from opening to the service's own present, so that a difference
/// between the clocks of two hosts does not show.
fn age_secs(session: &SessionInfo) -> f64 {
    session.last_activity + session.idle_seconds - session.created_at
}

fn or_dash(value: Option<String>) -> String {
    value.unwrap_or_else(|| "-".to_owned())
}

fn memory(usage: &SessionUsage) -> String {
    match (usage.memory_bytes, usage.memory_limit_bytes) {
        (Some(used), Some(limit)) => format!("{} / {}", bytes(used), bytes(limit)),
        (Some(used), None) => bytes(used),
        (None, _) => or_dash(None),
    }
}

fn cpu(usage: &SessionUsage) -> String {
    or_dash(usage.cpu_percent.map(|percent| format!("{percent:.1}%")))
}

fn pids(usage: &SessionUsage) -> String {
    or_dash(usage.pids.map(|pids| pids.to_string()))
}
