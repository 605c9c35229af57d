//! What the integration tests share: a blob decoded in every way there is, and blobs to try.

#![allow(dead_code, reason = "each test file is a crate of its own and uses its share")]

use std::path::{Path, PathBuf};

use phalanx_mebo::{Blob, Error, Metric, NumericBlob, ReadOptions, TextMetric};

/// One metric, decoded.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Decoded {
    pub(crate) id: u64,
    pub(crate) name: Option<String>,
    pub(crate) timestamps: Vec<i64>,
    pub(crate) values: Values,
    pub(crate) tags: Option<Vec<String>>,
}

/// Numbers as their bits: NaN is to be compared, too.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Values {
    Bits(Vec<u64>),
    Texts(Vec<String>),
}

pub(crate) fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Everything in a blob, or the first error.
pub(crate) fn decode_all(bytes: &[u8], options: ReadOptions) -> Result<Vec<Decoded>, Error> {
    match Blob::open_with(bytes, options)? {
        Blob::Numeric(blob) => blob.metrics().map(decode).collect(),
        Blob::Text(blob) => blob.metrics().map(decode_text).collect(),
    }
}

pub(crate) fn decode(metric: Metric<'_>) -> Result<Decoded, Error> {
    let (mut timestamps, mut values, mut tags) = (Vec::new(), Vec::new(), Vec::new());
    metric.decode_into(&mut timestamps, &mut values)?;
    metric.tags_into(&mut tags)?;
    Ok(Decoded {
        id: metric.id(),
        name: metric.name().map(str::to_owned),
        timestamps,
        values: Values::Bits(bits(&values)),
        tags: metric.has_tags().then(|| tags.into_iter().map(str::to_owned).collect()),
    })
}

pub(crate) fn decode_text(metric: TextMetric<'_>) -> Result<Decoded, Error> {
    let points = metric.points()?.collect::<Result<Vec<_>, _>>()?;
    let tags = points.iter().filter_map(|point| point.tag.map(str::to_owned)).collect();
    Ok(Decoded {
        id: metric.id(),
        name: metric.name().map(str::to_owned),
        timestamps: points.iter().map(|point| point.timestamp).collect(),
        values: Values::Texts(points.iter().map(|point| point.value.to_owned()).collect()),
        tags: metric.has_tags().then_some(tags),
    })
}

/// The other two ways to read a metric give what [`decode`] gives: iterating, and access to single points.
#[track_caller]
pub(crate) fn other_ways_agree(blob: &NumericBlob<'_>) {
    for metric in blob.metrics() {
        let whole = decode(metric).expect("a good metric");
        let Values::Bits(values) = &whole.values else { panic!("numbers") };
        let tag = |i: usize| whole.tags.as_ref().map(|tags| tags[i].as_str());
        let mut count = 0;
        for (point, i) in metric.points().expect("a good metric").zip(0..) {
            let point = point.expect("a good point");
            let expected = (whole.timestamps[i], values[i], tag(i));
            assert_eq!((point.timestamp, point.value.to_bits(), point.tag), expected, "iterated point {i}");
            count += 1;
        }
        assert_eq!(count, metric.len());
        let stride = metric.len() / 150 + 1;
        for i in (0..metric.len()).step_by(stride).chain([metric.len() - 1]) {
            let point = metric.point(i).expect("a good point");
            let expected = (whole.timestamps[i], values[i], tag(i));
            assert_eq!((point.timestamp, point.value.to_bits(), point.tag), expected, "point {i} by itself");
        }
    }
}

/// The folder of the fixtures of this crate.
pub(crate) fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// Every blob at hand with its name: the crate's own, and the reference's where they are present, the mutated ones too.
pub(crate) fn all_blobs() -> Vec<(String, Vec<u8>)> {
    let mut blobs = blobs_in(&fixtures());
    assert!(blobs.len() >= 10, "the fixtures are in the repository");
    if let Some(golden) = phalanx_testkit::shared("golden/mebo") {
        blobs.extend(blobs_in(&golden));
        blobs.extend(blobs_in(&golden.join("bad")));
    }
    blobs
}

pub(crate) fn blobs_in(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(folder).expect("the folder is readable");
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.expect("the folder is readable").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "mebo"))
        .collect();
    paths.sort();
    paths
        .into_iter()
        .map(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            (name, std::fs::read(&path).expect("the blob is readable"))
        })
        .collect()
}
