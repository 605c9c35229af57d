//! Small blobs of our own, kept in the repository: what was written once is read and written the same way for ever.
//!
//! Their bytes were compared with the reference writer's, through the same code, when they were made (`golden.rs`).
//! After adding one to [`numeric`] or [`texts`], write it with
//! `WRITE_FIXTURES=1 cargo test -p phalanx-mebo --test fixtures`.

use crate::common::{Decoded, Values, bits, decode_all, fixtures, other_ways_agree};
use phalanx_mebo::{
    Blob, BlobSet, Compression, Encoder, EncoderOptions, Endian, Key, Layout, NumericBlob, ReadOptions,
    TextBlob, TimestampEncoding, ValueEncoding,
};

const START: i64 = 1_735_689_600_000_000;

/// Two different names with one hash: what makes a numeric blob store its names.
const TWINS: [&str; 2] = ["sensor.a.aaaaaa1", "qFKKgfZuCLTIIzgI"];

struct Metric {
    name: &'static str,
    timestamps: Vec<i64>,
    values: Vec<f64>,
}

/// Five metrics: a decimal that wanders, doubles of full precision, every odd kind of double, extreme timestamps, one
/// point. The first two share their timestamps.
fn metrics() -> Vec<Metric> {
    let jittered: Vec<i64> = (0..40).map(|i| START + i * 100_000 + i * i * 7919 % 613).collect();
    let decimals = (0..40).map(|i| f64::from(2000 + i * i % 37) / 100.0).collect();
    let real = (0..40).map(|i| 1.0 / (f64::from(i) + 3.0)).collect();
    let odd = vec![
        f64::NAN,
        f64::from_bits(0x7FF4_0000_0000_0001),
        -0.0,
        0.0,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::from_bits(1),
        f64::MAX,
        1.5,
    ];
    let extremes = vec![i64::MIN, i64::MAX, 0, 0, -1, 1, START, START - 1, i64::MAX];
    vec![
        Metric { name: "chamber.pressure", timestamps: jittered.clone(), values: decimals },
        Metric { name: "rf.power", timestamps: jittered, values: real },
        Metric { name: "odd.values", timestamps: (0..9).map(|i| START + i).collect(), values: odd },
        Metric { name: "odd.clock", timestamps: extremes, values: vec![7.25; 9] },
        Metric { name: "single", timestamps: vec![START], values: vec![-273.15] },
    ]
}

fn tag(metric: usize, point: usize) -> String {
    if point.is_multiple_of(3) { String::new() } else { format!("µ{metric}.{point}") }
}

struct Fixture {
    name: String,
    options: EncoderOptions,
    tags: bool,
    twins: bool,
}

impl Fixture {
    fn new(name: &str, options: EncoderOptions) -> Self {
        Self { name: name.to_owned(), options, tags: false, twins: false }
    }

    fn metrics(&self) -> Vec<Metric> {
        let mut metrics = metrics();
        if self.twins {
            metrics[1].name = TWINS[0];
            metrics[3].name = TWINS[1];
        }
        metrics
    }

    fn write(&self) -> Vec<u8> {
        let mut encoder = Encoder::new(START, self.options);
        for (Metric { name, timestamps, values }, i) in self.metrics().into_iter().zip(0..) {
            let tags: Vec<String> = (0..values.len()).map(|point| tag(i, point)).collect();
            match self.tags {
                true => encoder.add_tagged(name, &timestamps, &values, &tags),
                false => encoder.add(name, &timestamps, &values),
            }
            .expect("a good metric");
        }
        encoder.finish().expect("a good blob")
    }

    fn expected(&self) -> Vec<Decoded> {
        let mut expected: Vec<Decoded> = (0..)
            .zip(self.metrics())
            .map(|(i, metric)| Decoded {
                id: Key::from(metric.name).id(),
                name: self.twins.then(|| metric.name.to_owned()),
                tags: self.tags.then(|| (0..metric.values.len()).map(|point| tag(i, point)).collect()),
                timestamps: metric.timestamps,
                values: Values::Bits(bits(&metric.values)),
            })
            .collect();
        if self.options.layout == Layout::V2 {
            expected.sort_by_key(|metric| metric.id);
        }
        expected
    }
}

