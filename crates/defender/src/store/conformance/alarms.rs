//! Facts about alarms.

use std::sync::Arc;

use jiff::SignedDuration;

use super::samples::{alarm, at, chamber, results};
use crate::record::{Acknowledgement, Alarm, AlarmState, Chamber, Results};
use crate::store::{ChartStore, StoreError};

async fn write(store: &dyn ChartStore, chamber: &Chamber, sequence: u64, take: u64, alarms: Vec<Alarm>) {
    let written = Results { alarms, ..results(chamber, sequence, take) };
    store.write(&written).await.expect("written");
}

async fn listed(store: &dyn ChartStore, chamber: &Chamber) -> Vec<(Alarm, Option<Acknowledgement>)> {
    store.alarms(Some(chamber), at(-1_000_000), None, 1000).await.expect("an answer").alarms
}

/// Goes through every page, and says the ids on each.
async fn pages(
    store: &dyn ChartStore,
    chamber: Option<&Chamber>,
    since: i64,
    limit: usize,
    of: &Chamber,
) -> Vec<Vec<Arc<str>>> {
    let (mut pages, mut token) = (Vec::new(), None);
    loop {
        let page = store.alarms(chamber, at(since), token.as_deref(), limit).await.expect("an answer");
        assert!(page.alarms.len() <= limit);
        // Others may have alarms on these days.
        let ours = page.alarms.into_iter().filter(|(alarm, _)| alarm.chamber.tool() == of.tool());
        pages.push(ours.map(|(alarm, _)| alarm.id).collect());
        match page.next {
            Some(next) => token = Some(next),
            None => return pages,
        }
        assert!(pages.len() < 10_000, "the pages do not end");
    }
}

/// A few alarms of one chamber, as they were written.
pub async fn some(store: &dyn ChartStore) -> Vec<Alarm> {
    let chamber = chamber();
    let alarms: Vec<Alarm> = (1..=3).map(|number| alarm(&chamber, &number.to_string(), number)).collect();
    write(store, &chamber, 1, 1, alarms.clone()).await;
    alarms
}

/// Raised, and later cleared: one row, by chamber and over all.
pub async fn an_alarm_is_raised_and_cleared_in_place(store: &dyn ChartStore) {
    let chamber = chamber();
    let raised = alarm(&chamber, "one", 1);
    write(store, &chamber, 1, 1, vec![raised.clone()]).await;
    assert_eq!(listed(store, &chamber).await, [(raised.clone(), None)]);
    let cleared = Some(("run-2".into(), at(2)));
    let cleared = Alarm { state: AlarmState::Cleared, cleared, value: Some(-0.0), limit: None, ..raised };
    write(store, &chamber, 2, 1, vec![cleared.clone()]).await;
    assert_eq!(listed(store, &chamber).await, [(cleared.clone(), None)]);
    let all = store.alarms(None, at(0), None, 10_000).await.expect("an answer").alarms;
    let ours: Vec<_> = all.into_iter().filter(|(alarm, _)| alarm.chamber == chamber).collect();
    assert_eq!(ours, [(cleared, None)]);
}

/// None twice, none left out, the newest first; several of one moment are ordered by their ids.
pub async fn alarms_of_a_chamber_come_in_pages(store: &dyn ChartStore) {
    let chamber = chamber();
    let times = [(1, "a"), (2, "b"), (2, "c"), (2, "d"), (3, "e"), (4, "f")];
    let alarms: Vec<Alarm> = times.iter().map(|(seconds, id)| alarm(&chamber, id, *seconds)).collect();
    write(store, &chamber, 1, 1, alarms).await;
    let expected: Vec<Arc<str>> =
        ["f", "e", "b", "c", "d", "a"].map(|id| format!("{chamber}/{id}").into()).to_vec();
    for limit in [1, 2, 3, 4, 6, 7] {
        let found = pages(store, Some(&chamber), 0, limit, &chamber).await;
        assert_eq!(found.concat(), expected, "{limit}");
        assert_eq!(found.len(), 6_usize.div_ceil(limit), "{limit}");
    }
    let since_2 = pages(store, Some(&chamber), 2, 10, &chamber).await;
    assert_eq!(since_2.concat(), expected[..5]);
}

/// Over midnight and over days without any.
pub async fn alarms_of_all_chambers_come_in_pages_across_days(store: &dyn ChartStore) {
    let (one, day) = (chamber(), 24 * 60 * 60);
    let two = Chamber::new(one.tool(), "other").expect("a name");
    let of = |chamber: &Chamber, id: &str, seconds: i64| alarm(chamber, id, seconds);
    write(store, &one, 1, 1, vec![of(&one, "a", 5), of(&one, "b", 3 * day), of(&one, "c", 3 * day)]).await;
    write(store, &two, 1, 1, vec![of(&two, "d", 3 * day), of(&two, "e", -20 * day), of(&two, "f", 6)]).await;
    let expected: Vec<Arc<str>> =
        [(&one, "b"), (&one, "c"), (&two, "d"), (&two, "f"), (&one, "a"), (&two, "e")]
            .map(|(chamber, id)| format!("{chamber}/{id}").into())
            .to_vec();
    for limit in [1, 2, 100] {
        let found = pages(store, None, -30 * day, limit, &one).await.concat();
        assert_eq!(found, expected, "{limit}");
    }
    assert_eq!(pages(store, None, 0, 3, &one).await.concat(), expected[..5]);
}

