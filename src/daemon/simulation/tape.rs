//! What happened in a simulation, line by line.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

/// Lines that are kept.
const LINES_MAX: usize = 20_000;

/// A record of what happened; clones write on the same one.
#[derive(Clone, Debug)]
pub(super) struct Tape {
    began: Instant,
    written: Arc<Mutex<Written>>,
}

#[derive(Debug, Default)]
struct Written {
    lines: VecDeque<String>,
    /// Of all lines, those that are not kept any more as well.
    sum: u64,
    counts: Counts,
}

/// How often what happened.
pub(super) type Counts = BTreeMap<&'static str, u64>;

impl Tape {
    /// Begins at this moment.
    pub(super) fn begin() -> Self {
        Self {
            began: Instant::now(),
            written: Arc::default(),
        }
    }

    /// Writes a line down. What a run's chance alone decides, such as keys, is not in it.
    pub(super) fn note(&self, what: &str) {
        let at = self.began.elapsed();
        let line = format!("{:>9.3} {what}", at.as_secs_f64());
        let mut written = self.written();
        for byte in line.bytes() {
            written.sum = (written.sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        written.lines.push_back(line);
        if LINES_MAX < written.lines.len() {
            written.lines.pop_front();
        }
    }

    /// Counts something that happened.
    pub(super) fn count(&self, what: &'static str) {
        *self.written().counts.entry(what).or_default() += 1;
    }

    /// Returns how often what happened.
    pub(super) fn counts(&self) -> Counts {
        self.written().counts.clone()
    }

    /// Returns the last lines.
    pub(super) fn last(&self, n: usize) -> Vec<String> {
        let written = self.written();
        let skipped = written.lines.len().saturating_sub(n);
        written.lines.iter().skip(skipped).cloned().collect()
    }

    /// Returns what tells two runs apart.
    pub(super) fn sum(&self) -> u64 {
        self.written().sum
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
