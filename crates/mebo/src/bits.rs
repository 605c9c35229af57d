//! Bit streams, most significant bit first (§6), a word at a time.

/// The 64 bits that start at bit `at`; beyond the end of `bytes` they are 0.
///
/// Decoders read freely past the end and compare their position with it once in a while, which keeps the check out of
/// their inner loop.
#[inline(always)]
pub(crate) fn window(bytes: &[u8], at: usize) -> u64 {
    match bytes.get(at / 8..).and_then(<[u8]>::first_chunk::<9>) {
        Some(&[a, b, c, d, e, f, g, h, next]) => {
            let word = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
            let shift = at as u32 % 8;
            (word << shift) | (u64::from(next) << shift >> 8)
        }
        None => window_at_end(bytes, at),
    }
}

#[cold]
fn window_at_end(bytes: &[u8], at: usize) -> u64 {
    let mut padded = [0; 9];
    let rest = bytes.get(at / 8..).unwrap_or_default();
    padded[..rest.len()].copy_from_slice(rest);
    window(&padded, at % 8)
}

/// Bytes collected before they are appended to the output.
pub(crate) const CHUNK: usize = 1024;

/// Collects bits and appends them to a byte vector.
///
/// Every put stores a whole word and moves on by the bytes that are complete, which needs no branch: how many bits come
/// next is as good as random, and a wrong guess costs more than a store.
pub(crate) struct Writer<'a> {
    out: &'a mut Vec<u8>,
    // Borrowed, so that the fields below live in registers: the array cannot.
    chunk: &'a mut [u8; CHUNK],
    /// Complete bytes of the chunk.
    bytes: usize,
    /// Bits of the byte that is not complete, at the top.
    word: u64,
    /// How many those are: always fewer than 8.
    used: u32,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(out: &'a mut Vec<u8>, chunk: &'a mut [u8; CHUNK]) -> Self {
        Self { out, chunk, bytes: 0, word: 0, used: 0 }
    }

    /// Appends the lowest `len` bits of `bits` (1 to 64); the others must be 0.
    #[inline(always)]
    pub(crate) fn put(&mut self, bits: u64, len: u32) {
        debug_assert!((1..=64).contains(&len) && (len == 64 || bits >> len == 0));
        if len > 56 {
            self.put_short(bits >> 32, len - 32);
            self.put_short(bits & 0xFFFF_FFFF, 32);
        } else {
            self.put_short(bits, len);
        }
    }

    /// Together with those that wait, 56 bits fit into a word.
    #[inline(always)]
    fn put_short(&mut self, bits: u64, len: u32) {
        if self.bytes > CHUNK - 8 {
            self.out.extend_from_slice(&self.chunk[..self.bytes]);
            self.bytes = 0;
        }
        self.used += len;
        self.word |= bits << (64 - self.used);
        self.chunk[self.bytes..self.bytes + 8].copy_from_slice(&self.word.to_be_bytes());
        self.bytes += (self.used / 8) as usize;
        self.word <<= self.used & !7;
        self.used &= 7;
    }

    /// Fills the last byte with zeros.
    pub(crate) fn finish(self) {
        self.out.extend_from_slice(&self.chunk[..self.bytes]);
        if self.used > 0 {
            self.out.push((self.word >> 56) as u8);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_is_seen_through_the_window() {
        let fields: Vec<(u64, u32)> = (0..400u64)
            .map(|i| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15), (i * 7 % 64) as u32 + 1))
            .map(|(bits, len)| (bits >> (64 - len), len))
            .collect();
        let mut bytes = Vec::new();
        let mut chunk = [0; CHUNK];
        let mut writer = Writer::new(&mut bytes, &mut chunk);
        fields.iter().for_each(|&(bits, len)| writer.put(bits, len));
        writer.finish();

        let mut at = 0;
        for (bits, len) in fields {
            assert_eq!(window(&bytes, at) >> (64 - len), bits, "bit {at}");
            at += len as usize;
        }
        assert_eq!(bytes.len(), at.div_ceil(8));
        assert_eq!(window(&bytes, bytes.len() * 8), 0, "zeros behind the end");
        assert_eq!(window(&bytes, bytes.len() * 8 + 1000), 0, "zeros far behind the end");
    }
}
