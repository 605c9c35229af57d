//! Facts about leases.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::StreamExt as _;

use super::{Fixture, bucket, soon};
use crate::backend::{Election, Error, KvElection, Lease, LeaseEvent, LeaseWatch};
use crate::core::LeaseExpiry;

/// Whoever grants leases. Every [`Fixture`] does, over a bucket of its own.
#[async_trait]
pub trait ElectionFixture: Send + Sync {
    /// An election of its own, where nobody leads yet.
    async fn election(&self) -> Arc<dyn Election>;
}

#[async_trait]
impl<F: Fixture> ElectionFixture for F {
    async fn election(&self) -> Arc<dyn Election> {
        Arc::new(KvElection::new(bucket(self).await, "leader"))
    }
}

/// Makes one test of each fact about leases. The argument is an expression that gives a future of a [`Grantor`].
#[macro_export]
macro_rules! election_conformance {
    ($fixture:expr) => {
        $crate::backend_conformance! { @each $fixture;
            election::a_lease_is_taken_and_kept_and_refused_to_others,
            election::a_lease_that_is_not_kept_goes_to_another_with_a_higher_epoch,
            election::an_epoch_survives_a_resignation,
            election::of_ten_candidates_one_wins,
            election::an_epoch_is_not_below_what_the_candidate_asks_for,
            election::a_watch_tells_who_leads_and_that_nobody_does,
        }
    };
}

fn assert_conflict<T: std::fmt::Debug>(result: Result<T, Error>) {
    assert!(matches!(result, Err(Error::Conflict { .. })), "{result:?}");
}

async fn next(watch: &mut LeaseWatch) -> LeaseEvent {
    soon("an event of the election", watch.next()).await.expect("the watch goes on").expect("readable")
}

/// Take and keep.
pub async fn a_lease_is_taken_and_kept_and_refused_to_others(grantor: &impl ElectionFixture) {
    let election = grantor.election().await;
    assert_eq!(election.current().await, Ok(None));
    let anna = election.take("anna", None, 0).await.expect("taken");
    assert_eq!((&*anna.holder, anna.epoch), ("anna", 1));
    assert_conflict(election.take("berta", None, 0).await);

    let renewed = election.renew(&anna).await.expect("renewed");
    assert_eq!((renewed.epoch, renewed.renewals), (1, 1));
    assert!(renewed.revision > anna.revision, "{renewed:?} after {anna:?}");
    assert_eq!(election.current().await, Ok(Some(renewed)));
    // Whoever saw an older lease does not know that the holder lives.
    assert_conflict(election.take("berta", Some(&anna), 0).await);
}

/// Lose.
pub async fn a_lease_that_is_not_kept_goes_to_another_with_a_higher_epoch(grantor: &impl ElectionFixture) {
    let election = grantor.election().await;
    let mut watch = election.watch().await.expect("a watch");
    let anna = election.take("anna", None, 0).await.expect("taken");
    let berta = match election.lease_expiry() {
        LeaseExpiry::OnSilence => election.take("berta", Some(&anna), 0).await.expect("taken over"),
        LeaseExpiry::AfterTerm(_) => {
            assert_conflict(election.take("berta", Some(&anna), 0).await);
            while next(&mut watch).await != LeaseEvent::Held(anna.clone()) {}
            assert_eq!(next(&mut watch).await, LeaseEvent::Vacant);
            election.take("berta", None, 0).await.expect("taken after its end")
        }
    };
    assert_eq!((&*berta.holder, berta.epoch), ("berta", 2));
    assert_conflict(election.renew(&anna).await);
    assert_conflict(election.resign(&anna).await);
    assert_eq!(election.current().await, Ok(Some(berta)));
}

/// Resigning frees the lease and keeps the epoch.
pub async fn an_epoch_survives_a_resignation(grantor: &impl ElectionFixture) {
    let election = grantor.election().await;
    let first = election.take("anna", None, 0).await.expect("taken");
    election.resign(&first).await.expect("resigned");
    assert_eq!(election.current().await, Ok(None));
    assert_conflict(election.renew(&first).await);
    let second = election.take("berta", None, 0).await.expect("taken");
    assert!(second.epoch > first.epoch, "{second:?} after {first:?}");
}

/// One leader at a time.
pub async fn of_ten_candidates_one_wins(grantor: &impl ElectionFixture) {
    let election = grantor.election().await;
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
pub async fn an_epoch_is_not_below_what_the_candidate_asks_for(grantor: &impl ElectionFixture) {
    let election = grantor.election().await;
    let lease = election.take("anna", None, 41).await.expect("taken");
    assert_eq!(lease.epoch, 41);
    // Its own holder may take it anew, whoever ends leases.
    let again = election.take("anna", Some(&lease), 7).await.expect("taken again");
    assert_eq!(again.epoch, 42);
    assert_conflict(election.renew(&lease).await);
    election.resign(&again).await.expect("resigned");
    assert_eq!(election.take("berta", None, 7).await.expect("taken").epoch, 43);
}

/// What followers live by.
pub async fn a_watch_tells_who_leads_and_that_nobody_does(grantor: &impl ElectionFixture) {
    let election = grantor.election().await;
    let mut early = election.watch().await.expect("a watch");
    assert_eq!(next(&mut early).await, LeaseEvent::Current);
    let anna = election.take("anna", None, 0).await.expect("taken");
    assert_eq!(next(&mut early).await, LeaseEvent::Held(anna.clone()));

    let mut late = election.watch().await.expect("a watch");
    assert_eq!(next(&mut late).await, LeaseEvent::Held(anna.clone()));
    assert_eq!(next(&mut late).await, LeaseEvent::Current);

    let renewed = election.renew(&anna).await.expect("renewed");
    election.resign(&renewed).await.expect("resigned");
    for watch in [&mut early, &mut late] {
        // A bucket that keeps one value may tell only the last of two changes.
        match next(watch).await {
            LeaseEvent::Held(told) => {
                assert_eq!(told, renewed);
                assert_eq!(next(watch).await, LeaseEvent::Vacant);
            }
            told => assert_eq!(told, LeaseEvent::Vacant),
        }
    }
}
