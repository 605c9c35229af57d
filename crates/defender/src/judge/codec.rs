//! Numbers and texts as bytes: numbers in seven-bit groups, floats bit for bit, texts with their length.

use super::state::StateError;

pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn new(version: u8) -> Self {
        Self(vec![version])
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.0
    }

    pub(super) fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    pub(super) fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    pub(super) fn count(&mut self, count: usize) {
        self.number(count as u64);
    }

    pub(super) fn word(&mut self, word: u64) {
        self.0.extend(word.to_le_bytes());
    }

    pub(super) fn nanoseconds(&mut self, nanoseconds: i128) {
        self.0.extend(nanoseconds.to_le_bytes());
    }

    pub(super) fn float(&mut self, float: f64) {
        self.word(float.to_bits());
    }

    pub(super) fn maybe_float(&mut self, float: Option<f64>) {
        self.byte(u8::from(float.is_some()));
        float.into_iter().for_each(|float| self.float(float));
    }

    pub(super) fn floats(&mut self, floats: &[f64]) {
        self.count(floats.len());
        floats.iter().for_each(|&float| self.float(float));
    }

    pub(super) fn text(&mut self, text: &str) {
        self.count(text.len());
        self.0.extend(text.as_bytes());
    }

    /// A text as what it has in common with the one before it, and the rest: ids of contexts are mostly times.
    pub(super) fn continued(&mut self, before: &str, text: &str) {
        let same = before.bytes().zip(text.bytes()).take_while(|(a, b)| a == b).count();
        let same = (0..=same).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        self.count(same);
        self.text(&text[same..]);
    }
}

pub(super) struct Reader<'a>(&'a [u8]);

type Read<T> = Result<T, StateError>;

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn end(&self) -> Read<()> {
        if self.0.is_empty() { Ok(()) } else { Err(StateError::Damaged("there is more behind its end")) }
    }

    fn bytes(&mut self, count: usize) -> Read<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(StateError::Damaged("it ends too early"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Read<[u8; N]> {
        let bytes = self.bytes(N)?;
        bytes.try_into().map_err(|_| StateError::Damaged("it ends too early"))
    }

    pub(super) fn byte(&mut self) -> Read<u8> {
        self.array().map(|[byte]| byte)
    }

    pub(super) fn truth(&mut self) -> Read<bool> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(StateError::Damaged("something is neither true nor false")),
        }
    }

    pub(super) fn number(&mut self) -> Read<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(StateError::Damaged("a number is too long"))
    }

    /// A count that is believed only up to `most`: nothing is allocated for what is not there.
    pub(super) fn count(&mut self, most: usize) -> Read<usize> {
        let count = self.number()?;
        usize::try_from(count)
            .ok()
            .filter(|count| *count <= most)
            .ok_or(StateError::Damaged("a count is too large"))
    }

    pub(super) fn word(&mut self) -> Read<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn nanoseconds(&mut self) -> Read<i128> {
        self.array().map(i128::from_le_bytes)
    }

    /// A float; those that a state has are finite.
    pub(super) fn float(&mut self) -> Read<f64> {
        let float = f64::from_bits(self.word()?);
        if float.is_finite() { Ok(float) } else { Err(StateError::Damaged("a number is not finite")) }
    }

    pub(super) fn maybe_float(&mut self) -> Read<Option<f64>> {
        if self.truth()? { self.float().map(Some) } else { Ok(None) }
    }

    pub(super) fn floats(&mut self, most: usize) -> Read<Vec<f64>> {
        (0..self.count(most)?).map(|_| self.float()).collect()
    }

    pub(super) fn text(&mut self) -> Read<&'a str> {
        let length = self.count(self.0.len())?;
        std::str::from_utf8(self.bytes(length)?).map_err(|_| StateError::Damaged("a text is not UTF-8"))
    }

    /// Makes `text`, which is the one before, into the next one.
    pub(super) fn continued(&mut self, text: &mut String) -> Read<()> {
        let same = self.count(text.len())?;
        if !text.is_char_boundary(same) {
            return Err(StateError::Damaged("a text is cut inside a character"));
        }
        text.truncate(same);
        text.push_str(self.text()?);
        Ok(())
    }
}
