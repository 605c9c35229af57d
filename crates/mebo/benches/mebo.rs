//! What a point costs: to encode, to iterate, to decode metric by metric; and how many bytes it takes.
//!
//! `cargo xtask bench mebo` prints a table in Markdown. The data is what a sensor of a chamber gives: a clock of 100 ms
//! that is up to 500 µs late, and a value with two decimals that wanders, one point in four unchanged.

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

fn main() {
    println!("| metrics × points | timestamps + values | encode | iterate all | decode one | bytes/point |");
    println!("|---|---|---:|---:|---:|---:|");
    for (points, rounds) in [(200, 41), (18_000, 7)] {
        let data = data(points);
        for &timestamps in TimestampEncoding::ALL {
            for &values in ValueEncoding::ALL {
                let options =
                    EncoderOptions { layout: Layout::V2, timestamps, values, ..EncoderOptions::default() };
                print_row(&data, points, rounds, options);
            }
        }
    }
}

fn print_row(data: &[Series], points: usize, rounds: usize, options: EncoderOptions) {
    let total = METRICS * points;
    let bytes = encode(data, options);
    let encoded = median(rounds, || encode(data, options).len());
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
        "| {METRICS} × {points} | {} + {} | {:.1} ns | {:.1} ns | {:.1} ns | {:.2} |",
        options.timestamps,
        options.values,
        per_point(encoded),
        per_point(iterated),
        per_point(decoded),
        bytes.len() as f64 / total as f64,
    );
}

fn encode(data: &[Series], options: EncoderOptions) -> Vec<u8> {
    let mut encoder = Encoder::new(START, options);
    for series in data {
        encoder.add(&series.name, &series.timestamps, &series.values).expect("a good metric");
    }
    encoder.finish().expect("a good blob")
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

fn data(points: usize) -> Vec<Series> {
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    (0..METRICS)
        .map(|metric| {
            let mut hundredths = 10_000 + random.below(90_000) as i64;
            let timestamps =
                (0..points as i64).map(|i| START + i * 100_000 + random.below(500) as i64).collect();
            let values = (0..points)
                .map(|_| {
                    if random.below(4) != 0 {
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
