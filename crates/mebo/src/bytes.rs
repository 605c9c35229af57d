//! Fixed-width integers in the blob's byte order (§1.2).

use crate::Error;

/// The byte order of a blob's fixed-width fields. Varints and bit streams do not follow it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Endian {
    /// Least significant byte first.
    #[default]
    Little,
    /// Most significant byte first.
    Big,
}

impl Endian {
    pub(crate) fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            Self::Little => u16::from_le_bytes(bytes),
            Self::Big => u16::from_be_bytes(bytes),
        }
    }

    pub(crate) fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        }
    }

    pub(crate) fn u64(self, bytes: [u8; 8]) -> u64 {
        match self {
            Self::Little => u64::from_le_bytes(bytes),
            Self::Big => u64::from_be_bytes(bytes),
        }
    }

    pub(crate) fn put_u16(self, value: u16, out: &mut Vec<u8>) {
        out.extend_from_slice(&match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        });
    }

    pub(crate) fn put_u32(self, value: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(&match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        });
    }

    pub(crate) fn put_u64(self, value: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(&match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        });
    }
}

/// Reads fields one after the other; every read that would pass the end is a truncation error with its offset.
#[derive(Clone)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    endian: Endian,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8], at: usize, endian: Endian) -> Self {
        Self { bytes, at, endian }
    }

    pub(crate) fn at(&self) -> usize {
        self.at
    }

    pub(crate) fn take(&mut self, len: usize, what: &str) -> Result<&'a [u8], Error> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let Some(taken) = rest.get(..len) else {
            return Err(Error::truncated(
                self.at,
                format!("{what} needs {len} bytes here, {} are left", rest.len()),
            ));
        };
        self.at += len;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], Error> {
        let taken = self.take(N, what)?;
        Ok(*taken.first_chunk().unwrap_or(&[0; N]))
    }

    pub(crate) fn u8(&mut self, what: &str) -> Result<u8, Error> {
        self.array::<1>(what).map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self, what: &str) -> Result<u16, Error> {
        self.array(what).map(|bytes| self.endian.u16(bytes))
    }

    pub(crate) fn u32(&mut self, what: &str) -> Result<u32, Error> {
        self.array(what).map(|bytes| self.endian.u32(bytes))
    }

    pub(crate) fn u64(&mut self, what: &str) -> Result<u64, Error> {
        self.array(what).map(|bytes| self.endian.u64(bytes))
    }
}
