//! What commands print of the answers of a service.

use std::io::{self, Write as _};

use jiff::{Timestamp, Unit};
use serde_json::Value;

/// A field as text: `-` where there is nothing.
pub(crate) fn field(of: &Value, name: &str) -> String {
    text(&of[name])
}

/// A value as text: `-` where there is nothing, numbers as short as they get.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) if text.is_empty() => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_f64() => {
            number.as_f64().map_or_else(|| number.to_string(), phalanx_spc::numeric::short)
        }
        other => other.to_string(),
    }
}

/// A moment as people read it, to the second; programs get it whole.
pub(crate) fn when(of: &Value, name: &str) -> String {
    let moment = of[name].as_str().and_then(|text| text.parse::<Timestamp>().ok());
    let rounded = moment.and_then(|moment| moment.round(Unit::Second).ok());
    rounded.map_or_else(|| field(of, name), |moment| moment.to_string())
}

/// So many of them, such as `1 chamber` and `2 chambers`.
pub(crate) fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// The elements of a list.
pub(crate) fn list<'a>(of: &'a Value, name: &str) -> &'a [Value] {
    of[name].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Prints an answer for programs.
pub(crate) fn json(answer: &Value) -> io::Result<()> {
    writeln!(io::stdout(), "{answer:#}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn moments_are_shown_to_the_second_and_what_is_none_as_it_is() {
        let of = json!({ "at": "2026-01-31T10:30:45.987654321Z", "other": "soon", "none": null });
        assert_eq!(when(&of, "at"), "2026-01-31T10:30:46Z");
        assert_eq!((when(&of, "other"), when(&of, "none")), ("soon".to_owned(), "-".to_owned()));
    }

    #[test]
    fn one_is_not_many() {
        assert_eq!(
            [0, 1, 2].map(|count| counted(count, "chamber")),
            ["0 chambers", "1 chamber", "2 chambers"]
        );
    }
}
