//! Keeps the present screen of a terminal from what is written to it.
//!
//! Output arrives in pieces that end anywhere, also within an escape sequence. Such a
//! tail is held back from the emulator until it is whole, and ends the painting: whoever
//! is painted to is then as far within the sequence as the terminal is, and goes on with
//! the next piece.

use std::fmt;
use std::num::NonZeroU16;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::agent::protocol::message::Size;

/// Columns or rows of the largest screen.
pub const SIDE_MAX: u16 = 1000;
/// Characters of the largest screen.
pub const CELLS_MAX: u32 = 250_000;
/// Bytes of an unfinished sequence that are kept; what is longer loses its middle.
const TAIL_BYTES_MAX: usize = 4 << 10;
/// Bytes of a title that are kept.
const TITLE_BYTES_MAX: usize = 512;
/// Makes a terminal that has shown something before as good as fresh: modes, scroll
/// region, mouse and the alternate screen. The rest is in the painting itself.
const AFRESH: &str = "\x1b[!p\x1b[?1049l\x1b[r\x1b[?9l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1005l\x1b[?1006l\x1b[0 q";

/// The screen of one terminal.
///
/// Nothing that scrolled off is kept. Memory is 32 bytes a character, twice where the
/// alternate screen is used.
pub struct Screen {
    emulator: vt100::Parser<Title>,
    scan: Scan,
    /// What was held back.
    tail: Vec<u8>,
}

/// Whether the emulator took what it was fed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Fed {
    /// It did.
    Well,
    /// It failed and began anew, with an empty screen.
    Anew,
}

#[derive(Debug, Default)]
struct Title(String);

impl vt100::Callbacks for Title {
    fn set_window_title(&mut self, _: &mut vt100::Screen, title: &[u8]) {
        let kept = title.get(..TITLE_BYTES_MAX).unwrap_or(title);
        let text = String::from_utf8_lossy(kept);
        self.0 = text.chars().filter(|one| !one.is_control()).collect();
    }
}

impl fmt::Debug for Screen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Screen")
            .field("size", &self.size())
            .finish_non_exhaustive()
    }
}

impl Screen {
    /// Makes an empty screen, of a size that is [`bounded`].
    pub fn new(size: Size) -> Self {
        let (rows, cols) = sides(size);
        Self {
            emulator: vt100::Parser::new_with_callbacks(rows, cols, 0, Title::default()),
            scan: Scan::default(),
            tail: Vec::new(),
        }
    }

    /// Returns the size.
    pub fn size(&self) -> Size {
        let (rows, cols) = self.emulator.screen().size();
        Size {
            cols: cols.get(),
            rows: rows.get(),
        }
    }

    /// Shows output.
    pub fn feed(&mut self, bytes: &[u8]) -> Fed {
        // What is known to be whole is given over at once, the rest is held back.
        let whole = self.scan.whole(bytes);
        let (done, rest) = bytes
            .split_at_checked(whole.unwrap_or(0))
            .unwrap_or((bytes, &[]));
        let mut fed = Fed::Well;
        if whole.is_some() {
            let mut joined = std::mem::take(&mut self.tail);
            // In one piece: the parser loses what follows a character that it is given
            // in two.
            joined.extend_from_slice(done);
            fed = self.guarded(|emulator| emulator.process(&joined));
        }
        let room = TAIL_BYTES_MAX.saturating_sub(self.tail.len());
        self.tail
            .extend_from_slice(rest.get(..room).unwrap_or(rest));
        fed
    }

    /// Gives up an unfinished sequence, whose rest is lost.
    pub fn skip(&mut self) {
        self.tail.clear();
        self.scan = Scan::default();
    }

    /// Changes the size, as a terminal does: rows are cut or filled, not wrapped anew.
    pub fn resize(&mut self, size: Size) -> Fed {
        let (rows, cols) = sides(size);
        self.guarded(|emulator| emulator.set_size(rows, cols))
    }

