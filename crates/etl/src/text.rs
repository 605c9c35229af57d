//! Text for lists, and bytes as text.

/// At most `max` characters, cut between words where that is possible.
pub(crate) fn shorten(text: &str, max: usize) -> &str {
    let Some((end, _)) = text.char_indices().nth(max) else { return text };
    let cut = &text[..end];
    cut.rfind(char::is_whitespace).filter(|&at| at > end / 2).map_or(cut, |at| &cut[..at])
}

/// One line of at most `max` characters: line breaks and runs of blanks become one blank.
pub(crate) fn headline(text: &str, max: usize) -> String {
    // Blanks can only shorten it, so that a generous beginning is enough to look at.
    let beginning = text.char_indices().nth(max * 4).map_or(text, |(end, _)| &text[..end]);
    let mut line = String::with_capacity(max + 16);
    for word in beginning.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    shorten(&line, max).to_owned()
}

/// Returns the bytes in hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_headline_is_one_line() {
        assert_eq!(headline("one \n two\tthree", 9), "one two");
        assert_eq!(headline("", 9), "");
    }

    #[test]
    fn text_is_cut_between_words_and_never_inside_a_character() {
        assert_eq!(shorten("short", 10), "short");
        assert_eq!(shorten("one two three", 10), "one two");
        assert_eq!(shorten("äöüäöüäöü", 4), "äöüä");
    }
}
