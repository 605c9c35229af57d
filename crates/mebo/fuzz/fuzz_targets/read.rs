//! Any bytes: opened, everything decoded in every way, and where that works, written and read again.
//!
//! From `crates/mebo`: `cargo +nightly fuzz run read fuzz/corpus tests/fixtures`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use phalanx_mebo::{Blob, Encoder, EncoderOptions, Error, Limits, NumericBlob, ReadOptions, TextBlob};

const LIMITS: Limits = Limits { decompressed_bytes: 1 << 20, points_per_metric: 1 << 16 };

fuzz_target!(|bytes: &[u8]| {
    for repair_legacy in [false, true] {
        let options = ReadOptions { limits: LIMITS, repair_legacy };
        let _refused = match Blob::open_with(bytes, options) {
            Ok(Blob::Numeric(blob)) => numeric(&blob),
            Ok(Blob::Text(blob)) => text(&blob),
            Err(error) => Err(error),
        };
    }
});

fn numeric(blob: &NumericBlob<'_>) -> Result<(), Error> {
    let (mut timestamps, mut values) = (Vec::new(), Vec::new());
    for metric in blob.metrics() {
        timestamps.clear();
        values.clear();
        metric.decode_into(&mut timestamps, &mut values)?;
        for (point, i) in metric.points()?.zip(0..) {
            let point = point?;
            assert_eq!((point.timestamp, point.value.to_bits()), (timestamps[i], values[i].to_bits()));
        }
        if timestamps.is_empty() {
            continue;
        }
        let last = metric.point(timestamps.len() - 1)?;
        assert_eq!(Some(&last.timestamp), timestamps.last());
        again(blob, &timestamps, &values);
    }
    Ok(())
}

/// What was read can be written in the blob's own encodings, and is read the same.
fn again(blob: &NumericBlob<'_>, timestamps: &[i64], values: &[f64]) {
    let header = blob.header();
    let options = EncoderOptions {
        layout: phalanx_mebo::Layout::V2,
        endian: header.endian,
        timestamps: header.timestamp_encoding,
        values: header.value_encoding,
        ..EncoderOptions::default()
    };
    let mut encoder = Encoder::new(0, options);
    encoder.add(1, timestamps, values).expect("a metric of at least one point");
    let bytes = encoder.finish().expect("a blob of one metric");
    let blob = NumericBlob::open(&bytes).expect("what we wrote");
    let (mut times, mut numbers) = (Vec::new(), Vec::new());
    blob.find(1).expect("what we wrote").decode_into(&mut times, &mut numbers).expect("what we wrote");
    assert_eq!(times, timestamps);
    assert!(numbers.iter().map(|v| v.to_bits()).eq(values.iter().map(|v| v.to_bits())));
}

fn text(blob: &TextBlob<'_>) -> Result<(), Error> {
    for metric in blob.metrics() {
        for point in metric.points()? {
            point?;
        }
    }
    Ok(())
}