fn numeric() -> Vec<Fixture> {
    let mut all = Vec::new();
    for &timestamps in TimestampEncoding::ALL {
        for &values in ValueEncoding::ALL {
            let options = EncoderOptions { timestamps, values, ..EncoderOptions::default() };
            all.push(Fixture::new(&format!("v1_{timestamps}_{values}"), options));
        }
    }
    let default = EncoderOptions::default();
    let v2 = EncoderOptions { layout: Layout::V2, ..default };
    let shared = EncoderOptions { shared_timestamps: true, ..v2 };
    let big = EncoderOptions { endian: Endian::Big, ..default };
    all.push(Fixture::new("v2_delta_gorilla", v2));
    all.push(Fixture::new(
        "v2_shared_delta_chimp",
        EncoderOptions { values: ValueEncoding::Chimp, ..shared },
    ));
    all.push(Fixture::new(
        "be_raw_alp",
        EncoderOptions { timestamps: TimestampEncoding::Raw, values: ValueEncoding::Alp, ..big },
    ));
    all.push(Fixture::new(
        "be_v2_shared_packed_raw",
        EncoderOptions {
            endian: Endian::Big,
            timestamps: TimestampEncoding::DeltaPacked,
            values: ValueEncoding::Raw,
            ..shared
        },
    ));
    for &compression in &Compression::ALL[1..] {
        let options =
            EncoderOptions { timestamp_compression: compression, value_compression: compression, ..shared };
        all.push(Fixture::new(&format!("v2_shared_{compression}"), options));
    }
    all.push(Fixture { tags: true, ..Fixture::new("v1_tagged", default) });
    all.push(Fixture { twins: true, ..Fixture::new("v1_names", default) });
    all.push(Fixture { twins: true, ..Fixture::new("v2_names", v2) });
    all
}

/// When, what, tag.
type TextPoint = (i64, &'static str, &'static str);

/// Metrics of texts: id, name, points.
const TEXTS: [(u64, &str, &[TextPoint]); 2] = [
    (11, "state.a", &[(START, "IDLE", "a"), (START + 100, "", ""), (START + 50, "PROCESSING µ", "t2")]),
    (3, "state.b", &[(START - 5, "OK", ""), (START + 7, "FAULT", "")]),
];

/// A text blob, put together by hand from §11; we have no writer of these.
fn write_text(raw: bool, tags: bool, names: bool, big: bool) -> Vec<u8> {
    let u16 = |value: usize| if big { (value as u16).to_be_bytes() } else { (value as u16).to_le_bytes() };
    let u32 = |value: usize| if big { (value as u32).to_be_bytes() } else { (value as u32).to_le_bytes() };
    let u64 = |value: u64| if big { value.to_be_bytes() } else { value.to_le_bytes() };
    let (mut stored_names, mut index, mut data) = (Vec::new(), Vec::new(), Vec::new());
    if names {
        stored_names.extend(u16(TEXTS.len()));
    }
    for (id, name, points) in TEXTS {
        let id = if names { Key::from(name).id() } else { id };
        if names {
            stored_names.extend(u16(name.len()));
            stored_names.extend(name.as_bytes());
        }
        index.extend(u64(id));
        index.extend(u16(points.len()));
        index.extend(u16(0));
        index.extend(u32(data.len()));
        let mut previous = START;
        for (time, value, tag) in points {
            if raw {
                data.push(8);
                data.extend(u64(*time as u64));
            } else {
                // All changes here fit into two bytes of varint.
                let change = time - previous;
                let zigzag = ((change << 1) ^ (change >> 63)) as u64;
                if zigzag >= 0x80 {
                    data.push(zigzag as u8 | 0x80);
                    data.push((zigzag >> 7) as u8);
                } else {
                    data.push(zigzag as u8);
                }
                previous = *time;
            }
            data.push(value.len() as u8);
            if tags {
                data.push(tag.len() as u8);
            }
            data.extend(value.as_bytes());
            if tags {
                data.extend(tag.as_bytes());
            }
        }
    }
    let flags = u8::from(tags) | u8::from(big) << 1 | u8::from(names) << 2;
    let mut blob = vec![0x10 | flags, 0xEB, if raw { 1 } else { 2 }, 1];
    blob.extend(u64(START as u64));
    let index_at = 32 + stored_names.len();
    for field in [TEXTS.len(), index_at, index_at + index.len(), data.len(), 0] {
        blob.extend(u32(field));
    }
    [blob, stored_names, index, data].concat()
}

