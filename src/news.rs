//! Tells those who wait that something changed, in the order in which they came.
//!
//! Who is woken first depends on that order and on nothing else, so that the same events
//! always take the same course.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// Something that changes, and is told of; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct News(Arc<Told>);

#[derive(Debug, Default)]
struct Told {
    changes: AtomicU64,
    changed: Notify,
}

/// Somebody who listens from some moment on.
#[derive(Debug)]
pub struct Listener {
    news: News,
    heard: u64,
}

impl News {
    /// Tells everybody who listens.
    pub fn tell(&self) {
        self.0.changes.fetch_add(1, Ordering::SeqCst);
        self.0.changed.notify_waiters();
    }

    /// Returns how often it was told.
    pub fn changes(&self) -> u64 {
        self.0.changes.load(Ordering::SeqCst)
    }

    /// Listens from now on.
    pub fn listen(&self) -> Listener {
        Listener {
            news: self.clone(),
            heard: self.changes(),
        }
    }
}

impl Listener {
    /// Takes what was told so far for heard.
    pub fn skip(&mut self) {
        self.heard = self.news.changes();
    }

    /// Returns whether something was told that was not heard.
    pub fn is_behind(&self) -> bool {
        self.heard != self.news.changes()
    }

    /// Waits until something was told that was not heard; several at once are heard as
    /// one.
    ///
    /// Dropping the future loses nothing.
    pub async fn changed(&mut self) {
        let news = self.news.clone();
        loop {
            // Listening starts before looking, so that nothing is missed.
            let told = news.0.changed.notified();
            if self.is_behind() {
                return self.skip();
            }
            told.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use super::*;

    #[tokio::test]
    async fn what_was_told_before_the_wait_is_heard_once() {
        let news = News::default();
        let mut listener = news.listen();
        news.tell();
        news.tell();
        assert!(listener.is_behind());
        listener.changed().await;
        assert!(!listener.is_behind());
        news.tell();
        listener.skip();
        assert!(!listener.is_behind());
        assert_eq!(news.changes(), 3);
    }

    #[tokio::test]
    async fn those_who_wait_are_woken_in_the_order_in_which_they_came() {
        let news = News::default();
        let woken = Arc::new(Mutex::new(Vec::new()));
        let mut waiting = tokio::task::JoinSet::new();
        for n in 0..20 {
            let (mut listener, woken) = (news.listen(), Arc::clone(&woken));
            waiting.spawn(async move {
                listener.changed().await;
                woken.lock().unwrap_or_else(PoisonError::into_inner).push(n);
            });
        }
        tokio::task::yield_now().await;
        news.tell();
        waiting.join_all().await;
        let woken = woken.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(woken.is_sorted(), "{woken:?}");
    }
}
