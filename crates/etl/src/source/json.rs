//! Elements of one big array inside a JSON object, one at a time.
//!
//! A feed may be larger than memory, and one broken record must not cost the others. So nothing is parsed here:
//! values are only delimited, by quotes and brackets, and copied without the blanks between their tokens. Equal records
//! are then equal bytes, however a source indents them.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};

/// No record comes near this; a larger one is a mistake or an attack.
const ELEMENT_LEN_MAX: usize = 16 << 20;

/// A feed that ends or breaks where it should not.
#[derive(Debug, thiserror::Error)]
pub enum Cut {
    /// The bytes cannot be had.
    #[error("reading fails at byte {at}: {error}")]
    Io {
        /// Where.
        at: u64,
        /// Why.
        error: std::io::Error,
    },
    /// The bytes are no JSON, or end in the middle.
    #[error("{what} at byte {at}")]
    Syntax {
        /// Where.
        at: u64,
        /// What is wrong.
        what: &'static str,
    },
}

impl Cut {
    /// Whether reading ended because there is more than may be.
    pub(crate) fn is_too_large(&self) -> bool {
        matches!(self, Self::Io { error, .. } if super::limit::is_too_large(error))
    }
}

/// Reads `{ "some": "fields", "array": [ … ], … }` and gives the elements of the array.
pub struct JsonArray<R> {
    input: BufReader<R>,
    at: u64,
    array: &'static str,
    place: Place,
    fields: BTreeMap<String, String>,
    seen_array: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Place {
    Start,
    Object { first: bool },
    Array { first: bool },
    End,
}

impl<R: Read> JsonArray<R> {
    /// Reads the array of that name from `input`.
    pub fn new(input: R, array: &'static str) -> Self {
        Self {
            input: BufReader::with_capacity(256 << 10, input),
            at: 0,
            array,
            place: Place::Start,
            fields: BTreeMap::new(),
            seen_array: false,
        }
    }

    /// The other fields of the object, as far as they were read; long values are not kept.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(|value| value.trim_matches('"'))
    }

    /// The names of the fields that were read.
    pub fn field_names(&self) -> impl Iterator<Item = &str> {
        self.fields.keys().map(String::as_str)
    }

