//! The repair of what writers before version 1.4.3 did to timestamps they were fed one by one (§12.2).

use crate::common::decode_all;
use phalanx_mebo::{Encoder, EncoderOptions, ReadOptions};

const START: i64 = 1_735_689_600_000_000;

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// A delta column as those writers left it. The encoder did not restart between metrics: only in the first metric is the
/// first timestamp stored as it is; in the others it is taken for one more change, from a step of zero and a time of zero.
fn column(timestamps: &[i64], first_metric: bool) -> Vec<u8> {
    let mut out = Vec::new();
    let (mut time, mut step) = (0, 0);
    for (&next, i) in timestamps.iter().zip(0..) {
        if i == 0 && first_metric {
            varint(next as u64, &mut out);
        } else {
            varint(zigzag(next - time - step), &mut out);
            step = next - time;
        }
        time = next;
    }
    out
}

/// A V1 blob of delta timestamps and raw values, put together by hand.
fn blob(metrics: &[Vec<i64>], defect: bool) -> Vec<u8> {
    let columns: Vec<Vec<u8>> =
        metrics.iter().zip(0..).map(|(timestamps, i)| column(timestamps, i == 0 || !defect)).collect();
    let timestamps_len: usize = columns.iter().map(Vec::len).sum();
    let points: usize = metrics.iter().map(Vec::len).sum();
    let t = 32 + 16 * metrics.len();
    let (v, g) = (t + timestamps_len, t + timestamps_len + 8 * points);
    let mut bytes = vec![0x10, 0xEA, 0x12, 0x11];
    bytes.extend(START.to_le_bytes());
    for field in [metrics.len(), 32, t, v, g] {
        bytes.extend((field as u32).to_le_bytes());
    }
    let (mut before, mut points_before) = (0, 0);
    for (i, timestamps) in metrics.iter().enumerate() {
        bytes.extend((i as u64 + 1).to_le_bytes());
        for field in [timestamps.len(), before, 8 * points_before, 0] {
            bytes.extend((field as u16).to_le_bytes());
        }
        (before, points_before) = (columns[i].len(), timestamps.len());
    }
    columns.iter().for_each(|column| bytes.extend(column));
    (0..points).for_each(|i| bytes.extend((i as f64).to_le_bytes()));
    bytes
}

fn metrics() -> Vec<Vec<i64>> {
    let jitter = |i: i64| START + i * 1_000_000 + i * i * 7919 % 500;
    vec![
        (0..50).map(jitter).collect(),
        (0..50).map(jitter).collect(),
        vec![START + 5],
        vec![START, START + 1_000_000],
        // A clock that goes back a little stays what it is.
        vec![START + 10_000_000, START, START + 1],
    ]
}

fn timestamps(bytes: &[u8], repair_legacy: bool) -> Vec<Vec<i64>> {
    let options = ReadOptions { repair_legacy, ..ReadOptions::default() };
    let decoded = decode_all(bytes, options).expect("a good blob");
    decoded.into_iter().map(|metric| metric.timestamps).collect()
}

#[test]
fn the_defect_is_repaired_when_asked_for() {
    assert_eq!(timestamps(&blob(&metrics(), true), true), metrics());
}

#[test]
fn without_asking_the_reader_gives_what_the_bytes_say() {
    let read = timestamps(&blob(&metrics(), true), false);
    assert_eq!(read[0], metrics()[0], "the first metric never had the defect");
    for (read, written) in read.iter().zip(metrics()).skip(1) {
        assert_eq!(read[0], 2 * written[0], "doubled");
        if written.len() > 1 {
            assert_eq!(read[1], written[1], "the second is right");
        }
        if written.len() > 2 {
            assert_ne!(read[2], written[2], "from the third on they are wrong");
        }
    }
}

#[test]
fn a_blob_without_the_defect_is_not_changed_by_the_repair() {
    assert_eq!(timestamps(&blob(&metrics(), false), true), metrics());
}

#[test]
fn our_writer_starts_every_metric_afresh() {
    let metrics = metrics();
    let options = EncoderOptions { values: phalanx_mebo::ValueEncoding::Raw, ..EncoderOptions::default() };
    let mut encoder = Encoder::new(START, options);
    let mut value = (0..).map(f64::from);
    for (timestamps, id) in metrics.iter().zip(1u64..) {
        let values: Vec<f64> = value.by_ref().take(timestamps.len()).collect();
        encoder.add(id, timestamps, &values).expect("a good metric");
    }
    assert!(encoder.finish().expect("a good blob") == blob(&metrics, false));
}
