//! Why a blob could not be written.

/// Why a metric was not taken, or a blob not written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// Id 0 stands for "no metric".
    #[error("0 is not a metric id; choose another number")]
    ZeroId,
    /// A name must have at least one character.
    #[error("a metric has an empty name")]
    EmptyName,
    /// All metrics of a blob go by id, or all by name.
    #[error("metric {metric} cannot be added: the metrics before it go by {}, and a blob has one kind",
        if metric.starts_with('"') { "id" } else { "name" })]
    MixedKeys {
        /// The metric.
        metric: String,
    },
    /// The metric is in the blob already.
    #[error("metric {metric} was added before; add all of its points at once")]
    Duplicate {
        /// The metric.
        metric: String,
    },
    /// A metric has at least one point.
    #[error("metric {metric} has no points")]
    NoPoints {
        /// The metric.
        metric: String,
    },
    /// Every point has a timestamp, a value, and where there are tags, a tag.
    #[error("metric {metric} has {timestamps} timestamps, {values} values{}",
        tags.map(|tags| format!(", {tags} tags")).unwrap_or_default())]
    Lengths {
        /// The metric.
        metric: String,
        /// How many timestamps were given.
        timestamps: usize,
        /// How many values were given.
        values: usize,
        /// How many tags were given, if any were.
        tags: Option<usize>,
    },
    /// A blob of the V1 layout has small columns.
    #[error("metric {metric} has {points} points, this layout takes {most}; use layout V2 or several blobs")]
    TooManyPoints {
        /// The metric.
        metric: String,
        /// How many points it has.
        points: usize,
        /// How many it may have.
        most: u64,
    },
    /// A column of a V1 blob that is followed by another one is at most 65,535 bytes long.
    #[error(
        "a column before that of metric {before} is longer than 65,535 bytes; use layout V2 or several blobs"
    )]
    ColumnTooLarge {
        /// The metric behind it.
        before: String,
    },
    /// There is no room for another metric.
    #[error("a blob takes {most} metrics; use several blobs")]
    TooManyMetrics {
        /// How many it takes.
        most: usize,
    },
    /// Names are stored, as two of them have the same id, and one is too long for that.
    #[error("a metric's name has {bytes} bytes, 65,535 is the most")]
    NameTooLong {
        /// How long it is.
        bytes: usize,
    },
    /// A blob has at least one metric.
    #[error("a blob needs at least one metric")]
    NoMetrics,
    /// A blob is smaller than 4 GiB.
    #[error("the blob would have {size} bytes, 4,294,967,295 is the most; use several blobs")]
    TooLarge {
        /// How long it would be.
        size: usize,
    },
    /// The compressor gave up.
    #[error("a payload cannot be compressed: {0}")]
    Compression(#[from] std::io::Error),
}
