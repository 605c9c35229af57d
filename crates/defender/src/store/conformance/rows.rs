//! Facts about rows.

use super::samples::{at, chamber, chart, position, results, with_point};
use crate::record::{Alarm, Chamber, Flags, Limits, Mark, Metadata, Outcome, Results, UChart};
use crate::store::{ChartStore, StoreError};
use phalanx_cluster::core::types::Sequence;

async fn write(store: &dyn ChartStore, results: &Results) {
    store.write(results).await.expect("written");
}

async fn points(store: &dyn ChartStore, chamber: &Chamber, indicator: &str) -> Vec<UChart> {
    let found = store.u_charts(chamber, indicator, None, 1000).await.expect("an answer");
    found.into_iter().map(|(chart, _, _)| chart).collect()
}

#[track_caller]
fn assert_refused<T: std::fmt::Debug>(result: Result<T, StoreError>, word: &str) {
    let error = result.expect_err("refused");
    assert!(matches!(error, StoreError::Refused(_)) && error.to_string().contains(word), "{error}");
}

/// It is there.
pub async fn a_store_answers(store: &dyn ChartStore) {
    store.ping().await.expect("an answer");
}

/// Whatever a row can hold comes back as it was.
pub async fn every_row_comes_back_bit_for_bit(store: &dyn ChartStore) {
    let chamber = chamber();
    let numbers = [
        -0.0,
        0.0,
        5e-324,
        f64::MIN_POSITIVE,
        f64::MAX,
        f64::MIN,
        f64::EPSILON,
        1.0,
        -3.0,
        0.1,
        1e15,
        9007199254740993.0,
    ];
    let mut written = results(&chamber, 1, 3);
    for (seconds, number) in (1..).zip(numbers) {
        let limits = Limits { center: number, lcl: Some(number), ucl: Some(number), sigma: Some(number) };
        written.charts.push(UChart { limits: Some(limits), ..chart("numbers", seconds, number) });
    }
    let nothing = UChart {
        value: None,
        limits: None,
        n: u32::MAX,
        flags: Flags(u32::MAX),
        strategy: "".into(),
        ..chart("none", 1, 0.0)
    };
    let half = Limits { center: 2.0, lcl: None, ucl: None, sigma: None };
    written
        .charts
        .extend([nothing, UChart { limits: Some(half), ..chart("quote ' \" ; ü \u{1f680}", 1, 1.5) }]);
    written.state.state = (0..=255).collect();
    written.context.outcome = Outcome::Dead;
    write(store, &written).await;

    let mut found = Vec::new();
    for indicator in store.indicators(&chamber).await.expect("names") {
        found.extend(store.u_charts(&chamber, &indicator, None, 1000).await.expect("points"));
    }
    assert_eq!(found.len(), written.charts.len());
    let bits = |number: Option<f64>| number.map(f64::to_bits);
    for chart in &written.charts {
        let same = |found: &&UChart| (&found.indicator, &found.context) == (&chart.indicator, &chart.context);
        let (back, at, take) = found.iter().find(|(found, _, _)| same(&found)).expect("every point is there");
        assert_eq!((back, *at, *take), (chart, written.mark.position, 3));
        // Equal is not enough: 0 equals -0.
        assert_eq!(bits(back.value), bits(chart.value));
        let all = |chart: &UChart| chart.limits.map(|l| [Some(l.center), l.lcl, l.ucl, l.sigma].map(bits));
        assert_eq!(all(back), all(chart));
    }
    let state = store.state_at(&chamber, written.mark.position).await.expect("an answer");
    assert_eq!(state.as_ref(), Some(&written.state));
    assert_eq!(store.contexts(&chamber, None, 9).await.expect("an answer"), [written.context]);
}

/// What has no value is none, in every store: SQLite would make nothing of it, Cassandra would keep it.
pub async fn numbers_that_are_none_are_refused_and_nothing_is_written(store: &dyn ChartStore) {
    let chamber = chamber();
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let mut written = with_point(&chamber, 1, 1, Some(1.0));
        written.charts.push(chart("bad", 1, bad));
        assert_refused(store.write(&written).await, "bad");
        let mut written = with_point(&chamber, 1, 1, Some(1.0));
        written.charts[0].limits = Some(Limits { center: 1.0, lcl: Some(bad), ucl: None, sigma: None });
        assert_refused(store.write(&written).await, "power");
        let mut written = with_point(&chamber, 1, 1, Some(1.0));
        written.alarms = vec![Alarm { limit: Some(bad), ..super::samples::alarm(&chamber, "a", 1) }];
        assert_refused(store.write(&written).await, "alarm");
    }
    assert!(points(store, &chamber, "power").await.is_empty());
    assert!(store.newest_state(&chamber).await.expect("an answer").is_none());
}

