//! Requests for output that wait until there is some.

use crate::clock::Moment;
use crate::link::{Broken, Link};
use crate::protocol::message::{Fetch, Filter, From, Wait};
use crate::protocol::output::{OUTPUT_BYTES_MAX, Packer};
use crate::ring::Cursor;
use crate::run::Run;
use crate::runs::Id;
use crate::streams::Asker;

/// A request for output that was not answered yet.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// Who is answered.
    pub(crate) asker: Asker,
    /// The run.
    pub(crate) id: Id,
    from: From,
    filter: Filter,
    wait: Wait,
    bytes_max: usize,
    /// All records before this one were weighed.
    weighed: u64,
    weight: usize,
}

impl Waiting {
    /// Takes in a request.
    pub(crate) fn new(asker: Asker, id: Id, fetch: &Fetch) -> Self {
        let bytes = usize::try_from(fetch.bytes).unwrap_or(usize::MAX);
        Self {
            asker,
            id,
            from: fetch.from,
            filter: fetch.streams,
            wait: fetch.wait,
            bytes_max: bytes.min(OUTPUT_BYTES_MAX),
            weighed: 0,
            weight: 0,
        }
    }

    /// Returns where the answer begins, once what it waits for is there.
    ///
    /// `room` is what may be read from the run; without any it waits for this reader.
    pub(crate) fn ready(&mut self, run: &Run, room: usize) -> Option<Cursor> {
        let cursor = run.tape.ring.cursor(self.from, self.filter);
        if run.is_over() || self.wait == Wait::No {
            return Some(cursor);
        }
        let next = run.tape.ring.next_seq();
        let from = self.weighed.max(cursor.seq);
        self.weight += run.tape.ring.weigh(from, self.filter);
        self.weighed = next;
        let is_there = match self.wait {
            Wait::No => true,
            Wait::Some => 0 < self.weight || cursor.gap.is_some(),
            Wait::End => self.bytes_max <= self.weight || (room == 0 && 0 < self.weight),
            Wait::Over => false,
        };
        is_there.then_some(cursor)
    }

    /// Marks what this reader has already.
    pub(crate) fn mark(&self, run: &mut Run) {
        if self.wait == Wait::Over {
            return;
        }
        let cursor = run.tape.ring.cursor(self.from, self.filter);
        run.tape.seen(cursor.seq);
    }

    /// Answers.
    pub(crate) fn answer(
        &self,
        cursor: Cursor,
        run: &Run,
        now: Moment,
        link: &mut Link,
    ) -> Result<(), Broken> {
        let alone = self.wait == Wait::Over;
        let gap = cursor.gap.filter(|_| !alone);
        let mut packer = Packer::begin(link.out(), self.asker.ask, gap);
        let ring = &run.tape.ring;
        let is_whole = alone || {
            let after = ring.pack(cursor, self.filter, self.bytes_max, &mut packer);
            run.is_over() && after == ring.next_seq()
        };
        let end = is_whole.then(|| serde_json::to_vec(&run.describe(now)));
        let end = end.transpose().map_err(|_| Broken)?;
        Ok(packer.finish(end.as_deref())?)
    }
}
