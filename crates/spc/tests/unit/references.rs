//! Charts against published data: the NIST/SEMATECH e-Handbook and Montgomery, Introduction to Statistical Quality
//! Control.

use phalanx_spc::chart::{Center, Chart, Design, Estimator, Kind, Point, Sample, Statistic, analyse};
use phalanx_spc::constants::Constants;
use phalanx_spc::rules::Rule;

#[track_caller]
fn close(actual: f64, expected: f64, tolerance: f64) {
    assert!((actual - expected).abs() <= tolerance, "{actual} is not {expected} ± {tolerance}");
}

fn values(values: &[f64]) -> Vec<Sample> {
    values.iter().copied().map(Sample::Value).collect()
}

fn counts(counts: &[u32], size: f64) -> Vec<Sample> {
    counts.iter().map(|&count| Sample::Count { count: f64::from(count), size }).collect()
}

#[track_caller]
fn draw(design: &Design, samples: &[Sample]) -> Chart {
    analyse(design, samples, None).expect("a chart")
}

fn center(chart: &Chart) -> f64 {
    let Some(Center::One(Some(center))) = chart.center else { panic!("{:?}", chart.center) };
    center
}

fn limits(chart: &Chart) -> (f64, f64) {
    let (Some(Some(lcl)), Some(Some(ucl))) = (chart.lcl, chart.ucl) else {
        panic!("{:?} {:?}", chart.lcl, chart.ucl)
    };
    (lcl, ucl)
}

fn statistic(point: &Point) -> f64 {
    let Statistic::One(statistic) = point.statistic else { panic!("{point:?}") };
    statistic
}

fn signalled(chart: &Chart) -> Vec<u64> {
    chart.signals.iter().map(|signal| signal.index).collect()
}

const NIST_EWMA: [f64; 20] = [
    52.0, 47.0, 53.0, 49.3, 50.1, 47.0, 51.0, 50.1, 51.2, 50.5, 49.6, 47.6, 49.9, 51.3, 47.8, 51.2, 52.6,
    52.4, 53.6, 52.1,
];

#[test]
fn nist_6_3_2_4_ewma() {
    let kind = Kind::Ewma { lambda: 0.3, asymptotic: true };
    let design = Design { target: Some(50.0), sd: Some(2.0539), ..Design::new(kind) };
    let chart = draw(&design, &values(&NIST_EWMA));
    let expected = [
        50.60, 49.52, 50.56, 50.18, 50.16, 49.21, 49.75, 49.85, 50.26, 50.33, 50.11, 49.36, 49.52, 50.05,
        49.38, 49.92, 50.73, 51.23, 51.94, 51.99,
    ];
    for (point, expected) in chart.points.iter().zip(expected) {
        close(statistic(point), expected, 0.005 + 1e-9);
    }
    close(limits(&chart).0, 47.4116, 5e-5);
    close(limits(&chart).1, 52.5884, 5e-5);
    assert_eq!(chart.signals, []);
}

#[test]
fn nist_6_3_2_2_individuals() {
    let data = values(&[49.6, 47.6, 49.9, 51.3, 47.8, 51.2, 52.6, 52.4, 53.6, 52.1]);
    let exact = draw(&Design::new(Kind::Imr), &data);
    close(center(&exact), 50.81, 1e-12);
    close(limits(&exact).0, 45.8176, 5e-5);
    close(limits(&exact).1, 55.8024, 5e-5);
    assert_eq!(exact.estimator, Estimator::MovingRange);
    let ranges = exact.companion.unwrap();
    close(center(&ranges), 1.8778, 5e-5);
    assert_eq!(ranges.points[0].index, 2, "the first point has no moving range");
    let table = draw(&Design { constants: Constants::Table, ..Design::new(Kind::Imr) }, &data);
    close(limits(&table).0, 45.8159, 5e-5);
    close(limits(&table).1, 55.8041, 5e-5);
    let ranges = table.companion.unwrap();
    close(limits(&ranges).1, 3.267 * 16.9 / 9.0, 1e-12);
    assert_eq!(limits(&ranges).0, 0.0);
}

