//! Every blob of the reference writer, by what its manifest expects.

use crate::common;
use std::path::PathBuf;

use crate::common::{Decoded, Values, decode_all, other_ways_agree};
use phalanx_mebo::{Blob, Compression, Encoder, EncoderOptions, ErrorKind, Key, NumericBlob, ReadOptions};
use serde_json::Value;

struct Golden {
    folder: PathBuf,
    manifest: Value,
}

impl Golden {
    fn load() -> Option<Self> {
        let folder = phalanx_testkit::shared("golden/mebo")?;
        let manifest = std::fs::read(folder.join("manifest.json")).expect("the manifest is readable");
        Some(Self { folder, manifest: serde_json::from_slice(&manifest).expect("the manifest is JSON") })
    }

    /// The blobs with this expectation: name, bytes, manifest entry.
    fn blobs(&self, expect: &str) -> Vec<(&str, Vec<u8>, &Value)> {
        let blobs = self.manifest["blobs"].as_array().expect("a list of blobs");
        blobs
            .iter()
            .filter(|blob| blob["expect"] == expect)
            .map(|blob| {
                let file = blob["file"].as_str().expect("a file name");
                let bytes = std::fs::read(self.folder.join(file)).expect("the blob is readable");
                assert_eq!(Some(bytes.len() as u64), blob["size"].as_u64(), "{file}");
                (file, bytes, blob)
            })
            .collect()
    }

    fn dataset(&self, blob: &Value) -> Dataset {
        let name = blob["dataset"].as_str().expect("a dataset's name");
        let dataset = &self.manifest["datasets"][name];
        let by_name = dataset["started_by_name"] == true;
        let metrics = dataset["metrics_in_insertion_order"].as_array().expect("a list of metrics");
        Dataset {
            start_time: dataset["start_time_us"].as_i64().expect("a start time"),
            by_name,
            metrics: metrics.iter().map(|metric| read_metric(metric, by_name)).collect(),
        }
    }
}

struct Dataset {
    start_time: i64,
    by_name: bool,
    /// In the order they were added. Names are there whether or not a blob stores them.
    metrics: Vec<Decoded>,
}

fn read_metric(metric: &Value, by_name: bool) -> Decoded {
    let strings = |field: &str| -> Option<Vec<String>> {
        let list = metric[field].as_array()?;
        Some(list.iter().map(|text| text.as_str().expect("a text").to_owned()).collect())
    };
    let hex = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).expect("a hex number");
    let name = metric["name"].as_str().map(str::to_owned);
    let id = match &name {
        Some(name) if by_name => Key::from(name).id(),
        _ => hex(metric["metric_id"].as_str().expect("an id")),
    };
    let times = metric["timestamps"].as_array().expect("timestamps");
    Decoded {
        id,
        name,
        timestamps: times.iter().map(|time| time.as_i64().expect("a timestamp")).collect(),
        values: match strings("value_bits_hex") {
            Some(bits) => Values::Bits(bits.iter().map(|bits| hex(bits)).collect()),
            None => Values::Texts(strings("text_values").expect("values")),
        },
        tags: strings("tags"),
    }
}

impl Dataset {
    /// What a reader should give: in the order of the blob, names and tags where the blob has them.
    fn expected(&self, bytes: &[u8]) -> Vec<Decoded> {
        let (sorted, names, tags) = match Blob::open(bytes).expect("a good blob") {
            Blob::Numeric(blob) => {
                let header = blob.header();
                (header.layout == phalanx_mebo::Layout::V2, header.has_names, header.has_tags)
            }
            Blob::Text(blob) => (false, blob.header().has_names, blob.header().has_tags),
        };
        let mut metrics = self.metrics.clone();
        for metric in &mut metrics {
            metric.name = metric.name.take().filter(|_| names);
            metric.tags = metric.tags.take().filter(|_| tags);
        }
        if sorted {
            metrics.sort_by_key(|metric| metric.id);
        }
        metrics
    }

    fn encode(&self, options: EncoderOptions) -> Vec<u8> {
        let mut encoder = Encoder::new(self.start_time, options);
        for metric in &self.metrics {
            let key = match &metric.name {
                Some(name) if self.by_name => Key::from(name),
                _ => Key::from(metric.id),
            };
            let Values::Bits(bits) = &metric.values else { panic!("numbers") };
            let values: Vec<f64> = bits.iter().map(|&bits| f64::from_bits(bits)).collect();
            match &metric.tags {
                Some(tags) => encoder.add_tagged(key, &metric.timestamps, &values, tags),
                None => encoder.add(key, &metric.timestamps, &values),
            }
            .expect("a good metric");
        }
        encoder.finish().expect("a good blob")
    }
}

