//! Passes on what changes in a directory of a workspace, as long as somebody listens.
//!
//! A watch is no use of a session: it wakes nothing and keeps nothing awake. It ends with
//! the directory and with the session.

use std::io;
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc::{Receiver, Sender, channel, error::TrySendError};
use tokio::time::{Instant, interval, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::super::{Control, Refusal};
use super::given::GivenPath;
use super::refusal::FileRefusal;
use super::seats::Seat;
use crate::cause::chain;
use crate::id::{Nonce, SessionId};
use crate::workspace::{Alteration, FileError, NotWatched, Watch};

/// Changes that wait for a slow reader; what is beyond them is an overflow.
const QUEUE_MAX: usize = 1_024;
/// How long the second half of a move is waited for.
const MOVE_WAIT: Duration = Duration::from_millis(20);
/// How long reading rests after each time, so that a flood of changes costs little.
const REST: Duration = Duration::from_millis(5);
/// How often it is looked whether the session is still open.
const LOOK: Duration = Duration::from_secs(1);

/// A watch that somebody listens to; dropped, it ends.
#[derive(Debug)]
pub struct Watching {
    queue: Receiver<Alteration>,
    _pump: AbortOnDropHandle<()>,
    _seat: Seat,
}

impl Watching {
    /// Waits for the next change; `None` after the end. Nothing is lost by dropping the
    /// future.
    pub async fn next(&mut self) -> Option<Alteration> {
        self.queue.recv().await
    }
}

impl Control {
    /// Begins to watch a directory of a session's workspace.
    pub async fn watch_files(&self, id: &SessionId, path: &GivenPath) -> Result<Watching, Refusal> {
        let opening = self.opening(id);
        let opening = opening.ok_or_else(|| Refusal::NoSession(id.clone()))?;
        if !self.has_native_files() {
            return Err(FileRefusal::NoWorkspaces.into());
        }
        let seat = self.0.files.watches.take(id)?;
        let deadline = Instant::now() + self.0.policy.get().limits.execute_timeout;
        let begun = self
            .on_spot(id, path, deadline, |spot| {
                Ok(Watch::begin(spot.dir.open_dir(&spot.at)?))
            })
            .await?;
        let watch = match begun {
            Ok((Ok(watch), _)) => watch,
            Ok((Err(NotWatched::Ceiling { setting, limit }), _)) => {
                return Err(FileRefusal::HostCeiling { setting, limit }.into());
            }
            Ok((Err(NotWatched::File(error)), _)) | Err(error) => {
                return Err(unwatched(&error, path));
            }
        };
        let broken = |error: io::Error| FileRefusal::Broken(error.to_string());
        #[expect(
            deprecated,
            reason = "what is to come is not safe, and a watch keeps its descriptor"
        )]
        let watch = AsyncFd::with_interest(watch, Interest::READABLE).map_err(broken)?;
        let (sender, queue) = channel(QUEUE_MAX);
        let pump = Pump {
            control: self.clone(),
            id: id.clone(),
            opening,
            watch,
            queue: sender,
        };
        Ok(Watching {
            queue,
            _pump: AbortOnDropHandle::new(tokio::spawn(pump.run())),
            _seat: seat,
        })
    }
}

/// What moves changes from the kernel to the queue.
struct Pump {
    control: Control,
    id: SessionId,
    opening: Nonce,
    watch: AsyncFd<Watch>,
    queue: Sender<Alteration>,
}

/// Whether more may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    GoOn,
    End,
}

impl Pump {
    async fn run(mut self) {
        let mut looks = interval(LOOK);
        loop {
            let told = tokio::select! {
                told = read(&mut self.watch) => told,
                _ = looks.tick() => {
                    if self.control.opening(&self.id).as_ref() == Some(&self.opening) {
                        continue;
                    }
                    vec![Alteration::Gone]
                }
            };
            if self.pass(told).await == Then::End {
                return;
            }
            sleep(REST).await;
        }
    }

    /// Puts changes into the queue as far as there is room.
    async fn pass(&mut self, told: Vec<Alteration>) -> Then {
        for one in told {
            let is_last = one == Alteration::Gone;
            match self.queue.try_send(one) {
                Ok(()) if is_last => return Then::End,
                Ok(()) => {}
                Err(TrySendError::Closed(_)) => return Then::End,
                Err(TrySendError::Full(one)) => return self.overflow(one).await,
            }
        }
        Then::GoOn
    }

    /// Drops what happens until there is room again, and says so then.
    async fn overflow(&mut self, first: Alteration) -> Then {
        let mut is_gone = first == Alteration::Gone;
        loop {
            tokio::select! {
                biased;
                room = self.queue.reserve() => {
                    let Ok(room) = room else { return Then::End };
                    room.send(Alteration::Overflow);
                    if !is_gone {
                        return Then::GoOn;
                    }
                    // Nobody may listen any more.
                    return match self.queue.send(Alteration::Gone).await {
                        Ok(()) | Err(_) => Then::End,
                    };
                }
                dropped = read(&mut self.watch), if !is_gone => {
                    is_gone = dropped.contains(&Alteration::Gone);
                    sleep(REST).await;
                }
                () = sleep(LOOK), if !is_gone => {
                    is_gone = self.control.opening(&self.id).as_ref() != Some(&self.opening);
                }
            }
        }
    }
}

/// Waits for what happens next. Nothing is lost by dropping the future.
async fn read(watch: &mut AsyncFd<Watch>) -> Vec<Alteration> {
    loop {
        let is_moving = watch.get_ref().is_moving();
        let ready = watch.readable_mut();
        let ready = if is_moving {
            timeout(MOVE_WAIT, ready).await.ok()
        } else {
            Some(ready.await)
        };
        match ready {
            None => return watch.get_mut().moved_out().into_iter().collect(),
            Some(Err(_)) => return vec![Alteration::Gone],
            Some(Ok(mut ready)) => match ready.try_io(|watch| watch.get_mut().read()) {
                Ok(Ok(told)) => return told,
                Ok(Err(_)) => return vec![Alteration::Gone],
                // It was not ready after all.
                Err(_) => {}
            },
        }
    }
}

/// Puts an error of a watch into the caller's words.
fn unwatched(error: &FileError, path: &GivenPath) -> Refusal {
    let path = path.lossy();
    let refused = match error {
        FileError::NotFound | FileError::NotDirectory | FileError::NameTooLong => {
            FileRefusal::NoDirectory(path.to_owned())
        }
        error if error.is_for_the_sandbox() => FileRefusal::Handed(format!(
            "{path}: only directories of the workspace are watched, and none through a link"
        )),
        other => FileRefusal::Broken(chain(other)),
    };
    refused.into()
}