#[test]
fn nist_6_3_2_3_cusum() {
    let data = values(&[
        324.925, 324.675, 324.725, 324.350, 325.350, 325.225, 324.125, 324.525, 325.225, 324.600, 324.625,
        325.150, 328.325, 327.250, 327.825, 328.500, 326.675, 327.775, 326.875, 328.350,
    ]);
    let kind = Kind::Cusum { k: 0.3175, h: 4.1959 };
    let chart = draw(&Design { target: Some(325.0), sd: Some(1.0), ..Design::new(kind) }, &data);
    let high = [
        0.0, 0.0, 0.0, 0.0, 0.03, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 3.01, 4.94, 7.45, 10.63, 11.99, 14.44,
        16.00, 19.04,
    ];
    let low = [
        0.0, 0.01, 0.0, 0.33, 0.0, 0.0, 0.56, 0.72, 0.17, 0.25, 0.31, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0,
        0.0,
    ];
    for (point, expected) in chart.points.iter().zip(high.into_iter().zip(low)) {
        let Statistic::Sums { high, low } = point.statistic else { panic!() };
        close(high, expected.0, 0.011);
        close(low, expected.1, 0.011);
    }
    assert_eq!(signalled(&chart), [14, 15, 16, 17, 18, 19, 20]);
    assert_eq!(chart.signals[0].points, [13, 14], "the sum left zero at 13");
}

/// Montgomery's table of a process at 10 with σ 1 that shifts up by 1 after the twentieth value.
const SHIFT: [f64; 30] = [
    9.45, 7.99, 9.29, 11.66, 12.16, 10.18, 8.04, 11.46, 9.20, 10.34, 9.03, 11.47, 10.51, 9.40, 10.08, 9.37,
    10.62, 10.31, 8.52, 10.84, 10.90, 9.33, 12.29, 11.50, 10.60, 11.08, 10.38, 11.62, 11.31, 10.52,
];

#[test]
fn montgomery_tabular_cusum() {
    let kind = Kind::Cusum { k: 0.5, h: 5.0 };
    let chart = draw(&Design { target: Some(10.0), sd: Some(1.0), ..Design::new(kind) }, &values(&SHIFT));
    let sums = |index: usize| match chart.points[index - 1].statistic {
        Statistic::Sums { high, low } => (high, low),
        Statistic::One(_) => panic!(),
    };
    close(sums(2).1, 1.56, 1e-9);
    close(sums(3).1, 1.77, 1e-9);
    close(sums(5).0, 2.82, 1e-9);
    close(sums(28).0, 4.47, 1e-9);
    close(sums(29).0, 5.28, 1e-9);
    close(sums(30).0, 5.30, 1e-9);
    assert_eq!(signalled(&chart), [29, 30]);
    assert_eq!(chart.signals[0].points, (23..=29).collect::<Vec<_>>());
    assert_eq!(
        chart.signals[0].message,
        "The upper sum 5.28 at point 29 exceeds 5: the mean has probably risen since point 23."
    );
}

#[test]
fn montgomery_ewma_with_limits_of_each_point() {
    let kind = Kind::Ewma { lambda: 0.1, asymptotic: false };
    let design = Design { target: Some(10.0), sd: Some(1.0), sigmas: 2.7, ..Design::new(kind) };
    let chart = draw(&design, &values(&SHIFT));
    for (index, z) in [(1, 9.945), (2, 9.7495), (3, 9.70355), (4, 9.8992), (5, 10.1253)] {
        close(statistic(&chart.points[index - 1]), z, 5e-5);
    }
    close(chart.points[0].ucl.unwrap(), 10.27, 1e-9);
    close(chart.points[0].lcl.unwrap(), 9.73, 1e-9);
    close(chart.points[1].ucl.unwrap(), 10.36, 0.005);
    close(chart.points[29].ucl.unwrap(), 10.62, 0.005);
    assert_eq!((chart.ucl, chart.lcl), (None, None), "they are not constant");
    close(statistic(&chart.points[27]), 10.5731, 5e-5);
    assert_eq!(signalled(&chart), [29, 30]);
}

const ORANGE_JUICE: [u32; 30] = [
    12, 15, 8, 10, 4, 7, 16, 9, 14, 10, 5, 6, 17, 12, 22, 8, 10, 5, 13, 11, 20, 18, 24, 15, 9, 12, 7, 13, 9,
    6,
];

#[test]
fn montgomery_p_chart_of_orange_juice_cans() {
    let chart = draw(&Design::new(Kind::P), &counts(&ORANGE_JUICE, 50.0));
    close(center(&chart), 0.2313, 5e-5);
    close(limits(&chart).0, 0.0524, 5e-5);
    close(limits(&chart).1, 0.4102, 5e-5);
    assert_eq!(signalled(&chart), [15, 23]);
    assert_eq!(chart.estimator, Estimator::Binomial);
}

