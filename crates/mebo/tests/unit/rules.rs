//! Every rule of §12.0, one by one: what breaks it is refused, with the right kind, at the right byte; what the rules
//! allow is read.

use crate::common::{decode_all, fixtures};
use ErrorKind::{Corrupt, TooLarge, Truncated, Unsupported};
use phalanx_mebo::{ErrorKind, Limits, ReadOptions, Section};

fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(fixtures().join(format!("{name}.mebo"))).expect("the fixture is in the repository")
}

fn u32_at(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]) as usize
}

fn put_u32(bytes: &mut [u8], at: usize, value: usize) {
    bytes[at..at + 4].copy_from_slice(&(value as u32).to_le_bytes());
}

#[track_caller]
fn refused(name: &str, change: impl FnOnce(&mut Vec<u8>), kind: ErrorKind, offset: u64) {
    let mut bytes = fixture(name);
    change(&mut bytes);
    let error = decode_all(&bytes, ReadOptions::default()).expect_err("a broken blob");
    assert_eq!((error.kind(), error.offset()), (kind, offset), "{error}");
}

#[track_caller]
fn taken(name: &str, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fixture(name);
    let good = decode_all(&bytes, ReadOptions::default());
    change(&mut bytes);
    assert_eq!(decode_all(&bytes, ReadOptions::default()), good);
}

const PLAIN: &str = "v1_delta_gorilla";

#[test]
fn rule_1_headers() {
    refused(PLAIN, |blob| blob.truncate(31), Truncated, 31);
    refused(PLAIN, Vec::clear, Truncated, 0);
    refused(PLAIN, |blob| blob[1] = 0xEC, Unsupported, 0);
    refused(PLAIN, |blob| blob[0] = 0x40, Unsupported, 0);
    for encodings in [0x30, 0x33, 0x34, 0x36, 0x02, 0x22, 0x52, 0x72] {
        refused(PLAIN, |blob| blob[2] = encodings, Unsupported, 2);
    }
    for compressions in [0x01, 0x10, 0x15, 0x51] {
        refused(PLAIN, |blob| blob[3] = compressions, Unsupported, 3);
    }
    refused("text_delta", |blob| blob[0] |= 8, Unsupported, 0);
    refused("text_delta", |blob| blob[2] = 5, Unsupported, 2);
    refused("text_delta", |blob| blob[3] = 0, Unsupported, 3);
    refused("text_delta", |blob| blob[28] = 1, Unsupported, 28);
}

#[test]
fn rules_2_and_3_section_offsets() {
    let plain = fixture(PLAIN);
    let (t, v, g, len) = (u32_at(&plain, 20), u32_at(&plain, 24), u32_at(&plain, 28), plain.len());
    assert_eq!((t, g), (112, len), "five entries, no tags");
    for field in [20, 24, 28] {
        refused(PLAIN, |blob| put_u32(blob, field, len + 1), Truncated, field as u64);
    }
    refused(PLAIN, |blob| put_u32(blob, 20, t - 1), Corrupt, 20);
    refused(PLAIN, |blob| put_u32(blob, 20, v + 1), Corrupt, 24);
    refused(PLAIN, |blob| put_u32(blob, 28, v - 1), Corrupt, 28);
    refused("text_delta", |blob| put_u32(blob, 20, 63), Corrupt, 20);
    refused("text_delta", |blob| put_u32(blob, 20, 1000), Truncated, 20);
}

#[test]
fn rules_4_and_5_the_index() {
    refused(PLAIN, |blob| put_u32(blob, 12, 1 << 30), Truncated, 32);
    // The second metric's columns: timestamps at 32 + 16 + 10, values two further.
    refused(PLAIN, |blob| blob[58..60].fill(0xFF), Corrupt, 48);
    refused(PLAIN, |blob| blob[60..62].fill(0xFF), Corrupt, 48);
    refused("text_delta", |blob| put_u32(blob, 32 + 16 + 12, 1000), Corrupt, 60);
    refused("text_delta", |blob| put_u32(blob, 32 + 12, 30), Corrupt, 60);
    refused("text_delta", |blob| blob[32 + 10] = 1, Unsupported, 42);
    refused("text_delta", |blob| blob[32 + 8] = 200, Truncated, 32);
}

