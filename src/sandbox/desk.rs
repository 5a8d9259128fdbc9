//! Decides who of those at a terminal is its writer.

/// What somebody at a terminal may do at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Write, if nobody else does.
    Write,
    /// Look.
    View,
}

/// Numbers those who come, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seat(u64);

/// Somebody is told whether they are the writer now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Who.
    pub seat: Seat,
    /// Whether.
    pub writes: bool,
}

/// Those at a terminal.
///
/// At most one writes. Somebody does as long as anybody wants to.
#[derive(Debug, Default)]
pub struct Desk {
    /// In the order of their coming.
    seats: Vec<(Seat, Mode)>,
    writer: Option<Seat>,
    next: u64,
}

impl Desk {
    /// Seats somebody, who is told by [`Desk::writes`] whether they write.
    pub fn sit(&mut self, mode: Mode) -> Seat {
        let seat = Seat(self.next);
        self.next += 1;
        self.seats.push((seat, mode));
        if mode == Mode::Write && self.writer.is_none() {
            self.writer = Some(seat);
        }
        seat
    }

    /// Makes somebody the writer in place of whoever is; from then on they want to be.
    pub fn take(&mut self, seat: Seat) -> Vec<Change> {
        let Some(taker) = self.seats.iter_mut().find(|one| one.0 == seat) else {
            return Vec::new();
        };
        taker.1 = Mode::Write;
        let before = self.writer.replace(seat);
        let ousted = before.filter(|one| *one != seat);
        let ousted = ousted.map(|seat| Change {
            seat,
            writes: false,
        });
        let taken = Change { seat, writes: true };
        ousted.into_iter().chain([taken]).collect()
    }

    /// Lets somebody go. Where they wrote, the first of those who want to is the writer.
    pub fn leave(&mut self, seat: Seat) -> Option<Change> {
        self.seats.retain(|one| one.0 != seat);
        if self.writer != Some(seat) {
            return None;
        }
        let wants = |one: &&(Seat, Mode)| one.1 == Mode::Write;
        self.writer = self.seats.iter().find(wants).map(|one| one.0);
        self.writer.map(|seat| Change { seat, writes: true })
    }

    /// Tells whether somebody is the writer.
    pub fn writes(&self, seat: Seat) -> bool {
        self.writer == Some(seat)
    }

    /// Tells whether there is a writer.
    pub fn has_writer(&self) -> bool {
        self.writer.is_some()
    }

    /// Counts those at it.
    pub fn len(&self) -> usize {
        self.seats.len()
    }

    /// Tells whether nobody is at it.
    pub fn is_empty(&self) -> bool {
        self.seats.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// What may happen, with seats by the order in which they were taken.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Sit(Mode),
        Take(u64),
        Leave(u64),
    }

    const STEPS: [Step; 8] = [
        Step::Sit(Mode::Write),
        Step::Sit(Mode::View),
        Step::Take(0),
        Step::Take(1),
        Step::Take(2),
        Step::Leave(0),
        Step::Leave(1),
        Step::Leave(2),
    ];
    const LENGTH: u32 = 6;

    /// Plays steps, and keeps what everybody was told.
    fn play(steps: &[Step]) -> (Desk, BTreeMap<u64, bool>) {
        let mut desk = Desk::default();
        let mut told: BTreeMap<u64, bool> = BTreeMap::new();
        for step in steps {
            let here = desk.seats.iter().any(|one| match step {
                Step::Sit(_) => false,
                Step::Take(n) | Step::Leave(n) => one.0.0 == *n,
            });
            let before = desk.writer;
            let changes = match step {
                Step::Sit(mode) => {
                    let seat = desk.sit(*mode);
                    told.insert(seat.0, desk.writes(seat));
                    Vec::new()
                }
                Step::Take(n) => desk.take(Seat(*n)),
                Step::Leave(n) => {
                    told.remove(n);
                    desk.leave(Seat(*n)).into_iter().collect()
                }
            };
            match step {
                Step::Take(n) if here => assert_eq!(desk.writer, Some(Seat(*n)), "{steps:?}"),
                Step::Leave(n) if here && before == Some(Seat(*n)) => {
                    let oldest = desk.seats.iter().find(|one| one.1 == Mode::Write);
                    assert_eq!(desk.writer, oldest.map(|one| one.0), "{steps:?}");
                }
                Step::Sit(Mode::Write) if before.is_none() => assert!(desk.has_writer()),
                Step::Sit(_) | Step::Take(_) | Step::Leave(_) => {
                    assert_eq!(desk.writer, before, "{steps:?}");
                    assert_eq!(changes, []);
                }
            }
            for change in changes {
                told.insert(change.seat.0, change.writes);
            }
        }
        (desk, told)
    }

    #[test]
    fn in_every_order_of_steps_exactly_the_writer_was_told_so_last() {
        let total = STEPS.len().pow(LENGTH);
        for number in 0..total {
            let digits = (0..LENGTH).map(|place| number / STEPS.len().pow(place) % STEPS.len());
            let steps: Vec<Step> = digits.map(|digit| STEPS[digit]).collect();
            let (desk, told) = play(&steps);
            let expected: BTreeMap<u64, bool> = desk
                .seats
                .iter()
                .map(|one| (one.0.0, desk.writes(one.0)))
                .collect();
            assert_eq!(told, expected, "{steps:?}");
            let wanted = desk.seats.iter().any(|one| one.1 == Mode::Write);
            assert_eq!(desk.has_writer(), wanted, "{steps:?}");
        }
    }
}