#[test]
fn the_same_cans_as_np_chart() {
    let chart = draw(&Design::new(Kind::Np), &counts(&ORANGE_JUICE, 50.0));
    close(center(&chart), 50.0 * 347.0 / 1500.0, 1e-12);
    close(limits(&chart).1, 50.0 * 0.4102, 3e-3);
    assert_eq!(signalled(&chart), [15, 23]);
}

#[test]
fn exclusion_goes_on_until_nothing_is_out() {
    // Without 15 and 23 the limits are 0.0407 and 0.3893, and then 21 (0.40) is out too.
    let design = Design { exclude: true, ..Design::new(Kind::P) };
    let chart = draw(&design, &counts(&ORANGE_JUICE, 50.0));
    assert_eq!(chart.excluded, [15, 21, 23]);
    close(center(&chart), 281.0 / 1350.0, 1e-12);
    assert_eq!(signalled(&chart), [15, 21, 23], "what was left out is still judged");
}

#[test]
fn montgomery_p_chart_with_sizes_that_differ() {
    let sizes = [
        100, 80, 80, 100, 110, 110, 100, 100, 90, 90, 110, 120, 120, 120, 110, 80, 80, 80, 90, 100, 100, 100,
        100, 90, 90,
    ];
    let defectives = [12, 8, 6, 9, 10, 12, 11, 16, 10, 6, 20, 15, 9, 8, 6, 8, 10, 7, 5, 8, 5, 8, 10, 6, 9];
    let samples: Vec<Sample> = sizes
        .iter()
        .zip(defectives)
        .map(|(&size, count)| Sample::Count { count: f64::from(count), size: f64::from(size) })
        .collect();
    let chart = draw(&Design::new(Kind::P), &samples);
    close(center(&chart), 0.0955, 5e-5);
    assert_eq!(chart.ucl, None);
    close(chart.points[0].ucl.unwrap(), 0.1837, 2e-4);
    close(chart.points[1].ucl.unwrap(), 0.1941, 2e-4);
    close(chart.points[11].ucl.unwrap(), 0.1760, 2e-4);
    assert_eq!(signalled(&chart), [11]);
}

#[test]
fn montgomery_c_chart_of_circuit_boards() {
    let boards = [
        21, 24, 16, 12, 15, 5, 28, 20, 31, 25, 20, 24, 16, 19, 10, 17, 13, 22, 18, 39, 30, 24, 16, 19, 17, 15,
    ];
    let chart = draw(&Design::new(Kind::C), &counts(&boards, 1.0));
    close(center(&chart), 19.85, 0.005);
    close(limits(&chart).0, 6.48, 0.005);
    close(limits(&chart).1, 33.22, 0.01);
    assert_eq!(signalled(&chart), [6, 20]);
    let chart = draw(&Design { exclude: true, ..Design::new(Kind::C) }, &counts(&boards, 1.0));
    close(center(&chart), 19.67, 0.005);
    close(limits(&chart).0, 6.36, 0.005);
    close(limits(&chart).1, 32.97, 0.005);
    assert_eq!(chart.excluded, [6, 20]);
}

#[test]
fn montgomery_u_chart_of_shipments() {
    let errors = [2, 3, 8, 1, 1, 4, 1, 4, 5, 1, 8, 2, 4, 3, 4, 1, 8, 3, 7, 4];
    let chart = draw(&Design::new(Kind::U), &counts(&errors, 50.0));
    close(center(&chart), 0.0740, 5e-5);
    close(limits(&chart).1, 0.1894, 5e-5);
    assert_eq!(limits(&chart).0, 0.0, "a rate cannot be negative");
    assert_eq!(chart.signals, []);
}

