//! The list of facts that hold for every chart store. A store's tests call
//! [`chart_store_conformance!`](crate::chart_store_conformance) once and get one test for each fact.
//!
//! Every fact has a chamber of its own, so one store serves them all.

pub mod alarms;
pub mod late;
pub mod rows;
mod samples;
pub mod traces;

/// Makes one test of each fact. The argument is an expression that gives a future of something that is an
/// `Arc<dyn ChartStore>` by `Deref` or by itself.
#[macro_export]
macro_rules! chart_store_conformance {
    ($store:expr) => {
        $crate::chart_store_conformance! { @each $store;
            rows::a_store_answers,
            rows::every_row_comes_back_bit_for_bit,
            rows::numbers_that_are_none_are_refused_and_nothing_is_written,
            rows::numbers_too_large_for_the_store_are_refused,
            rows::rows_that_speak_of_two_messages_are_refused,
            rows::chart_state_is_found_at_exactly_its_position,
            rows::the_newest_state_is_that_of_the_highest_position,
            rows::the_last_few_states_are_kept,
            rows::points_come_the_newest_first_and_before_a_time,
            rows::points_of_one_millisecond_are_kept_apart_by_context,
            rows::contexts_come_the_newest_message_first,
            rows::two_chambers_never_mix,
            rows::metadata_replaces_what_was_known,
            late::a_repeated_write_leaves_the_same_rows,
            late::a_lower_take_never_replaces_a_higher_one,
            late::a_value_is_not_kept_where_a_higher_take_has_none,
            late::an_earlier_message_never_changes_what_a_later_one_wrote,
            late::a_pruned_state_does_not_come_back,
            late::a_late_pruning_takes_nothing_newer,
            traces::chunks_come_back_in_order,
            traces::large_chunks_come_back,
            traces::chunks_above_the_limits_are_refused,
            traces::traces_that_were_sent_again_replace_the_first,
            alarms::an_alarm_is_raised_and_cleared_in_place,
            alarms::alarms_of_a_chamber_come_in_pages,
            alarms::alarms_of_all_chambers_come_in_pages_across_days,
            alarms::a_page_that_nobody_gave_is_refused,
            alarms::an_alarm_is_found_by_its_id,
            alarms::what_people_said_is_untouched_by_processing,
            alarms::an_alarm_of_an_attempt_that_does_not_count_is_not_listed,
        }
    };
    (@each $store:expr; $($module:ident :: $fact:ident),* $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $fact() {
                let store = $store.await;
                $crate::store::conformance::$module::$fact(&*store).await;
            }
        )*
    };
}
