//! Holds what a transfer needs for as long as it goes on, and lets go where that blocks
//! nobody.

use std::ops::Deref;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use super::super::Control;
use super::seats::Seat;
use crate::activity::Lease;
use crate::id::SessionId;

/// How often a transfer looks whether its session is still open.
const LOOK: Duration = Duration::from_secs(1);

/// What a transfer holds: its seat, and its session against falling asleep.
#[derive(Debug)]
pub(super) struct Held {
    _seat: Seat,
    _awake: Option<AbortOnDropHandle<()>>,
}

impl Held {
    /// Holds a seat alone.
    pub(super) fn seat(seat: Seat) -> Self {
        Self {
            _seat: seat,
            _awake: None,
        }
    }

    /// Holds a seat, and a session in use until it is closed: nobody waits with closing
    /// it for a client that is slow.
    pub(super) fn session(seat: Seat, control: &Control, lease: Lease, id: &SessionId) -> Self {
        let (control, id) = (control.clone(), id.clone());
        let opening = control.opening(&id);
        let awake = tokio::spawn(async move {
            let _lease = lease;
            while opening.is_some() && control.opening(&id) == opening {
                sleep(LOOK).await;
            }
        });
        Self {
            _seat: seat,
            _awake: Some(AbortOnDropHandle::new(awake)),
        }
    }
}

/// Something whose end may block, such as the last descriptor of a large file that was
/// removed; dropped, it ends among the calls that block.
#[derive(Debug)]
pub(super) struct EndsApart<T: Send + 'static>(Option<T>);

impl<T: Send + 'static> EndsApart<T> {
    pub(super) fn new(value: T) -> Self {
        Self(Some(value))
    }

    /// Takes it out, for work that blocks.
    pub(super) fn into_inner(mut self) -> T {
        self.0.take().expect("it is taken once, by value")
    }
}

impl<T: Send + 'static> Deref for EndsApart<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("it is there until it is taken")
    }
}

impl<T: Send + 'static> Drop for EndsApart<T> {
    fn drop(&mut self) {
        if let (Some(value), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            // Nobody waits for it.
            drop(runtime.spawn_blocking(move || drop(value)));
        }
    }
}
