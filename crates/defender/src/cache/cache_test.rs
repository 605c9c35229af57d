use phalanx_cluster::core::types::Sequence;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::*;
use crate::record::{Context, Flags, HISTORY, Limits, Mark, Outcome, Past};

fn chamber(n: usize) -> Chamber {
    Chamber::new("etch-01", &format!("c{n}")).unwrap()
}

fn at(sequence: u64) -> Position {
    Position { generation: 1, sequence: Sequence(sequence) }
}

fn point(indicator: &str, sequence: u64) -> UChart {
    UChart {
        indicator: indicator.into(),
        timestamp: Timestamp::from_nanosecond(i128::from(sequence) * 1_000_000_007).unwrap(),
        context: format!("run-{sequence}").into(),
        value: (!sequence.is_multiple_of(3)).then_some(-0.0),
        limits: sequence.is_multiple_of(2).then_some(Limits {
            center: 1.5,
            lcl: None,
            ucl: Some(2.5),
            sigma: None,
        }),
        n: u32::try_from(sequence).unwrap(),
        flags: Flags::BEGINS,
        strategy: "v1".into(),
    }
}

fn results(chamber: &Chamber, sequence: u64) -> Results {
    let mark = Mark { position: at(sequence), take: 2, stamp: 1000 + sequence };
    let past =
        |sequence| Past { context: format!("run-{sequence}").into(), generation: 1, sequence, take: 2 };
    Results {
        chamber: chamber.clone(),
        mark,
        charts: ["power", "temperature"].map(|name| point(name, sequence)).to_vec(),
        alarms: Vec::new(),
        context: Context {
            position: mark.position,
            take: 2,
            context: format!("run-{sequence}").into(),
            timestamp: Timestamp::UNIX_EPOCH,
            strategy: "v1".into(),
            outcome: Outcome::Processed,
        },
        state: StateRow {
            mark,
            predecessor: (sequence > 1).then(|| at(sequence - 1)),
            context: "before".into(),
            stream: 9,
            history: (1..=sequence).rev().take(HISTORY).map(past).collect(),
            state: vec![7; 100],
        },
    }
}

/// A cache with the clock it was made by.
fn cache() -> (Cache, Instant) {
    let now = Instant::now();
    (Cache::new(now, SIZE_MB).unwrap(), now)
}

fn run(cache: &Cache, chamber: &Chamber, sequences: std::ops::RangeInclusive<u64>) {
    for sequence in sequences {
        cache.stage(&results(chamber, sequence));
        cache.commit(chamber, at(sequence));
    }
}

#[test]
fn what_was_committed_is_found_at_its_position_bit_for_bit() {
    let ((cache, now), chamber) = (cache(), chamber(1));
    run(&cache, &chamber, 1..=5);
    let found = cache.get(now, &chamber, at(5)).unwrap();
    assert_eq!(found.state, results(&chamber, 5).state);
    let expected: Vec<UChart> = (1..=5).rev().map(|sequence| point("power", sequence)).collect();
    assert_eq!(found.points("power"), expected);
    let bits = |points: &[UChart]| points.iter().map(|p| p.value.map(f64::to_bits)).collect::<Vec<_>>();
    assert_eq!(bits(&found.points("power")), bits(&expected));
    assert_eq!(found.points("temperature").len(), 5);
    assert!(found.points("pressure").is_empty());
}

#[test]
fn of_each_chart_the_last_hundred_points_stay() {
    let ((cache, now), chamber) = (cache(), chamber(1));
    run(&cache, &chamber, 1..=130);
    let found = cache.get(now, &chamber, at(130)).unwrap().points("power");
    assert_eq!(found.len(), HISTORY);
    assert_eq!((found[0].n, found[99].n), (130, 31));
    let filled = Cache::new(now, SIZE_MB).unwrap();
    let points: Vec<UChart> = (1..=130).rev().map(|sequence| point("power", sequence)).collect();
    filled.fill(&chamber, &results(&chamber, 130).state, &points);
    assert_eq!(filled.get(now, &chamber, at(130)).unwrap().points("power"), found);
}