/// Stores have signed numbers.
pub async fn numbers_too_large_for_the_store_are_refused(store: &dyn ChartStore) {
    let chamber = chamber();
    let mut written = results(&chamber, 1, 1);
    let mark = Mark { take: u64::MAX, ..written.mark };
    (written.mark, written.state.mark, written.context.take) = (mark, mark, u64::MAX);
    assert_refused(store.write(&written).await, &u64::MAX.to_string());
    assert_refused(store.state_at(&chamber, position(u64::MAX)).await, &u64::MAX.to_string());
}

/// All rows of a write are of one message and one attempt.
pub async fn rows_that_speak_of_two_messages_are_refused(store: &dyn ChartStore) {
    let chamber = chamber();
    let mut written = results(&chamber, 2, 1);
    written.context.position = position(3);
    assert_refused(store.write(&written).await, "two");
    let written = Results { state: results(&chamber, 3, 1).state, ..results(&chamber, 2, 1) };
    assert_refused(store.write(&written).await, "two");
    let alarms = vec![super::samples::alarm(&super::samples::chamber(), "a", 1)];
    let written = Results { alarms, ..results(&chamber, 2, 1) };
    assert_refused(store.write(&written).await, "chamber");
}

/// Neither the one before nor the one after.
pub async fn chart_state_is_found_at_exactly_its_position(store: &dyn ChartStore) {
    let chamber = chamber();
    for sequence in [5, 6, 8] {
        write(store, &results(&chamber, sequence, 1)).await;
    }
    for sequence in 4..10 {
        let found = store.state_at(&chamber, position(sequence)).await.expect("an answer");
        let expected = [5, 6, 8].contains(&sequence).then(|| results(&chamber, sequence, 1).state);
        assert_eq!(found, expected, "{sequence}");
    }
    let mut other = position(5);
    other.generation += 1;
    assert_eq!(store.state_at(&chamber, other).await.expect("an answer"), None);
}

/// Whatever was written last, and in whichever generation.
pub async fn the_newest_state_is_that_of_the_highest_position(store: &dyn ChartStore) {
    let chamber = chamber();
    assert_eq!(store.newest_state(&chamber).await.expect("an answer"), None);
    write(store, &results(&chamber, 9, 1)).await;
    write(store, &results(&chamber, 8, 1)).await;
    let newest = store.newest_state(&chamber).await.expect("an answer").expect("a state");
    assert_eq!(newest.mark.position, position(9));
    let mut anew = results(&chamber, 10, 1);
    anew.mark.position.generation += 1;
    anew.mark.position.sequence = Sequence(1);
    (anew.state.mark, anew.context.position) = (anew.mark, anew.mark.position);
    write(store, &anew).await;
    assert_eq!(store.newest_state(&chamber).await.expect("an answer"), Some(anew.state));
}

/// The predecessor of the newest always, a few more, and not all.
pub async fn the_last_few_states_are_kept(store: &dyn ChartStore) {
    let chamber = chamber();
    for sequence in 1..=20 {
        write(store, &results(&chamber, sequence, 1)).await;
    }
    for (sequence, there) in [(20, true), (19, true), (17, true), (16, false), (1, false)] {
        let found = store.state_at(&chamber, position(sequence)).await.expect("an answer");
        assert_eq!(found.is_some(), there, "{sequence}");
    }
}

/// By the notification's time, whenever they were written.
pub async fn points_come_the_newest_first_and_before_a_time(store: &dyn ChartStore) {
    let chamber = chamber();
    for sequence in [3, 1, 4, 2] {
        write(store, &with_point(&chamber, sequence, 1, Some(1.0))).await;
    }
    let seconds = async |before, limit| {
        let found = store.u_charts(&chamber, "power", before, limit).await.expect("an answer");
        found.into_iter().map(|(chart, _, _)| chart.timestamp).collect::<Vec<_>>()
    };
    assert_eq!(seconds(None, 9).await, [at(4), at(3), at(2), at(1)]);
    assert_eq!(seconds(None, 2).await, [at(4), at(3)]);
    assert_eq!(seconds(Some(at(3)), 9).await, [at(2), at(1)]);
    assert!(seconds(None, 0).await.is_empty() && seconds(Some(at(1)), 9).await.is_empty());
}