/// As it stands, with what people said of it; what is not there, or was taken back, is not found.
pub async fn an_alarm_is_found_by_its_id(store: &dyn ChartStore) {
    let chamber = chamber();
    let find = async |alarm: &Alarm| store.alarm(&alarm.id).await.expect("an answer");
    let (ghost, real) = (alarm(&chamber, "ghost", 1), alarm(&chamber, "real", 2));
    assert_eq!(find(&real).await, None);
    write(store, &chamber, 1, 1, vec![ghost.clone(), real.clone()]).await;
    write(store, &chamber, 1, 2, vec![real.clone()]).await;
    assert_eq!(find(&ghost).await, None);
    assert_eq!(find(&real).await, Some((real.clone(), None)));
    let when = at(5).round(jiff::Unit::Millisecond).expect("a time");
    let said = Acknowledgement { by: "anna".into(), at: when, comment: String::new() };
    store.acknowledge(&real.id, &said).await.expect("noted");
    let cleared = Some(("run-2".into(), at(2)));
    let cleared = Alarm { state: AlarmState::Cleared, cleared, ..real.clone() };
    write(store, &chamber, 2, 1, vec![cleared.clone()]).await;
    assert_eq!(find(&real).await, Some((cleared, Some(said))));
}

/// With the text.
pub async fn a_page_that_nobody_gave_is_refused(store: &dyn ChartStore) {
    let error = store.alarms(Some(&chamber()), at(0), Some("nonsense"), 9).await.expect_err("refused");
    assert!(matches!(&error, StoreError::Refused(text) if text.contains("nonsense")), "{error}");
}

/// Whatever is written of the alarm afterwards. An open one that somebody has seen is acknowledged.
pub async fn what_people_said_is_untouched_by_processing(store: &dyn ChartStore) {
    let chamber = chamber();
    let raised = alarm(&chamber, "one", 1);
    write(store, &chamber, 1, 1, vec![raised.clone()]).await;
    let when = at(5).round(jiff::Unit::Millisecond).expect("a time");
    let said = Acknowledgement { by: "anna".into(), at: when, comment: "valve · being changed".into() };
    store.acknowledge(&raised.id, &said).await.expect("noted");
    let seen = Alarm { state: AlarmState::Acknowledged, ..raised.clone() };
    assert_eq!(listed(store, &chamber).await, [(seen.clone(), Some(said.clone()))]);
    write(store, &chamber, 2, 1, vec![raised.clone()]).await;
    assert_eq!(listed(store, &chamber).await, [(seen, Some(said.clone()))]);
    let cleared = Some(("run-3".into(), at(3)));
    let cleared = Alarm { state: AlarmState::Cleared, cleared, ..raised.clone() };
    write(store, &chamber, 3, 1, vec![cleared.clone()]).await;
    assert_eq!(listed(store, &chamber).await, [(cleared.clone(), Some(said.clone()))]);
    let earlier =
        Acknowledgement { by: "berta".into(), at: when - SignedDuration::from_secs(1), ..said.clone() };
    store.acknowledge(&raised.id, &earlier).await.expect("noted");
    assert_eq!(listed(store, &chamber).await, [(cleared.clone(), Some(said.clone()))]);
    let later = Acknowledgement { by: "carla".into(), at: when + SignedDuration::from_secs(1), ..said };
    store.acknowledge(&raised.id, &later).await.expect("noted");
    assert_eq!(listed(store, &chamber).await, [(cleared, Some(later))]);
}

/// An attempt raised it and died; the next attempt, with another strategy, did not.
pub async fn an_alarm_of_an_attempt_that_does_not_count_is_not_listed(store: &dyn ChartStore) {
    let chamber = chamber();
    let (ghost, real) = (alarm(&chamber, "ghost", 1), alarm(&chamber, "real", 1));
    write(store, &chamber, 1, 1, vec![ghost, real.clone()]).await;
    write(store, &chamber, 1, 2, vec![real.clone()]).await;
    assert_eq!(listed(store, &chamber).await, [(real.clone(), None)]);
    // Of what an attempt writes before its last row, nothing disappears.
    write(store, &chamber, 2, 1, vec![real.clone()]).await;
    assert_eq!(listed(store, &chamber).await, [(real, None)]);
}