#[test]
fn what_is_only_staged_does_not_count() {
    let ((cache, now), chamber) = (cache(), chamber(1));
    run(&cache, &chamber, 1..=1);
    cache.stage(&results(&chamber, 2));
    assert_eq!(cache.get(now, &chamber, at(1)).unwrap().points("power").len(), 1);
    assert!(cache.get(now, &chamber, at(2)).is_none());
}

#[test]
fn another_position_than_the_known_one_is_a_miss_and_is_forgotten() {
    let ((cache, now), chamber) = (cache(), chamber(1));
    run(&cache, &chamber, 1..=3);
    assert!(cache.get(now, &chamber, at(2)).is_none());
    assert!(cache.get(now, &chamber, at(3)).is_none());
    assert_eq!(cache.statistics(now).bytes, 0);
}

#[test]
fn what_does_not_follow_from_what_is_known_is_forgotten() {
    let ((cache, now), chamber) = (cache(), chamber(1));
    run(&cache, &chamber, 1..=3);
    // A gap; then a commit of another message than was staged; then one of which nothing was staged.
    run(&cache, &chamber, 5..=5);
    assert!(cache.get(now, &chamber, at(5)).is_none());
    run(&cache, &chamber, 1..=3);
    cache.stage(&results(&chamber, 4));
    cache.commit(&chamber, at(5));
    assert!(cache.get(now, &chamber, at(4)).is_none());
    run(&cache, &chamber, 1..=3);
    cache.commit(&chamber, at(3));
    assert!(cache.get(now, &chamber, at(3)).is_none());
}

#[test]
fn a_chamber_that_moves_away_leaves_nothing() {
    let ((cache, now), one, two) = (cache(), chamber(1), chamber(2));
    run(&cache, &one, 1..=3);
    run(&cache, &two, 1..=3);
    cache.stage(&results(&one, 4));
    cache.forget(&one);
    cache.commit(&one, at(4));
    assert!(cache.get(now, &one, at(3)).is_none() && cache.get(now, &one, at(4)).is_none());
    assert!(cache.get(now, &two, at(3)).is_some());
    assert_eq!(cache.statistics(now).chambers, 1);
}

#[test]
fn the_chamber_not_used_for_the_longest_makes_room() {
    let now = Instant::now();
    let cache = Cache::new(now, 1).unwrap();
    let fill = |n: usize| {
        let mut state = results(&chamber(n), 1).state;
        state.state = vec![1; 240_000];
        cache.fill(&chamber(n), &state, &[]);
    };
    (0..4).for_each(fill);
    assert_eq!(cache.statistics(now).evictions, 0);
    assert!(cache.get(now, &chamber(0), at(1)).is_some());
    fill(4);
    let there: Vec<bool> = (0..5).map(|n| cache.get(now, &chamber(n), at(1)).is_some()).collect();
    assert_eq!(there, [true, false, true, true, true]);
    let statistics = cache.statistics(now);
    assert_eq!((statistics.evictions, statistics.chambers), (1, 4));
    assert!(statistics.bytes <= statistics.capacity, "{statistics:?}");
    // What is larger than everything is not kept, and drives nobody out.
    let mut huge = results(&chamber(9), 1).state;
    huge.state = vec![1; 2_000_000];
    cache.fill(&chamber(9), &huge, &[]);
    assert!(cache.get(now, &chamber(9), at(1)).is_none());
    assert_eq!(cache.statistics(now).chambers, 4);
}

#[test]
fn in_steady_state_more_than_95_of_100_questions_are_answered() {
    let (cache, now) = cache();
    for sequence in 1..=50 {
        for n in 0..20 {
            let (chamber, now) = (chamber(n), now + Duration::from_secs(sequence));
            if sequence > 1 && cache.get(now, &chamber, at(sequence - 1)).is_none() {
                let points = vec![point("power", sequence - 1)];
                cache.fill(&chamber, &results(&chamber, sequence - 1).state, &points);
            }
            // Now and then one is taken anew.
            if sequence == 25 && n == 3 {
                cache.forget(&chamber);
                cache.fill(&chamber, &results(&chamber, sequence - 1).state, &[]);
            }
            run(&cache, &chamber, sequence..=sequence);
        }
    }
    let statistics = cache.statistics(now + Duration::from_secs(50));
    assert_eq!((statistics.hits + statistics.misses, statistics.misses), (49 * 20, 0));
    assert!(statistics.hit_rate > 0.95, "{statistics:?}");
}