/// Two runs that ended together are two points.
pub async fn points_of_one_millisecond_are_kept_apart_by_context(store: &dyn ChartStore) {
    let chamber = chamber();
    let mut written = with_point(&chamber, 1, 1, Some(1.0));
    let twin = UChart { context: "a-twin".into(), ..written.charts[0].clone() };
    written.charts.push(twin);
    write(store, &written).await;
    let found: Vec<_> = points(store, &chamber, "power").await.into_iter().map(|c| c.context).collect();
    assert_eq!(found, ["a-twin".into(), written.charts[0].context.clone()]);
}

/// In the order of the log, also over generations.
pub async fn contexts_come_the_newest_message_first(store: &dyn ChartStore) {
    let chamber = chamber();
    for sequence in [2, 10, 9] {
        write(store, &results(&chamber, sequence, 1)).await;
    }
    let found = store.contexts(&chamber, None, 2).await.expect("an answer");
    assert_eq!(found, [results(&chamber, 10, 1).context, results(&chamber, 9, 1).context]);
    let second = Some(found[1].position);
    let older = store.contexts(&chamber, second, 9).await.expect("an answer");
    assert_eq!(older, [results(&chamber, 9, 1).context, results(&chamber, 2, 1).context]);
    assert!(store.contexts(&chamber, None, 0).await.expect("an answer").is_empty());
}

/// Also where one name is the beginning of another, or tool and chamber together are the same letters.
pub async fn two_chambers_never_mix(store: &dyn ChartStore) {
    let one = chamber();
    let longer = Chamber::new(one.tool(), &format!("{}x", one.chamber())).expect("a name");
    let shifted = Chamber::new(&format!("{}c", one.tool()), &one.chamber()[1..]).expect("a name");
    for (chamber, value) in [(&one, 1.0), (&longer, 2.0), (&shifted, 3.0)] {
        write(store, &with_point(chamber, 1, 1, Some(value))).await;
        store.put_t_chart(chamber, "run-1", &[value.to_string().into()]).await.expect("stored");
    }
    for (chamber, value) in [(&one, 1.0), (&longer, 2.0), (&shifted, 3.0)] {
        assert_eq!(points(store, chamber, "power").await, [chart("power", 1, value)]);
        let traces = store.t_chart(chamber, "run-1").await.expect("an answer");
        assert_eq!(traces, Some(vec![value.to_string().into()]));
        assert_eq!(store.contexts(chamber, None, 9).await.expect("an answer").len(), 1);
    }
    // Nor two charts of a chamber.
    assert!(points(store, &one, "powe").await.is_empty() && points(store, &one, "power2").await.is_empty());
}

/// The last word counts, and others stay.
pub async fn metadata_replaces_what_was_known(store: &dyn ChartStore) {
    let last_updated = at(0).round(jiff::Unit::Millisecond).expect("a time");
    let of = |chamber: &Chamber, weight| Metadata {
        chamber: chamber.clone(),
        svid_count: 100,
        collection_freq_hz: 0.1,
        context_duration_seconds: 1200.5,
        weight,
        last_updated,
    };
    let (one, two) = (chamber(), chamber());
    let known = async || {
        let all = store.metadata().await.expect("an answer");
        all.into_iter().filter(|m| m.chamber == one || m.chamber == two).collect::<Vec<_>>()
    };
    store.put_metadata(&[of(&one, 5), of(&two, u64::MAX / 2)]).await.expect("stored");
    assert_eq!(known().await, [of(&one, 5), of(&two, u64::MAX / 2)]);
    store.put_metadata(&[Metadata { svid_count: 7, ..of(&one, 9) }]).await.expect("stored");
    assert_eq!(known().await, [Metadata { svid_count: 7, ..of(&one, 9) }, of(&two, u64::MAX / 2)]);
    store.put_metadata(&[]).await.expect("stored");
}
