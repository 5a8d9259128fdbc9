//! Tells which characters could make a terminal show something else than the text.

/// Whether a character could move a terminal's cursor or hide what a line says: the C0
/// and C1 controls with line breaks, tabs and ESC among them, marks that turn the
/// direction of writing, and characters without width.
pub(crate) fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61c}' // Arabic letter mark
            | '\u{200b}'..='\u{200f}' // no width, joiners, direction marks
            | '\u{2028}'..='\u{202e}' // line and paragraph breaks, embeddings, overrides
            | '\u{2060}'..='\u{206f}' // word joiner, isolates, deprecated formatting
            | '\u{feff}' // byte order mark
            | '\u{fff9}'..='\u{fffb}' // annotations
            | '\u{e0000}'..='\u{e007f}' // tags
        )
}
