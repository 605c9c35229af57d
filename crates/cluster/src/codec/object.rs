//! JSON objects whose field names come from [`Names`].

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::UnknownFields;
use crate::names::Names;

/// Writes one object, field by field.
pub(super) struct ObjectWriter<'a> {
    names: &'a Names,
    json: Vec<u8>,
}

impl<'a> ObjectWriter<'a> {
    pub(super) fn new(names: &'a Names) -> Self {
        Self { names, json: vec![b'{'] }
    }

    /// Adds a field under its stored name.
    pub(super) fn field(mut self, name: &'static str, value: &(impl Serialize + ?Sized)) -> Self {
        let name = self.names.field(name);
        self.write(name, value);
        self
    }

    /// Adds the fields of a later version under the names that they have.
    pub(super) fn unknown(mut self, fields: &UnknownFields) -> Self {
        for (name, value) in fields {
            self.write(name, value);
        }
        self
    }

    fn write(&mut self, name: &str, value: &(impl Serialize + ?Sized)) {
        if self.json.len() > 1 {
            self.json.push(b',');
        }
        self.json(name);
        self.json.push(b':');
        self.json(value);
    }

    fn json(&mut self, value: &(impl Serialize + ?Sized)) {
        serde_json::to_writer(&mut self.json, value)
            .expect("strings, numbers and maps with string keys always become JSON");
    }

    pub(super) fn finish(mut self) -> Bytes {
        self.json.push(b'}');
        self.json.into()
    }

    /// Returns the object as a value of another object.
    pub(super) fn finish_raw(self) -> Box<RawValue> {
        let json = String::from_utf8(self.finish().into()).expect("JSON is UTF-8");
        RawValue::from_string(json).expect("an object is JSON")
    }
}

/// Reads one object, field by field. The fields that are left are unknown.
pub(super) struct ObjectReader<'a> {
    names: &'a Names,
    values: BTreeMap<String, &'a RawValue>,
}

impl<'a> ObjectReader<'a> {
    pub(super) fn parse(names: &'a Names, json: &'a [u8]) -> Result<Self, String> {
        let values = serde_json::from_slice(json).map_err(|e| e.to_string())?;
        Ok(Self { names, values })
    }

    /// Takes a field that must be present.
    pub(super) fn required<T: Deserialize<'a>>(&mut self, name: &'static str) -> Result<T, String> {
        let stored = self.names.field(name);
        let raw = self.values.remove(stored).ok_or_else(|| format!("it has no {stored}"))?;
        parse_field(stored, raw)
    }

    /// Takes a field; none if it is absent or null.
    pub(super) fn optional<T: Deserialize<'a>>(&mut self, name: &'static str) -> Result<Option<T>, String> {
        let stored = self.names.field(name);
        self.values.remove(stored).map_or(Ok(None), |raw| parse_field(stored, raw))
    }

    /// Takes a field; its default if it is absent or null.
    pub(super) fn or_default<T: Deserialize<'a> + Default>(
        &mut self,
        name: &'static str,
    ) -> Result<T, String> {
        Ok(self.optional(name)?.unwrap_or_default())
    }

    /// Drops fields that are written and never read.
    pub(super) fn skip(&mut self, names: &[&'static str]) {
        for name in names {
            self.values.remove(self.names.field(name));
        }
    }

    /// Returns the fields that were not taken.
    pub(super) fn unknown(self) -> Result<UnknownFields, String> {
        let field = |(name, raw): (String, &RawValue)| parse_field(&name, raw).map(|value| (name, value));
        self.values.into_iter().map(field).collect()
    }
}

fn parse_field<'a, T: Deserialize<'a>>(name: &str, raw: &'a RawValue) -> Result<T, String> {
    serde_json::from_str(raw.get()).map_err(|e| format!("{name}: {e}"))
}
