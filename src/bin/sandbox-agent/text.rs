//! Finds where a piece of text can be cut without splitting a character.

/// Returns how many bytes at the end, at most 3, begin a character that goes on.
///
/// Nothing for bytes that are no UTF-8 there.
pub(crate) fn unfinished(bytes: &[u8]) -> usize {
    for (back, byte) in bytes.iter().rev().take(3).enumerate() {
        let needs = match byte {
            0x80..=0xBF => continue,
            0xC2..=0xDF => 2,
            0xE0..=0xEF => 3,
            0xF0..=0xF4 => 4,
            0x00..=0x7F | 0xC0 | 0xC1 | 0xF5..=0xFF => 0,
        };
        return if back + 1 < needs { back + 1 } else { 0 };
    }
    0
}

/// Splits off as much as fits into `most` bytes; all of it where it fits.
///
/// Something is always split off, unless there is nothing or no room for a character.
pub(crate) fn split(bytes: &[u8], most: usize) -> (&[u8], &[u8]) {
    let Some((head, _)) = bytes.split_at_checked(most) else {
        return (bytes, &[]);
    };
    if head.len() == bytes.len() {
        return (bytes, &[]);
    }
    bytes.split_at(head.len() - unfinished(head))
}

#[cfg(test)]
mod tests {
    use super::{split, unfinished};

    #[test]
    fn a_character_that_goes_on_is_found_at_every_cut() {
        for text in ["a", "é", "€", "𝄞", "aé€𝄞"] {
            for cut in 0..=text.len() {
                let head = &text.as_bytes()[..cut];
                let whole = (0..=cut).rev().find(|at| text.is_char_boundary(*at));
                assert_eq!(cut - unfinished(head), whole.unwrap(), "{text} at {cut}");
            }
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_not_held_back() {
        for bytes in [&[0x80, 0x80, 0x80, 0x80][..], &[0xFF], &[b'a', 0xC0]] {
            assert_eq!(unfinished(bytes), 0);
        }
    }

    #[test]
    fn a_split_loses_nothing_and_keeps_to_its_bound() {
        let text = "aé€𝄞".repeat(5);
        for most in 4..=text.len() + 1 {
            let mut rest = text.as_bytes();
            let mut joined = String::new();
            while !rest.is_empty() {
                let (head, after) = split(rest, most);
                assert!(head.len() <= most && !head.is_empty());
                joined += std::str::from_utf8(head).unwrap();
                rest = after;
            }
            assert_eq!(joined, text);
        }
    }
}