/// How a blob was written, as its own header tells.
fn options_of(blob: &NumericBlob<'_>, shared_timestamps: bool) -> EncoderOptions {
    let header = blob.header();
    EncoderOptions {
        layout: header.layout,
        endian: header.endian,
        timestamps: header.timestamp_encoding,
        values: header.value_encoding,
        timestamp_compression: header.timestamp_compression,
        value_compression: header.value_compression,
        shared_timestamps,
    }
}

#[test]
fn every_good_blob_decodes_to_the_manifests_exact_bits() {
    let Some(golden) = Golden::load() else { return };
    let blobs = golden.blobs("ok");
    assert_eq!(blobs.len(), 79);
    for (file, bytes, entry) in &blobs {
        let dataset = golden.dataset(entry);
        let decoded =
            decode_all(bytes, ReadOptions::default()).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert_eq!(decoded, dataset.expected(bytes), "{file}");
        match Blob::open(bytes).expect("a good blob") {
            Blob::Numeric(blob) => {
                assert_eq!(blob.header().start_time, dataset.start_time, "{file}");
                other_ways_agree(&blob);
            }
            Blob::Text(blob) => assert_eq!(blob.header().start_time, dataset.start_time, "{file}"),
        }
    }
}

#[test]
fn every_metric_is_found_by_its_id_and_by_its_name() {
    let Some(golden) = Golden::load() else { return };
    for (file, bytes, entry) in golden.blobs("ok") {
        let Blob::Numeric(blob) = Blob::open(&bytes).expect("a good blob") else { continue };
        for metric in golden.dataset(entry).metrics {
            let found = blob.find(metric.id).unwrap_or_else(|| panic!("{file}: {:#x}", metric.id));
            assert_eq!(found.id(), metric.id, "{file}");
            // In some datasets ids were chosen freely beside a name.
            let Some(name) = metric.name.filter(|name| Key::from(name).id() == metric.id) else { continue };
            let found = blob.find(&name).unwrap_or_else(|| panic!("{file}: {name}"));
            let decoded = common::decode(found).expect("a good metric");
            assert_eq!(
                (decoded.timestamps, decoded.values),
                (metric.timestamps, metric.values),
                "{file}: {name}"
            );
        }
        assert!(blob.find("no such metric").is_none(), "{file}");
    }
}

#[test]
fn every_uncompressed_blob_is_written_to_the_same_bytes() {
    let Some(golden) = Golden::load() else { return };
    let mut same = 0;
    for (file, bytes, entry) in golden.blobs("ok") {
        let Blob::Numeric(blob) = Blob::open(&bytes).expect("a good blob") else { continue };
        let header = blob.header();
        let dataset = golden.dataset(entry);
        let shared = entry["options"]["shared_timestamps"] == true;
        let written = dataset.encode(options_of(&blob, shared));
        if header.timestamp_compression == Compression::None && header.value_compression == Compression::None
        {
            // Tags are always compressed, and by another library: those bytes may differ.
            let end = if header.has_tags { header.tags_offset as usize } else { bytes.len() };
            assert!(written[..end] == bytes[..end], "{file}: the bytes differ");
            assert!(header.has_tags || written.len() == bytes.len(), "{file}: the lengths differ");
            same += 1;
        }
        let again = decode_all(&written, ReadOptions::default());
        assert_eq!(again, Ok(dataset.expected(&bytes)), "{file}: what we write, we read");
    }
    assert_eq!(same, 60, "blobs without compressed columns");
}

#[test]
fn every_mutated_blob_is_refused_with_a_typed_error() {
    let Some(golden) = Golden::load() else { return };
    let blobs = golden.blobs("reject");
    assert_eq!(blobs.len(), 20);
    let kinds: Vec<(&str, ErrorKind)> = blobs
        .iter()
        .map(|(file, bytes, _)| {
            let error = decode_all(bytes, ReadOptions::default()).err();
            let error = error.unwrap_or_else(|| panic!("{file} was taken"));
            (file.trim_start_matches("bad/"), error.kind())
        })
        .collect();
    use ErrorKind::{Corrupt, Truncated, Unsupported};
    assert_eq!(
        kinds,
        [
            ("bad_31.mebo", Truncated),
            ("bad_magic.mebo", Unsupported),
            ("bad_ts_enc0.mebo", Unsupported),
            ("bad_ts_enc_gorilla.mebo", Unsupported),
            ("bad_val_enc7.mebo", Unsupported),
            ("bad_comp5.mebo", Unsupported),
            ("bad_trunc_index.mebo", Truncated),
            ("bad_trunc_payload.mebo", Truncated),
            ("trunc_last_byte.mebo", Truncated),
            ("bad_tsoff_gt_valoff.mebo", Corrupt),
            ("bad_valoff_eof.mebo", Truncated),
            ("bad_entry_delta.mebo", Corrupt),
            ("v1_with_shared_bit.mebo", Corrupt),
            ("ext_reserved_nonzero.mebo", Unsupported),
            ("shared_zero_groups.mebo", Corrupt),
            ("names_hash_mismatch.mebo", Corrupt),
            ("alp_exp19.mebo", Corrupt),
            ("alp_f30.mebo", Corrupt),
            ("alp_width255.mebo", Corrupt),
            ("zstd_corrupt.mebo", Corrupt),
        ]
    );
}