    /// A field that is a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.field(name)?.parse().ok()
    }

    /// Whether the array was there at all.
    pub fn has_array(&self) -> bool {
        self.seen_array
    }

    /// The next element, without the blanks between its tokens; `None` after the end of the object.
    pub fn next_element(&mut self) -> Result<Option<Vec<u8>>, Cut> {
        loop {
            match self.place {
                Place::Start => {
                    if self.peek()? == Some(0xEF) {
                        // A byte order mark.
                        for _ in 0..3 {
                            self.bump();
                        }
                    }
                    self.expect(b'{', "no JSON object")?;
                    self.place = Place::Object { first: true };
                }
                Place::Object { first } => self.field_or_end(first)?,
                Place::Array { first } => match self.token()? {
                    b']' => {
                        self.bump();
                        self.place = Place::Object { first: false };
                    }
                    b',' if !first => {
                        self.bump();
                        self.token()?;
                        return self.value().map(Some);
                    }
                    _ if first => {
                        self.place = Place::Array { first: false };
                        return self.value().map(Some);
                    }
                    _ => return Err(self.syntax("neither a comma nor the end of the list")),
                },
                Place::End => return Ok(None),
            }
        }
    }

    fn field_or_end(&mut self, first: bool) -> Result<(), Cut> {
        match self.token()? {
            b'}' => {
                self.bump();
                self.place = Place::End;
                return Ok(());
            }
            b',' if !first => {
                self.bump();
                self.token()?;
            }
            _ if first => {}
            _ => return Err(self.syntax("neither a comma nor the end of the object")),
        }
        let name = self.value()?;
        self.expect(b':', "no colon after a name")?;
        let name = String::from_utf8_lossy(&name).trim_matches('"').to_owned();
        if name == self.array && self.token()? == b'[' {
            self.bump();
            self.seen_array = true;
            self.place = Place::Array { first: true };
            return Ok(());
        }
        self.token()?;
        let value = self.value()?;
        let short =
            if value.len() <= 256 { String::from_utf8_lossy(&value).into_owned() } else { String::new() };
        self.fields.insert(name, short);
        self.place = Place::Object { first: false };
        Ok(())
    }

    /// Copies one value, whose first byte is next.
    fn value(&mut self) -> Result<Vec<u8>, Cut> {
        let mut out = Vec::with_capacity(4096);
        let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
        loop {
            let buffer = match self.input.fill_buf() {
                Ok(buffer) => buffer,
                Err(error) => return Err(Cut::Io { at: self.at, error }),
            };
            if buffer.is_empty() {
                return Err(self.syntax("the text ends in the middle of a value"));
            }
            let mut used = 0;
            let mut done = false;
            while used < buffer.len() && !done {
                let rest = &buffer[used..];
                if escaped {
                    escaped = false;
                    out.push(rest[0]);
                    used += 1;
                    continue;
                }
                // Most bytes are inside strings: copy them by the run.
                if in_string {
                    let run = memchr::memchr2(b'"', b'\\', rest).map_or(rest.len(), |at| at + 1);
                    out.extend_from_slice(&rest[..run]);
                    used += run;
                    match rest[run - 1] {
                        b'"' => {
                            in_string = false;
                            done = depth == 0;
                        }
                        b'\\' => escaped = true,
                        _ => {}
                    }
                    continue;
                }
                match rest[0] {
                    b'"' => in_string = true,
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' | b',' | b' ' | b'\n' | b'\r' | b'\t' if depth == 0 => {
                        done = true;
                        break;
                    }
                    b'}' | b']' => {
                        depth -= 1;
                        done = depth == 0;
                    }
                    b' ' | b'\n' | b'\r' | b'\t' => {
                        used += rest.iter().position(|byte| !is_blank(*byte)).unwrap_or(rest.len());
                        continue;
                    }
                    _ => {}
                }
                out.push(rest[0]);
                used += 1;
            }
            self.input.consume(used);
            self.at += used as u64;
            if done && out.is_empty() {
                return Err(self.syntax("a value is missing"));
            }
            if done {
                return Ok(out);
            }
            if out.len() > ELEMENT_LEN_MAX {
                return Err(self.syntax("a value is longer than 16 MiB"));
            }
        }
    }

    /// The next byte that is not blank, not consumed.
    fn token(&mut self) -> Result<u8, Cut> {
        loop {
            match self.peek()? {
                None => return Err(self.syntax("the text ends too early")),
                Some(byte) if is_blank(byte) => self.bump(),
                Some(byte) => return Ok(byte),
            }
        }
    }

    fn expect(&mut self, byte: u8, otherwise: &'static str) -> Result<(), Cut> {
        if self.token()? != byte {
            return Err(self.syntax(otherwise));
        }
        self.bump();
        Ok(())
    }

    fn peek(&mut self) -> Result<Option<u8>, Cut> {
        match self.input.fill_buf() {
            Ok(buffer) => Ok(buffer.first().copied()),
            Err(error) => Err(Cut::Io { at: self.at, error }),
        }
    }

    fn bump(&mut self) {
        self.input.consume(1);
        self.at += 1;
    }

    fn syntax(&self, what: &'static str) -> Cut {
        Cut::Syntax { at: self.at, what }
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn elements(text: &[u8]) -> Result<Vec<Vec<u8>>, Cut> {
        let mut array = JsonArray::new(text, "list");
        let mut all = Vec::new();
        while let Some(element) = array.next_element()? {
            all.push(element);
        }
        Ok(all)
    }

    #[test]
    fn elements_come_without_blanks_and_strings_stay_as_they_are() {
        let text =
            br#" { "n" : 7, "list" : [ { "a b" : " x \" , ] " } , [ 1 , 2 ] , 3 , "s" ] , "m" : "y" } "#;
        let mut array = JsonArray::new(&text[..], "list");
        let mut all = Vec::new();
        while let Some(element) = array.next_element().unwrap() {
            all.push(String::from_utf8(element).unwrap());
        }
        assert_eq!(all, [r#"{"a b":" x \" , ] "}"#, "[1,2]", "3", r#""s""#]);
        assert_eq!((array.number("n"), array.field("m")), (Some(7), Some("y")));
    }

    #[test]
    fn every_truncation_is_an_error_and_none_panics() {
        let text = br#"{"n": 7, "list": [{"a": "b\\"}, [1, "x"]], "m": {"k": []}}"#;
        assert_eq!(elements(text).unwrap().len(), 2);
        for len in 0..text.len() {
            elements(&text[..len]).unwrap_err();
        }
    }

    #[test]
    fn a_broken_element_does_not_hide_the_next_one() {
        let all = elements(br#"{"list": [{"a": tru, 5: }, {"b": 1}]}"#).unwrap();
        assert_eq!(all.len(), 2);
        assert_eq!(all[1], br#"{"b":1}"#);
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![any::<i64>().prop_map(Value::from), ".{0,12}".prop_map(Value::from)];
        leaf.prop_recursive(3, 16, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(".{0,4}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn elements_equal_those_of_a_real_parser(list in prop::collection::vec(values(), 0..6)) {
            let text = serde_json::to_vec_pretty(&json!({"x": 1, "list": list, "y": "z"})).unwrap();
            let found: Vec<Value> =
                elements(&text).unwrap().iter().map(|one| serde_json::from_slice(one).unwrap()).collect();
            prop_assert_eq!(found, list);
        }

        #[test]
        fn mutated_bytes_never_panic(at in 0usize..60, byte in any::<u8>()) {
            let mut text = br#"{"n": 7, "list": [{"a": "b\\"}, [1, "x"]], "m": {"k": []}}"#.to_vec();
            let at = at % text.len();
            text[at] = byte;
            let _ = elements(&text);
        }
    }
}
