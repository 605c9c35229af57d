//! One S2 block: Snappy's elements, and copies that repeat the previous offset.

use super::check_limit;
use crate::bytes::{Cursor, Endian};
use crate::error::Error;
use crate::varint;

/// Writes the subset that is also Snappy: every reader of S2 takes it, and many more libraries can check it.
pub(super) fn compress(plain: &[u8]) -> Vec<u8> {
    minlz::s2::encode_snappy(plain)
}

pub(super) fn decompress(stored: &[u8], limit: usize) -> Result<Vec<u8>, Error> {
    let len = walk(stored, limit)?;
    let mut plain = vec![0; len];
    match minlz::s2::decode_into(&mut plain, stored) {
        Ok(produced) if produced == len => Ok(plain),
        Ok(produced) => Err(Error::corrupt(0, format!("S2: {produced} bytes instead of {len}"))),
        Err(error) => Err(Error::corrupt(0, format!("S2: {error}"))),
    }
}

/// The length of the output, as the block declares it and as its elements add up to.
fn walk(stored: &[u8], limit: usize) -> Result<usize, Error> {
    let (declared, start) = varint::read(stored, 0).map_err(|fault| match fault {
        varint::Fault::Ends => Error::truncated(stored.len(), "an S2 block ends in its length"),
        varint::Fault::Overflows => Error::corrupt(0, "the length of an S2 block has more than 64 bits"),
    })?;
    check_limit(declared, limit, 0)?;
    let mut cursor = Cursor::new(stored, start, Endian::Little);
    let mut produced = 0;
    while cursor.at() < stored.len() && produced <= declared {
        produced += element(&mut cursor)?;
    }
    match produced {
        _ if produced == declared && cursor.at() == stored.len() => Ok(declared as usize),
        _ if produced < declared => Err(Error::truncated(
            stored.len(),
            format!("an S2 block of {declared} bytes ends after {produced}"),
        )),
        _ => Err(Error::corrupt(cursor.at(), format!("an S2 block produces more than its {declared} bytes"))),
    }
}

/// Passes one element; gives the bytes it produces.
fn element(cursor: &mut Cursor<'_>) -> Result<u64, Error> {
    const WHAT: &str = "an S2 element";
    let tag = cursor.u8(WHAT)?;
    let upper = u64::from(tag >> 2);
    let more = |cursor: &mut Cursor<'_>, len: usize| -> Result<u64, Error> {
        let mut bytes = [0; 8];
        bytes[..len].copy_from_slice(cursor.take(len, WHAT)?);
        Ok(u64::from_le_bytes(bytes))
    };
    Ok(match tag & 3 {
        0 => {
            let len = match upper {
                60..=63 => more(cursor, upper as usize - 59)? + 1,
                _ => upper + 1,
            };
            cursor.take(len as usize, "an S2 literal")?;
            len
        }
        1 => {
            let offset = u64::from(tag & 0xE0) << 3 | u64::from(cursor.u8(WHAT)?);
            match upper & 7 {
                short if offset != 0 || short < 5 => short + 4,
                5 => more(cursor, 1)? + 8,
                6 => more(cursor, 2)? + 260,
                _ => more(cursor, 3)? + 65_540,
            }
        }
        2 => {
            cursor.take(2, WHAT)?;
            upper + 1
        }
        _ => {
            cursor.take(4, WHAT)?;
            upper + 1
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn repeats_of_every_length_decompress() {
        // "ab", then a copy of 4 at offset 2, then repeats: 4 + 0, 8 + 3, 260 + 1, 65,540 + 2.
        let mut block = vec![0; 0];
        let total = 2 + 4 + 4 + 11 + 261 + 65_542;
        varint::write(total, &mut block);
        block.extend([1 << 2, b'a', b'b']);
        block.extend([1, 2]);
        block.extend([1, 0]);
        block.extend([5 << 2 | 1, 0, 3]);
        block.extend([6 << 2 | 1, 0, 1, 0]);
        block.extend([7 << 2 | 1, 0, 2, 0, 0]);
        assert_eq!(decompress(&block, 1 << 20), Ok(b"ab".repeat(total as usize / 2)));
    }

    #[test]
    fn broken_blocks_are_refused() {
        let kind = |block: &[u8]| decompress(block, 1000).map_err(|e| e.kind());
        assert_eq!(kind(&[0x80]), Err(ErrorKind::Truncated), "no length");
        assert_eq!(kind(&[4, 1, 0]), Err(ErrorKind::Corrupt), "a repeat with nothing to repeat");
        assert_eq!(
            kind(&[6, 1 << 2, b'a', b'b', 1, 3]),
            Err(ErrorKind::Corrupt),
            "a copy from before the start"
        );
        assert_eq!(kind(&[1, 1 << 2, b'a', b'b']), Err(ErrorKind::Corrupt), "more than declared");
        assert_eq!(kind(&[3, 1 << 2, b'a', b'b']), Err(ErrorKind::Truncated), "less than declared");
        assert_eq!(kind(&[0xFF, 0xFF, 0xFF, 0x7F, 0, b'a']), Err(ErrorKind::TooLarge), "over the limit");
    }

    #[test]
    fn a_block_that_claims_more_than_its_elements_allocates_nothing() {
        let mut block = Vec::new();
        varint::write(100 << 20, &mut block);
        block.extend([0, b'a']);
        assert_eq!(decompress(&block, 128 << 20).map_err(|e| e.kind()), Err(ErrorKind::Truncated));
    }
}
