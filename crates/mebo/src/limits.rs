//! How much memory a blob may ask for.

/// Caps on what a reader allocates, whatever the blob claims.
///
/// The defaults suit blobs from strangers; lower them where memory is scarce.
///
/// ```
/// use phalanx_mebo::Limits;
///
/// let strict = Limits { points_per_metric: 20_000, ..Limits::default() };
/// assert_eq!(strict.decompressed_bytes, 128 << 20);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The largest size of one decompressed payload in bytes. The default, 128 MiB, is what the writers in the field
    /// can read back themselves.
    pub decompressed_bytes: usize,
    /// The most points one metric may have. The default, 2²⁴, is what a payload of 128 MiB of raw values holds; it is
    /// what stops an ALP column, which says "four billion equal values" in 16 bytes.
    pub points_per_metric: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { decompressed_bytes: 128 << 20, points_per_metric: 1 << 24 }
    }
}
