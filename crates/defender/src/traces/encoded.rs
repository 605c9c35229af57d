//! Traces of a run as they are stored.

use std::ops::Deref;

use bytes::Bytes;

use super::{TraceError, open, point_count, start, svid_count};

/// Traces of a run as Mebo blobs that were checked or encoded by this process, in their order.
///
/// Its holder need not read the blobs again: only the pipeline decodes them, once per run.
///
/// ```
/// use phalanx_defender::traces::{EncodedTraces, Recording};
///
/// let encoded = Recording::from_csv(b"time,RF_POWER\n0,500\n1000000,502\n")?.to_chunks()?;
/// assert_eq!((encoded.svids(), encoded.points()), (1, 2));
/// assert_eq!(EncodedTraces::from_blobs(encoded.to_vec())?, encoded);
/// assert!(EncodedTraces::from_blobs(vec!["not a blob".into()]).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedTraces {
    chunks: Vec<Bytes>,
    svids: usize,
    points: u64,
}

impl EncodedTraces {
    /// Checks blobs from outside; at least one is needed.
    pub fn from_blobs(chunks: Vec<Bytes>) -> Result<Self, TraceError> {
        if chunks.is_empty() {
            return Err(TraceError::Empty);
        }
        let (svids, points) = {
            let blobs = open(&chunks)?;
            start(&blobs)?;
            (svid_count(&blobs), point_count(&blobs))
        };
        Ok(Self { chunks, svids, points })
    }

    /// Returns blobs that this process has encoded. `svids` is the largest number of SVIDs in one of them.
    pub(super) fn encoded(chunks: Vec<Bytes>, svids: usize, points: u64) -> Self {
        debug_assert!(!chunks.is_empty(), "a recording has points");
        Self { chunks, svids, points }
    }

    /// Returns the number of SVIDs.
    pub fn svids(&self) -> usize {
        self.svids
    }

    /// Returns the number of points of all SVIDs.
    pub fn points(&self) -> u64 {
        self.points
    }
}

impl Deref for EncodedTraces {
    type Target = [Bytes];

    fn deref(&self) -> &[Bytes] {
        &self.chunks
    }
}
