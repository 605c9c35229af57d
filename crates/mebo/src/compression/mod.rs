//! Payloads compressed as a whole (§9.2): one file for each codec.
//!
//! Before a byte of output is allocated, the structure of the input is walked: how much it can produce is known from
//! the input itself, not from a length it claims.

mod lz4;
mod s2;
mod zstd;

use std::borrow::Cow;
use std::sync::OnceLock;

use crate::error::{Error, Section};
use crate::header::Compression;

/// Restores a payload of at most `limit` bytes. Offsets of errors count from the start of `stored`.
pub(crate) fn decompress(codec: Compression, stored: &[u8], limit: usize) -> Result<Cow<'_, [u8]>, Error> {
    // An empty payload stays empty under every codec.
    if codec == Compression::None || stored.is_empty() {
        return Ok(Cow::Borrowed(stored));
    }
    Ok(Cow::Owned(match codec {
        Compression::Zstd => zstd::decompress(stored, limit)?,
        Compression::S2 => s2::decompress(stored, limit)?,
        _ => lz4::decompress(stored, limit)?,
    }))
}

/// Compresses a payload.
pub(crate) fn compress(codec: Compression, plain: Vec<u8>) -> std::io::Result<Vec<u8>> {
    if plain.is_empty() {
        return Ok(plain);
    }
    match codec {
        Compression::None => Ok(plain),
        Compression::Zstd => zstd::compress(&plain),
        Compression::S2 => Ok(s2::compress(&plain)),
        Compression::Lz4 => Ok(lz4::compress(&plain)),
    }
}

fn check_limit(produced: u64, limit: usize, at: usize) -> Result<(), Error> {
    if produced > limit as u64 {
        return Err(Error::too_large(
            at,
            format!(
                "decompresses to at least {produced} bytes, the limit is {limit} (Limits::decompressed_bytes)"
            ),
        ));
    }
    Ok(())
}

/// A payload of a blob: decompressed when it is first asked for, and then kept.
#[derive(Debug, Clone)]
pub(crate) struct Payload {
    codec: Compression,
    section: Section,
    start: usize,
    end: usize,
    limit: usize,
    plain: OnceLock<Result<Vec<u8>, Error>>,
}

impl Payload {
    pub(crate) fn new(codec: Compression, section: Section, start: usize, end: usize, limit: usize) -> Self {
        Self { codec, section, start, end, limit, plain: OnceLock::new() }
    }

    /// Bytes in the blob.
    pub(crate) fn stored_len(&self) -> usize {
        self.end - self.start
    }

    /// Whether the bytes are in the blob as they are.
    pub(crate) fn is_plain(&self) -> bool {
        self.codec == Compression::None || self.start == self.end
    }

    /// The decompressed bytes; `check` looks at them once.
    pub(crate) fn bytes<'b>(
        &'b self,
        blob: &'b [u8],
        check: impl FnOnce(&[u8]) -> Result<(), Error>,
    ) -> Result<&'b [u8], Error> {
        let stored = blob.get(self.start..self.end).unwrap_or_default();
        if self.is_plain() {
            return Ok(stored);
        }
        let plain = self.plain.get_or_init(|| {
            let plain = decompress(self.codec, stored, self.limit).map_err(|e| e.shifted(self.start))?;
            check(&plain)?;
            Ok(plain.into_owned())
        });
        plain.as_deref().map_err(Clone::clone)
    }

    /// An error inside this payload, `at` bytes behind its start, as an error of the blob.
    pub(crate) fn locate(&self, error: Error, at: usize) -> Error {
        if self.is_plain() { error.shifted(self.start + at) } else { error.shifted(at).inside(self.section) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    const CODECS: [Compression; 3] = [Compression::Zstd, Compression::S2, Compression::Lz4];

    fn samples() -> [Vec<u8>; 4] {
        let counting: Vec<u8> = (0..20_000u32).flat_map(|i| (i / 3).to_le_bytes()).collect();
        let noise = (0..3000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        [vec![7], vec![0; 300_000], counting, noise]
    }

    #[test]
    fn every_codec_gives_back_what_it_took() {
        for codec in CODECS {
            for plain in samples() {
                let stored = compress(codec, plain.clone()).expect("memory");
                assert_eq!(decompress(codec, &stored, plain.len()).as_deref(), Ok(&plain[..]), "{codec}");
            }
        }
    }

    #[test]
    fn one_byte_over_the_limit_is_too_large() {
        for codec in CODECS {
            for plain in samples() {
                let stored = compress(codec, plain.clone()).expect("memory");
                let error = decompress(codec, &stored, plain.len() - 1).expect_err("over the limit");
                assert_eq!(error.kind(), ErrorKind::TooLarge, "{codec}: {error}");
            }
        }
    }

    #[test]
    fn every_prefix_is_refused_or_gives_less() {
        for codec in CODECS {
            for plain in samples() {
                let stored = compress(codec, plain.clone()).expect("memory");
                for cut in (1..stored.len()).rev().take(2000) {
                    // An LZ4 block has no length: cut behind literals it is a shorter block.
                    match decompress(codec, &stored[..cut], plain.len()) {
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::Truncated, "{codec} cut at {cut}: {error}")
                        }
                        Ok(less) => assert!(
                            codec == Compression::Lz4 && less.len() < plain.len(),
                            "{codec} cut at {cut}"
                        ),
                    }
                }
            }
        }
    }

    #[test]
    fn nothing_is_nothing_under_every_codec() {
        for codec in CODECS {
            assert_eq!(compress(codec, Vec::new()).expect("memory"), []);
            assert_eq!(decompress(codec, &[], 0).as_deref(), Ok(&[][..]));
        }
    }
}
