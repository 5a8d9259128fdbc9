//! Sends what the program says to standard error, for a person or for a machine.

use std::io::{self, IsTerminal as _};
use std::panic;

use tracing::error;
use tracing_subscriber::EnvFilter;

use crate::config::{Log, LogFormat};

/// Says why the program would run without a voice.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The directives cannot be read.
    #[error("read the log directives {directives:?}")]
    Directives {
        /// What was configured.
        directives: String,
        /// What is wrong with it.
        source: tracing_subscriber::filter::ParseError,
    },
    /// Somebody else was first.
    #[error("set up logging: it is set up already")]
    Taken,
}

/// Sets up logging, and has panics logged as well.
pub fn init(log: &Log) -> Result<(), TelemetryError> {
    let filter = EnvFilter::try_new(&log.filter).map_err(|source| TelemetryError::Directives {
        directives: log.filter.clone(),
        source,
    })?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal());
    let set = match log.format {
        LogFormat::Text => builder.with_target(false).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    set.map_err(|_| TelemetryError::Taken)?;
    panic::set_hook(Box::new(|info| {
        error!(%info, "a panic");
    }));
    Ok(())
}
