//! Facts about writes that arrive in the wrong order: of two, the one of the higher mark stays.

use super::samples::{alarm, chamber, mark, position, results, with_point};
use crate::record::{Alarm, AlarmState, Chamber, Context, Results, StateRow, UChart};
use crate::store::ChartStore;

/// Every row that a message of that number can leave behind.
#[derive(Debug, PartialEq)]
struct Seen {
    points: Vec<(UChart, u64)>,
    alarms: Vec<Alarm>,
    contexts: Vec<Context>,
    state: Option<StateRow>,
}

async fn seen(store: &dyn ChartStore, chamber: &Chamber, sequence: u64) -> Seen {
    let points = store.u_charts(chamber, "power", None, 99).await.expect("points");
    let alarms = store.alarms(Some(chamber), super::samples::at(-9), None, 99).await.expect("alarms");
    Seen {
        points: points.into_iter().map(|(chart, _, take)| (chart, take)).collect(),
        alarms: alarms.alarms.into_iter().map(|(alarm, _)| alarm).collect(),
        contexts: store.contexts(chamber, None, 99).await.expect("contexts"),
        state: store.state_at(chamber, position(sequence)).await.expect("a state"),
    }
}

/// An attempt whose every row names it.
fn attempt(chamber: &Chamber, sequence: u64, take: u64) -> Results {
    let mut written = with_point(chamber, sequence, take, Some(take as f64));
    written.charts[0].strategy = format!("v{take}").into();
    written.context.strategy = format!("v{take}").into();
    written.alarms = vec![Alarm { message: format!("by {take}"), ..alarm(chamber, "one", 0) }];
    written
}

/// Also in the middle of it.
pub async fn a_repeated_write_leaves_the_same_rows(store: &dyn ChartStore) {
    let chamber = chamber();
    let written = attempt(&chamber, 1, 1);
    store.write(&written).await.expect("written");
    let once = seen(store, &chamber, 1).await;
    store.write(&written).await.expect("written");
    assert_eq!(seen(store, &chamber, 1).await, once);
    assert_eq!((once.points.len(), once.alarms.len(), once.contexts.len()), (1, 1, 1));
}

/// Three attempts at one message, in every order.
pub async fn a_lower_take_never_replaces_a_higher_one(store: &dyn ChartStore) {
    for order in [[1, 2, 3], [1, 3, 2], [2, 1, 3], [2, 3, 1], [3, 1, 2], [3, 2, 1]] {
        let chamber = chamber();
        for take in order {
            store.write(&attempt(&chamber, 1, take)).await.expect("written");
        }
        let highest = attempt(&chamber, 1, 3);
        let expected = Seen {
            points: vec![(highest.charts[0].clone(), 3)],
            alarms: highest.alarms,
            contexts: vec![highest.context],
            state: Some(highest.state),
        };
        assert_eq!(seen(store, &chamber, 1).await, expected, "{order:?}");
    }
}

/// None is a value too: nothing of a lower take shines through.
pub async fn a_value_is_not_kept_where_a_higher_take_has_none(store: &dyn ChartStore) {
    for order in [[1, 2], [2, 1]] {
        let chamber = chamber();
        let nothing = UChart { limits: None, ..with_point(&chamber, 1, 2, None).charts[0].clone() };
        let raised = alarm(&chamber, "one", 1);
        let cleared = Alarm {
            state: AlarmState::Cleared,
            cleared: Some(("run-1".into(), super::samples::at(1))),
            ..raised.clone()
        };
        let lower = Results { alarms: vec![cleared], ..with_point(&chamber, 1, 1, Some(5.0)) };
        let higher = Results {
            charts: vec![nothing.clone()],
            alarms: vec![Alarm { value: None, limit: None, ..raised.clone() }],
            state: StateRow { predecessor: None, ..results(&chamber, 1, 2).state },
            ..results(&chamber, 1, 2)
        };
        for take in order {
            store.write(if take == 1 { &lower } else { &higher }).await.expect("written");
        }
        let found = seen(store, &chamber, 1).await;
        assert_eq!(found.points, [(nothing, 2)], "{order:?}");
        assert_eq!(found.alarms, higher.alarms, "{order:?}");
        assert_eq!(found.state, Some(higher.state), "{order:?}");
    }
}

/// A paused predecessor wakes and writes what it still had: the rows both have in common stay the later one's. Its
/// take may be as high, and messages come a microsecond apart.
pub async fn an_earlier_message_never_changes_what_a_later_one_wrote(store: &dyn ChartStore) {
    for order in [[1, 2], [2, 1]] {
        let chamber = chamber();
        let open = alarm(&chamber, "one", 1);
        let cleared = Alarm {
            state: AlarmState::Cleared,
            cleared: Some(("run-2".into(), super::samples::at(2))),
            ..open.clone()
        };
        let earlier = Results { alarms: vec![open], ..with_point(&chamber, 1, 1, Some(1.0)) };
        let mut later = Results { alarms: vec![cleared], ..with_point(&chamber, 2, 1, Some(2.0)) };
        // The same point, as of a run that was sent twice, and a stamp just above.
        later.charts[0] = UChart { value: Some(2.0), ..earlier.charts[0].clone() };
        later.mark.stamp = mark(1, 1).stamp + 1;
        later.state.mark = later.mark;
        for number in order {
            store.write(if number == 1 { &earlier } else { &later }).await.expect("written");
        }
        let found = seen(store, &chamber, 2).await;
        assert_eq!(found.points, [(later.charts[0].clone(), 1)], "{order:?}");
        assert_eq!(found.alarms, later.alarms, "{order:?}");
        assert_eq!(found.contexts, [later.context, earlier.context], "{order:?}");
        assert_eq!(found.state, Some(later.state), "{order:?}");
    }
}

/// The late write of a message whose state a later one has pruned.
pub async fn a_pruned_state_does_not_come_back(store: &dyn ChartStore) {
    let chamber = chamber();
    for sequence in (1..=12).filter(|sequence| *sequence != 3) {
        store.write(&results(&chamber, sequence, 1)).await.expect("written");
    }
    store.write(&results(&chamber, 3, 1)).await.expect("written");
    assert_eq!(store.state_at(&chamber, position(3)).await.expect("an answer"), None);
    let newest = store.newest_state(&chamber).await.expect("an answer").expect("a state");
    assert_eq!(newest.mark.position, position(12));
}

/// A late message may think it prunes what is above it.
pub async fn a_late_pruning_takes_nothing_newer(store: &dyn ChartStore) {
    let chamber = chamber();
    let later = results(&chamber, 5, 1);
    store.write(&later).await.expect("written");
    let mut late = results(&chamber, 4, 1);
    late.state.predecessor = Some(position(9));
    late.state.history.clear();
    store.write(&late).await.expect("written");
    let found = store.state_at(&chamber, position(5)).await.expect("an answer");
    assert_eq!(found, Some(later.state));
}