/// Inside diameters of piston rings, 25 subgroups of 5 (Montgomery).
const RINGS: [[f64; 5]; 25] = [
    [74.030, 74.002, 74.019, 73.992, 74.008],
    [73.995, 73.992, 74.001, 74.011, 74.004],
    [73.988, 74.024, 74.021, 74.005, 74.002],
    [74.002, 73.996, 73.993, 74.015, 74.009],
    [73.992, 74.007, 74.015, 73.989, 74.014],
    [74.009, 73.994, 73.997, 73.985, 73.993],
    [73.995, 74.006, 73.994, 74.000, 74.005],
    [73.985, 74.003, 73.993, 74.015, 73.988],
    [74.008, 73.995, 74.009, 74.005, 74.004],
    [73.998, 74.000, 73.990, 74.007, 73.995],
    [73.994, 73.998, 73.994, 73.995, 73.990],
    [74.004, 74.000, 74.007, 74.000, 73.996],
    [73.983, 74.002, 73.998, 73.997, 74.012],
    [74.006, 73.967, 73.994, 74.000, 73.984],
    [74.012, 74.014, 73.998, 73.999, 74.007],
    [74.000, 73.984, 74.005, 73.998, 73.996],
    [73.994, 74.012, 73.986, 74.005, 74.007],
    [74.006, 74.010, 74.018, 74.003, 74.000],
    [73.984, 74.002, 74.003, 74.005, 73.997],
    [74.000, 74.010, 74.013, 74.020, 74.003],
    [73.982, 74.001, 74.015, 74.005, 73.996],
    [74.004, 73.999, 73.990, 74.006, 74.009],
    [74.010, 73.989, 73.990, 74.009, 74.014],
    [74.015, 74.008, 73.993, 74.000, 74.010],
    [73.982, 73.984, 73.995, 74.017, 74.013],
];

fn rings() -> Vec<Sample> {
    RINGS.iter().map(|ring| Sample::Group(ring.to_vec())).collect()
}

#[test]
fn montgomery_piston_rings_as_xbar_r_chart() {
    let chart = draw(&Design::new(Kind::XbarR), &rings());
    close(center(&chart), 74.00118, 5e-6);
    // The ranges of the table add up to 0.581: R̄ = 0.02324, which the book prints as 0.023.
    close(chart.sigma.unwrap(), 0.02324 / 2.325928947281, 1e-12);
    close(limits(&chart).0, 73.988, 5e-4);
    close(limits(&chart).1, 74.014, 1e-3);
    assert_eq!(chart.signals, []);
    let ranges = chart.companion.unwrap();
    close(center(&ranges), 0.02324, 1e-12);
    close(limits(&ranges).1, 0.049, 5e-4);
    assert_eq!(limits(&ranges).0, 0.0);
}

#[test]
fn piston_rings_by_the_printed_tables() {
    let design = Design { constants: Constants::Table, ..Design::new(Kind::XbarR) };
    let chart = draw(&design, &rings());
    let (mean, range) = (center(&chart), center(chart.companion.as_ref().unwrap()));
    close(limits(&chart).1, mean + 0.577 * range, 1e-12);
    close(limits(chart.companion.as_ref().unwrap()).1, 2.114 * range, 1e-12);
    close(chart.sigma.unwrap(), range / 2.326, 1e-12);
}

#[test]
fn montgomery_piston_rings_as_xbar_s_chart() {
    let chart = draw(&Design::new(Kind::XbarS), &rings());
    close(limits(&chart).0, 73.988, 5e-4);
    close(limits(&chart).1, 74.014, 1e-3);
    let deviations = chart.companion.unwrap();
    close(center(&deviations), 0.0094, 5e-5);
    close(limits(&deviations).1, 0.0196, 5e-5);
    assert_eq!(limits(&deviations).0, 0.0);
    assert_eq!(deviations.signals, []);
}

#[test]
fn subgroups_that_differ_in_size_have_limits_of_their_own() {
    let mut samples = rings();
    samples.truncate(12);
    samples.push(Sample::Group(RINGS[12][..3].to_vec()));
    for kind in [Kind::XbarR, Kind::XbarS] {
        let chart = draw(&Design::new(kind), &samples);
        assert_eq!(chart.ucl, None);
        let total: f64 = samples
            .iter()
            .flat_map(|sample| match sample {
                Sample::Group(values) => values.clone(),
                _ => Vec::new(),
            })
            .sum();
        close(center(&chart), total / 63.0, 1e-9);
        let sigma = chart.sigma.unwrap();
        close(chart.points[0].ucl.unwrap() - center(&chart), 3.0 * sigma / 5f64.sqrt(), 1e-9);
        close(chart.points[12].ucl.unwrap() - center(&chart), 3.0 * sigma / 3f64.sqrt(), 1e-9);
        let companion = chart.companion.unwrap();
        assert_eq!(companion.center, None, "the expected spread depends on the size");
        assert!(companion.points[12].center < companion.points[0].center);
    }
}

