//! How much a source may be: a file that goes on for ever must not fill memory or disk.

use std::io::{self, Read};

/// The most bytes a source may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Of one answer over HTTP.
    pub download: u64,
    /// Of what one compressed file unfolds to, and of what is held in memory at once.
    pub unpacked: u64,
}

impl Default for Limits {
    /// The largest yearly feed of the NVD has about 100 MB packed and 1 GB unpacked.
    fn default() -> Self {
        Self { download: 2 << 30, unpacked: 4 << 30 }
    }
}

/// Passes at most so many bytes on; then reading fails with [`io::ErrorKind::FileTooLarge`].
pub(crate) struct Bounded<R> {
    input: R,
    left: u64,
    max: u64,
    what: &'static str,
}

impl<R: Read> Bounded<R> {
    pub(crate) fn new(input: R, max: u64, what: &'static str) -> Self {
        Self { input, left: max, max, what }
    }
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.input.read(buffer)?;
        self.left = self.left.checked_sub(len as u64).ok_or_else(|| {
            let why = format!("{} more than {} bytes: refused", self.what, self.max);
            io::Error::new(io::ErrorKind::FileTooLarge, why)
        })?;
        Ok(len)
    }
}

/// Whether reading failed because there is too much; parsers wrap what a reader says in errors of their own.
pub(crate) fn is_too_large(error: &io::Error) -> bool {
    let mut inner: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(one) = inner {
        if one.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::FileTooLarge) {
            return true;
        }
        inner = match one.downcast_ref::<io::Error>() {
            Some(error) => error.get_ref().map(|inner| inner as &(dyn std::error::Error + 'static)),
            None => one.source(),
        };
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_just_long_enough_passes_and_one_byte_more_does_not() {
        let read = |len: usize| {
            let mut all = Vec::new();
            Bounded::new(&vec![7; len][..], 10, "it has").read_to_end(&mut all).map(|_| all.len())
        };
        assert_eq!(read(10).unwrap(), 10);
        let refused = read(11).unwrap_err();
        assert_eq!(refused.to_string(), "it has more than 10 bytes: refused");
        assert!(is_too_large(&refused) && is_too_large(&io::Error::other(refused)));
        assert!(!is_too_large(&io::Error::other("something else")));
    }
}
