//! Settings of the buckets that the protocol relies on.

use std::time::Duration;

use phalanx_cluster::backend::StoreConfig;
use phalanx_cluster::core::Config;

/// The shortest lifetime of a claim that is not renewed. A claim that expires during an outage of the broker costs a live
/// worker its id, so the lifetime must be longer than any outage.
const MIN_CLAIM_TTL: Duration = Duration::from_secs(24 * 60 * 60);

#[test]
fn claims_outlive_an_outage_of_the_broker() {
    let ttl = StoreConfig::of("fleet").stable_ids.ttl;
    assert!(ttl.is_none_or(|ttl| ttl >= MIN_CLAIM_TTL), "claims expire after {ttl:?}");
    assert!(
        MIN_CLAIM_TTL > Config::default().claim_expiry * 100,
        "stale claims are found by their age instead"
    );
}
