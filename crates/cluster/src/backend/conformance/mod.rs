//! The list of facts that hold for every backend. A backend's tests call [`backend_conformance!`](crate::backend_conformance)
//! once and get one test for each fact.
//!
//! Nothing here hopes for time to pass: whatever must happen is waited for, with a limit.

pub mod election;
pub mod kv;
pub mod log;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;

use super::{Backend, BucketConfig, Error, Kv, Log, LogConfig, Retry, Watch, WatchEvent};

/// A backend under test, and what only a test does to it.
#[async_trait]
pub trait Fixture: Send + Sync {
    /// The backend.
    fn backend(&self) -> Arc<dyn Backend>;

    /// Another way to the same data, which [`cut`](Fixture::cut) does not cut; none where there is none.
    fn second_connection(&self) -> Option<Arc<dyn Backend>>;

    /// Cuts the backend off from its data. False if it cannot be cut off.
    async fn disconnect(&self) -> bool;

    /// Undoes the cut.
    async fn reconnect(&self);

    /// Removes a log.
    async fn remove_log(&self, name: &str);
}

/// Makes one test of each fact. The argument is an expression that gives a future of a [`Fixture`].
#[macro_export]
macro_rules! backend_conformance {
    ($fixture:expr) => {
        $crate::backend_conformance! { @each $fixture;
            kv::create_on_an_existing_key_is_refused,
            kv::a_key_can_be_created_again_after_it_was_deleted,
            kv::a_key_can_be_created_again_after_it_expired,
            kv::an_expired_key_can_be_neither_updated_nor_deleted,
            kv::update_with_a_wrong_revision_is_refused_and_changes_nothing,
            kv::delete_with_a_wrong_revision_is_refused_and_changes_nothing,
            kv::revisions_grow_over_all_keys_and_times_do_not_fall,
            kv::the_time_of_a_revision_is_known_while_it_is_the_value,
            kv::keys_are_those_that_have_a_value,
            kv::of_ten_creators_one_wins,
            kv::of_concurrent_updates_none_is_lost,
            kv::a_watch_tells_what_is_there_then_what_changes_in_order,
            kv::a_watch_of_an_empty_bucket_is_current_at_once,
            kv::a_watch_that_is_read_late_misses_nothing,
            kv::a_bucket_keeps_as_many_values_of_a_key_as_it_was_told,
            kv::a_watch_does_not_tell_of_expiry,
            kv::a_watch_resumes_without_loss_or_repeat,
            kv::a_value_that_is_too_large_is_refused,
            kv::a_bad_key_is_refused,
            kv::the_description_of_a_bucket_is_set_once_and_changed_alone,
            log::messages_are_read_from_a_sequence_on_it_included,
            log::the_next_message_is_found_over_gaps,
            log::a_message_id_is_taken_once_whatever_the_subject,
            log::an_append_that_wants_an_empty_subject_is_refused_on_another,
            log::a_message_that_is_too_large_is_refused,
            log::a_subject_of_another_log_is_refused,
            log::a_full_log_refuses_what_is_new,
            log::messages_expire_and_the_first_sequence_says_so,
            log::subjects_are_listed_with_their_counts,
            log::a_message_that_is_removed_is_gone_alone,
            log::a_wake_up_arrives_for_its_subject,
            log::a_log_made_anew_has_another_identity,
            log::a_removed_log_is_named,
            log::the_description_of_a_log_is_its_own,
        }
        $crate::election_conformance! { $fixture }
    };
    (@each $fixture:expr; $($module:ident :: $fact:ident),* $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $fact() {
                $crate::backend::conformance::$module::$fact(&$fixture.await).await;
            }
        )*
    };
}

/// Waits for something that must happen soon.
async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let limit = Duration::from_secs(30);
    tokio::time::timeout(limit, future).await.unwrap_or_else(|_| panic!("{what}: not within {limit:?}"))
}

/// Asks until the answer is what it should be.
async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    soon(what, async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
}

async fn next(watch: &mut Watch) -> WatchEvent {
    soon("an event of the watch", watch.next()).await.expect("the watch goes on")
}

/// Creates a key on a backend that may be away: whatever the answers, it is stored exactly once.
async fn create_with_retries(bucket: &dyn Kv, key: &str) {
    until("a key is created", async || match bucket.create(key, "late".into()).await {
        Ok(_) | Err(Error::Conflict { .. }) => Some(()),
        Err(error) if error.retry() != Retry::Useless => None,
        Err(error) => panic!("{error}"),
    })
    .await;
}

fn unique(base: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("{base}-{}", COUNT.fetch_add(1, Ordering::Relaxed))
}

async fn bucket(fixture: &(impl Fixture + ?Sized)) -> Arc<dyn Kv> {
    open(fixture, BucketConfig::new(unique("bucket"))).await
}

async fn bucket_with_ttl(fixture: &dyn Fixture, ttl: Duration) -> Arc<dyn Kv> {
    open(fixture, BucketConfig { ttl: Some(ttl), ..BucketConfig::new(unique("bucket")) }).await
}

async fn open(fixture: &(impl Fixture + ?Sized), config: BucketConfig) -> Arc<dyn Kv> {
    fixture.backend().bucket(&config).await.expect("a bucket")
}

fn log_config() -> LogConfig {
    let name = unique("log");
    LogConfig::new(name.clone(), [format!("{name}.*")])
}

async fn open_log(fixture: &dyn Fixture, config: &LogConfig) -> Arc<dyn Log> {
    fixture.backend().log(config).await.expect("a log")
}