#[test]
fn a_given_standard_needs_no_baseline() {
    let design = Design { target: Some(74.0), sd: Some(0.01), ..Design::new(Kind::XbarR) };
    let chart = draw(&design, &rings());
    close(limits(&chart).1, 74.0 + 3.0 * 0.01 / 5f64.sqrt(), 1e-12);
    assert_eq!(chart.estimator, Estimator::Given);
    // D2 = 4.918 for five values.
    close(limits(chart.companion.as_ref().unwrap()).1, 0.04918, 5e-6);
}

#[test]
fn the_robust_estimator_shrugs_off_an_outlier() {
    let mut data: Vec<f64> = (0..40).map(|i| 10.0 + f64::from(i * 7 % 11) / 10.0).collect();
    let clean = draw(&Design { robust: true, ..Design::new(Kind::Imr) }, &values(&data));
    data[20] = 500.0;
    let dirty = draw(&Design { robust: true, ..Design::new(Kind::Imr) }, &values(&data));
    close(dirty.sigma.unwrap(), clean.sigma.unwrap(), 0.16);
    assert_eq!(signalled(&dirty), [21]);
    assert_eq!(dirty.estimator, Estimator::MedianMad);
    // Median 3, absolute deviations 2, 1, 0, 1, 97: their median is 1.
    let small =
        draw(&Design { robust: true, ..Design::new(Kind::Imr) }, &values(&[1.0, 2.0, 3.0, 4.0, 100.0]));
    close(center(&small), 3.0, 1e-12);
    close(small.sigma.unwrap(), 1.482602218505602, 1e-12);
}

/// Two variables: the inverse of the covariance and both quantiles have closed forms.
#[test]
fn t2_of_two_variables_agrees_with_closed_forms() {
    let rows = [
        [10.0, 20.1],
        [10.3, 20.9],
        [9.7, 19.2],
        [10.1, 20.3],
        [9.9, 20.0],
        [10.4, 20.7],
        [9.6, 19.5],
        [10.2, 20.2],
        [9.8, 19.9],
        [10.0, 19.8],
        [10.5, 21.2],
        [9.5, 19.0],
    ];
    let alpha = 0.01;
    let mut samples: Vec<Sample> = rows.iter().map(|row| Sample::Vector(row.to_vec())).collect();
    samples.push(Sample::Vector(vec![10.4, 19.2]));
    let design = Design::new(Kind::T2 { alpha });
    let chart = analyse(&design, &samples, Some(1..=12)).unwrap();
    let m = 12.0;
    let mean = |j: usize| rows.iter().map(|row| row[j]).sum::<f64>() / m;
    let (x, y) = (mean(0), mean(1));
    let cov = |i: usize, j: usize| {
        rows.iter().map(|row| (row[i] - mean(i)) * (row[j] - mean(j))).sum::<f64>() / (m - 1.0)
    };
    let (a, b, c) = (cov(0, 0), cov(0, 1), cov(1, 1));
    let distance = |u: f64, v: f64| (c * u * u - 2.0 * b * u * v + a * v * v) / (a * c - b * b);
    for (point, row) in chart.points.iter().zip(rows) {
        close(statistic(point), distance(row[0] - x, row[1] - y), 1e-9);
        // B(1, b): the quantile is 1 − α^(1/b).
        let beta = 1.0 - alpha.powf(2.0 / (m - 3.0));
        close(point.ucl.unwrap(), (m - 1.0).powi(2) / m * beta, 1e-9);
    }
    let new = &chart.points[12];
    // F(2, d): the quantile is d/2 (α^(−2/d) − 1).
    let f = (m - 2.0) / 2.0 * (alpha.powf(-2.0 / (m - 2.0)) - 1.0);
    close(new.ucl.unwrap(), 2.0 * (m + 1.0) * (m - 1.0) / (m * m - 2.0 * m) * f, 1e-9);
    assert_eq!(signalled(&chart), [13]);
    let Some(Center::Many(center)) = &chart.center else { panic!() };
    close(center[0], x, 1e-12);
    close(center[1], y, 1e-12);
}

#[test]
fn run_rules_use_the_limits_of_each_point() {
    let design = Design { rules: Rule::NELSON.to_vec(), ..Design::new(Kind::Imr) };
    let mut data = SHIFT.to_vec();
    data.extend([13.0; 9]);
    let chart = analyse(&design, &values(&data), Some(1..=20)).unwrap();
    assert!(chart.signals.iter().any(|signal| signal.rule == Rule::Nelson2));
    assert!(chart.signals.iter().all(|signal| signal.index > 20 || signal.rule != Rule::Nelson1));
}
