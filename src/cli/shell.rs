//! `sandboxctl shell`: this terminal becomes one in a sandbox, until that ends or is left.

mod keys;
mod local;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::args;
use super::exit::Exit;
use super::failure::{Failure, sentence};
use super::printer::Printer;
use crate::client::{Client, Error, TtyInput, TtyOutput, TtyTold};
use crate::id::RunId;
use crate::wire::ttys::{ClientFrame, ServerFrame, TtyRequest};
use keys::{Keys, Typed};
use local::{Keyboard, Raw, Size};

/// The exit status of what a signal ended, less its number.
const SIGNALLED: i64 = 128;

/// How sitting at a terminal ended.
#[derive(Debug)]
enum Over {
    /// Its program ended.
    Ended {
        exit_code: Option<i64>,
        reason: String,
    },
    /// It was left by the keys for it.
    Left,
    /// It was left by a signal of this number, or because this terminal is gone.
    Signalled(i32),
    /// The service closed it, for this reason.
    Closed(String),
    /// The connection ended or broke.
    Broken(Option<Error>),
}

/// Opens a terminal in a sandbox, or comes back to one, and sits there.
pub(super) async fn shell(
    client: &Client,
    printer: &mut Printer<'_>,
    args: &args::Shell,
) -> Result<Exit, Failure> {
    if !(printer.is_attended() && local::is_terminal()) {
        return Err(Failure::NoTerminal);
    }
    let tty = match &args.attach {
        Some(tty) => tty.clone(),
        None => open(client, args).await?,
    };
    let (mut input, mut output) = client.attach_tty(&args.id, &tty).await?;
    let over = {
        let mut leaving = Leaving::catch().map_err(Failure::Terminal)?;
        let mut resized = signal(SignalKind::window_change()).map_err(Failure::Terminal)?;
        let mut keyboard = Keyboard::listen().map_err(Failure::Terminal)?;
        // From here on, every way out leads through its end, and so restores the terminal.
        let _raw = Raw::enter().map_err(Failure::Terminal)?;
        // Neither waits for the other: a program that reads nothing may still write.
        let over = tokio::select! {
            over = watch(&mut output, &mut leaving, printer) => over,
            over = speak(&mut input, &mut keyboard, &mut resized) => Ok(over),
        };
        let left = printer.raw_bytes(local::LEAVE);
        let over = over?;
        left?;
        over
    };
    // One who has gone already is told nothing.
    drop(input.leave().await);
    Ok(conclude(printer, args, &tty, over))
}

async fn open(client: &Client, args: &args::Shell) -> Result<RunId, Failure> {
    let size = local::size();
    let request = TtyRequest {
        argv: Some(args.command.clone()).filter(|argv| !argv.is_empty()),
        env: args.env.env(),
        cwd: args.workdir.clone(),
        user: args.user.clone(),
        cols: size.map(|size| size.cols),
        rows: size.map(|size| size.rows),
    };
    let made = client.open_tty(&args.id, &request).await?;
    RunId::parse(&made.tty_id).map_err(|_| Failure::OddReply("it names no terminal"))
}

/// Shows what the terminal in the sandbox shows.
async fn watch(
    output: &mut TtyOutput,
    leaving: &mut Leaving,
    printer: &mut Printer<'_>,
) -> Result<Over, Failure> {
    loop {
        let told = tokio::select! {
            told = output.next() => told,
            number = leaving.signalled() => return Ok(Over::Signalled(number)),
        };
        match told {
            Ok(Some(TtyTold::Output(bytes))) => printer.raw_bytes(&bytes)?,
            Ok(Some(TtyTold::Frame(ServerFrame::Screen { data, .. }))) => printer.raw(&data)?,
            Ok(Some(TtyTold::Frame(ServerFrame::Writer { .. }))) => {}
            Ok(Some(TtyTold::Frame(ServerFrame::Exit { exit_code, reason }))) => {
                return Ok(Over::Ended { exit_code, reason });
            }
            Ok(Some(TtyTold::Closed { code, reason })) => {
                return Ok(Over::Closed(format!("{reason} ({code})")));
            }
            Ok(None) => return Ok(Over::Broken(None)),
            Err(error) => return Ok(Over::Broken(Some(error))),
        }
    }
}

/// Passes on what is typed, and how large this terminal is.
async fn speak(input: &mut TtyInput, keyboard: &mut Keyboard, resized: &mut Signal) -> Over {
    let mut keys = Keys::default();
    let mut said = input.say(&ClientFrame::Take).await;
    if said.is_ok() {
        said = resize(input).await;
    }
    while said.is_ok() {
        said = tokio::select! {
            typed = keyboard.next() => match typed.map(|bytes| keys.typed(&bytes)) {
                Some(Typed::Bytes(bytes)) => input.write(&bytes).await,
                Some(Typed::Leave(bytes)) => {
                    // What was typed before is meant; whether it arrives is all the same.
                    drop(input.write(&bytes).await);
                    return Over::Left;
                }
                None => return Over::Signalled(SignalKind::hangup().as_raw_value()),
            },
            Some(()) = resized.recv() => resize(input).await,
        };
    }
    // How it ended is told by what is read.
    std::future::pending().await
}

async fn resize(input: &mut TtyInput) -> Result<(), Error> {
    match local::size() {
        Some(Size { cols, rows }) => input.say(&ClientFrame::Resize { cols, rows }).await,
        None => Ok(()),
    }
}

/// The signals upon which a terminal is left.
struct Leaving {
    hangup: Signal,
    interrupt: Signal,
    quit: Signal,
    terminate: Signal,
}

impl Leaving {
    fn catch() -> std::io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Returns the number of the signal that came.
    async fn signalled(&mut self) -> i32 {
        let kind = tokio::select! {
            _ = self.hangup.recv() => SignalKind::hangup(),
            _ = self.interrupt.recv() => SignalKind::interrupt(),
            _ = self.quit.recv() => SignalKind::quit(),
            _ = self.terminate.recv() => SignalKind::terminate(),
        };
        kind.as_raw_value()
    }
}

/// Says how it ended, and passes the program's ending on.
fn conclude(printer: &mut Printer<'_>, args: &args::Shell, tty: &RunId, over: Over) -> Exit {
    let back = format!(
        "sandboxctl shell {} --attach {tty} comes back to it",
        args.id
    );
    match over {
        Over::Ended {
            exit_code: Some(code),
            ..
        } => Exit::of_command(code),
        Over::Ended {
            exit_code: None,
            reason,
        } => {
            let text = format!("nobody knows how the program ended ({reason})");
            printer.error(&text, None);
            Exit::EXEC_FAILED
        }
        Over::Left => {
            printer.note(&format!("left, and it goes on; {back}"));
            Exit::OK
        }
        Over::Signalled(number) => {
            printer.note(&format!("left upon a signal, and it goes on; {back}"));
            Exit::of_command(SIGNALLED + i64::from(number))
        }
        Over::Closed(reason) => {
            let text = format!("the service closed the terminal: {reason}");
            printer.error(&text, Some(&back));
            Exit::EXEC_FAILED
        }
        Over::Broken(error) => {
            let text = error.as_ref().map_or_else(
                || "the connection to the terminal ended".to_owned(),
                sentence,
            );
            printer.error(&text, Some(&back));
            Exit::EXEC_FAILED
        }
    }
}
