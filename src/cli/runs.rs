//! `sandboxctl run`, `runs`, `logs`, `kill` and `stop`.

use std::io::Read;
use std::time::Duration;

use super::args::{self, Output};
use super::exit::Exit;
use super::failure::{Failure, refused, sentence};
use super::printer::Printer;
use super::text::{bytes, instant, span};
use crate::client::{Client, Error, FollowRun, OutputLines, OutputOptions};
use crate::id::RunId;
use crate::wire::runs::{
    Chunk, OutputLine, Run, RunInput, RunRequest, RunResponse, StartRunRequest,
};

/// Bytes read of standard input for a command; the service takes no more in one request.
pub(super) const INPUT_BYTES_MAX: usize = 512 << 10;
/// The exit status of a program that was over its time, as `timeout` has it.
const TIMED_OUT: i64 = 124;
/// How long following rests before it asks again.
pub(super) const AGAIN: Duration = Duration::from_secs(1);

/// Runs a program and passes on how it ended.
pub(super) async fn run(
    client: &Client,
    printer: &mut Printer<'_>,
    args: &args::Run,
    timeout_secs: Option<u64>,
) -> Result<Exit, Failure> {
    let request = RunRequest {
        argv: args.command.clone(),
        env: args.how.env(),
        timeout_seconds: seconds(timeout_secs),
        run_id: RunId::random().into(),
        cwd: args.how.workdir.clone(),
        user: args.how.user.clone(),
        stdin: input(printer, &args.how)?,
    };
    let reply = client.run(&args.id, &request).await?;
    match printer.output() {
        Output::Json => printer.json(&reply)?,
        Output::Table => {
            printer.raw(&reply.stdout)?;
            printer.raw_error(reply.stderr.as_bytes())?;
        }
    }
    Ok(conclude(printer, &reply))
}

/// Starts a program in the background and prints its id.
pub(super) async fn start(
    client: &Client,
    printer: &mut Printer<'_>,
    args: &args::Run,
    timeout_secs: Option<u64>,
) -> Result<Exit, Failure> {
    let request = StartRunRequest {
        argv: Some(args.command.clone()),
        env: args.how.env(),
        cwd: args.how.workdir.clone(),
        user: args.how.user.clone(),
        stdin: input(printer, &args.how)?.map(RunInput::Text),
        timeout_seconds: seconds(timeout_secs),
        ..StartRunRequest::default()
    };
    let run = client.start_run(&args.id, &request).await?;
    match printer.output() {
        Output::Json => printer.json(&run)?,
        Output::Table => printer.line(&run.run_id)?,
    }
    Ok(Exit::OK)
}

fn seconds(timeout_secs: Option<u64>) -> Option<f64> {
    timeout_secs.map(|secs| u32::try_from(secs).map_or(f64::MAX, f64::from))
}

/// Reads standard input, where a command is to have it.
pub(super) fn input(printer: &mut Printer<'_>, how: &args::How) -> Result<Option<String>, Failure> {
    if !how.stdin {
        return Ok(None);
    }
    let bytes_max = u64::try_from(INPUT_BYTES_MAX).unwrap_or(u64::MAX);
    let mut bytes = Vec::new();
    printer
        .stdin()
        .take(bytes_max + 1)
        .read_to_end(&mut bytes)
        .map_err(Failure::Input)?;
    if INPUT_BYTES_MAX < bytes.len() {
        return Err(Failure::InputText("it has more than 524288 bytes"));
    }
    let text = String::from_utf8(bytes);
    let text = text.map_err(|_| Failure::InputText("it is not text in UTF-8"))?;
    Ok(Some(text))
}

/// Says what the streams do not, and passes the program's ending on.
fn conclude(printer: &mut Printer<'_>, reply: &RunResponse) -> Exit {
    if let Some(reset) = &reply.reset_reason {
        printer.note(&format!(
            "the sandbox was reset before this program ({reset})"
        ));
    }
    if reply.timed_out {
        printer.note("the program was over its time and was stopped");
        return Exit::of_command(TIMED_OUT);
    }
    if let (true, Some(limit)) = (reply.output_limited, reply.output_limit) {
        let limit = bytes(limit);
        printer.error(
            &format!("the program wrote more than {limit} and was stopped"),
            Some("run it with -d, and its output is kept in a ring instead"),
        );
        return Exit::EXEC_FAILED;
    }
    if let Some(code) = reply.exit_code {
        return Exit::of_command(code);
    }
    let reason = reply.reason.as_deref().unwrap_or("no reason was given");
    let text = format!("nobody knows how the program ended ({reason})");
    printer.error(&text, None);
    Exit::EXEC_FAILED
}

/// Lists the runs of a session.
pub(super) async fn list(
    client: &Client,
    printer: &mut Printer<'_>,
    args: &args::Runs,
) -> Result<Exit, Failure> {
    let list = client.runs(&args.id).await?;
    match printer.output() {
        Output::Json => printer.json(&list)?,
        Output::Table => {
            let names = ["RUN", "STATE", "EXIT", "STARTED", "RAN", "BYTES", "TARGET"];
            let rows = list.runs.iter().map(row);
            printer.table(printer.headers(), &names, rows.collect())?;
        }
    }
    Ok(Exit::OK)
}

