//! From a place in a TOML string to the place in its file.

use std::ops::Range;

/// Where in `file` the character `wanted` of a string's content stands; the string with its quotes is at `span`.
pub(super) fn in_file(file: &str, span: Range<usize>, wanted: usize) -> usize {
    let Some(raw) = file.get(span.clone()) else { return span.start };
    let (open, escapes) = match raw {
        _ if raw.starts_with("\"\"\"") => (3, true),
        _ if raw.starts_with("'''") => (3, false),
        _ if raw.starts_with('"') => (1, true),
        _ => (1, false),
    };
    // A line break right behind three quotes is not part of the string.
    let skipped = match raw.get(open..) {
        Some(rest) if open == 3 && rest.starts_with("\r\n") => 2,
        Some(rest) if open == 3 && rest.starts_with('\n') => 1,
        _ => 0,
    };
    let mut at = open + skipped;
    for _ in 0..wanted {
        at = folded(raw, at, escapes);
        at += length(&raw[at..], escapes);
    }
    span.start + folded(raw, at, escapes).min(raw.len().saturating_sub(open))
}

/// Bytes of the character that begins here, as it is written.
fn length(rest: &str, escapes: bool) -> usize {
    let mut characters = rest.chars();
    match (characters.next(), escapes) {
        (None, _) => 0,
        (Some('\\'), true) => match characters.next() {
            Some('x') => 4,
            Some('u') => 6,
            Some('U') => 10,
            next => 1 + next.map_or(0, char::len_utf8),
        }
        .min(rest.len()),
        // The file may have CR LF where the content has LF.
        (Some('\r'), _) if rest.starts_with("\r\n") => 2,
        (Some(character), _) => character.len_utf8(),
    }
}

/// Behind a backslash at the end of a line all white space is left out.
fn folded(raw: &str, at: usize, escapes: bool) -> usize {
    let Some(rest) = raw.get(at..).and_then(|rest| rest.strip_prefix('\\')).filter(|_| escapes) else {
        return at;
    };
    let spaces = rest.len() - rest.trim_start().len();
    if rest[..spaces].contains('\n') { folded(raw, at + 1 + spaces, escapes) } else { at }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(literal: &str, content: &str) {
        let file = format!("key = {literal} # comment");
        let span = 6..6 + literal.len();
        let parsed: toml::Table = toml::from_str(&file).unwrap();
        assert_eq!(parsed["key"].as_str(), Some(content));
        for (i, character) in content.chars().enumerate() {
            let at = in_file(&file, span.clone(), i);
            if character.is_ascii_alphabetic() {
                assert!(file[at..].starts_with(character), "{character} of {content} at {at} of {file}");
            }
        }
    }

    #[test]
    fn every_letter_of_a_string_is_found_in_the_file() {
        check(r#""mean(X)""#, "mean(X)");
        check("'mean(\"A b\")'", "mean(\"A b\")");
        check(r#""mean(\"A b\") + max(é\u00e9)\t- std(Y)""#, "mean(\"A b\") + max(éé)\t- std(Y)");
        check("\"\"\"\nmean(A)\n+ b\"\"\"", "mean(A)\n+ b");
        check("\"\"\"mean(A) \\\n   + b\"\"\"", "mean(A) + b");
        check("'''\nmean(Ä) - c'''", "mean(Ä) - c");
    }

    #[test]
    fn a_place_behind_the_end_is_the_end() {
        assert_eq!(in_file("\"ab\"", 0..4, 2), 3);
        assert_eq!(in_file("\"ab\"", 0..4, 99), 3);
    }
}
