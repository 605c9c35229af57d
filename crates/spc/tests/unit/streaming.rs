//! A point at a time gives what the whole chart gives, on every prefix, and a stored state goes on as if it had never
//! been away.

use phalanx_spc::chart::{
    Design, Fixed, Judged, Judgement, Kind, Model, Monitor, Sample, StateError, judge, learn,
};
use phalanx_spc::rules::{Rule, Sides, Signal};
use proptest::prelude::*;

/// Values with few levels and some drift, so that rules fire and sums grow.
fn value() -> impl Strategy<Value = f64> {
    prop_oneof![4 => -1.0f64..1.0, 2 => 0.5f64..2.5, 1 => -4.0f64..4.0]
}

fn samples(kind: Kind) -> BoxedStrategy<Vec<Sample>> {
    let one = match kind {
        Kind::XbarR | Kind::XbarS => prop::collection::vec(value(), 2..7).prop_map(Sample::Group).boxed(),
        Kind::P | Kind::Np => (20u32..60, 0.0f64..1.0)
            .prop_map(|(size, share)| {
                let size = f64::from(size);
                Sample::Count { count: (size * share * share).floor(), size }
            })
            .boxed(),
        Kind::C | Kind::U => (0u32..30, 1.0f64..5.0)
            .prop_map(|(count, size)| Sample::Count { count: f64::from(count), size })
            .boxed(),
        Kind::T2 { .. } => prop::collection::vec(value(), 3).prop_map(Sample::Vector).boxed(),
        _ => value().prop_map(Sample::Value).boxed(),
    };
    prop::collection::vec(one, 12..60).boxed()
}

fn kinds() -> Vec<Kind> {
    vec![
        Kind::Imr,
        Kind::XbarR,
        Kind::XbarS,
        Kind::Ewma { lambda: 0.2, asymptotic: false },
        Kind::Ewma { lambda: 0.3, asymptotic: true },
        Kind::Cusum { k: 0.5, h: 4.0 },
        Kind::P,
        Kind::Np,
        Kind::C,
        Kind::U,
        Kind::T2 { alpha: 0.05 },
    ]
}

/// A design that judges by every rule it may be judged by.
fn design(kind: Kind, sides: Sides) -> Design {
    let plain = Design::new(kind);
    let strict = Design { rules: Rule::ALL.to_vec(), sides, ..plain.clone() };
    match kind {
        Kind::T2 { .. } => plain,
        _ if strict.check().is_ok() => strict,
        _ => Design { sides, ..plain },
    }
}

fn charts() -> impl Strategy<Value = (Design, Vec<Sample>)> {
    let sides = prop::sample::select(vec![Sides::Both, Sides::Upper, Sides::Lower]);
    (prop::sample::select(kinds()), sides)
        .prop_flat_map(|(kind, sides)| samples(kind).prop_map(move |samples| (design(kind, sides), samples)))
}

fn judged(judgement: Judgement) -> Judged {
    match judgement {
        Judgement::Judged(judged) => judged,
        other => panic!("{other:?}"),
    }
}

/// Every judgement of a monitor, which is stored and read back before each point.
fn stream(mut monitor: Monitor, samples: &[Sample]) -> Vec<Judgement> {
    samples
        .iter()
        .map(|sample| {
            let stored = monitor.encode();
            let read = Monitor::decode(&stored).expect("a stored state");
            assert_eq!(read, monitor, "what was stored comes back bit for bit");
            assert_eq!(read.encode(), stored, "the same state gives the same bytes");
            let (next, judgement) = read.update(sample);
            monitor = next;
            judgement
        })
        .collect()
}

