//! Integers of a fixed bit width, least significant bit first (§6), as ALP packs them.

/// How many bytes `count` values of `width` bits take.
pub(crate) fn packed_len(count: usize, width: u32) -> u64 {
    (count as u64 * u64::from(width)).div_ceil(8)
}

/// A packed area. Values beyond its end read as 0; whoever makes one has checked the length.
#[derive(Clone, Copy)]
pub(crate) struct Packed<'a> {
    bytes: &'a [u8],
    width: u32,
    mask: u64,
}

impl<'a> Packed<'a> {
    /// `width` is 0 to 64.
    pub(crate) fn new(bytes: &'a [u8], width: u32) -> Self {
        let mask = if width == 0 { 0 } else { u64::MAX >> (64 - width) };
        Self { bytes, width, mask }
    }

    #[inline(always)]
    pub(crate) fn get(&self, index: usize) -> u64 {
        let bit = index * self.width as usize;
        let shift = bit as u32 % 8;
        match self.bytes.get(bit / 8..).and_then(<[u8]>::first_chunk::<9>) {
            Some(&[a, b, c, d, e, f, g, h, next]) => {
                let word = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
                // The ninth byte matters to widths above 56 only; shifted in two steps, as a shift by 64 is not one.
                ((word >> shift) | (u64::from(next) << 1 << (63 - shift))) & self.mask
            }
            None => self.get_at_end(bit),
        }
    }

    #[cold]
    fn get_at_end(&self, bit: usize) -> u64 {
        let mut padded = [0; 16];
        let rest = self.bytes.get(bit / 8..).unwrap_or_default();
        let len = rest.len().min(9);
        padded[..len].copy_from_slice(&rest[..len]);
        (u128::from_le_bytes(padded) >> (bit % 8)) as u64 & self.mask
    }
}

/// Appends `values`, each less than 2^`width`, as one packed area.
pub(crate) fn pack(values: impl Iterator<Item = u64>, width: u32, out: &mut Vec<u8>) {
    if width == 0 {
        return;
    }
    let (mut word, mut used) = (0u64, 0);
    for value in values {
        word |= value << used;
        if used + width < 64 {
            used += width;
        } else {
            out.extend_from_slice(&word.to_le_bytes());
            let over = used + width - 64;
            word = if over == 0 { 0 } else { value >> (width - over) };
            used = over;
        }
    }
    out.extend_from_slice(&word.to_le_bytes()[..used.div_ceil(8) as usize]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_width_packs_tightly_and_reads_back() {
        for width in 0..=64u32 {
            for count in [0, 1, 2, 7, 8, 9, 63, 200] {
                let mask = if width == 0 { 0 } else { u64::MAX >> (64 - width) };
                let values: Vec<u64> =
                    (1..=count as u64).map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15) & mask).collect();
                let mut bytes = Vec::new();
                pack(values.iter().copied(), width, &mut bytes);
                assert_eq!(bytes.len() as u64, packed_len(count, width), "{count} values of {width} bits");
                let packed = Packed::new(&bytes, width);
                let read: Vec<u64> = (0..count).map(|i| packed.get(i)).collect();
                assert_eq!(read, values, "{count} values of {width} bits");
            }
        }
    }

    #[test]
    fn the_first_value_sits_in_the_lowest_bits() {
        let mut bytes = Vec::new();
        pack([0, 0, 5, 20].into_iter(), 5, &mut bytes);
        assert_eq!(bytes, [0x00, 0x14, 0x0A], "the codes of the worked ALP example");
    }
}
