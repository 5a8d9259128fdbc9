//! Tells systemd how the service is, where systemd asks.

use std::time::Duration;

use sd_notify::NotifyState;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error};

use crate::clock::Clock;
use crate::reconcile::Pulse;

/// The controller's loop goes round at least once a second; older than this, its
/// progress has stopped.
const PULSE_AGE_MAX: Duration = Duration::from_secs(15);

/// Says that requests are served.
pub(super) fn ready() {
    tell(&[NotifyState::Ready]);
}

/// Says that the service is on its way out.
pub(super) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// Feeds the watchdog for as long as the controller makes progress.
///
/// Without a watchdog it waits to be cancelled, since there is nothing to feed.
pub(super) async fn feed_watchdog(pulse: Pulse, clock: Clock, cancel: CancellationToken) {
    let Some(period) = sd_notify::watchdog_enabled() else {
        cancel.cancelled().await;
        return;
    };
    let mut ticks = tokio::time::interval((period / 3).max(Duration::from_millis(1)));
    loop {
        tokio::select! {
            () = cancel.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let age = pulse.age(clock.now());
        if age < PULSE_AGE_MAX {
            tell(&[NotifyState::Watchdog]);
        } else {
            error!(
                ?age,
                "the controller makes no progress; the watchdog goes hungry"
            );
        }
    }
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        debug!(%error, "systemd could not be told");
    }
}
