//! One Zstandard frame (RFC 8878) without a dictionary.

use super::check_limit;
use crate::bytes::{Cursor, Endian};
use crate::error::Error;

/// What the reference writers use; a balance, not a requirement.
const LEVEL: i32 = 3;

const MAGIC: u32 = 0xFD2F_B528;

/// No block produces more.
const BLOCK_MOST: u64 = 128 << 10;

pub(super) fn compress(plain: &[u8]) -> std::io::Result<Vec<u8>> {
    zstd::bulk::compress(plain, LEVEL)
}

pub(super) fn decompress(stored: &[u8], limit: usize) -> Result<Vec<u8>, Error> {
    let frame = Frame::walk(stored)?;
    if let Some(size) = frame.content_size {
        check_limit(size, limit, 0)?;
        if size > frame.bound {
            return Err(Error::corrupt(
                4,
                format!("a frame says {size} bytes, its blocks hold {} at most", frame.bound),
            ));
        }
    }
    let capacity = frame.content_size.unwrap_or(frame.bound).min(limit as u64) as usize;
    let mut plain = Vec::with_capacity(capacity);
    let result = zstd::bulk::Decompressor::new()
        .and_then(|mut decompressor| decompressor.decompress_to_buffer(stored, &mut plain));
    match result {
        Ok(_) => {
            // Without a size in the frame the room was a guess.
            plain.shrink_to_fit();
            Ok(plain)
        }
        // What it would have produced is not known; the blocks hold more than the limit, and the limit is full.
        Err(error) if frame.bound > limit as u64 && frame.content_size.is_none() => {
            check_limit(frame.bound, limit, 0)?;
            Err(Error::corrupt(0, format!("zstd: {error}")))
        }
        Err(error) => Err(Error::corrupt(0, format!("zstd: {error}"))),
    }
}

/// What the structure of a frame tells.
struct Frame {
    content_size: Option<u64>,
    /// The most its blocks can produce.
    bound: u64,
}

impl Frame {
    fn walk(stored: &[u8]) -> Result<Self, Error> {
        const WHAT: &str = "a zstd frame";
        let mut cursor = Cursor::new(stored, 0, Endian::Little);
        let magic = cursor.u32(WHAT)?;
        if magic != MAGIC {
            return Err(Error::corrupt(0, format!("not a zstd frame: it starts with {magic:#010x}")));
        }
        let descriptor = cursor.u8(WHAT)?;
        if descriptor & 0b1000 != 0 {
            return Err(Error::unsupported(4, "a reserved bit of the zstd frame is set"));
        }
        if descriptor & 0b11 != 0 {
            return Err(Error::unsupported(4, "the zstd frame needs a dictionary"));
        }
        let single_segment = descriptor & 0b10_0000 != 0;
        if !single_segment {
            cursor.u8(WHAT)?;
        }
        let content_size = match descriptor >> 6 {
            0 if single_segment => Some(cursor.u8(WHAT)?.into()),
            0 => None,
            1 => Some(u64::from(cursor.u16(WHAT)?) + 256),
            2 => Some(cursor.u32(WHAT)?.into()),
            _ => Some(cursor.u64(WHAT)?),
        };
        let mut bound = 0;
        loop {
            let at = cursor.at();
            let [a, b, c] = cursor.array(WHAT)?;
            let head = u32::from_le_bytes([a, b, c, 0]);
            let size = head >> 3;
            if u64::from(size) > BLOCK_MOST {
                return Err(Error::corrupt(
                    at,
                    format!("a zstd block of {size} bytes, {BLOCK_MOST} is the most"),
                ));
            }
            let (held, produced) = match head >> 1 & 3 {
                0 => (size, size.into()),
                1 => (1, size.into()),
                2 => (size, BLOCK_MOST),
                _ => return Err(Error::corrupt(at, "a zstd block of the reserved type")),
            };
            cursor.take(held as usize, "a zstd block")?;
            bound += produced;
            if head & 1 == 1 {
                break;
            }
        }
        if descriptor & 0b100 != 0 {
            cursor.u32("the checksum of a zstd frame")?;
        }
        match cursor.at() {
            at if at < stored.len() => {
                Err(Error::corrupt(at, format!("{} bytes follow the zstd frame", stored.len() - at)))
            }
            _ => Ok(Self { content_size, bound }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn a_frame_that_claims_more_than_its_blocks_hold_allocates_nothing() {
        // Content size 64 MiB in four bytes; one raw block of one byte.
        let frame = [0x28, 0xB5, 0x2F, 0xFD, 0b1010_0000, 0, 0, 0, 4, 0b1001, 0, 0, b'x'];
        let error = decompress(&frame, 128 << 20).expect_err("a lie");
        assert_eq!((error.kind(), error.offset()), (ErrorKind::Corrupt, 4));
    }

    #[test]
    fn a_frame_without_a_size_decompresses() {
        // A window of 1 KiB; a raw block "x", then a run of 300 "y".
        let frame = [0x28, 0xB5, 0x2F, 0xFD, 0, 0, 0b1000, 0, 0, b'x', 0b0110_0011, 0b0000_1001, 0, b'y'];
        let expected = [b"x".to_vec(), vec![b'y'; 300]].concat();
        assert_eq!(decompress(&frame, 301), Ok(expected));
        assert_eq!(decompress(&frame, 300).map_err(|e| e.kind()), Err(ErrorKind::TooLarge));
    }

    #[test]
    fn what_is_not_one_plain_frame_is_refused() {
        let frame = compress(b"abcabcabcabc").expect("memory");
        let kind = |frame: &[u8]| decompress(frame, 1000).map_err(|e| (e.kind(), e.offset()));
        let with = |at: usize, bits: u8| {
            let mut frame = frame.clone();
            frame[at] |= bits;
            frame
        };
        assert_eq!(kind(&with(0, 0x07)), Err((ErrorKind::Corrupt, 0)), "magic");
        assert_eq!(kind(&with(4, 0b1000)), Err((ErrorKind::Unsupported, 4)), "reserved bit");
        assert_eq!(kind(&with(4, 0b01)), Err((ErrorKind::Unsupported, 4)), "dictionary");
        assert_eq!(kind(&with(6, 0b110)), Err((ErrorKind::Corrupt, 6)), "block type");
        let twice = [&frame[..], &frame].concat();
        assert_eq!(kind(&twice), Err((ErrorKind::Corrupt, frame.len() as u64)), "a second frame");
    }
}
