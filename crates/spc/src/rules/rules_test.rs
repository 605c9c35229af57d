use proptest::prelude::*;

use super::*;

/// Points on a chart with centre 0, σ 1 and limits at ±3.
fn points(z: &[f64]) -> Vec<(Mark, Option<f64>, Option<f64>)> {
    z.iter().map(|&z| (Mark { statistic: z, z }, Some(-3.0), Some(3.0))).collect()
}

/// `hit` completes the rule at its last point with `involved`; `miss` is one point short of it and stays silent.
#[track_caller]
fn check(rule: Rule, hit: &[f64], involved: &[u64], miss: &[f64]) {
    let signals = scan(&[rule], Sides::Both, &points(hit));
    assert_eq!(signals.len(), 1, "{signals:?}");
    assert_eq!((signals[0].index, signals[0].rule), (hit.len() as u64, rule));
    assert_eq!(signals[0].points, involved);
    let message = &signals[0].message;
    assert!(message.ends_with('.') && message.matches(". ").count() == 0, "one sentence: {message}");
    assert_eq!(scan(&[rule], Sides::Both, &points(miss)), []);
    // The mirror image is the same pattern on the other side.
    let mirrored: Vec<f64> = hit.iter().map(|z| -z).collect();
    assert_eq!(scan(&[rule], Sides::Both, &points(&mirrored)).len(), 1);
}

#[test]
fn limits_want_one_point_beyond_a_limit() {
    check(Rule::Limits, &[0.0, 3.01], &[2], &[0.0, 3.0]);
}

#[test]
fn western_electric_1_wants_one_point_beyond_3_sigma() {
    check(Rule::We1, &[1.0, 3.01], &[2], &[1.0, 2.99]);
}

#[test]
fn western_electric_2_wants_two_of_three_beyond_2_sigma() {
    check(Rule::We2, &[2.1, 0.0, 2.2], &[1, 3], &[2.1, 0.0, 1.9]);
    check(Rule::We2, &[0.0, 2.1, 2.2], &[2, 3], &[2.1, 0.0, 0.0, 2.2]);
    assert_eq!(scan(&[Rule::We2], Sides::Both, &points(&[2.1, -2.1, 0.0])), [], "two sides do not add up");
}

#[test]
fn western_electric_3_wants_four_of_five_beyond_1_sigma() {
    check(Rule::We3, &[1.1, 1.2, 0.0, 1.3, 1.4], &[1, 2, 4, 5], &[1.1, 1.2, 0.0, 1.3, 0.9]);
}

#[test]
fn western_electric_4_wants_eight_on_one_side() {
    let eight = [0.1, 0.5, 0.2, 0.3, 0.9, 0.1, 0.2, 0.3];
    check(Rule::We4, &eight, &[1, 2, 3, 4, 5, 6, 7, 8], &eight[..7]);
}

#[test]
fn nelson_1_wants_one_point_beyond_3_sigma() {
    check(Rule::Nelson1, &[-1.0, -3.01], &[2], &[-1.0, -2.99]);
}

#[test]
fn nelson_2_wants_nine_on_one_side() {
    let nine = [0.1, 0.5, 0.2, 0.3, 0.9, 0.1, 0.2, 0.3, 0.1];
    check(Rule::Nelson2, &nine, &[1, 2, 3, 4, 5, 6, 7, 8, 9], &nine[..8]);
    let mut touching = nine;
    touching[4] = 0.0;
    assert_eq!(scan(&[Rule::Nelson2], Sides::Both, &points(&touching)), [], "on the centre is on no side");
}

#[test]
fn nelson_3_wants_six_rising_or_falling() {
    let six = [-1.0, -0.5, 0.0, 0.1, 0.2, 0.3];
    check(Rule::Nelson3, &six, &[1, 2, 3, 4, 5, 6], &six[..5]);
    assert_eq!(
        scan(&[Rule::Nelson3], Sides::Both, &points(&[-1.0, -0.5, 0.0, 0.0, 0.2, 0.3])),
        [],
        "equal neighbours break a trend"
    );
}

#[test]
fn nelson_4_wants_fourteen_alternating() {
    let fourteen: Vec<f64> =
        (0..14).map(|i| if i % 2 == 0 { 0.2 } else { -0.2 } + f64::from(i) / 100.0).collect();
    check(Rule::Nelson4, &fourteen, &(1..=14).collect::<Vec<_>>(), &fourteen[..13]);
}

#[test]
fn nelson_5_wants_two_of_three_beyond_2_sigma() {
    check(Rule::Nelson5, &[-2.1, 0.0, -2.2], &[1, 3], &[-2.1, 0.0, -1.9]);
}

#[test]
fn nelson_6_wants_four_of_five_beyond_1_sigma() {
    check(Rule::Nelson6, &[1.1, 0.0, 1.2, 1.3, 1.4], &[1, 3, 4, 5], &[1.1, 0.0, 1.2, 1.3, 1.0]);
}

#[test]
fn nelson_7_wants_fifteen_within_1_sigma() {
    let fifteen: Vec<f64> = (0..15).map(|i| if i % 3 == 0 { -0.9 } else { 0.5 }).collect();
    check(Rule::Nelson7, &fifteen, &(1..=15).collect::<Vec<_>>(), &fifteen[..14]);
}

#[test]
fn nelson_8_wants_eight_outside_1_sigma_on_both_sides() {
    let eight = [1.1, -1.2, 1.3, 1.4, -1.1, 1.5, -1.6, 1.2];
    check(Rule::Nelson8, &eight, &[1, 2, 3, 4, 5, 6, 7, 8], &eight[..7]);
    assert_eq!(scan(&[Rule::Nelson8], Sides::Both, &points(&[1.5; 8])), [], "all on one side is a shift");
}

