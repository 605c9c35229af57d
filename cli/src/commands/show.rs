//! What commands print of the answers of a service.

use std::io::{self, Write as _};

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

/// The elements of a list.
pub(crate) fn list<'a>(of: &'a Value, name: &str) -> &'a [Value] {
    of[name].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Prints an answer for programs.
pub(crate) fn json(answer: &Value) -> io::Result<()> {
    writeln!(io::stdout(), "{answer:#}")
}
