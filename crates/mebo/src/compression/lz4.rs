//! One LZ4 block: no frame, and no length to be found in it.

use super::check_limit;
use crate::bytes::{Cursor, Endian};
use crate::error::Error;

const WHAT: &str = "an LZ4 sequence";

pub(super) fn compress(plain: &[u8]) -> Vec<u8> {
    lz4_flex::block::compress(plain)
}

pub(super) fn decompress(stored: &[u8], limit: usize) -> Result<Vec<u8>, Error> {
    let len = walk(stored, limit)?;
    let mut plain = vec![0; len];
    match lz4_flex::block::decompress_into(stored, &mut plain) {
        Ok(produced) if produced == len => Ok(plain),
        Ok(produced) => Err(Error::corrupt(0, format!("LZ4: {produced} bytes instead of {len}"))),
        Err(error) => Err(Error::corrupt(0, format!("LZ4: {error}"))),
    }
}

/// The length of the output: what the sequences add up to. The last one ends behind its literals.
fn walk(stored: &[u8], limit: usize) -> Result<usize, Error> {
    let mut cursor = Cursor::new(stored, 0, Endian::Little);
    let mut produced = 0;
    loop {
        let token = cursor.u8(WHAT)?;
        let literals = length(&mut cursor, token >> 4)?;
        cursor.take(literals as usize, "LZ4 literals")?;
        produced += literals;
        check_limit(produced, limit, cursor.at())?;
        if cursor.at() == stored.len() {
            return Ok(produced as usize);
        }
        cursor.u16(WHAT)?;
        produced += length(&mut cursor, token & 15)? + 4;
        check_limit(produced, limit, cursor.at())?;
    }
}

/// A length of four bits, or 15 and more bytes to add.
fn length(cursor: &mut Cursor<'_>, short: u8) -> Result<u64, Error> {
    let mut len = u64::from(short);
    if short == 15 {
        loop {
            let more = cursor.u8(WHAT)?;
            len += u64::from(more);
            if more < 255 {
                break;
            }
        }
    }
    Ok(len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn a_block_made_by_hand_decompresses() {
        // "ab", a match of 4 + 15 + 3 at offset 2, then the last literal.
        let block = [0x2F, b'a', b'b', 2, 0, 3, 0x10, b'c'];
        let expected = [b"ab".repeat(12), b"c".to_vec()].concat();
        assert_eq!(decompress(&block, 100), Ok(expected));
    }

    #[test]
    fn broken_blocks_are_refused() {
        let kind = |block: &[u8]| decompress(block, 1000).map_err(|e| e.kind());
        assert_eq!(
            kind(&[0x20, b'a', b'b', 3, 0, 0x10, b'c']),
            Err(ErrorKind::Corrupt),
            "from before the start"
        );
        assert_eq!(kind(&[0x20, b'a', b'b', 0, 0, 0x10, b'c']), Err(ErrorKind::Corrupt), "offset 0");
        assert_eq!(kind(&[0x20, b'a', b'b', 2, 0]), Err(ErrorKind::Truncated), "ends with a match");
        assert_eq!(kind(&[0xF0]), Err(ErrorKind::Truncated), "no length");
        let bomb = [&[0x1F, b'a', 1, 0][..], &[255; 40], &[0, 0x10, b'c']].concat();
        assert_eq!(kind(&bomb), Err(ErrorKind::TooLarge), "over the limit");
    }
}
