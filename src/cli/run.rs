//! Does what the command line asks for.

use super::args::{self, Args, Global, Place, Verb};
use super::exit::Exit;
use super::failure::{Failure, TokenGiven};
use super::printer::{Printer, Streams};
use super::{
    backup, copy, doctor, events, exec, explain, health, holds, log, removal, rest, runs, sessions,
    shell, sweep, token, workspaces,
};
use crate::client::{Client, Endpoint};
use crate::secret::Secret;

/// Does what `args` ask for and returns the status to end with.
///
/// `token` is what the environment holds; a token file goes before it.
/// `interrupt` resolves when the user wants a verb to end that would go on for
/// ever; it is polled by such a verb only.
pub async fn run(
    args: Args,
    token: Option<Secret>,
    streams: Streams<'_>,
    interrupt: impl Future<Output = ()>,
) -> Exit {
    let mut printer = Printer::new(streams, &args.global);
    let (token, given) = match find_token(&args.global, token, &mut printer) {
        Ok(Some(token)) => (Ok(Some(token)), TokenGiven::Yes),
        Ok(None) => (Ok(None), TokenGiven::No),
        Err(failure) => (Err(failure), TokenGiven::No),
    };
    let outcome = match token.and_then(|token| connect(&args.global, token)) {
        Ok(client) => act(&client, &mut printer, &args, interrupt).await,
        Err(failure) => Err(failure),
    };
    // What is buffered may be all there is to print.
    let outcome = outcome.and_then(|exit| printer.flush().map(|()| exit).map_err(Failure::from));
    match outcome {
        Ok(exit) => exit,
        Err(failure) => {
            if let Some(sentence) = failure.sentence() {
                let hint = failure.hint(&args.verb, given);
                printer.error(&sentence, hint.as_deref());
            }
            match &args.verb {
                Verb::Exec(_) | Verb::Shell(_) => Exit::EXEC_FAILED,
                Verb::Run(run) if !run.detach => Exit::EXEC_FAILED,
                Verb::Ls(_)
                | Verb::Get(_)
                | Verb::Explain(_)
                | Verb::Open(_)
                | Verb::Run(_)
                | Verb::Runs(_)
                | Verb::Logs(_)
                | Verb::Kill(_)
                | Verb::Stop(_)
                | Verb::Cp(_)
                | Verb::Events(_)
                | Verb::Rm(_)
                | Verb::Hibernate(_)
                | Verb::Wake(_)
                | Verb::Purge(_)
                | Verb::Workspaces(_)
                | Verb::Export(_)
                | Verb::Import(_)
                | Verb::Backup(_)
                | Verb::Health
                | Verb::Doctor
                | Verb::Sweep(_)
                | Verb::Release(_) => failure.exit(),
            }
        }
    }
}

/// Takes the token from where it was said to be, or else from the environment.
fn find_token(
    global: &Global,
    token: Option<Secret>,
    printer: &mut Printer<'_>,
) -> Result<Option<Secret>, Failure> {
    // A variable that is set to nothing counts as not set, as for other programs.
    let file = global.token_file.as_deref();
    let Some(file) = file.filter(|file| !file.as_os_str().is_empty()) else {
        return Ok(token.filter(|token| !token.expose().is_empty()));
    };
    if file.as_os_str() == "-" {
        printer.ask_nobody();
    }
    token::read(file, printer.stdin()).map(Some)
}

fn connect(global: &Global, token: Option<Secret>) -> Result<Client, Failure> {
    let mut client = Client::new(Endpoint::parse(&global.url)?);
    if let Some(token) = token {
        client = client.with_token(&token)?;
    }
    if let Some(deadline) = global.deadline() {
        client = client.with_deadline(deadline);
    }
    Ok(client)
}

/// Shows the log of a session, or that of the service.
async fn events_of(
    client: &Client,
    printer: &mut Printer<'_>,
    args: &args::Events,
) -> Result<Exit, Failure> {
    match &args.id {
        Some(id) if args.filter.is_empty() && args.follow => {
            events::follow(client, printer, (id, args.after), events::POLL).await
        }
        Some(id) if args.filter.is_empty() => {
            let page = (args.after, args.limit);
            events::show(client, printer, id, page).await
        }
        Some(_) | None => log::show(client, printer, args, events::POLL).await,
    }
}

async fn act(
    client: &Client,
    printer: &mut Printer<'_>,
    args: &Args,
    interrupt: impl Future<Output = ()>,
) -> Result<Exit, Failure> {
    match &args.verb {
        Verb::Ls(ls) => sessions::list(client, printer, ls).await,
        Verb::Get(get) => sessions::get(client, printer, get).await,
        Verb::Explain(of) => explain::explain(client, printer, of).await,
        Verb::Open(open) => sessions::open(client, printer, open).await,
        Verb::Exec(exec) => exec::exec(client, printer, exec, args.global.timeout).await,
        Verb::Run(run) if run.detach => {
            runs::start(client, printer, run, args.global.timeout).await
        }
        Verb::Run(run) => runs::run(client, printer, run, args.global.timeout).await,
        Verb::Shell(args) => shell::shell(client, printer, args).await,
        Verb::Runs(of) if of.rm.is_empty() => runs::list(client, printer, of).await,
        Verb::Runs(of) => runs::forget(client, printer, of).await,
        Verb::Logs(logs) => {
            tokio::select! {
                biased;
                () = interrupt => Ok(Exit::OK),
                shown = runs::logs(client, printer, logs, runs::AGAIN) => shown,
            }
        }
        Verb::Kill(kill) => runs::kill(client, printer, kill).await,
        Verb::Stop(run) => runs::stop(client, printer, run).await,
        // Not where standard input is read: that blocks, and would not be interrupted.
        Verb::Cp(copy) if matches!(copy.target, Place::Local(_)) => {
            tokio::select! {
                biased;
                () = interrupt => Ok(Exit::INTERRUPTED),
                copied = copy::copy(client, printer, copy) => copied,
            }
        }
        Verb::Cp(copy) => copy::copy(client, printer, copy).await,
        Verb::Events(events) => {
            tokio::select! {
                biased;
                () = interrupt, if events.follow => Ok(Exit::OK),
                shown = events_of(client, printer, events) => shown,
            }
        }
        Verb::Rm(rm) => removal::close(client, printer, rm).await,
        Verb::Hibernate(of) => rest::hibernate(client, printer, of).await,
        Verb::Wake(of) => rest::wake(client, printer, of).await,
        Verb::Purge(purge) => removal::purge(client, printer, purge).await,
        Verb::Workspaces(of) => workspaces::list(client, printer, of).await,
        Verb::Export(export) => workspaces::export(client, printer, export).await,
        Verb::Import(import) => workspaces::import(client, printer, import).await,
        Verb::Backup(args) => backup::backup(client, printer, args).await,
        Verb::Health => health::health(client, printer).await,
        Verb::Doctor => doctor::doctor(client, printer).await,
        Verb::Sweep(args) => sweep::sweep(client, printer, args).await,
        Verb::Release(release) => holds::release(client, printer, release).await,
    }
}