    /// Returns escape sequences that paint the screen on a terminal of its size: both
    /// screens where the alternate one shows, attributes, cursor, title and modes.
    ///
    /// The scroll region, tab stops and the saved cursor are not told.
    pub fn paint(&mut self) -> Vec<u8> {
        let mut out = String::from(AFRESH);
        let fed = self.guarded(|emulator| {
            if emulator.screen().alternate_screen() {
                emulator.process(b"\x1b[?47l");
                out.push_str(&emulator.screen().contents_formatted());
                emulator.process(b"\x1b[?47h");
                out.push_str("\x1b[?1049h");
            }
            out.push_str(&emulator.screen().contents_formatted());
            out.push_str(&emulator.screen().input_mode_formatted());
            let title = &emulator.callbacks().0;
            if !title.is_empty() {
                out.push_str("\x1b]2;");
                out.push_str(title);
                out.push('\x07');
            }
        });
        if fed == Fed::Anew {
            AFRESH.clone_into(&mut out);
            out.push_str("\x1b[m\x1b[H\x1b[2J");
        }
        let mut paint = out.into_bytes();
        paint.extend_from_slice(&self.tail);
        paint
    }

    /// Does something with the emulator, which has no say over the rest of the service:
    /// where it panics, another one takes its place.
    fn guarded(&mut self, act: impl FnOnce(&mut vt100::Parser<Title>)) -> Fed {
        let size = self.size();
        let emulator = &mut self.emulator;
        // What a panic leaves half done is thrown away.
        if catch_unwind(AssertUnwindSafe(|| act(emulator))).is_ok() {
            return Fed::Well;
        }
        *self = Self::new(size);
        Fed::Anew
    }
}

/// Puts each side within 1 and [`SIDE_MAX`], and takes rows away until there are no more
/// characters than [`CELLS_MAX`].
pub fn bounded(size: Size) -> Size {
    let (rows, cols) = sides(size);
    Size {
        cols: cols.get(),
        rows: rows.get(),
    }
}

fn sides(size: Size) -> (NonZeroU16, NonZeroU16) {
    let side = |n: u16| NonZeroU16::new(n.min(SIDE_MAX)).unwrap_or(NonZeroU16::MIN);
    let cols = side(size.cols);
    let most = CELLS_MAX / u32::from(cols.get());
    let rows = size.rows.min(u16::try_from(most).unwrap_or(SIDE_MAX));
    (side(rows), cols)
}

/// Tells where sequences end, byte by byte, as the emulator's parser does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Scan {
    #[default]
    Ground,
    /// Within a character of which so many bytes are to come.
    Character(u8),
    Escape,
    EscapeIntermediate,
    /// Ends with a byte of 0x40 to 0x7e.
    Control,
    /// A device control string before its final byte.
    DeviceEntry,
    DeviceParam,
    DeviceIntermediate,
    /// A device control string after it.
    Device,
    /// Ends with BEL as well.
    Command,
    /// Ends with `ESC \`, CAN or SUB alone.
    Text,
}

impl Scan {
    /// Takes a piece and returns how many of its bytes end outside of any sequence; none of
    /// them where only what came before does, and `None` where not even that.
    fn whole(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut whole = None;
        for (at, byte) in bytes.iter().enumerate() {
            if let Self::Character(_) = *self
                && !(0x80..=0xbf).contains(byte)
            {
                // The character was none, and ended before this byte.
                whole = Some(at);
            }
            *self = self.next(*byte);
            if *self == Self::Ground {
                whole = Some(at + 1);
            }
        }
        whole
    }

    fn next(self, byte: u8) -> Self {
        match (self, byte) {
            (Self::Character(left), 0x80..=0xbf) if 1 < left => Self::Character(left - 1),
            (Self::Character(_), 0x80..=0xbf) => Self::Ground,
            (_, 0x1b) => Self::Escape,
            (Self::Ground | Self::Character(_), byte) => Self::opened(byte),
            (_, 0x18 | 0x1a) => Self::Ground,
            (Self::Escape, 0x20..=0x2f) => Self::EscapeIntermediate,
            (Self::Escape, b'P') => Self::DeviceEntry,
            (Self::Escape, b'X' | b'^' | b'_') => Self::Text,
            (Self::Escape, b'[') => Self::Control,
            (Self::Escape, b']') => Self::Command,
            (Self::Escape | Self::EscapeIntermediate, 0x30..=0x7e) => Self::Ground,
            (Self::Control, 0x40..=0x7e) => Self::Ground,
            (Self::DeviceEntry | Self::DeviceParam, 0x20..=0x2f) => Self::DeviceIntermediate,
            (Self::DeviceEntry, 0x30..=0x3f) => Self::DeviceParam,
            (Self::DeviceParam, 0x3c..=0x3f) | (Self::DeviceIntermediate, 0x30..=0x3f) => {
                Self::Text
            }
            (Self::DeviceEntry | Self::DeviceParam | Self::DeviceIntermediate, 0x40..=0x7e) => {
                Self::Device
            }
            (Self::Device, 0x9c) | (Self::Command, 0x07) => Self::Ground,
            (within, _) => within,
        }
    }

