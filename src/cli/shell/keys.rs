//! Finds the keys by which a terminal is left, Ctrl-P Ctrl-Q, in what is typed.

/// Ctrl-P, which is held back until it is known what follows.
const FIRST: u8 = 0x10;
/// Ctrl-Q.
const SECOND: u8 = 0x11;

/// What some keys come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Typed {
    /// These go to the program.
    Bytes(Vec<u8>),
    /// These do, and then the terminal is left.
    Leave(Vec<u8>),
}

/// What was typed before.
#[derive(Debug, Default)]
pub(super) struct Keys {
    is_first_held: bool,
}

impl Keys {
    /// Takes what was typed next, in whatever pieces it comes.
    pub(super) fn typed(&mut self, bytes: &[u8]) -> Typed {
        let mut passed = Vec::with_capacity(bytes.len() + 1);
        for byte in bytes {
            if std::mem::take(&mut self.is_first_held) {
                if *byte == SECOND {
                    return Typed::Leave(passed);
                }
                passed.push(FIRST);
            }
            if *byte == FIRST {
                self.is_first_held = true;
            } else {
                passed.push(*byte);
            }
        }
        Typed::Bytes(passed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(pieces: &[&[u8]]) -> (Vec<u8>, bool) {
        let (mut keys, mut all) = (Keys::default(), Vec::new());
        for piece in pieces {
            match keys.typed(piece) {
                Typed::Bytes(bytes) => all.extend(bytes),
                Typed::Leave(bytes) => {
                    all.extend(bytes);
                    return (all, true);
                }
            }
        }
        (all, false)
    }

    #[test]
    fn the_two_keys_in_a_row_leave_and_nothing_else_does() {
        for (pieces, passed, leaves) in [
            (&[&b"a\x10\x11b"[..]][..], &b"a"[..], true),
            (&[b"a\x10", b"\x11"], b"a", true),
            (&[b"\x10\x10\x11"], b"\x10", true),
            (&[b"\x11\x10", b"x"], b"\x11\x10x", false),
            (&[b"a\x10b\x11"], b"a\x10b\x11", false),
            (&[b"ab"], b"ab", false),
            (&[b"\x10"], b"", false),
        ] {
            assert_eq!(typed(pieces), (passed.to_vec(), leaves), "{pieces:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn however_keys_are_cut_they_come_to_the_same(bytes in proptest::collection::vec(14u8..19, 0..30), at in 0usize..30) {
            let (head, tail) = bytes.split_at(at.min(bytes.len()));
            proptest::prop_assert_eq!(typed(&[&bytes]), typed(&[head, tail]));
        }
    }
}
