//! Variable-length integers (§6): seven bits a byte, least significant group first, and zigzag for signed ones.

/// Why a varint could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The bytes end inside it.
    Ends,
    /// It holds more than 64 bits.
    Overflows,
}

/// Reads the varint at `at`: its value and where the next thing starts.
///
/// Eight bytes are looked at as one word, so lengths of one to eight bytes cost no loop.
#[inline(always)]
pub(crate) fn read(bytes: &[u8], at: usize) -> Result<(u64, usize), Fault> {
    if let Some(chunk) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        let word = u64::from_le_bytes(*chunk);
        if word & 0x80 == 0 {
            return Ok((word & 0x7F, at + 1));
        }
        let ends = !word & 0x8080_8080_8080_8080;
        if ends != 0 {
            let bits = ends.trailing_zeros() + 1;
            let kept = word & (u64::MAX >> (64 - bits));
            return Ok((squeeze(kept), at + (bits / 8) as usize));
        }
    }
    read_slowly(bytes, at)
}

/// Drops the continuation bit of each of the eight bytes.
#[inline(always)]
fn squeeze(word: u64) -> u64 {
    let x = (word & 0x007F_007F_007F_007F) | ((word & 0x7F00_7F00_7F00_7F00) >> 1);
    let x = (x & 0x0000_3FFF_0000_3FFF) | ((x & 0x3FFF_0000_3FFF_0000) >> 2);
    (x & 0x0000_0000_0FFF_FFFF) | ((x & 0x0FFF_FFFF_0000_0000) >> 4)
}

/// Near the end of the bytes, and for the lengths of nine and ten.
#[cold]
fn read_slowly(bytes: &[u8], at: usize) -> Result<(u64, usize), Fault> {
    let mut value = 0;
    for (i, &byte) in bytes.get(at..).unwrap_or_default().iter().take(10).enumerate() {
        if i == 9 && byte > 1 {
            return Err(Fault::Overflows);
        }
        value |= u64::from(byte & 0x7F) << (7 * i);
        if byte < 0x80 {
            return Ok((value, at + i + 1));
        }
    }
    Err(Fault::Ends)
}

/// Appends `value` in its shortest form.
#[inline(always)]
pub(crate) fn write(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Small magnitudes of either sign become small unsigned numbers.
#[inline(always)]
pub(crate) fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// The inverse of [`zigzag`].
#[inline(always)]
pub(crate) fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_reads_back_with_and_without_bytes_behind_it() {
        for shift in 0..64 {
            for value in [1u64 << shift, (1u64 << shift) - 1, u64::MAX >> shift] {
                let mut bytes = vec![0xFF];
                write(value, &mut bytes);
                let end = bytes.len();
                assert_eq!(read(&bytes, 1), Ok((value, end)), "{value:#x} at the end");
                bytes.extend([0x55; 12]);
                assert_eq!(read(&bytes, 1), Ok((value, end)), "{value:#x} with bytes behind it");
                for cut in 1..end {
                    assert_eq!(read(&bytes[..cut], 1), Err(Fault::Ends), "{value:#x} cut at {cut}");
                }
            }
        }
    }

    #[test]
    fn a_varint_of_more_than_64_bits_is_refused() {
        let mut bytes = [0xFF; 12];
        bytes[9] = 0x02;
        assert_eq!(read(&bytes, 0), Err(Fault::Overflows));
        assert_eq!(read(&[0x80; 12], 0), Err(Fault::Overflows));
    }

    #[test]
    fn zigzag_keeps_every_extreme() {
        for value in [0, -1, 1, i64::MIN, i64::MAX, i64::MIN + 1] {
            assert_eq!(unzigzag(zigzag(value)), value);
        }
        assert_eq!((zigzag(0), zigzag(-1), zigzag(1), zigzag(i64::MIN)), (0, 1, 2, u64::MAX));
    }
}
