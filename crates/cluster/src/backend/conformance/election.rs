//! Facts about leases.

use std::sync::Arc;

use super::{Fixture, bucket};
use crate::backend::{Election, Error, KvElection, Lease};

async fn election(fixture: &dyn Fixture) -> Arc<dyn Election> {
    Arc::new(KvElection::new(bucket(fixture).await, "leader"))
}

fn assert_conflict<T: std::fmt::Debug>(result: Result<T, Error>) {
    assert!(matches!(result, Err(Error::Conflict { .. })), "{result:?}");
}

/// Take, keep, lose.
pub async fn a_lease_is_taken_renewed_and_taken_over_with_growing_epochs(fixture: &dyn Fixture) {
    let election = election(fixture).await;
    assert_eq!(election.current().await, Ok(None));
    let anna = election.take("anna", None, 0).await.expect("taken");
    assert_eq!((&*anna.holder, anna.epoch), ("anna", 1));
    assert_conflict(election.take("berta", None, 0).await);

    let renewed = election.renew(&anna).await.expect("renewed");
    assert_eq!((renewed.epoch, renewed.renewals), (1, 1));
    assert_eq!(election.current().await, Ok(Some(renewed.clone())));
    // Only the lease as it is can be taken over: whoever saw an older one does not know that the holder lives.
    assert_conflict(election.take("berta", Some(&anna), 0).await);

    let berta = election.take("berta", Some(&renewed), 0).await.expect("taken over");
    assert_eq!((&*berta.holder, berta.epoch), ("berta", 2));
    assert_conflict(election.renew(&renewed).await);
    assert_conflict(election.resign(&renewed).await);
    assert_eq!(election.current().await, Ok(Some(berta)));
}

/// Resigning frees the lease and keeps the epoch.
pub async fn an_epoch_survives_a_resignation(fixture: &dyn Fixture) {
    let election = election(fixture).await;
    let first = election.take("anna", None, 0).await.expect("taken");
    election.resign(&first).await.expect("resigned");
    assert_eq!(election.current().await, Ok(None));
    assert_conflict(election.renew(&first).await);
    let second = election.take("berta", None, 0).await.expect("taken");
    assert!(second.epoch > first.epoch, "{second:?} after {first:?}");
}

/// One leader at a time.
pub async fn of_ten_candidates_one_wins(fixture: &dyn Fixture) {
    let election = election(fixture).await;
    let candidates = (0..10).map(|n| {
        let election = election.clone();
        tokio::spawn(async move { election.take(&format!("candidate-{n}"), None, 0).await })
    });
    let mut winners: Vec<Lease> = Vec::new();
    for candidate in candidates.collect::<Vec<_>>() {
        match candidate.await.expect("no panic") {
            Ok(lease) => winners.push(lease),
            result => assert_conflict(result),
        }
    }
    assert_eq!(winners.len(), 1);
    assert_eq!(election.current().await, Ok(winners.pop()));
}

/// The map may have seen a higher epoch than a bucket that was lost.
pub async fn an_epoch_is_not_below_what_the_candidate_asks_for(fixture: &dyn Fixture) {
    let election = election(fixture).await;
    let lease = election.take("anna", None, 41).await.expect("taken");
    assert_eq!(lease.epoch, 41);
    let next = election.take("berta", Some(&lease), 7).await.expect("taken over");
    assert_eq!(next.epoch, 42);
}
