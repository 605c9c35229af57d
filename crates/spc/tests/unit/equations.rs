//! The language of indicators: what it calculates, what it refuses, and when there is no value.

use std::collections::BTreeMap;

use phalanx_spc::equation::{Column, Equation, Function, MAX_DEPTH, MAX_LENGTH, Outcome, Reason};
use proptest::prelude::*;

/// Traces by name, times in seconds.
#[derive(Clone, Debug, Default)]
struct Traces(BTreeMap<&'static str, (Vec<i64>, Vec<f64>)>);

impl Traces {
    fn with(mut self, svid: &'static str, points: &[(f64, f64)]) -> Self {
        let times = points.iter().map(|point| (point.0 * 1e6) as i64 + START).collect();
        self.0.insert(svid, (times, points.iter().map(|point| point.1).collect()));
        self
    }

    fn evaluate(&self, text: &str) -> Outcome {
        let equation = Equation::parse(text).unwrap_or_else(|error| panic!("{error}"));
        let columns: Vec<_> = equation
            .svids()
            .iter()
            .map(|svid| {
                self.0.get(svid.as_str()).map(|(times, values)| Column::new(times, values).expect("a column"))
            })
            .collect();
        equation.evaluate(START, &columns)
    }
}

/// A context that does not begin at the beginning of time.
const START: i64 = 1_700_000_000_000_000;

fn ramp() -> Traces {
    let temp: Vec<_> = (0..=10).map(|i| (f64::from(i), 20.0 + f64::from(i))).collect();
    Traces::default().with("TEMP", &temp).with("STEP", &[(0.5, 1.0), (3.0, 2.0), (6.0, 3.0), (8.0, 2.0)])
}

#[track_caller]
fn gives(traces: &Traces, text: &str, expected: f64) {
    match traces.evaluate(text) {
        Outcome::Value(value) => {
            assert!((value - expected).abs() < 1e-9, "{text} is {value}, not {expected}")
        }
        none => panic!("{text}: {none:?}"),
    }
}

#[test]
fn every_function_calculates_what_its_name_says() {
    for (text, expected) in [
        ("mean(TEMP)", 25.0),
        ("std(TEMP)", 11.0f64.sqrt()),
        ("var(TEMP)", 11.0),
        ("min(TEMP)", 20.0),
        ("max(TEMP)", 30.0),
        ("range(TEMP)", 10.0),
        ("median(TEMP)", 25.0),
        ("quantile(TEMP, 0.25)", 22.5),
        ("first(TEMP)", 20.0),
        ("last(TEMP)", 30.0),
        ("count(TEMP)", 11.0),
        ("duration(TEMP)", 10.0),
        ("area(TEMP)", 250.0),
        ("slope(TEMP)", 1.0),
        ("rms(TEMP)", 635.0f64.sqrt()),
    ] {
        gives(&ramp(), text, expected);
    }
}

#[test]
fn windows_count_from_the_start_of_the_context_and_include_both_ends() {
    for (text, expected) in [
        ("mean(TEMP[2s..4s])", 23.0),
        ("count(TEMP[2s..4s])", 3.0),
        ("count(TEMP[2000ms..4000000us])", 3.0),
        ("count(TEMP[..4s])", 5.0),
        ("count(TEMP[9s..])", 2.0),
        ("count(TEMP[..])", 11.0),
        ("count(TEMP[0min..1h])", 11.0),
        ("first(TEMP[2.5s..])", 23.0),
    ] {
        gives(&ramp(), text, expected);
    }
}

#[test]
fn conditions_take_the_last_value_until_then() {
    for (text, expected) in [
        // STEP is 2 from 3 s until 6 s and from 8 s on.
        ("count(TEMP where STEP == 2)", 6.0),
        ("mean(TEMP where STEP == 3)", 26.5),
        ("count(TEMP[4s..8s] where STEP == 2)", 3.0),
        ("count(TEMP where STEP >= 1)", 10.0),
        ("count(TEMP where not (STEP == 2 or STEP == 1))", 2.0),
        ("count(TEMP where STEP == 2 and TEMP > 24)", 4.0),
        ("count(TEMP where abs(STEP - 2) < 0.5)", 6.0),
        // Neither time nor area is counted across the gap from 5 s to 8 s.
        ("duration(TEMP where STEP == 2)", 4.0),
        ("area(TEMP where STEP == 2)", 23.5 + 24.5 + 28.5 + 29.5),
    ] {
        gives(&ramp(), text, expected);
    }
}

#[test]
fn arithmetic_and_comparisons_have_the_usual_precedence() {
    for (text, expected) in [
        ("max(TEMP) - min(TEMP)", 10.0),
        ("1 + 2 * 3 - 4 / 2", 5.0),
        ("-(1 + 2) * -2", 6.0),
        ("10 - 3 - 2", 5.0),
        ("sqrt(16) + abs(-1)", 5.0),
        ("mean(TEMP) > 24 and max(TEMP) <= 30", 1.0),
        ("not mean(TEMP) > 24 or 1 == 2", 0.0),
        ("duration(TEMP) >= 10s", 1.0),
        ("1e3 + 2.5e-1", 1000.25),
    ] {
        gives(&ramp(), text, expected);
    }
}

#[test]
fn unusual_names_stand_in_quotes_and_dots_belong_to_names() {
    let traces = Traces::default()
        .with("Gas flow 1", &[(0.0, 3.0), (1.0, 5.0)])
        .with("CH1.TEMP", &[(0.0, 1.0)])
        .with("Über", &[(0.0, 2.0)]);
    gives(&traces, r#"mean("Gas flow 1"[..2s])"#, 4.0);
    gives(&traces, "last(CH1.TEMP[0s..1s])", 1.0);
    gives(&traces, "first(Über)", 2.0);
}

#[test]
fn an_equation_names_the_svids_it_needs_once() {
    let equation = Equation::parse("mean(A where S == 1) + max(A) / min(B where S == 2 and T > 0)").unwrap();
    assert_eq!(equation.svids(), ["A", "S", "B", "T"]);
    assert!(Equation::parse("1 + 1").unwrap().svids().is_empty());
}

#[test]
fn nothing_to_calculate_with_is_no_value_with_its_reason() {
    let svid = || "TEMP".to_owned();
    let traces = ramp().with("BAD", &[(0.0, 1.0), (1.0, f64::NAN)]).with("NONE", &[]);
    let traces = traces.with("TWICE", &[(1.0, 1.0), (1.0, 2.0)]).with("HUGE", &[(0.0, 1e308), (1.0, 1e308)]);
    for (text, reason) in [
        ("mean(PRESSURE)", Reason::Missing { svid: "PRESSURE".to_owned() }),
        ("mean(TEMP where PHASE == 1)", Reason::Missing { svid: "PHASE".to_owned() }),
        ("mean(TEMP[20s..30s])", Reason::Empty { svid: svid() }),
        ("count(TEMP where STEP == 9)", Reason::Empty { svid: svid() }),
        ("max(NONE)", Reason::Empty { svid: "NONE".to_owned() }),
        ("std(TEMP[1s..1s])", Reason::TooFew { svid: svid(), function: Function::Std, needed: 2, found: 1 }),
        ("max(BAD)", Reason::NonFinite { svid: "BAD".to_owned() }),
        ("slope(TWICE)", Reason::NoTime { svid: "TWICE".to_owned() }),
        ("mean(TEMP) / (last(STEP) - 2)", Reason::Undefined),
        ("mean(TEMP) / (last(STEP) - 2) > 1", Reason::Undefined),
        ("not (1 / (last(STEP) - 2) > 1)", Reason::Undefined),
        ("sqrt(0 - mean(TEMP))", Reason::Undefined),
        ("mean(HUGE)", Reason::Undefined),
        ("1 + mean(TEMP) * mean(PRESSURE)", Reason::Missing { svid: "PRESSURE".to_owned() }),
    ] {
        assert_eq!(traces.evaluate(text), Outcome::NoValue(reason), "{text}");
    }
    // A value that is not finite, outside of what is looked at, does no harm.
    gives(&traces, "max(BAD[..0s])", 1.0);
    // A condition nobody knows is not met, whichever way it is put.
    for condition in ["BAD != 7", "not BAD == 7"] {
        let outcome = traces.evaluate(&format!("count(TEMP[1s..] where {condition})"));
        assert_eq!(outcome, Outcome::NoValue(Reason::Empty { svid: svid() }), "{condition}");
    }
}

#[test]
fn errors_point_at_the_place_and_say_what_to_write() {
    for (text, expected) in [
        ("men(TEMP)", "line 1, column 1: unknown function `men`; did you mean `mean`?\n  men(TEMP)\n  ^^^"),
        (
            "max(TEMP)\n  - mn(TEMP)",
            "line 2, column 5: unknown function `mn`; did you mean `min`?\n    - mn(TEMP)\n      ^^",
        ),
        (
            "mean(TEMP[10..50s])",
            "line 1, column 11: a time needs its unit; write 10s for seconds\n  mean(TEMP[10..50s])\n            ^^",
        ),
        (
            "mean(µ) + TEMP",
            "line 1, column 11: `TEMP` is a trace, and a number is needed here; write for example mean(TEMP)\n  mean(µ) + TEMP\n            ^^^^",
        ),
    ] {
        assert_eq!(Equation::parse(text).unwrap_err().to_string(), expected);
    }
}

#[test]
fn what_makes_no_sense_is_refused_when_it_is_loaded() {
    for (text, column, message) in [
        ("", 1, "the equation is empty"),
        ("mean(TEMP", 10, "expected `)` to close mean(…), not the end"),
        ("mean(TEMP))", 11, "expected an operator or the end, not `)`"),
        ("1 +", 4, "expected a number, a function or a name, not the end"),
        ("mean(A - B)", 6, "mean takes a trace, and this is a calculation"),
        ("mean()", 1, "mean takes 1 argument, not 0"),
        ("mean(A, B)", 1, "mean takes 1 argument, not 2"),
        ("quantile(A)", 1, "quantile takes 2 arguments, not 1"),
        ("quantile(A, 95)", 13, "the second argument of quantile is a number from 0 to 1"),
        ("mean(A[5s..1s])", 8, "the window ends before it begins"),
        ("mean(A[-5s..1s])", 8, "times count from the start of the context, from 0s on"),
        ("mean(A[1x..])", 9, "unknown unit `x`"),
        ("mean(A where 3)", 14, "this is a number, and a comparison is needed here"),
        ("mean(A where B = 3)", 16, "`=` does not compare"),
        ("mean(A where mean(B) > 3)", 14, "mean looks at a whole trace, a condition at one moment"),
        ("mean(A where B[1s..] > 3)", 14, "in a condition a trace is its last value, so it has no window"),
        ("mean(A where B > 1 where C > 1)", 20, "there is one `where` for a trace"),
        ("mean(A) where B > 3", 9, "`where` stands inside a function, behind its trace"),
        ("mean(1 where B > 3)", 8, "`where` chooses points of a trace, and there is none before it"),
        ("mean(A)[1s..]", 8, "a window belongs to a trace"),
        ("1 + (mean(A) > 3)", 5, "this is true or false, and a number is needed here"),
        ("not mean(A)", 5, "this is a number, and a comparison is needed here"),
        ("1 < 2 < 3", 7, "comparisons do not follow one another"),
        ("mean(A) / 0", 9, "this divides by zero"),
        ("mean(\"A)", 6, "this quote is never closed"),
        ("mean(\"\")", 6, "a name cannot be empty"),
        ("mean(A) & 1", 9, "`&` means nothing here"),
        ("1e999", 1, "1e999 is not a number that can be used"),
        ("99999999h", 1, "this time is too long"),
        ("frobnicate(A)", 1, "unknown function `frobnicate`"),
    ] {
        let error = Equation::parse(text).expect_err(text);
        assert_eq!((error.line, error.column, error.message.as_str()), (1, column, message), "{text}");
    }
}

#[test]
fn length_and_depth_are_bounded() {
    let nested = |depth: usize| format!("{}1{}", "(".repeat(depth), ")".repeat(depth));
    assert!(Equation::parse(&nested(MAX_DEPTH - 1)).is_ok());
    assert!(Equation::parse(&nested(MAX_DEPTH)).unwrap_err().message.contains("nested deeper than 64"));
    for sign in ["-", "not ", "abs("] {
        assert!(
            Equation::parse(&sign.repeat(MAX_DEPTH + 1)).unwrap_err().message.contains("nested"),
            "{sign}"
        );
    }
    let long = format!("1{}", "+1".repeat((MAX_LENGTH - 1) / 2));
    assert_eq!(
        Equation::parse(&long).unwrap().evaluate(0, &[]).value(),
        Some(((MAX_LENGTH - 1) / 2 + 1) as f64)
    );
    let longer = Equation::parse(&format!("{long}+1")).unwrap_err();
    assert_eq!(
        longer.message,
        format!("the equation has {} bytes, at most {MAX_LENGTH} are allowed", long.len() + 2)
    );
}

#[test]
fn columns_that_are_none_are_refused() {
    assert!(Column::new(&[1, 2], &[1.0]).unwrap_err().to_string().contains("2 and 1"));
    assert!(Column::new(&[1, 3, 2], &[1.0; 3]).unwrap_err().to_string().contains("at point 3"));
}

#[test]
fn a_large_offset_costs_no_digits() {
    let points: Vec<_> = (0..2000).map(|i| (f64::from(i) * 0.1, 1e9 + f64::from(i % 2))).collect();
    let traces = Traces::default().with("P", &points);
    gives(&traces, "var(P)", 500.0 / 1999.0);
    let line: Vec<_> = (0..2000).map(|i| (f64::from(i) * 0.1, 1e9 + f64::from(i))).collect();
    gives(&Traces::default().with("P", &line), "slope(P)", 10.0);
}

/// The functions once more, from their definitions, over points that were picked one by one.
fn naive(function: &str, picked: &[(usize, f64, f64)]) -> Option<f64> {
    let n = picked.len() as f64;
    let values: Vec<f64> = picked.iter().map(|point| point.2).collect();
    let mean = values.iter().sum::<f64>() / n;
    let pairs = || picked.windows(2).filter(|pair| pair[0].0 + 1 == pair[1].0);
    let least = if ["var", "slope", "area", "duration"].contains(&function) { 2 } else { 1 };
    if picked.len() < least {
        return None;
    }
    Some(match function {
        "mean" => mean,
        "var" => values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0),
        "max" => values.iter().copied().fold(f64::MIN, f64::max),
        "median" => {
            let mut sorted = values.clone();
            sorted.sort_by(f64::total_cmp);
            (sorted[(sorted.len() - 1) / 2] + sorted[sorted.len() / 2]) / 2.0
        }
        "rms" => (values.iter().map(|value| value * value).sum::<f64>() / n).sqrt(),
        "area" => pairs().map(|pair| (pair[1].1 - pair[0].1) * (pair[0].2 + pair[1].2) / 2.0).sum(),
        "duration" => pairs().map(|pair| pair[1].1 - pair[0].1).sum(),
        "slope" => {
            let time = picked.iter().map(|point| point.1).sum::<f64>() / n;
            let above: f64 = picked.iter().map(|point| (point.1 - time) * (point.2 - mean)).sum();
            above / picked.iter().map(|point| (point.1 - time).powi(2)).sum::<f64>()
        }
        _ => n,
    })
}

proptest! {
    #[test]
    fn functions_agree_with_their_definitions_on_the_points_that_are_meant(
        values in prop::collection::vec(-100.0f64..100.0, 1..700),
        steps in prop::collection::vec((0.0f64..70.0, 0u8..3), 0..12),
        window in (0u32..40, 0u32..70),
    ) {
        let points: Vec<(f64, f64)> = (0..).map(|i| f64::from(i) * 0.1).zip(values).collect();
        let mut steps: Vec<(f64, f64)> = steps.iter().map(|(time, step)| (*time, f64::from(*step))).collect();
        steps.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (from, to) = (window.0.min(window.1), window.0.max(window.1));
        let micros = |seconds: f64| (seconds * 1e6) as i64;
        let picked: Vec<(usize, f64, f64)> = points
            .iter()
            .enumerate()
            .filter(|(_, point)| (i64::from(from) * 1_000_000..=i64::from(to) * 1_000_000).contains(&micros(point.0)))
            .filter(|(_, point)| {
                let before = steps.iter().rfind(|step| micros(step.0) <= micros(point.0));
                before.is_some_and(|step| step.1 == 1.0)
            })
            .map(|(position, point)| (position, micros(point.0) as f64 / 1e6, point.1))
            .collect();
        let traces = Traces::default().with("X", &points).with("STEP", &steps);
        for function in ["mean", "var", "max", "median", "rms", "area", "duration", "slope", "count"] {
            let outcome = traces.evaluate(&format!("{function}(X[{from}s..{to}s] where STEP == 1)"));
            match naive(function, &picked).filter(|_| !picked.is_empty()) {
                Some(expected) => {
                    let found = outcome.value().expect("a value");
                    let scale = 1.0 + expected.abs();
                    prop_assert!((found - expected).abs() < 1e-8 * scale, "{}: {} {}", function, found, expected);
                }
                None => prop_assert_eq!(outcome.value(), None, "{}", function),
            }
        }
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in r#"[-a-zA-Z0-9_ .,()\[\]<>=!"µ+*/\n]{0,60}"#) {
        let _ = Equation::parse(&text).map_err(|error| error.to_string());
    }

    #[test]
    fn no_order_of_words_makes_the_parser_panic(words in prop::collection::vec(
        prop::sample::select(vec!["mean(", "TEMP", "[", "10s", "..", "]", " where ", "STEP", "==", "3", ")", "-", " and ", " not ", ",", "quantile("]),
        0..20,
    )) {
        if let Ok(equation) = Equation::parse(&words.concat()) {
            prop_assert!(matches!(equation.evaluate(0, &[]), Outcome::Value(_) | Outcome::NoValue(_)));
        }
    }
}