    /// What a byte begins that stands outside of any sequence.
    fn opened(byte: u8) -> Self {
        match byte {
            0xc2..=0xdf => Self::Character(1),
            0xe0..=0xef => Self::Character(2),
            0xf0..=0xf4 => Self::Character(3),
            _ => Self::Ground,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CASES: u32 = 256;

    fn screen(cols: u16, rows: u16) -> Screen {
        Screen::new(Size { cols, rows })
    }

    fn fed(cols: u16, rows: u16, bytes: &[u8]) -> Screen {
        let mut screen = screen(cols, rows);
        assert_eq!(screen.feed(bytes), Fed::Well);
        screen
    }

    /// Paints onto a fresh screen.
    fn painted(from: &mut Screen) -> Screen {
        let Size { cols, rows } = from.size();
        fed(cols, rows, &from.paint())
    }

    /// All that a painting has to bring over.
    fn seen(screen: &Screen) -> impl PartialEq + fmt::Debug + use<> {
        let shown = screen.emulator.screen();
        let (rows, cols) = shown.size();
        let cells: Vec<_> = (0..rows.get())
            .flat_map(|row| (0..cols.get()).map(move |col| (row, col)))
            .map(|(row, col)| shown.cell(row, col).cloned())
            .collect();
        (
            (shown.contents(), cells, shown.cursor_position()),
            (shown.hide_cursor(), shown.alternate_screen()),
            shown.input_mode_formatted(),
            shown.attributes_formatted(),
            (screen.emulator.callbacks().0.clone(), screen.tail.clone()),
        )
    }

    /// Pieces such as programs write, and bytes such as nobody does.
    fn output() -> impl Strategy<Value = Vec<u8>> {
        let sequence = "\\x1b\\[[?]?[0-9;]{0,6}[@-~]";
        let piece = prop_oneof![
            4 => "[a-z ]{1,12}".prop_map(String::into_bytes),
            4 => sequence.prop_map(String::into_bytes),
            2 => "[\\r\\n\\t\\x08\\x0b\\x0c]{1,4}".prop_map(String::into_bytes),
            2 => "(é|漢|字|e\\u{301}|👩‍🚀|한){1,6}".prop_map(String::into_bytes),
            2 => "\\x1b[78MDEHc=>]".prop_map(String::into_bytes),
            2 => "\\x1b\\[[0-9;]{0,8}m".prop_map(String::into_bytes),
            2 => "\\x1b\\[\\?(1|25|47|1049|2004|1000|1006)[hl]".prop_map(String::into_bytes),
            1 => "\\x1b\\][0-2];[a-z]{0,8}(\\x07|\\x1b\\\\)".prop_map(String::into_bytes),
            1 => "\\x1b[P^_X][ -~]{0,8}".prop_map(String::into_bytes),
            2 => prop::collection::vec(any::<u8>(), 1..12),
        ];
        prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(CASES))]

        #[test]
        fn a_painting_makes_a_fresh_screen_the_same(
            bytes in output(), cols in 1..24u16, rows in 1..10u16,
        ) {
            let mut screen = fed(cols, rows, &bytes);
            let copy = painted(&mut screen);
            prop_assert_eq!(seen(&copy), seen(&screen));
        }

        #[test]
        fn it_does_not_matter_where_output_is_cut(
            bytes in output(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let whole = fed(20, 6, &bytes);
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.sort_unstable();
            let mut pieces = screen(20, 6);
            let mut from = 0;
            for cut in cuts.into_iter().chain([bytes.len()]) {
                assert_eq!(pieces.feed(&bytes[from..cut]), Fed::Well);
                from = cut;
            }
            prop_assert_eq!(seen(&pieces), seen(&whole));
        }

        #[test]
        fn a_screen_survives_any_change_of_size(
            bytes in output(), sizes in prop::collection::vec((0..40u16, 0..20u16), 1..5),
        ) {
            let mut screen = fed(20, 6, &bytes);
            for (cols, rows) in sizes {
                assert_eq!(screen.resize(Size { cols, rows }), Fed::Well);
                assert_eq!(screen.feed(&bytes), Fed::Well);
                let copy = painted(&mut screen);
                prop_assert_eq!(seen(&copy).eq(&seen(&screen)), true);
            }
        }

        #[test]
        fn nothing_is_held_back_without_end(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
            let mut screen = screen(10, 4);
            for _ in 0..32 {
                assert_eq!(screen.feed(&bytes), Fed::Well);
                prop_assert!(screen.tail.len() <= TAIL_BYTES_MAX);
            }
        }
    }

    #[test]
    fn a_viewer_in_the_middle_of_a_sequence_goes_on_with_it() {
        let mut screen = fed(20, 4, b"one\r\ntwo\x1b[1;");
        let mut copy = painted(&mut screen);
        for one in [&mut screen, &mut copy] {
            assert_eq!(one.feed(b"1Hx\xc3"), Fed::Well);
        }
        let mut third = painted(&mut copy);
        assert_eq!(third.feed(b"\xa9"), Fed::Well);
        assert_eq!(third.emulator.screen().contents(), "xée\ntwo");
    }

    #[test]
    fn a_character_cut_in_two_costs_nothing_of_what_follows_it() {
        let mut screen = fed(20, 4, b"\xc3");
        assert_eq!(
            screen.feed("\u{e9}e\u{301}".as_bytes().get(1..).unwrap()),
            Fed::Well
        );
        assert_eq!(screen.emulator.screen().contents(), "ée\u{301}");
    }

    #[test]
    fn what_lies_under_the_alternate_screen_comes_back() {
        let mut screen = fed(20, 4, b"shell$ vi\r\n\x1b[?1049h\x1b[Htext");
        let mut copy = painted(&mut screen);
        assert_eq!(copy.emulator.screen().contents(), "text");
        assert_eq!(copy.feed(b"\x1b[?1049lx"), Fed::Well);
        assert_eq!(copy.emulator.screen().contents(), "shell$ vi\nx");
    }

    #[test]
    fn a_painting_undoes_what_was_shown_before() {
        let mut dirty = fed(
            20,
            4,
            b"old\x1b[?1049hmore\x1b[1;31m\x1b[?1h\x1b[?2004h\x1b[?1000h\x1b[?1006h\x1b[?25l",
        );
        let mut plain = fed(20, 4, b"new");
        assert_eq!(dirty.feed(&plain.paint()), Fed::Well);
        assert_eq!(seen(&dirty), seen(&plain));
    }

    #[test]
    fn a_panic_of_the_emulator_costs_the_screen_and_no_more() {
        let mut screen = fed(20, 4, b"lost");
        assert_eq!(screen.guarded(|_| panic!("on purpose")), Fed::Anew);
        assert_eq!(screen.feed(b"found"), Fed::Well);
        assert_eq!(screen.emulator.screen().contents(), "found");
        assert_eq!(screen.size(), Size { cols: 20, rows: 4 });
    }

    #[test]
    fn what_turns_out_to_be_no_character_is_held_back_no_longer() {
        // The last byte begins a character, and so ends the two before it, which are none.
        let whole = fed(20, 4, b"a\xe0\x80\xc2");
        let mut cut = fed(20, 4, b"a\xe0\x80");
        assert_eq!(cut.tail, b"\xe0\x80");
        assert_eq!(cut.feed(b"\xc2"), Fed::Well);
        assert_eq!(cut.tail, b"\xc2");
        assert_eq!(seen(&cut), seen(&whole));
    }

    #[test]
    fn sides_and_what_they_make_together_are_bounded() {
        for (asked, cols, rows) in [
            ((0, u16::MAX), 1, SIDE_MAX),
            ((u16::MAX, 0), SIDE_MAX, 1),
            ((u16::MAX, u16::MAX), 1000, 250),
            ((500, 500), 500, 500),
            ((501, 500), 501, 499),
        ] {
            let size = screen(asked.0, asked.1).size();
            assert_eq!(size, Size { cols, rows });
            assert_eq!(bounded(size), size);
        }
    }
}
