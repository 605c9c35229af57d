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

/// How a blob is read.
///
/// ```
/// use phalanx_mebo::ReadOptions;
///
/// let options = ReadOptions { repair_legacy: true, ..ReadOptions::default() };
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadOptions {
    /// What a blob may cost.
    pub limits: Limits,
    /// Undoes a defect of writers before version 1.4.3 that were fed point by point (§12.2): in every metric but the
    /// first, the first timestamp came out doubled and all from the third on wrong.
    ///
    /// Such columns are recognised by their second timestamp, which stayed right and is not much more than half of the
    /// first. That is a guess, a very good one for real clocks, so it has to be asked for; without it the reader gives
    /// what the bytes say.
    pub repair_legacy: bool,
}
