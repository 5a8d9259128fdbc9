//! Remembers which images are there, and who waits for one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::plan::Image;
use super::ticket::Failure;
use crate::id::SessionId;

/// What is known of every image that was asked for; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Images(Arc<Mutex<BTreeMap<String, Entry>>>);

#[derive(Debug, Default)]
struct Entry {
    known: Known,
    /// Fetches that have ended.
    fetches: u64,
    /// Who waits, and how many fetches had ended when it began to.
    waiting: BTreeMap<SessionId, u64>,
}

#[derive(Debug, Default)]
enum Known {
    #[default]
    Presumed,
    Ready,
    Absent,
    Refused(Failure),
}

impl Images {
    /// Returns what a session should take an image for.
    ///
    /// A refusal counts only for those who waited for the fetch that failed:
    /// whoever asks later has it tried again.
    pub fn look(&self, reference: &str, session: &SessionId) -> Image {
        let entries = self.entries();
        let Some(entry) = entries.get(reference) else {
            return Image::Presumed;
        };
        match &entry.known {
            Known::Presumed => Image::Presumed,
            Known::Ready => Image::Ready,
            Known::Absent => Image::Absent,
            Known::Refused(_) => match entry.waiting.get(session) {
                Some(asked) if *asked < entry.fetches => Image::Refused,
                Some(_) | None => Image::Absent,
            },
        }
    }

    /// Notes that the engine did not have an image.
    pub fn missing(&self, reference: &str) {
        self.entry(reference, |entry| entry.known = Known::Absent);
    }

    /// Makes a session wait for the next fetch of an image.
    pub fn wait(&self, reference: &str, session: &SessionId) {
        self.entry(reference, |entry| {
            let fetches = entry.fetches;
            entry.waiting.entry(session.clone()).or_insert(fetches);
        });
    }

    /// Takes a session off the list, and returns why its image was refused.
    pub fn leave(&self, reference: &str, session: &SessionId) -> Option<Failure> {
        let mut entries = self.entries();
        let entry = entries.get_mut(reference)?;
        entry.waiting.remove(session);
        match &entry.known {
            Known::Refused(failure) => Some(failure.clone()),
            Known::Presumed | Known::Ready | Known::Absent => None,
        }
    }

    /// Notes that an image is there, and returns who waited for it.
    pub fn ready(&self, reference: &str) -> Vec<SessionId> {
        self.fetched(reference, Known::Ready)
    }

    /// Notes that an image could not be had, and returns who waited for it.
    pub fn refused(&self, reference: &str, failure: Failure) -> Vec<SessionId> {
        self.fetched(reference, Known::Refused(failure))
    }

    fn fetched(&self, reference: &str, known: Known) -> Vec<SessionId> {
        let mut waiting = Vec::new();
        self.entry(reference, |entry| {
            entry.fetches += 1;
            waiting.extend(entry.waiting.keys().cloned());
            if matches!(known, Known::Ready) {
                entry.waiting.clear();
            }
            entry.known = known;
        });
        waiting
    }

    fn entry(&self, reference: &str, change: impl FnOnce(&mut Entry)) {
        change(self.entries().entry(reference.to_owned()).or_default());
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_for_those_who_waited_and_later_callers_try_again() {
        let images = Images::default();
        let (early, late) = (
            SessionId::parse("early").unwrap(),
            SessionId::parse("late").unwrap(),
        );
        assert_eq!(images.look("i", &early), Image::Presumed);
        images.missing("i");
        images.wait("i", &early);
        assert_eq!(images.look("i", &early), Image::Absent);
        let failure = Failure::Refused("no such tag".to_owned());
        assert_eq!(
            images.refused("i", failure.clone()),
            std::slice::from_ref(&early)
        );
        assert_eq!(images.look("i", &early), Image::Refused);
        assert_eq!(images.look("i", &late), Image::Absent);
        assert_eq!(images.leave("i", &early), Some(failure));
        images.wait("i", &late);
        assert_eq!(images.look("i", &late), Image::Absent);
        assert_eq!(images.ready("i"), std::slice::from_ref(&late));
        assert_eq!(images.look("i", &late), Image::Ready);
    }
}
