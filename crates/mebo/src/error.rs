//! What can be wrong with a blob, and where.

use std::borrow::Cow;
use std::fmt;

/// What kind of problem a blob has; each kind asks for a different reaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// Not a blob this version can read: other magic, unknown encoding or compression. A newer reader may succeed.
    Unsupported,
    /// The bytes contradict themselves. Fetch the blob again, or ask its writer.
    Corrupt,
    /// The bytes end before what they promise. Fetch the blob again.
    Truncated,
    /// Reading it would take more memory than [`Limits`](crate::Limits) allow. Raise the limit if the source is trusted.
    TooLarge,
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unsupported => "unsupported",
            Self::Corrupt => "corrupt",
            Self::Truncated => "truncated",
            Self::TooLarge => "too large",
        })
    }
}

/// Where an error's offset counts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Section {
    /// The blob itself.
    Blob,
    /// The timestamp payload after decompression.
    Timestamps,
    /// The value payload after decompression.
    Values,
    /// The tag payload after decompression.
    Tags,
    /// The data section of a text blob after decompression.
    Data,
}

/// Why a blob, or a part of it, was refused.
///
/// ```
/// use phalanx_mebo::{Blob, ErrorKind};
///
/// let error = Blob::open(&[0x40, 0xEA, 0, 0]).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Truncated);
/// assert_eq!(error.to_string(), "truncated at byte 4: a header has 32 bytes, the blob ends after 4");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
// Boxed: errors are rare and travel through `Result`s that are returned once per point.
pub struct Error(Box<Inner>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Inner {
    kind: ErrorKind,
    section: Section,
    offset: u64,
    reason: Cow<'static, str>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, offset: usize, reason: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(Inner { kind, section: Section::Blob, offset: offset as u64, reason: reason.into() }))
    }

    pub(crate) fn unsupported(offset: usize, reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Unsupported, offset, reason)
    }

    pub(crate) fn corrupt(offset: usize, reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Corrupt, offset, reason)
    }

    pub(crate) fn truncated(offset: usize, reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Truncated, offset, reason)
    }

    pub(crate) fn too_large(offset: usize, reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::TooLarge, offset, reason)
    }

    /// The same error seen from a slice that starts `by` bytes earlier.
    pub(crate) fn shifted(mut self, by: usize) -> Self {
        self.0.offset += by as u64;
        self
    }

    /// The same error, its offset counting inside a decompressed section.
    pub(crate) fn inside(mut self, section: Section) -> Self {
        self.0.section = section;
        self
    }

    /// What kind of problem it is.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The byte the problem was found at, counted from the start of [`section`](Self::section).
    pub fn offset(&self) -> u64 {
        self.0.offset
    }

    /// What the offset counts from: the blob, or a payload that had to be decompressed first.
    pub fn section(&self) -> Section {
        self.0.section
    }
}

impl fmt::Display for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inside = match self.section {
            Section::Blob => "",
            Section::Timestamps => " of the decompressed timestamps",
            Section::Values => " of the decompressed values",
            Section::Tags => " of the decompressed tags",
            Section::Data => " of the decompressed data",
        };
        write!(f, "{} at byte {}{inside}: {}", self.kind, self.offset, self.reason)
    }
}
