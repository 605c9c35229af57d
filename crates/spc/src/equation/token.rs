//! From text to tokens.

use super::error::{Flaw, Span};

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Number(f64),
    /// A time, in microseconds.
    Time(i64),
    Name(String),
    Where,
    And,
    Or,
    Not,
    Sign(&'static str),
    End,
}

impl Token {
    /// How it is called in an error.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Number(number) => format!("the number {number}"),
            Self::Time(_) => "a time".to_owned(),
            Self::Name(name) => format!("`{name}`"),
            Self::Where => "`where`".to_owned(),
            Self::And => "`and`".to_owned(),
            Self::Or => "`or`".to_owned(),
            Self::Not => "`not`".to_owned(),
            Self::Sign(sign) => format!("`{sign}`"),
            Self::End => "the end".to_owned(),
        }
    }
}

/// Longer signs first: `<=` is not `<` and `=`.
const SIGNS: [&str; 17] =
    ["==", "!=", "<=", ">=", "..", "<", ">", "+", "-", "*", "/", "(", ")", "[", "]", ",", "="];

const UNITS: [(&str, f64); 6] =
    [("us", 1.0), ("µs", 1.0), ("ms", 1e3), ("s", 1e6), ("min", 60e6), ("h", 3600e6)];

/// All tokens with their places; the last is [`Token::End`].
pub(super) fn tokens(text: &str) -> Result<Vec<(Token, Span)>, Flaw> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        if first.is_whitespace() {
            at += first.len_utf8();
            continue;
        }
        let (token, length) = token(&text[at..], at)?;
        tokens.push((token, Span { start: at, end: at + length }));
        at += length;
    }
    tokens.push((Token::End, Span { start: text.len(), end: text.len() }));
    Ok(tokens)
}

fn token(rest: &str, at: usize) -> Result<(Token, usize), Flaw> {
    let first = rest.chars().next().unwrap_or(' ');
    if first.is_ascii_digit() || first == '.' && rest[1..].starts_with(|next: char| next.is_ascii_digit()) {
        return number(rest, at);
    }
    if first == '"' {
        return quoted(rest, at);
    }
    if first.is_alphabetic() || first == '_' {
        let name = &rest[..name_length(rest)];
        let token = match name {
            "where" => Token::Where,
            "and" => Token::And,
            "or" => Token::Or,
            "not" => Token::Not,
            _ => Token::Name(name.to_owned()),
        };
        return Ok((token, name.len()));
    }
    let here = Span { start: at, end: at + first.len_utf8() };
    match SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
        Some(&"=") => Err(Flaw::new(here, "`=` does not compare").hint("write `==`")),
        Some(sign) => Ok((Token::Sign(sign), sign.len())),
        None => {
            let flaw = Flaw::new(here, format!("`{first}` means nothing here"));
            Err(match first {
                '&' => flaw.hint("write `and`"),
                '|' => flaw.hint("write `or`"),
                '!' => flaw.hint("write `not` or `!=`"),
                '\'' | '`' => flaw.hint("put unusual names into double quotes"),
                _ => flaw,
            })
        }
    }
}

/// A name goes on over dots, as in `CH1.TEMP`, but not into the `..` of a window.
fn name_length(rest: &str) -> usize {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    let mut end = 0;
    for (at, c) in rest.char_indices() {
        if !(part(c) || c == '.' && rest[at + 1..].starts_with(part)) {
            break;
        }
        end = at + c.len_utf8();
    }
    end
}

fn quoted(rest: &str, at: usize) -> Result<(Token, usize), Flaw> {
    let Some(end) = rest[1..].find(['"', '\n']).filter(|end| rest[1 + end..].starts_with('"')) else {
        return Err(Flaw::new(Span { start: at, end: at + 1 }, "this quote is never closed"));
    };
    if end == 0 {
        return Err(Flaw::new(Span { start: at, end: at + 2 }, "a name cannot be empty"));
    }
    Ok((Token::Name(rest[1..=end].to_owned()), end + 2))
}

fn number(rest: &str, at: usize) -> Result<(Token, usize), Flaw> {
    let digits = |from: usize| rest[from..].bytes().take_while(u8::is_ascii_digit).count();
    let mut end = digits(0);
    if rest[end..].starts_with('.') && digits(end + 1) > 0 {
        end += 1 + digits(end + 1);
    }
    if rest[end..].starts_with(['e', 'E']) {
        let sign = usize::from(rest[end + 1..].starts_with(['+', '-']));
        let exponent = digits(end + 1 + sign);
        end += if exponent > 0 { 1 + sign + exponent } else { 0 };
    }
    let span = |end| Span { start: at, end: at + end };
    let Some(number) = rest[..end].parse::<f64>().ok().filter(|number| number.is_finite()) else {
        return Err(Flaw::new(span(end), format!("{} is not a number that can be used", &rest[..end])));
    };
    let unit = &rest[end..end + rest[end..].find(|c: char| !c.is_alphabetic()).unwrap_or(rest.len() - end)];
    if unit.is_empty() {
        return Ok((Token::Number(number), end));
    }
    let whole = end + unit.len();
    let Some((_, scale)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        let flaw = Flaw::new(Span { start: at + end, end: at + whole }, format!("unknown unit `{unit}`"));
        return Err(flaw.hint("units are us, ms, s, min and h"));
    };
    let micros = (number * scale).round();
    if micros > MOST_MICROS {
        return Err(Flaw::new(span(whole), "this time is too long").hint("it can be at most 10,000 h"));
    }
    Ok((Token::Time(micros as i64), whole))
}

/// Ten thousand hours: longer than any context, and far from where sums of times overflow.
const MOST_MICROS: f64 = 10_000.0 * 3600e6;
