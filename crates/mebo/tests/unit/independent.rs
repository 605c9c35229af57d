//! What we compress, other libraries decompress: none of these decoders shares code with our encoders.

use std::io::Read as _;

use phalanx_mebo::{Compression, Encoder, EncoderOptions, NumericBlob, TimestampEncoding, ValueEncoding};

fn blob(compression: Compression, points: usize) -> Vec<u8> {
    let options = EncoderOptions {
        timestamps: TimestampEncoding::Raw,
        values: ValueEncoding::Raw,
        timestamp_compression: compression,
        value_compression: compression,
        ..EncoderOptions::default()
    };
    let mut encoder = Encoder::new(0, options);
    for id in 1..=20u64 {
        let timestamps: Vec<i64> = (0..points as i64).map(|i| i * 1000).collect();
        let values: Vec<f64> = (0..points).map(|i| (i * i % 97) as f64 / 4.0 + id as f64).collect();
        let tags: Vec<String> = (0..points).map(|i| format!("step {}", i / 10)).collect();
        encoder.add_tagged(id, &timestamps, &values, &tags).expect("a good metric");
    }
    encoder.finish().expect("a good blob")
}

/// The payloads as stored, and what they must decompress to: raw little-endian columns, and tags.
fn payloads(bytes: &[u8], points: usize) -> [(&[u8], Vec<u8>); 3] {
    let blob = NumericBlob::open(bytes).expect("a good blob");
    let header = blob.header();
    let [t, v, g] =
        [header.timestamps_offset, header.values_offset, header.tags_offset].map(|start| start as usize);
    let timestamps =
        (0..20).flat_map(|_| (0..points as i64).flat_map(|i| (i * 1000).to_le_bytes())).collect();
    let value = |id: usize, i: usize| (i * i % 97) as f64 / 4.0 + id as f64;
    let values = (1..=20).flat_map(|id| (0..points).flat_map(move |i| value(id, i).to_le_bytes())).collect();
    let tag = |i: usize| {
        let tag = format!("step {}", i / 10);
        [vec![tag.len() as u8], tag.into_bytes()].concat()
    };
    let tags = (0..20).flat_map(|_| (0..points).flat_map(tag)).collect();
    [(&bytes[t..v], timestamps), (&bytes[v..g], values), (&bytes[g..], tags)]
}

fn unzstd(stored: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(stored).expect("a zstd frame");
    decoder.read_to_end(&mut plain).expect("a whole zstd frame");
    plain
}

#[track_caller]
fn check(compression: Compression, decompress: impl Fn(&[u8], usize) -> Vec<u8>) {
    for points in [1, 7, 300] {
        let bytes = blob(compression, points);
        let [timestamps, values, tags] = payloads(&bytes, points);
        for (stored, plain) in [timestamps, values] {
            assert!(decompress(stored, plain.len()) == plain, "{compression}, {points} points");
            assert!(points < 300 || stored.len() < plain.len() / 2, "{compression} compresses");
        }
        assert!(unzstd(tags.0) == tags.1, "tags, {points} points");
    }
}

#[test]
fn ruzstd_reads_our_zstd_frames() {
    check(Compression::Zstd, |stored, _| unzstd(stored));
}

#[test]
fn the_c_library_reads_our_lz4_blocks() {
    check(Compression::Lz4, |stored, len| {
        lz4::block::decompress(stored, Some(i32::try_from(len).expect("small"))).expect("an LZ4 block")
    });
}

/// We write the part of S2 that is also Snappy, so a Snappy decoder is a fair judge.
#[test]
fn snap_reads_our_s2_blocks() {
    check(Compression::S2, |stored, _| {
        snap::raw::Decoder::new().decompress_vec(stored).expect("a Snappy block")
    });
}
