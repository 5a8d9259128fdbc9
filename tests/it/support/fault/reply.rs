//! Does to a reply, piece by piece, what was decided.

use super::plan::{Action, Broken};

const HEAD_END: &[u8] = b"\r\n\r\n";
const FRAME_HEADER_BYTES: usize = 8;

/// What follows a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// The next one.
    More,
    /// The end of the connection.
    Cut,
}

/// A reply under way.
#[derive(Debug)]
pub(crate) struct Shape {
    action: Action,
    /// Bytes that are not passed on yet.
    kept: Vec<u8>,
    sent: usize,
    head_is_over: bool,
    events: usize,
    held: Option<Vec<u8>>,
}

impl Shape {
    /// Begins a reply.
    pub(crate) fn new(action: Action) -> Self {
        Self {
            action,
            kept: Vec::new(),
            sent: 0,
            head_is_over: false,
            events: 0,
            held: None,
        }
    }

    /// Takes what the engine said and returns what is passed on.
    pub(crate) fn piece(&mut self, piece: &[u8]) -> (Vec<u8>, After) {
        match self.action.clone() {
            Action::DropReply => (Vec::new(), After::Cut),
            Action::Cut { bytes } => self.cut(piece, bytes),
            Action::CorruptFrame(how) => (self.corrupt(piece, how), After::More),
            Action::StallEvents { after } => (self.stall(piece, after), After::More),
            Action::ReorderEvents => (self.reorder(piece), After::More),
            Action::Pass
            | Action::Refuse { .. }
            | Action::Hang
            | Action::Delay { .. }
            | Action::DropRequest
            | Action::Answer { .. }
            | Action::Replay => (piece.to_vec(), After::More),
        }
    }

    /// Returns what was kept back when the engine ends the reply.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut rest = std::mem::take(&mut self.kept);
        rest.extend(self.held.take().unwrap_or_default());
        rest
    }

    fn cut(&mut self, piece: &[u8], bytes: usize) -> (Vec<u8>, After) {
        let room = bytes - self.sent;
        let passed = piece[..room.min(piece.len())].to_vec();
        self.sent += passed.len();
        let after = if self.sent == bytes {
            After::Cut
        } else {
            After::More
        };
        (passed, after)
    }

    /// Returns where the body begins among the bytes that were kept, once it is known.
    fn body(&self) -> Option<usize> {
        let end = self
            .kept
            .windows(HEAD_END.len())
            .position(|four| four == HEAD_END);
        end.map(|at| at + HEAD_END.len())
    }

    fn corrupt(&mut self, piece: &[u8], how: Broken) -> Vec<u8> {
        if self.head_is_over {
            return piece.to_vec();
        }
        self.kept.extend(piece);
        let Some(body) = self.body() else {
            return Vec::new();
        };
        if self.kept.len() < body + FRAME_HEADER_BYTES {
            return Vec::new();
        }
        self.head_is_over = true;
        match how {
            Broken::Stream(stream) => self.kept[body] = stream,
            Broken::Length(length) => {
                self.kept[body + 4..body + 8].copy_from_slice(&length.to_be_bytes());
            }
        }
        std::mem::take(&mut self.kept)
    }

    /// Returns the head once, and then whole chunks, each of which holds an event.
    fn chunks(&mut self, piece: &[u8]) -> Vec<Vec<u8>> {
        self.kept.extend(piece);
        let mut whole = Vec::new();
        if !self.head_is_over {
            let Some(body) = self.body() else {
                return whole;
            };
            self.head_is_over = true;
            whole.push(self.kept.drain(..body).collect());
        }
        while let Some(length) = chunk_length(&self.kept) {
            whole.push(self.kept.drain(..length).collect());
        }
        whole
    }

    fn stall(&mut self, piece: &[u8], after: usize) -> Vec<u8> {
        let mut passed = Vec::new();
        let is_head_to_come = !self.head_is_over;
        for (at, chunk) in self.chunks(piece).into_iter().enumerate() {
            let is_head = is_head_to_come && at == 0;
            if is_head || self.events < after {
                passed.extend(chunk);
            }
            self.events += usize::from(!is_head);
        }
        passed
    }

    fn reorder(&mut self, piece: &[u8]) -> Vec<u8> {
        let mut passed = Vec::new();
        let is_head_to_come = !self.head_is_over;
        for (at, chunk) in self.chunks(piece).into_iter().enumerate() {
            let is_head = is_head_to_come && at == 0;
            match self.held.take() {
                _ if is_head => passed.extend(chunk),
                None => self.held = Some(chunk),
                Some(first) => {
                    passed.extend(chunk);
                    passed.extend(first);
                }
            }
        }
        passed
    }
}

/// Returns the length of the first chunk with everything around it, once it is whole.
fn chunk_length(bytes: &[u8]) -> Option<usize> {
    let line = bytes.windows(2).position(|two| two == b"\r\n")?;
    let digits = std::str::from_utf8(&bytes[..line]).ok()?;
    let length = usize::from_str_radix(digits, 16).ok()?;
    let whole = line + 2 + length + 2;
    (whole <= bytes.len()).then_some(whole)
}

#[test]
fn a_reply_is_cut_after_exactly_so_many_bytes() {
    let mut shape = Shape::new(Action::Cut { bytes: 5 });
    assert_eq!(shape.piece(b"abc"), (b"abc".to_vec(), After::More));
    assert_eq!(shape.piece(b"defg"), (b"de".to_vec(), After::Cut));
    let mut none = Shape::new(Action::Cut { bytes: 0 });
    assert_eq!(none.piece(b"abc"), (Vec::new(), After::Cut));
}

#[test]
fn events_swap_in_pairs_and_stall_after_so_many() {
    let text = b"HTTP/1.1 200 OK\r\n\r\n1\r\na\r\n1\r\nb\r\n1\r\nc\r\n";
    // Broken anywhere, it is the same.
    for at in 0..text.len() {
        let run = |action| {
            let mut shape = Shape::new(action);
            let mut passed = shape.piece(&text[..at]).0;
            passed.extend(shape.piece(&text[at..]).0);
            String::from_utf8(passed).unwrap().replace("\r\n", "")
        };
        assert_eq!(run(Action::ReorderEvents), "HTTP/1.1 200 OK1b1a");
        assert_eq!(run(Action::StallEvents { after: 1 }), "HTTP/1.1 200 OK1a");
    }
}

#[test]
fn a_frame_is_broken_in_its_header_alone() {
    let text = b"HTTP/1.1 200 OK\r\n\r\n\x01\0\0\0\0\0\0\x02hi";
    for at in 0..text.len() {
        let run = |how| {
            let mut shape = Shape::new(Action::CorruptFrame(how));
            let mut passed = shape.piece(&text[..at]).0;
            passed.extend(shape.piece(&text[at..]).0);
            passed[19..].to_vec()
        };
        assert_eq!(run(Broken::Stream(9)), b"\x09\0\0\0\0\0\0\x02hi");
        assert_eq!(run(Broken::Length(1 << 30)), b"\x01\0\0\0\x40\0\0\0hi");
    }
}