fn row(run: &Run) -> Vec<String> {
    let dash = || "-".to_owned();
    let exit = match (run.exit_code, run.signal, &run.reason) {
        (Some(code), _, _) => code.to_string(),
        (None, Some(signal), _) => format!("signal {signal}"),
        (None, None, Some(reason)) => reason.clone(),
        (None, None, None) => dash(),
    };
    vec![
        run.run_id.clone(),
        run.state.clone(),
        exit,
        instant(run.started_at),
        run.ended_at
            .map_or_else(dash, |ended| span(ended - run.started_at)),
        bytes(run.stdout_bytes.saturating_add(run.stderr_bytes)),
        run.target.clone(),
    ]
}

/// Removes runs that are over.
pub(super) async fn forget(
    client: &Client,
    printer: &mut Printer<'_>,
    args: &args::Runs,
) -> Result<Exit, Failure> {
    for run in &args.rm {
        client.forget_run(&args.id, run).await?;
        done(printer, "removed", run)?;
    }
    Ok(Exit::OK)
}

/// Sends a signal to a run.
pub(super) async fn kill(
    client: &Client,
    printer: &mut Printer<'_>,
    args: &args::Kill,
) -> Result<Exit, Failure> {
    let (id, run) = (&args.of.id, &args.of.run);
    client.signal_run(id, run, &args.signal).await?;
    done(printer, "signalled", run)
}

/// Stops a run.
pub(super) async fn stop(
    client: &Client,
    printer: &mut Printer<'_>,
    args: &args::OneRun,
) -> Result<Exit, Failure> {
    client.stop_run(&args.id, &args.run).await?;
    done(printer, "stopped", &args.run)
}

fn done(printer: &mut Printer<'_>, what: &str, run: &RunId) -> Result<Exit, Failure> {
    match printer.output() {
        Output::Table => printer.line(run.as_str())?,
        Output::Json => printer.json(&serde_json::json!({ what: run.as_str() }))?,
    }
    Ok(Exit::OK)
}

/// Shows what a run wrote, each stream on its own.
///
/// The first look must succeed. After it, following goes on for as long as it takes where
/// the service is away: nothing that is kept is missed or shown twice.
pub(super) async fn logs(
    client: &Client,
    printer: &mut Printer<'_>,
    args: &args::Logs,
    again: Duration,
) -> Result<Exit, Failure> {
    let mut from = args.since_seq;
    let mut lines = open(client, args, from).await?;
    loop {
        let why = match show(printer, &mut lines, &mut from).await? {
            Shown::Whole => return Ok(Exit::OK),
            Shown::Broken(why) => why,
        };
        let is_over = match args.follow() {
            FollowRun::No => true,
            FollowRun::Yes => !why.as_ref().is_none_or(Error::retryable),
        };
        if is_over {
            if let Some(error) = why {
                return Err(error.into());
            }
            printer.error("the service ended the output before it was whole", None);
            return Ok(Exit::FAILED);
        }
        let text = why
            .as_ref()
            .map_or("the output broke off".to_owned(), sentence);
        printer.note(&format!("{text}; trying on"));
        lines = reopen(client, args, from, again).await?;
    }
}

async fn open(client: &Client, args: &args::Logs, from: u64) -> Result<OutputLines, Error> {
    let options = OutputOptions {
        from,
        follow: args.follow(),
        ..OutputOptions::default()
    };
    client.output(&args.of.id, &args.of.run, options).await
}

async fn reopen(
    client: &Client,
    args: &args::Logs,
    from: u64,
    again: Duration,
) -> Result<OutputLines, Failure> {
    loop {
        tokio::time::sleep(again).await;
        match open(client, args, from).await {
            Err(error) if error.retryable() => {}
            opened => return Ok(opened?),
        }
    }
}

/// How showing output ended.
enum Shown {
    /// With the end of the run, or of what there is.
    Whole,
    /// Before that, for this reason if one is known.
    Broken(Option<Error>),
}

/// Shows lines as they come; `from` is the record that comes next.
async fn show(
    printer: &mut Printer<'_>,
    lines: &mut OutputLines,
    from: &mut u64,
) -> Result<Shown, Failure> {
    loop {
        let line = match lines.next().await {
            Ok(Some(line)) => line,
            Ok(None) => return Ok(Shown::Broken(None)),
            Err(error) => return Ok(Shown::Broken(Some(error))),
        };
        match (printer.output(), &line) {
            (Output::Json, _) => printer.json_line(&line)?,
            (Output::Table, OutputLine::Output(chunk)) => show_chunk(printer, chunk)?,
            (Output::Table, OutputLine::Gap { gap }) => {
                let (first, last) = (gap.from, gap.to.saturating_sub(1));
                printer.note(&format!("records {first} to {last} are no longer kept"));
            }
            (Output::Table, OutputLine::End { .. } | OutputLine::Error { .. }) => {}
        }
        match line {
            OutputLine::Output(chunk) => *from = chunk.seq.saturating_add(1),
            OutputLine::Gap { gap } => *from = gap.to,
            OutputLine::End { .. } => return Ok(Shown::Whole),
            OutputLine::Error { error } => return Ok(Shown::Broken(Some(refused(*error)))),
        }
    }
}

fn show_chunk(printer: &mut Printer<'_>, chunk: &Chunk) -> std::io::Result<()> {
    let bytes = chunk.bytes();
    if chunk.stream == "stderr" {
        printer.raw_error(&bytes)
    } else {
        printer.raw_bytes(&bytes)
    }
}
