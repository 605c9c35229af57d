//! Tag columns (§9.1): for each point a varint length and that many bytes of UTF-8.

use crate::error::Error;
use crate::varint;

/// Yields the tags of one column in order.
#[derive(Clone)]
pub(crate) struct Decoder<'a> {
    column: &'a [u8],
    at: usize,
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(column: &'a [u8]) -> Self {
        Self { column, at: 0 }
    }

    /// The next tag; offsets of errors count from the start of the column.
    pub(crate) fn next(&mut self) -> Result<&'a str, Error> {
        let bytes = self.next_bytes()?;
        str::from_utf8(bytes).map_err(|error| {
            Error::corrupt(self.at - bytes.len() + error.valid_up_to(), "a tag is not UTF-8")
        })
    }

    /// Passes `count` tags.
    pub(crate) fn skip(&mut self, count: usize) -> Result<(), Error> {
        (0..count).try_for_each(|_| self.next_bytes().map(|_| ()))
    }

    fn next_bytes(&mut self) -> Result<&'a [u8], Error> {
        let (len, start) = varint::read(self.column, self.at).map_err(|fault| match fault {
            varint::Fault::Ends => Error::truncated(self.column.len(), "the tags end before the last point"),
            varint::Fault::Overflows => Error::corrupt(self.at, "the length of a tag has more than 64 bits"),
        })?;
        let rest = &self.column[start..];
        let Some(bytes) = usize::try_from(len).ok().and_then(|len| rest.get(..len)) else {
            return Err(Error::truncated(
                start,
                format!("a tag of {len} bytes, {} are left for the metric's tags", rest.len()),
            ));
        };
        self.at = start + bytes.len();
        Ok(bytes)
    }
}

/// Appends one tag.
pub(crate) fn encode(tag: &str, out: &mut Vec<u8>) {
    varint::write(tag.len() as u64, out);
    out.extend_from_slice(tag.as_bytes());
}
