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

/// The first four varints of eight bytes, if there are four, and how many bytes they take.
///
/// Lengths vary from point to point and branch predictors cannot know them; here they are computed, not branched on.
#[inline(always)]
pub(crate) fn four_of(word: u64) -> Option<([u64; 4], usize)> {
    let end0 = !word & 0x8080_8080_8080_8080;
    let end1 = end0 & end0.wrapping_sub(1);
    let end2 = end1 & end1.wrapping_sub(1);
    let end3 = end2 & end2.wrapping_sub(1);
    if end3 == 0 {
        return None;
    }
    // Everything up to and with the lowest bit of each.
    let upto = [end0, end1, end2, end3].map(|end| end ^ (end - 1));
    let start = |end: u64| (end.trailing_zeros() + 1) % 64;
    let each = [
        word & upto[0],
        (word & upto[1]) >> start(end0),
        (word & upto[2]) >> start(end1),
        (word & upto[3]) >> start(end2),
    ];
    // Two continuations in a row: some are longer than two bytes. That is rare, or nearly always so.
    let long = word & (word >> 8) & 0x0080_8080_8080_8080 & upto[3] != 0;
    let values =
        if long { each.map(squeeze) } else { each.map(|short| (short & 0x7F) | ((short >> 1) & 0x3F80)) };
    Some((values, (end3.trailing_zeros() as usize + 1) / 8))
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

/// Appends many values, each in its shortest form.
///
/// They are put together on the stack, a whole word each whatever its length, and appended by the hundred bytes.
#[inline(always)]
pub(crate) fn write_all(values: impl Iterator<Item = u64>, out: &mut Vec<u8>) {
    const ROOM: usize = 512;
    let mut chunk = [0; ROOM];
    let mut used = 0;
    for value in values {
        if used > ROOM - 16 {
            out.extend_from_slice(&chunk[..used]);
            used = 0;
        }
        if value < 1 << 14 {
            let more = u64::from(value >= 0x80);
            let bytes = (value & 0x7F) | more << 7 | (value & 0x3F80) << 1;
            chunk[used..used + 2].copy_from_slice(&(bytes as u16).to_le_bytes());
            used += 1 + more as usize;
        } else if value < 1 << 56 {
            // Seven bits a byte, at least one byte.
            let len = (63 - (value | 1).leading_zeros() as usize) / 7 + 1;
            let more = 0x8080_8080_8080_8080 & ((1 << (8 * len - 1)) - 1);
            chunk[used..used + 8].copy_from_slice(&(spread(value) | more).to_le_bytes());
            used += len;
        } else {
            out.extend_from_slice(&chunk[..used]);
            used = 0;
            write(value, out);
        }
    }
    out.extend_from_slice(&chunk[..used]);
}

/// The inverse of [`squeeze`], for values of up to 56 bits.
#[inline(always)]
fn spread(value: u64) -> u64 {
    let x = (value & 0x0000_0000_0FFF_FFFF) | ((value & 0x00FF_FFFF_F000_0000) << 4);
    let x = (x & 0x0000_3FFF_0000_3FFF) | ((x & 0x0FFF_C000_0FFF_C000) << 2);
    (x & 0x007F_007F_007F_007F) | ((x & 0x3F80_3F80_3F80_3F80) << 1)
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
    fn many_at_once_are_what_one_after_the_other_are() {
        let values: Vec<u64> = (0..2000u64)
            .map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (i * i % 64))
            .chain((0..64).flat_map(|shift| [1 << shift, (1 << shift) - 1, u64::MAX >> shift]))
            .collect();
        let (mut one_by_one, mut at_once) = (vec![0xAA], vec![0xAA]);
        values.iter().for_each(|&value| write(value, &mut one_by_one));
        write_all(values.iter().copied(), &mut at_once);
        assert_eq!(at_once, one_by_one);

        let mut fours = 0;
        write_all((0..2000u64).map(|i| i * i % 997), &mut at_once);
        for at in 1..at_once.len() {
            let Some(chunk) = at_once[at..].first_chunk() else { break };
            let Some((four, len)) = four_of(u64::from_le_bytes(*chunk)) else { continue };
            let mut next = at;
            for value in four {
                let (read, after) = read(&at_once, next).expect("a whole varint");
                assert_eq!(value, read, "at {next}");
                next = after;
            }
            assert_eq!(at + len, next);
            fours += 1;
        }
        assert!(fours > 1000, "{fours}");
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
