//! Indicators and charts on one core: `cargo xtask bench spc`.
#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the code under test is pure; what tests it has clocks, files and output"
)]

use phalanx_spc::chart::{Design, Kind, Monitor, Sample};
use phalanx_spc::equation::{Column, Equation};
use phalanx_spc::rules::Rule;
use phalanx_testkit::measure::median;

/// Traces of a context: a time column that all share, and a value column each.
struct Context {
    times: Vec<i64>,
    values: Vec<Vec<f64>>,
}

impl Context {
    fn new(svids: usize, points: usize, hertz: i64) -> Self {
        let times = (0..points as i64).map(|i| i * 1_000_000 / hertz).collect();
        let value = |svid: usize, i: usize| {
            // Noise from the bits of a product: no two neighbours alike, the same in every run.
            let noise = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15 ^ svid as u64) >> 40;
            100.0 + svid as f64 + noise as f64 / (1u64 << 24) as f64
        };
        let column = |svid: usize| match svid {
            0 => (0..points).map(|i| (i * 8 / points) as f64).collect(),
            _ => (0..points).map(|i| value(svid, i)).collect(),
        };
        Self { times, values: (0..svids).map(column).collect() }
    }

    fn column(&self, svid: &str) -> Option<Column<'_>> {
        let number: usize = svid.strip_prefix('S')?.parse().ok()?;
        Column::new(&self.times, self.values.get(number)?).ok()
    }

    fn evaluate(&self, equations: &[Equation]) -> f64 {
        equations
            .iter()
            .map(|equation| {
                let columns: Vec<_> = equation.svids().iter().map(|svid| self.column(svid)).collect();
                equation.evaluate(0, &columns).value().expect("the bench has all traces")
            })
            .sum()
    }
}

/// Twenty indicators as a strategy has them: every function, windows, conditions; each on another SVID.
fn indicators(apart: usize) -> Vec<Equation> {
    let shapes = [
        "mean(X)",
        "std(X)",
        "max(X) - min(X)",
        "range(X)",
        "mean(X[10s..300s])",
        "slope(X where S0 == 3)",
        "median(X)",
        "quantile(X, 0.95)",
        "area(X)",
        "rms(X)",
        "first(X)",
        "last(X)",
        "count(X where S0 == 2)",
        "duration(X where S0 >= 4)",
        "var(X[20s..])",
        "mean(X where S0 == 1) - mean(X where S0 == 6)",
        "slope(X)",
        "std(X) / mean(X)",
        "max(X[..600s])",
        "mean(X[30s..500s] where S0 == 2)",
    ];
    let named = |(i, shape): (usize, &&str)| shape.replace('X', &format!("S{}", 1 + i * apart));
    shapes.iter().enumerate().map(named).map(|text| Equation::parse(&text).expect(&text)).collect()
}

fn main() {
    let row = |what: &str, target: &str, took: String| println!("{what:<66} {target:>10} {took:>12}");
    row("what", "target", "median".to_owned());
    for (what, target, context, apart) in [
        ("20 indicators, 100 SVIDs × 1,200 points", "< 1 ms", Context::new(100, 1_200, 1), 5),
        ("20 indicators on 20 of 200 SVIDs × 18,000 points", "< 20 ms", Context::new(200, 18_000, 10), 9),
    ] {
        let equations = indicators(apart);
        row(what, target, format!("{:.3?}", median(51, || context.evaluate(&equations))));
    }
    row("reading and compiling those 20 equations", "", format!("{:.3?}", median(51, || indicators(5))));
    let rules = Rule::NELSON.to_vec();
    for (what, design) in [
        ("individuals, one point, limits", Design::new(Kind::Imr)),
        ("individuals, one point, Nelson 1–8", Design { rules, ..Design::new(Kind::Imr) }),
        ("EWMA, one point", Design::new(Kind::Ewma { lambda: 0.2, asymptotic: false })),
        ("CUSUM, one point", Design::new(Kind::Cusum { k: 0.5, h: 5.0 })),
    ] {
        let design = Design { target: Some(0.0), sd: Some(1.0), ..design };
        let fresh = Monitor::fixed(design).expect("a design that leaves nothing to learn");
        let points: Vec<Sample> =
            (0..1000).map(|i| Sample::Value(f64::from(i * 7919 % 201 - 100) / 50.0)).collect();
        let took = median(51, || points.iter().fold(fresh.clone(), |monitor, point| monitor.update(point).0));
        row(what, "", format!("{:.1?}", took / 1000));
    }
    let design =
        Design { target: Some(0.0), sd: Some(1.0), rules: Rule::NELSON.to_vec(), ..Design::new(Kind::Imr) };
    let monitor = Monitor::fixed(design).expect("a design that leaves nothing to learn");
    let monitor =
        (0..40).fold(monitor, |monitor, i| monitor.update(&Sample::Value(f64::from(i % 5) - 2.1)).0);
    let stored = monitor.encode();
    row(
        "storing a state and reading it back",
        "",
        format!("{:.1?}", median(501, || Monitor::decode(&monitor.encode()))),
    );
    println!("a stored state with Nelson 1–8 has {} bytes", stored.len());
}
