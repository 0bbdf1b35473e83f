//! Control characters, which a terminal executes instead of showing them.

/// Returns true for control characters (C0 except newline and tab, DEL, C1) and for bidirectional
/// marks, which reorder the displayed text.
pub fn is_hidden(character: char) -> bool {
    let is_bidirectional = matches!(
        character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    is_bidirectional || (character.is_control() && !matches!(character, '\n' | '\t'))
}