fn texts() -> Vec<(&'static str, Vec<u8>, bool, bool)> {
    vec![
        ("text_delta", write_text(false, false, false, false), false, false),
        ("text_delta_tags_names", write_text(false, true, true, false), true, true),
        ("text_raw_tags_be", write_text(true, true, false, true), true, false),
    ]
}

fn expected_texts(tags: bool, names: bool) -> Vec<Decoded> {
    TEXTS
        .iter()
        .map(|(id, name, points)| Decoded {
            id: if names { Key::from(*name).id() } else { *id },
            name: names.then(|| (*name).to_owned()),
            timestamps: points.iter().map(|(time, ..)| *time).collect(),
            values: Values::Texts(points.iter().map(|(_, value, _)| (*value).to_owned()).collect()),
            tags: tags.then(|| points.iter().map(|(.., tag)| (*tag).to_owned()).collect()),
        })
        .collect()
}

fn stored(name: &str) -> Vec<u8> {
    static WRITE: std::sync::Once = std::sync::Once::new();
    WRITE.call_once(|| {
        if std::env::var_os("WRITE_FIXTURES").is_some() {
            write_the_fixtures();
        }
    });
    let path = fixtures().join(format!("{name}.mebo"));
    std::fs::read(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; see the head of this file", path.display()))
}

/// Once per run, where it is asked for.
fn write_the_fixtures() {
    let write = |name: &str, bytes: Vec<u8>| {
        std::fs::write(fixtures().join(format!("{name}.mebo")), bytes).expect("the folder is writable");
    };
    std::fs::create_dir_all(fixtures()).expect("the folder is writable");
    numeric().iter().for_each(|fixture| write(&fixture.name, fixture.write()));
    texts().into_iter().for_each(|(name, bytes, ..)| write(name, bytes));
}

#[test]
fn every_fixture_decodes_to_what_was_written() {
    for fixture in numeric() {
        let bytes = stored(&fixture.name);
        assert_eq!(decode_all(&bytes, ReadOptions::default()), Ok(fixture.expected()), "{}", fixture.name);
        other_ways_agree(&NumericBlob::open(&bytes).expect("a good blob"));
    }
    for (name, _, tags, names) in texts() {
        assert_eq!(
            decode_all(&stored(name), ReadOptions::default()),
            Ok(expected_texts(tags, names)),
            "{name}"
        );
    }
}

#[test]
fn every_uncompressed_fixture_is_written_to_the_same_bytes() {
    for fixture in numeric() {
        let stored = stored(&fixture.name);
        let written = fixture.write();
        if fixture.options.value_compression == Compression::None && !fixture.tags {
            assert!(written == stored, "{}", fixture.name);
        } else {
            // Another version of a compressor may choose other bytes.
            assert_eq!(
                decode_all(&written, ReadOptions::default()),
                Ok(fixture.expected()),
                "{}",
                fixture.name
            );
        }
    }
    for (name, written, ..) in texts() {
        assert!(written == stored(name), "{name}");
    }
}

/// §14.1, byte by byte, as `docs/mebo.md` explains it.
#[test]
fn the_worked_example_is_written_as_the_documentation_shows_it() {
    let mut encoder = Encoder::new(START, EncoderOptions::default());
    let timestamps = [0, 1_000_000, 2_000_000, 3_000_500].map(|t| START + t);
    encoder.add("cpu.usage", &timestamps, &[10.0, 10.0, 10.5, 12.0]).expect("a good metric");
    let expected: [&[u8]; 16] = [
        &[0x10, 0xEA, 0x32, 0x11],
        &[0x00, 0x60, 0x0C, 0xBA, 0x99, 0x2A, 0x06, 0x00],
        &[1, 0, 0, 0],
        &[32, 0, 0, 0],
        &[48, 0, 0, 0],
        &[62, 0, 0, 0],
        &[74, 0, 0, 0],
        &[0x8A, 0x99, 0x19, 0xE2, 0x1F, 0xBE, 0x4D, 0x19],
        &[4, 0],
        &[0, 0, 0, 0, 0, 0],
        &[0x80, 0xC0, 0xB1, 0xD0, 0x9B, 0xD3, 0x8A, 0x03],
        &[0x80, 0x89, 0x7A],
        &[0x00],
        &[0xE8, 0x07],
        &[0x40, 0x24, 0, 0, 0, 0, 0, 0],
        &[0x6F, 0x03, 0xB0, 0x3D],
    ];
    assert_eq!(encoder.finish().expect("a good blob"), expected.concat());
}

#[test]
fn names_with_the_same_id_are_told_apart_by_name() {
    for name in ["v1_names", "v2_names"] {
        let bytes = stored(name);
        let blob = NumericBlob::open(&bytes).expect("a good blob");
        let [first, second] = TWINS.map(|twin| blob.find(twin).expect("it is there"));
        assert_eq!((first.id(), first.len(), second.len()), (second.id(), 40, 9), "{name}");
        assert_eq!((first.name(), second.name()), (Some(TWINS[0]), Some(TWINS[1])));
        assert_eq!(blob.find(first.id()).map(|metric| metric.len()), Some(9), "by id, the last");
    }
}

/// Some writers leave the names of a V2 blob in the order they were added, though they sort the index (§4).
#[test]
fn names_in_another_order_than_the_index_are_put_right_in_v2_only() {
    let bytes = stored("v2_names");
    let names: Vec<String> = NumericBlob::open(&bytes)
        .expect("a good blob")
        .metrics()
        .map(|metric| metric.name().expect("names are stored").to_owned())
        .collect();
    let added: Vec<&str> =
        numeric().pop().expect("the last is v2_names").metrics().iter().map(|metric| metric.name).collect();
    assert_ne!(names, added);
    let mut changed = bytes[..34].to_vec();
    for name in &added {
        changed.extend((name.len() as u16).to_le_bytes());
        changed.extend(name.as_bytes());
    }
    changed.extend(&bytes[changed.len()..]);
    let read = |bytes: &[u8]| decode_all(bytes, ReadOptions::default());
    assert_eq!(read(&changed), read(&bytes));
    // The same in a V1 blob is an error: its index is in the order of adding, too.
    changed[0] = 0x14;
    assert!(read(&changed).is_err());
}

#[test]
fn a_set_reads_blobs_as_one_series_by_start_time() {
    let part = |start: i64, metrics: &[(u64, &[f64])]| {
        let mut encoder = Encoder::new(start, EncoderOptions::default());
        for (id, values) in metrics {
            let timestamps: Vec<i64> = (0..values.len() as i64).map(|i| start + i).collect();
            encoder.add(*id, &timestamps, values).expect("a good metric");
        }
        encoder.finish().expect("a good blob")
    };
    let late = part(3000, &[(1, &[5.0, 6.0])]);
    let early = part(1000, &[(1, &[1.0, 2.0]), (2, &[9.0])]);
    let middle = part(2000, &[(3, &[7.0]), (1, &[3.0, 4.0])]);
    let text = stored("text_delta");
    let open = |bytes| Blob::open(bytes).expect("a good blob");
    let set = BlobSet::new([open(&late), open(&text), open(&early), open(&middle), open(&text)]);

    assert_eq!(set.ids(), [1, 2, 3]);
    let series = set.series(1);
    let (mut timestamps, mut values) = (Vec::new(), Vec::new());
    series.decode_into(&mut timestamps, &mut values).expect("good blobs");
    assert_eq!(timestamps, [1000, 1001, 2000, 2001, 3000, 3001]);
    assert_eq!(values, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let iterated: Result<Vec<f64>, _> = series.points().map(|point| point.map(|point| point.value)).collect();
    assert_eq!(iterated, Ok(values.clone()));
    let single: Vec<f64> = (0..6).map(|i| series.point(i).expect("a good point").value).collect();
    assert_eq!(single, values);
    assert_eq!((series.len(), series.duration()), (6, Ok(Some(2001))));
    assert_eq!((set.series(3).len(), set.series(4).len()), (1, 0));
    assert_eq!(set.series(4).duration(), Ok(None));

    assert_eq!(set.text_ids(), [11, 3]);
    let states = set.text_series(3);
    assert_eq!(states.len(), 4);
    assert_eq!(states.point(3).map(|point| point.value), Ok("FAULT"));
}

#[test]
fn texts_are_found_by_id_and_name_and_place() {
    let bytes = stored("text_delta_tags_names");
    let blob = TextBlob::open(&bytes).expect("a good blob");
    let metric = blob.find("state.a").expect("it is there");
    assert_eq!(metric.id(), Key::from("state.a").id());
    let point = metric.point(2).expect("a good point");
    assert_eq!((point.timestamp, point.value, point.tag), (START + 50, "PROCESSING µ", Some("t2")));
    assert!(blob.find("state.c").is_none());
    assert!(blob.find(11).is_none(), "ids are hashes here");
}