#[test]
fn rule_6_reserved_bytes_of_the_extended_index() {
    // One extended entry: one point, raw and raw.
    let mut blob = vec![0x30, 0xEA, 0x11, 0x11];
    blob.extend(0u64.to_le_bytes());
    [1u32, 32, 64, 72, 80].iter().for_each(|field| blob.extend(field.to_le_bytes()));
    blob.extend(9u64.to_le_bytes());
    [1u32, 0, 0, 0, 0, 0].iter().for_each(|field| blob.extend(field.to_le_bytes()));
    blob.extend(5i64.to_le_bytes());
    blob.extend(2.5f64.to_le_bytes());
    let decoded = decode_all(&blob, ReadOptions::default()).expect("a good blob");
    assert_eq!((decoded[0].id, &decoded[0].timestamps[..]), (9, &[5][..]));
    blob[60] = 1;
    let error = decode_all(&blob, ReadOptions::default()).expect_err("a reserved byte");
    assert_eq!((error.kind(), error.offset()), (Unsupported, 56));
}

#[test]
fn rule_7_the_table_of_shared_timestamps() {
    // Five entries of 16 bytes: the table starts at 112.
    const SHARED: &str = "v2_shared_delta_chimp";
    refused(SHARED, |blob| blob[112] = 0, Corrupt, 112);
    refused(SHARED, |blob| blob[112] = 9, Truncated, 120);
    refused(SHARED, |blob| blob[114] = 9, Corrupt, 114);
    refused(SHARED, |blob| blob[118] = blob[114], Corrupt, 118);
    refused(PLAIN, |blob| blob[0] |= 8, Corrupt, 112);
}

#[test]
fn rule_8_names() {
    const NAMES: &str = "v1_names";
    refused(NAMES, |blob| blob[32] = 4, Corrupt, 32);
    refused(NAMES, |blob| blob[36] ^= 1, Corrupt, 36);
    refused(NAMES, |blob| blob[36] = 0xFF, Corrupt, 36);
    refused(NAMES, |blob| blob[34..36].fill(0xFF), Truncated, 36);
}

#[test]
fn rule_9_compression() {
    let start = u32_at(&fixture("v2_shared_zstd"), 20);
    refused("v2_shared_zstd", |blob| blob[start] = 0, Corrupt, start as u64);
    for name in ["v2_shared_zstd", "v2_shared_s2", "v2_shared_lz4"] {
        let limits = Limits { decompressed_bytes: 50, ..Limits::default() };
        let options = ReadOptions { limits, ..ReadOptions::default() };
        let error = decode_all(&fixture(name), options).expect_err("50 bytes are too few");
        assert_eq!(error.kind(), TooLarge, "{name}: {error}");
    }
}

#[test]
fn rules_10_to_12_alp_columns() {
    const ALP: &str = "v1_delta_alp";
    let values = u32_at(&fixture(ALP), 24);
    let at = values as u64;
    // The first metric is scheme 0 of 40 points, its header: scheme, e, f, width, exceptions.
    assert_eq!(fixture(ALP)[values], 0);
    refused(ALP, |blob| blob[values] = 3, Corrupt, at);
    refused(ALP, |blob| blob[values + 1] = 19, Corrupt, at + 1);
    refused(ALP, |blob| blob[values + 2] = 19, Corrupt, at + 1);
    refused(ALP, |blob| blob[values + 3] = 65, Corrupt, at + 3);
    refused(ALP, |blob| blob[values + 3] = 64, Truncated, at + 16);
    let codes = usize::from(fixture(ALP)[values + 3]) * 40 / 8;
    refused(ALP, |blob| blob[values + 4] = 1, Truncated, at + 16 + codes as u64);
    // The second is scheme 1: the start of it is in the index.
    let second = values + usize::from(fixture(ALP)[60]) + usize::from(fixture(ALP)[61]) * 256;
    let at = second as u64;
    assert_eq!(fixture(ALP)[second], 1);
    refused(ALP, |blob| blob[second + 1] = 64, Corrupt, at + 1);
    refused(ALP, |blob| blob[second + 2] = 4, Corrupt, at + 2);
    refused(ALP, |blob| blob[second + 3] = 9, Corrupt, at + 3);
    refused(ALP, |blob| blob[second + 7] = 1, Truncated, {
        let dictionary = u64::from(fixture(ALP)[second + 3]);
        let code_bits = u64::from(fixture(ALP)[second + 2]);
        let lower_bits = u64::from(fixture(ALP)[second + 1]);
        at + 8 + 2 * dictionary + 40 * code_bits / 8 + 40 * lower_bits / 8
    });
}

