//! What a point costs: to encode, to iterate, to decode metric by metric; and how many bytes it takes.
//!
//! `cargo xtask bench mebo` prints tables in Markdown. The clock ticks every 100 ms and is up to 500 µs late; what the
//! values do is said with each table, as Gorilla and Chimp cost what branch predictors make of them.

use std::hint::black_box;
use std::time::Duration;

use phalanx_mebo::{Encoder, EncoderOptions, Layout, NumericBlob, TimestampEncoding, ValueEncoding};
use phalanx_testkit::measure::median;

const START: i64 = 1_735_689_600_000_000;
const METRICS: usize = 200;

struct Series {
    name: String,
    timestamps: Vec<i64>,
    values: Vec<f64>,
}

/// What the values of a metric do.
#[derive(Clone, Copy)]
enum Shape {
    /// Two decimals that wander, every point a little.
    Wanders,
    /// The same, but one point in four, at random, is as the one before: the worst case for a branch predictor.
    Hesitates,
    /// A setpoint: constant, with a step now and then.
    Steps,
    /// A smooth curve in full precision.
    Curve,
}

fn main() {
    println!("Two decimals that wander:\n");
    head();
    for (points, rounds) in [(200, 61), (18_000, 7)] {
        let data = data(Shape::Wanders, points);
        for &timestamps in TimestampEncoding::ALL {
            for &values in ValueEncoding::ALL {
                let options =
                    EncoderOptions { layout: Layout::V2, timestamps, values, ..EncoderOptions::default() };
                print_row(&data, points, rounds, options);
            }
        }
    }
    for (shape, what) in [
        (Shape::Hesitates, "The same, one point in four unchanged at random"),
        (Shape::Steps, "A setpoint that steps every 50 points"),
        (Shape::Curve, "A curve in full precision"),
    ] {
        println!("\n{what}:\n");
        head();
        let data = data(shape, 18_000);
        for values in [ValueEncoding::Gorilla, ValueEncoding::Chimp, ValueEncoding::Alp] {
            print_row(
                &data,
                18_000,
                7,
                EncoderOptions { layout: Layout::V2, values, ..EncoderOptions::default() },
            );
        }
    }
}

fn head() {
    println!(
        "| metrics × points | timestamps + values | encode | with fresh memory | iterate all | decode one | bytes/point |"
    );
    println!("|---|---|---:|---:|---:|---:|---:|");
}

fn print_row(data: &[Series], points: usize, rounds: usize, options: EncoderOptions) {
    let total = METRICS * points;
    // One encoder and one buffer for all rounds, as a writer of many blobs has them.
    let (mut encoder, mut bytes) = (Encoder::new(START, options), Vec::new());
    let encoded = median(rounds, || encode(data, &mut encoder, &mut bytes));
    let afresh = median(rounds, || {
        let (mut encoder, mut bytes) = (Encoder::new(START, options), Vec::new());
        encode(data, &mut encoder, &mut bytes);
        bytes.len()
    });
    let blob = NumericBlob::open(&bytes).expect("a good blob");
    let iterated = median(rounds, || iterate(&blob));
    let (mut timestamps, mut values) = (Vec::new(), Vec::new());
    // Every metric once, each found by its name and decoded into the same buffers: the median metric, so to speak.
    let decoded = median(rounds, || {
        for series in data {
            timestamps.clear();
            values.clear();
            let metric = blob.find(&series.name).expect("it was added");
            metric.decode_into(&mut timestamps, &mut values).expect("a good metric");
            black_box((&timestamps, &values));
        }
    });
    let per_point = |time: Duration| time.as_nanos() as f64 / total as f64;
    println!(
        "| {METRICS} × {points} | {} + {} | {:.1} ns | {:.1} ns | {:.1} ns | {:.1} ns | {:.2} |",
        options.timestamps,
        options.values,
        per_point(encoded),
        per_point(afresh),
        per_point(iterated),
        per_point(decoded),
        bytes.len() as f64 / total as f64,
    );
}

fn encode(data: &[Series], encoder: &mut Encoder, bytes: &mut Vec<u8>) {
    encoder.restart(START);
    bytes.clear();
    for series in data {
        encoder.add(&series.name, &series.timestamps, &series.values).expect("a good metric");
    }
    encoder.finish_into(bytes).expect("a good blob");
}

fn iterate(blob: &NumericBlob<'_>) -> (i64, f64) {
    let (mut times, mut sum) = (0i64, 0.0);
    for metric in blob.metrics() {
        for point in metric.points().expect("a good metric") {
            let point = point.expect("a good point");
            times = times.wrapping_add(point.timestamp);
            sum += point.value;
        }
    }
    (times, sum)
}

fn data(shape: Shape, points: usize) -> Vec<Series> {
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    (0..METRICS)
        .map(|metric| {
            let mut hundredths = 10_000 + random.below(90_000) as i64;
            let timestamps =
                (0..points as i64).map(|i| START + i * 100_000 + random.below(500) as i64).collect();
            let values = (0..points)
                .map(|i| {
                    let moves = match shape {
                        Shape::Wanders => true,
                        Shape::Hesitates => random.below(4) != 0,
                        Shape::Steps => i % 50 == 0,
                        Shape::Curve => return 20.0 + (i as f64 * 0.01 + metric as f64).sin(),
                    };
                    if moves {
                        hundredths += random.below(41) as i64 - 20;
                    }
                    hundredths as f64 / 100.0
                })
                .collect();
            Series { name: format!("chamber.sensor{metric}"), timestamps, values }
        })
        .collect()
}

/// A xorshift generator: the same data on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}
