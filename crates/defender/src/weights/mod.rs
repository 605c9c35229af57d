//! What chambers weigh in the balance of the fleet: imported, observed, and told to the leader.

mod estimate;
mod import;
mod source;

pub use self::estimate::{Estimator, SharedEstimator, UPDATE_INTERVAL};
pub use self::import::{BadImport, import};
pub use self::source::{CACHE_TTL, ChamberSource, IMPORT_KEY, WeightCache, announce_import, follow_imports};

/// What a chamber weighs: how many values a run of it has. At least 1, and no more than stores can hold.
///
/// ```
/// use phalanx_defender::weights::weight;
///
/// assert_eq!(weight(50, 1.0, 600.0), 30_000);
/// assert_eq!(weight(100, 1.0, 1200.0), 120_000);
/// assert_eq!(weight(200, 10.0, 1800.0), 3_600_000);
/// assert_eq!(weight(1, 0.001, 1.0), 1);
/// ```
pub fn weight(svid_count: u32, collection_freq_hz: f64, context_duration_seconds: f64) -> u64 {
    let values = f64::from(svid_count) * collection_freq_hz * context_duration_seconds;
    // Casting saturates, and makes 0 of what is no number.
    (values.round() as u64).clamp(1, i64::MAX.unsigned_abs())
}