#[test]
fn rules_13_and_14_columns_that_end_early() {
    // More points than the bytes can hold: the index is where that shows.
    for name in ["v1_raw_raw", "v1_delta_raw", "v1_packed_gorilla", "v1_delta_chimp"] {
        refused(name, |blob| blob[32 + 9] = 0x10, Truncated, 32);
    }
    // A varint that never ends.
    let start = u32_at(&fixture(PLAIN), 20);
    refused(PLAIN, |blob| blob[start..start + 12].fill(0xFF), Corrupt, start as u64);
    // A Gorilla stream of ones: 31 zeros and 64 bits do not fit.
    let values = u32_at(&fixture(PLAIN), 24);
    refused(PLAIN, |blob| blob[values + 8..values + 40].fill(0xFF), Corrupt, values as u64 + 8);
}

#[test]
fn errors_inside_compressed_payloads_say_so() {
    // One metric of two points; its values are a zstd frame with one stored block, a Gorilla stream of ones.
    let values = [&[0x28, 0xB5, 0x2F, 0xFD, 0x20, 11, 11 << 3 | 1, 0, 0][..], &[0; 8], &[0xFF; 3]].concat();
    let mut blob = vec![0x10, 0xEA, 0x32, 0x21];
    blob.extend(0u64.to_le_bytes());
    [1, 32, 48, 50, 50 + values.len() as u32].iter().for_each(|field| blob.extend(field.to_le_bytes()));
    blob.extend(9u64.to_le_bytes());
    blob.extend([2, 0, 0, 0, 0, 0, 0, 0]);
    blob.extend([1, 2]);
    blob.extend(&values);
    let error = decode_all(&blob, ReadOptions::default()).expect_err("a window that does not fit");
    assert_eq!((error.kind(), error.section(), error.offset()), (Corrupt, Section::Values, 8));
    assert!(error.to_string().starts_with("corrupt at byte 8 of the decompressed values: "), "{error}");
}

#[test]
fn rules_15_to_18_what_is_tolerated() {
    // No metrics.
    let mut none = fixture(PLAIN);
    put_u32(&mut none, 12, 0);
    assert_eq!(decode_all(&none, ReadOptions::default()), Ok(vec![]));
    // Bytes behind the last payload, and an index offset that is not so.
    taken(PLAIN, |blob| blob.extend([1, 2, 3]));
    taken(PLAIN, |blob| blob[16..20].fill(0xEE));
    // Tag offsets left behind by old writers where there are no tags.
    taken(PLAIN, |blob| blob[32 + 14..32 + 16].fill(0x77));
    // V2 entries that do not ascend are found all the same.
    let mut unsorted = fixture("v2_delta_gorilla");
    let ids: Vec<u8> = unsorted[32..40].to_vec();
    unsorted.copy_within(48..56, 32);
    unsorted[48..56].copy_from_slice(&ids);
    let blob = phalanx_mebo::NumericBlob::open(&unsorted).expect("tolerated");
    for metric in blob.metrics() {
        assert_eq!(blob.find(metric.id()).map(|found| found.index()), Some(metric.index()));
    }
}
