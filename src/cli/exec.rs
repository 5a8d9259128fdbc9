//! `sandboxctl exec`.

use super::args::{self, Output};
use super::exit::Exit;
use super::failure::Failure;
use super::printer::Printer;
use super::runs::input;
use super::text::shell;
use crate::client::Client;
use crate::wire::exec::{ExecRequest, ExecResponse};

pub(super) async fn exec(
    client: &Client,
    printer: &mut Printer<'_>,
    args: &args::Exec,
    timeout_secs: Option<u64>,
) -> Result<Exit, Failure> {
    let request = ExecRequest {
        command: shell(&args.command),
        timeout_seconds: timeout_secs,
        env: args.how.env(),
        cwd: args.how.workdir.clone(),
        user: args.how.user.clone(),
        stdin: input(printer, &args.how)?,
    };
    let reply = client.exec(&args.id, &request).await?;
    match printer.output() {
        Output::Json => printer.json(&reply)?,
        Output::Table => printer.raw(&reply.output)?,
    }
    Ok(conclude(printer, &reply))
}

/// Says what the output does not, and passes the command's ending on.
fn conclude(printer: &mut Printer<'_>, reply: &ExecResponse) -> Exit {
    if let Some(reset) = &reply.reset_reason {
        printer.note(&format!(
            "the sandbox was reset before this command ({reset})"
        ));
    }
    if reply.truncated {
        printer.note("the output is cut; the command printed more");
    }
    match (reply.exit_code, &reply.reason) {
        (Some(code), Some(reason)) if reason == "timeout" => {
            printer.note("the command was over its time and was killed");
            Exit::of_command(code)
        }
        (Some(code), _) => Exit::of_command(code),
        (None, Some(reason)) => {
            printer.error(
                &format!("nobody knows how the command ended ({reason})"),
                None,
            );
            Exit::EXEC_FAILED
        }
        (None, None) => {
            printer.error("nobody knows how the command ended", None);
            Exit::EXEC_FAILED
        }
    }
}