#[test]
fn what_must_not_crash_is_read_as_far_as_it_makes_sense() {
    let Some(golden) = Golden::load() else { return };
    let blobs = golden.blobs("must not crash");
    assert_eq!(blobs.len(), 3);
    for (file, bytes, entry) in blobs {
        let decoded = decode_all(&bytes, ReadOptions::default()).expect("nothing in it is wrong");
        match file {
            "bad/zero_metrics.mebo" => assert_eq!(decoded, []),
            "bad/index_offset_garbage.mebo" => assert_eq!(decoded, golden.dataset(entry).expected(&bytes)),
            "bad/v2_unsorted.mebo" => {
                // Binary search would miss these; the reader does not rely on the order.
                let blob = NumericBlob::open(&bytes).expect("a good blob");
                assert_eq!(decoded.iter().map(|metric| metric.id).collect::<Vec<_>>(), [10, 5, 20, 30, 40]);
                for metric in decoded {
                    assert_eq!(blob.find(metric.id).map(|found| found.id()), Some(metric.id));
                }
            }
            _ => panic!("{file} is new"),
        }
    }
}

/// What the defect of §12.1 stores: of every batch, the whole groups of four come first and push what was left over from
/// the batch before behind them, if the batch has at least 32 values.
fn timestamps_as_the_defect_stores_them(timestamps: &[i64], batch: usize) -> Vec<i64> {
    let steps: Vec<i64> = timestamps.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let mut changes = steps.windows(2).map(|pair| pair[1] - pair[0]);
    let (mut stored, mut pending) = (Vec::new(), Vec::new());
    for (points, i) in timestamps.chunks(batch).zip(0..) {
        let count = if i == 0 { points.len() - 2 } else { points.len() };
        let mut new: Vec<i64> = changes.by_ref().take(count).collect();
        if new.len() >= 32 {
            let rest = new.split_off(new.len() / 4 * 4);
            stored.extend(new);
            new = rest;
        }
        pending.extend(new);
        stored.extend(pending.drain(..pending.len() / 4 * 4));
    }
    stored.extend(pending);
    let (mut time, mut step) = (timestamps[1], steps[0]);
    let rest = stored.iter().map(|change| {
        step += change;
        time += step;
        time
    });
    timestamps[..2].iter().copied().chain(rest).collect()
}

#[test]
fn blobs_the_reference_misreads_or_miswrote_decode_to_what_their_bytes_say() {
    let Some(golden) = Golden::load() else { return };
    let blobs = golden.blobs("see go_result");
    assert_eq!(blobs.len(), 3);
    for (file, bytes, entry) in blobs {
        let mut dataset = golden.dataset(entry);
        let decoded = decode_all(&bytes, ReadOptions::default()).expect("nothing in it is wrong");
        let blob = NumericBlob::open(&bytes).expect("a good blob");
        match file {
            // Right bytes: the reference's own reader stops at a varint of ten bytes, ours does not.
            "v1_extreme_delta.mebo" => {
                assert_eq!(decoded, dataset.expected(&bytes));
                assert!(dataset.encode(options_of(&blob, false)) == bytes);
            }
            // Wrong bytes: the timestamps are gone, and the reader does not pretend otherwise.
            "go_bug_packed_chunk37.mebo" => {
                assert_eq!(decoded[2].timestamps[34], 1_735_689_602_614_441);
                assert!(dataset.encode(options_of(&blob, false)) != bytes, "never written by us");
                for metric in &mut dataset.metrics {
                    if metric.timestamps.len() > 2 {
                        metric.timestamps = timestamps_as_the_defect_stores_them(&metric.timestamps, 37);
                    }
                }
                assert_eq!(decoded, dataset.expected(&bytes));
            }
            "go_rows1100_packed.mebo" => {
                assert_eq!(decoded[0].timestamps[510], 1_735_689_651_097_060);
                assert!(dataset.encode(options_of(&blob, false)) != bytes, "never written by us");
                let timestamps = &mut dataset.metrics[0].timestamps;
                *timestamps = timestamps_as_the_defect_stores_them(timestamps, 512);
                assert_eq!(decoded, dataset.expected(&bytes));
            }
            _ => panic!("{file} is new"),
        }
    }
}