/// What the whole chart says of the last point of a prefix.
fn last_of_batch(design: &Design, model: &Model, prefix: &[Sample]) -> Judged {
    let chart = judge(design, model, prefix).expect("a chart");
    let last = prefix.len() as u64;
    let at_last = |signals: &[Signal]| -> Vec<Signal> {
        signals.iter().filter(|signal| signal.index == last).cloned().collect()
    };
    let companion = chart.companion.as_deref();
    Judged {
        point: chart.points.last().expect("a point").clone(),
        signals: at_last(&chart.signals),
        companion: companion
            .and_then(|chart| chart.points.last().filter(|point| point.index == last))
            .cloned(),
        companion_signals: companion.map(|chart| at_last(&chart.signals)).unwrap_or_default(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_monitor_says_on_every_prefix_what_the_whole_chart_says((design, samples) in charts()) {
        let (baseline, fresh) = samples.split_at(10);
        let Ok(learned) = learn(&design, baseline) else { return Ok(()) };
        let monitor = Monitor::learned(design.clone(), learned.model.clone()).unwrap();
        for (end, judgement) in (1..).zip(stream(monitor, fresh)) {
            prop_assert_eq!(judged(judgement), last_of_batch(&design, &learned.model, &fresh[..end]));
        }
    }

    #[test]
    fn a_monitor_learns_what_a_whole_baseline_teaches(
        (design, samples) in charts(),
        robust in any::<bool>(),
        exclude in any::<bool>(),
    ) {
        let design = Design { robust, exclude, ..design };
        prop_assume!(design.check().is_ok());
        let (baseline, fresh) = samples.split_at(10);
        let Ok(learned) = learn(&design, baseline) else { return Ok(()) };
        let monitor = Monitor::learning(design.clone(), 10).unwrap();
        let judgements = stream(monitor, &samples);
        for (seen, judgement) in (1..).zip(&judgements[..10]) {
            prop_assert_eq!(judgement, &Judgement::Learning { seen, wanted: 10, problem: None });
        }
        for (end, judgement) in (1..).zip(&judgements[10..]) {
            prop_assert_eq!(judged(judgement.clone()), last_of_batch(&design, &learned.model, &fresh[..end]));
        }
    }

    #[test]
    fn damaged_states_are_refused_or_sound(
        (design, samples) in charts(),
        cut in 0.0f64..1.0,
        at in 0.0f64..1.0,
        byte in any::<u8>(),
    ) {
        let Ok(learned) = learn(&design, &samples[..10]) else { return Ok(()) };
        let mut monitor = Monitor::learned(design, learned.model).unwrap();
        for sample in &samples[10..] {
            monitor = monitor.update(sample).0;
        }
        let stored = monitor.encode();
        let shorter = &stored[..(stored.len() as f64 * cut) as usize];
        prop_assert!(Monitor::decode(shorter).is_err(), "a part is not the whole");
        let mut changed = stored.clone();
        let position = (changed.len() as f64 * at) as usize;
        changed[position] = byte;
        // Whatever is read must be able to go on.
        if let Ok(read) = Monitor::decode(&changed) {
            let _ = samples.iter().fold(read, |monitor, sample| monitor.update(sample).0);
        }
    }
}

#[test]
fn another_format_is_refused_by_its_number() {
    let monitor =
        Monitor::fixed(Design { target: Some(1.0), sd: Some(1.0), ..Design::new(Kind::Imr) }).unwrap();
    let text = String::from_utf8(monitor.encode()).unwrap();
    assert!(text.starts_with(r#"{"v":1,"#), "{text}");
    let newer = text.replacen(r#""v":1"#, r#""v":2"#, 1);
    let error = Monitor::decode(newer.as_bytes()).unwrap_err();
    assert_eq!(error, StateError::Version { found: 2 });
    assert_eq!(
        error.to_string(),
        "the stored chart state has format 2, this program reads format 1; update the program or start the chart anew"
    );
    assert_eq!(Monitor::decode(br#"{"v":7,"anything":"else"}"#), Err(StateError::Version { found: 7 }));
    assert!(matches!(Monitor::decode(b"not a state"), Err(StateError::Damaged(_))));
}

/// A state as the first format wrote it: it must be readable for ever, and go on to the same judgement.
#[test]
fn a_state_of_format_1_is_still_read() {
    let stored = include_bytes!("../state-v1.json");
    let stored = stored.trim_ascii_end();
    let monitor = Monitor::decode(stored).unwrap();
    assert_eq!(monitor.encode(), stored);
    let (_, judgement) = monitor.update(&Sample::Value(12.5));
    let judged = judged(judgement);
    assert_eq!(judged.point.index, 9);
    let rules: Vec<Rule> = judged.signals.iter().map(|signal| signal.rule).collect();
    assert_eq!(rules, [Rule::We4, Rule::Nelson2]);
}

#[test]
fn bad_samples_change_nothing() {
    let monitor = Monitor::learning(Design::new(Kind::Imr), 5).unwrap();
    for sample in [Sample::Value(f64::NAN), Sample::Value(f64::INFINITY), Sample::Group(vec![1.0, 2.0])] {
        let (after, judgement) = monitor.clone().update(&sample);
        assert!(matches!(judgement, Judgement::Ignored(_)), "{judgement:?}");
        assert_eq!(after, monitor);
    }
}

#[test]
fn a_baseline_without_spread_goes_on_learning_and_raises_no_alarm() {
    let mut monitor = Monitor::learning(Design::new(Kind::Imr), 3).unwrap();
    for _ in 0..5 {
        monitor = monitor.update(&Sample::Value(7.0)).0;
    }
    let (monitor, judgement) = monitor.update(&Sample::Value(7.5));
    assert_eq!(judgement, Judgement::Learning { seen: 6, wanted: 3, problem: None });
    assert!(monitor.model().is_some(), "one different value is a spread");
    let (_, judgement) = Monitor::learning(Design::new(Kind::Imr), 2)
        .unwrap()
        .update(&Sample::Value(1.0))
        .0
        .update(&Sample::Value(1.0));
    let Judgement::Learning { problem: Some(problem), .. } = judgement else { panic!("{judgement:?}") };
    assert!(problem.contains("does not vary"), "{problem}");
}

#[test]
fn fixed_limits_judge_from_the_first_point() {
    let fixed = |lcl, ucl| Design { fixed: Some(Fixed { lcl, ucl }), ..Design::new(Kind::Imr) };
    let signals = |design: Design, value| {
        judged(Monitor::fixed(design).unwrap().update(&Sample::Value(value)).1).signals.len()
    };
    assert_eq!(signals(fixed(Some(1.0), Some(2.0)), 0.9), 1);
    assert_eq!(signals(fixed(Some(1.0), Some(2.0)), 1.0), 0);
    assert_eq!(signals(fixed(None, Some(2.0)), -1e9), 0, "one-sided");
    assert_eq!(signals(fixed(None, Some(2.0)), 2.1), 1);
    let zoned = Design { rules: vec![Rule::Nelson2], ..fixed(None, Some(2.0)) };
    assert!(zoned.check().unwrap_err().to_string().contains("give the target"));
    assert!(Design { target: Some(1.0), ..zoned }.check().is_ok());
}

#[test]
fn states_stay_small() {
    let design = Design { rules: Rule::NELSON.to_vec(), ..Design::new(Kind::Imr) };
    let mut monitor = Monitor::learning(design, 50).unwrap();
    let mut most = 0;
    for i in 0..20_000u32 {
        monitor = monitor.update(&Sample::Value(f64::from(i.wrapping_mul(2_654_435_761) >> 8))).0;
        most = most.max(monitor.encode().len());
    }
    assert!(most < 1_500, "{most} bytes");
}
