//! What a point costs: to encode, to iterate, to decode metric by metric; and how many bytes it takes.
//!
//! `cargo xtask bench mebo` prints tables in Markdown. The clock ticks every 100 ms and is up to 500 µs late; what the
//! values do is said with each table, as Gorilla and Chimp cost what branch predictors make of them.
#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the code under test is pure; what tests it has clocks, files and output"
)]

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
    let pairs: Vec<EncoderOptions> = TimestampEncoding::ALL
        .iter()
        .flat_map(|&timestamps| ValueEncoding::ALL.iter().map(move |&values| options(timestamps, values)))
        .collect();
    println!("Two decimals that wander:\n");
    head();
    table(Shape::Wanders, 200, 101, &pairs);
    table(Shape::Wanders, 18_000, 9, &pairs);
    for (shape, what) in [
        (Shape::Hesitates, "The same, one point in four unchanged at random"),
        (Shape::Steps, "A setpoint that steps every 50 points"),
        (Shape::Curve, "A curve in full precision"),
    ] {
        println!("\n{what}:\n");
        head();
        let some = [ValueEncoding::Gorilla, ValueEncoding::Chimp, ValueEncoding::Alp]
            .map(|values| options(TimestampEncoding::Delta, values));
        table(shape, 18_000, 9, &some);
    }
}

fn options(timestamps: TimestampEncoding, values: ValueEncoding) -> EncoderOptions {
    EncoderOptions { layout: Layout::V2, timestamps, values, ..EncoderOptions::default() }
}

fn head() {
    println!(
        "| metrics × points | timestamps + values | encode | with fresh memory | iterate all | decode one | bytes/point |"
    );
    println!("|---|---|---:|---:|---:|---:|---:|");
}

/// One row for each of the options. Every pass measures every row once, so that a moment in which the machine was busy
/// spoils one sample of many rows and the median of none.
fn table(shape: Shape, points: usize, passes: usize, all: &[EncoderOptions]) {
    let data = data(shape, points);
    let mut samples = vec![[const { Vec::new() }; 4]; all.len()];
    let mut sizes = vec![0; all.len()];
    for _ in 0..passes {
        for (i, &options) in all.iter().enumerate() {
            let (times, size) = measure(&data, options);
            samples[i].iter_mut().zip(times).for_each(|(samples, time)| samples.push(time));
            sizes[i] = size;
        }
    }
    let total = METRICS * points;
    for ((options, samples), size) in all.iter().zip(&mut samples).zip(sizes) {
        let [encode, afresh, iterate, decode] = samples.each_mut().map(|times| {
            times.sort_unstable();
            times[times.len() / 2].as_nanos() as f64 / total as f64
        });
        println!(
            "| {METRICS} × {points} | {} + {} | {encode:.1} ns | {afresh:.1} ns | {iterate:.1} ns | {decode:.1} ns | {:.2} |",
            options.timestamps,
            options.values,
            size as f64 / total as f64,
        );
    }
}

/// The time to encode, to encode with fresh memory, to iterate, to decode; and the bytes of the blob.
fn measure(data: &[Series], options: EncoderOptions) -> ([Duration; 4], usize) {
    // One encoder and one buffer, warm, as a writer of many blobs has them.
    let (mut encoder, mut bytes) = (Encoder::new(START, options), Vec::new());
    let encoded = median(1, || encode(data, &mut encoder, &mut bytes));
    let afresh = median(1, || {
        let (mut encoder, mut bytes) = (Encoder::new(START, options), Vec::new());
        encode(data, &mut encoder, &mut bytes);
        bytes.len()
    });
    let blob = NumericBlob::open(&bytes).expect("a good blob");
    let iterated = median(1, || iterate(&blob));
    let (mut timestamps, mut values) = (Vec::new(), Vec::new());
    // Every metric, each found by its name and decoded into the same buffers.
    let decoded = median(1, || {
        for series in data {
            timestamps.clear();
            values.clear();
            let metric = blob.find(&series.name).expect("it was added");
            metric.decode_into(&mut timestamps, &mut values).expect("a good metric");
            black_box((&timestamps, &values));
        }
    });
    ([encoded, afresh, iterated, decoded], bytes.len())
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