#[test]
fn a_run_that_goes_on_signals_at_every_further_point() {
    let signals = scan(&[Rule::Nelson2], Sides::Both, &points(&[0.5; 11]));
    assert_eq!(signals.iter().map(|signal| signal.index).collect::<Vec<_>>(), [9, 10, 11]);
    assert_eq!(signals[2].points, (3..=11).collect::<Vec<_>>());
}

#[test]
fn a_one_sided_chart_does_not_warn_of_good_news() {
    let low = [-0.5, -1.5, -1.6, -1.7, -1.8, -2.4, -2.5, -2.6, -2.7];
    assert_eq!(scan(&Rule::ALL, Sides::Upper, &points(&low)), []);
    assert!(!scan(&Rule::ALL, Sides::Lower, &points(&low)).is_empty());
}

#[test]
fn messages_name_the_points_and_the_reason() {
    let text = |rule, z: &[f64]| scan(&[rule], Sides::Both, &points(z)).remove(0).message;
    assert_eq!(text(Rule::Limits, &[0.0, 3.25]), "Point 2 at 3.25 is above the upper limit 3.");
    assert_eq!(
        text(Rule::We2, &[-2.1, 0.0, -2.2]),
        "2 of 3 points in a row (1, 3) lie more than 2 σ below the centre."
    );
    assert_eq!(text(Rule::We4, &[0.5; 8]), "8 points in a row (1 to 8) lie above the centre.");
}

/// The rules once more, written from their definitions as counts over the whole chart.
fn completes(rule: Rule, z: &[f64]) -> bool {
    let tail = |n: usize| (z.len() >= n).then(|| z[z.len() - n..].to_vec());
    let run = |n, test: &dyn Fn(f64) -> bool| tail(n).is_some_and(|tail| tail.into_iter().all(test));
    let some_of = |k: usize, n: usize, zone: f64| {
        let tail: Vec<f64> = z.iter().rev().take(n).copied().collect();
        let (high, low) =
            (tail.iter().filter(|&&z| z > zone).count(), tail.iter().filter(|&&z| z < -zone).count());
        tail[0] > zone && high >= k || tail[0] < -zone && low >= k
    };
    let steps = |n: usize| tail(n).map(|t| t.windows(2).map(|w| w[1] - w[0]).collect::<Vec<_>>());
    match rule {
        Rule::Limits | Rule::We1 | Rule::Nelson1 => z[z.len() - 1].abs() > 3.0,
        Rule::We2 | Rule::Nelson5 => some_of(2, 3, 2.0),
        Rule::We3 | Rule::Nelson6 => some_of(4, 5, 1.0),
        Rule::We4 => run(8, &|z| z > 0.0) || run(8, &|z| z < 0.0),
        Rule::Nelson2 => run(9, &|z| z > 0.0) || run(9, &|z| z < 0.0),
        Rule::Nelson3 => steps(6).is_some_and(|s| s.iter().all(|&s| s > 0.0) || s.iter().all(|&s| s < 0.0)),
        Rule::Nelson4 => steps(14).is_some_and(|s| s.windows(2).all(|w| w[0] * w[1] < 0.0)),
        Rule::Nelson7 => run(15, &|z| z.abs() < 1.0),
        Rule::Nelson8 => run(8, &|z| z.abs() > 1.0) && !run(8, &|z| z > 0.0) && !run(8, &|z| z < 0.0),
    }
}

/// Points that make patterns often: few levels, long stays, trends and zigzags.
fn charts() -> impl Strategy<Value = Vec<f64>> {
    let level = prop::sample::select(vec![-3.5, -2.5, -1.5, -0.5, 0.0, 0.5, 1.5, 2.5, 3.5]);
    let piece = (level, 1usize..12, -0.2f64..0.2, 0.0f64..3.0).prop_map(|(level, length, slope, swing)| {
        (0..length)
            .map(|i| level + slope * i as f64 + if i % 2 == 0 { swing } else { -swing })
            .collect::<Vec<_>>()
    });
    prop::collection::vec(piece, 1..6).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn every_rule_signals_exactly_where_its_definition_holds(z in charts()) {
        for rule in Rule::ALL {
            let found: Vec<u64> =
                scan(&[rule], Sides::Both, &points(&z)).iter().map(|signal| signal.index).collect();
            let expected: Vec<u64> =
                (1..=z.len()).filter(|&end| completes(rule, &z[..end])).map(|end| end as u64).collect();
            prop_assert_eq!(found, expected, "{}", rule);
        }
    }

    #[test]
    fn a_point_at_a_time_gives_the_signals_of_the_whole_chart(z in charts()) {
        let mut watch = Watch::default();
        let mut signals = Vec::new();
        for (mark, lcl, ucl) in points(&z) {
            signals.extend(watch.push(&Rule::ALL, Sides::Both, Some(mark), lcl, ucl));
            prop_assert!(watch.is_sound());
        }
        prop_assert_eq!(signals, scan(&Rule::ALL, Sides::Both, &points(&z)));
    }
}

#[test]
fn names_are_read_back_and_lists_are_sorted_sets() {
    for rule in Rule::ALL {
        assert_eq!(rule.name().parse(), Ok(rule));
        assert!(!rule.definition().is_empty());
    }
    assert_eq!(Rule::list("5, 2,2").unwrap(), [Rule::Nelson2, Rule::Nelson5]);
    assert_eq!(Rule::list("nelson").unwrap(), Rule::NELSON);
    assert_eq!(Rule::list("we-4,limits").unwrap(), [Rule::Limits, Rule::We4]);
    assert!(Rule::list("").is_err());
    assert!(Rule::list("0").is_err());
}
