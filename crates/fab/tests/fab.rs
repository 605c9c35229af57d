//! The fab is what it says it is: means and deviations of its healthy runs are the truth, and its faults are there.

use phalanx_fab::theory::{Limits, raises_ewma, raises_limits};
use phalanx_fab::{Chamber, EWMA_LAMBDA, EWMA_SIGMAS, Fab, FaultKind, Indicator, Run, Truth};

/// The indicator of a run, calculated here and not by any chart.
fn value(run: &Run, indicator: Indicator) -> f64 {
    let trace = |name: &str| &run.traces.iter().find(|trace| trace.svid == name).expect("the sensor").values;
    let main: Vec<f64> = trace(indicator.svid())
        .iter()
        .zip(trace("STEP"))
        .filter(|(_, step)| **step == 2.0)
        .map(|(value, _)| *value)
        .collect();
    let mean = main.iter().sum::<f64>() / main.len() as f64;
    match indicator {
        Indicator::Noise => {
            (main.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (main.len() - 1) as f64).sqrt()
        }
        Indicator::Power | Indicator::Pressure => mean,
    }
}

fn healthy(fab: &Fab) -> impl Iterator<Item = (usize, &Chamber)> {
    fab.chambers().iter().enumerate().filter(|(_, chamber)| chamber.fault.is_none())
}

fn mean_and_deviation(truth: Truth) -> (f64, f64) {
    match truth {
        Truth::Normal { mean, sigma } => (mean, sigma),
        // Near enough for the sample sizes of the fab.
        Truth::Deviation { values, sigma } => {
            let c4 = 1.0 - 1.0 / (4.0 * values as f64);
            (c4 * sigma, sigma * (1.0 - c4 * c4).sqrt())
        }
    }
}

#[test]
fn healthy_indicators_are_distributed_as_the_truth_says() {
    let fab = Fab::new(11, 12);
    for (number, chamber) in healthy(&fab) {
        for indicator in Indicator::ALL {
            let values: Vec<f64> = (0..400).map(|run| value(&fab.run(number, run), indicator)).collect();
            let mean = values.iter().sum::<f64>() / 400.0;
            let deviation = (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 399.0).sqrt();
            let (true_mean, true_deviation) = mean_and_deviation(chamber.truth(indicator));
            // Four standard errors.
            assert!(
                (mean - true_mean).abs() < 4.0 * true_deviation / 20.0,
                "{indicator:?} of {number}: {mean}"
            );
            let ratio = deviation / true_deviation;
            assert!((ratio - 1.0).abs() < 4.0 / 800_f64.sqrt(), "{indicator:?} of {number}: {ratio}");
        }
    }
}

#[test]
fn each_fault_begins_when_it_is_said_to_and_is_as_large_as_it_is_said_to_be() {
    let fab = Fab::new(5, 240);
    let mut kinds = std::collections::BTreeMap::<&str, u32>::new();
    for (number, chamber) in fab.chambers().iter().enumerate() {
        let Some(fault) = chamber.fault else { continue };
        *kinds.entry(fault.kind.name()).or_default() += 1;
        let (mean, sigma) = mean_and_deviation(chamber.truth(fault.indicator));
        let off = |run: u64| (value(&fab.run(number, run), fault.indicator) - mean) / sigma;
        let before: f64 = (0..fault.from).map(off).sum::<f64>() / fault.from as f64;
        assert!(before.abs() < 4.0 / (fault.from as f64).sqrt(), "{fault:?}: {before}");
        let after = |runs: u64| (fault.from..fault.from + runs).map(off).sum::<f64>() / runs as f64;
        match fault.kind {
            FaultKind::Shift(sigmas) => {
                assert!((after(100) - sigmas).abs() < 0.4, "{fault:?}: {}", after(100))
            }
            FaultKind::Drift(sigmas) => {
                assert!((after(99) - 50.0 * sigmas).abs() < 0.5, "{fault:?}: {}", after(99));
            }
            FaultKind::Spike(sigmas) => {
                assert!((off(fault.from) - sigmas).abs() < 4.0, "{fault:?}");
                assert!(off(fault.from + 1).abs() < 4.5, "{fault:?}");
            }
            FaultKind::Stuck => {
                assert!(value(&fab.run(number, fault.from), fault.indicator) < 1e-9, "{fault:?}")
            }
        }
    }
    assert_eq!(kinds.values().copied().collect::<Vec<_>>(), [15, 15, 15, 15], "{kinds:?}");
}

/// The theory against counting: half a million healthy runs, judged by limits that are a little off.
#[test]
fn the_theory_of_false_alarms_agrees_with_counting() {
    let truth = Truth::Normal { mean: 10.3, sigma: 1.1 };
    let limits = Limits { center: 10.0, sigma: 1.0, lcl: Some(7.0), ucl: Some(13.0) };
    let half = EWMA_SIGMAS * limits.sigma * (EWMA_LAMBDA / (2.0 - EWMA_LAMBDA)).sqrt();
    let fab = Fab::new(1, 2);
    // Standard normal values out of the noise of sensors that nobody looks at.
    let noise = (0..40).flat_map(|run| {
        let run = fab.run(1, run);
        let others: Vec<_> =
            run.traces.into_iter().filter(|trace| trace.svid.starts_with("SENSOR")).collect();
        others.into_iter().flat_map(|trace| {
            let mean = trace.values.iter().sum::<f64>() / trace.values.len() as f64;
            trace.values.into_iter().map(move |value| value - mean).collect::<Vec<_>>()
        })
    });
    let (mut points, mut by_limits, mut by_ewma) = (0_u32, 0, 0);
    let (mut average, mut was_beyond, mut average_was) = (10.3, false, false);
    for z in noise {
        let x = 10.3 + 1.1 * z;
        average = EWMA_LAMBDA * x + (1.0 - EWMA_LAMBDA) * average;
        let is_beyond = !(7.0..=13.0).contains(&x);
        let average_is = (average - limits.center).abs() > half;
        by_limits += u32::from(is_beyond && !was_beyond);
        by_ewma += u32::from(average_is && !average_was);
        (was_beyond, average_was) = (is_beyond, average_is);
        points += 1;
    }
    assert!(points > 500_000, "{points}");
    let close = |count: u32, p: f64| {
        let expected = p * f64::from(points);
        // Events come in clusters, so a little more than Poisson's deviation.
        assert!((f64::from(count) - expected).abs() < 6.0 * expected.sqrt(), "{count} against {expected}");
    };
    close(by_limits, raises_limits(truth, &limits));
    close(by_ewma, raises_ewma(truth, &limits, EWMA_LAMBDA, EWMA_SIGMAS));
}
