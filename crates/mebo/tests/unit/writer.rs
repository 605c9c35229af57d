//! What the writer refuses, and what it chooses by itself.

use phalanx_mebo::{
    EncodeError, Encoder, EncoderOptions, Layout, NumericBlob, TimestampEncoding, ValueEncoding,
};

fn encoder(options: EncoderOptions) -> Encoder {
    Encoder::new(0, options)
}

fn added(adds: impl FnOnce(&mut Encoder) -> Result<(), EncodeError>) -> Result<(), EncodeError> {
    adds(&mut encoder(EncoderOptions::default()))
}

#[test]
fn what_is_no_metric_is_refused_with_a_reason() {
    assert!(matches!(added(|e| e.add(0, &[1], &[1.0])), Err(EncodeError::ZeroId)));
    assert!(matches!(added(|e| e.add("", &[1], &[1.0])), Err(EncodeError::EmptyName)));
    assert!(matches!(added(|e| e.add("a", &[], &[])), Err(EncodeError::NoPoints { .. })));
    assert!(matches!(
        added(|e| e.add("a", &[1], &[1.0, 2.0])),
        Err(EncodeError::Lengths { timestamps: 1, values: 2, tags: None, .. })
    ));
    assert!(matches!(
        added(|e| e.add_tagged("a", &[1], &[1.0], &["x", "y"])),
        Err(EncodeError::Lengths { tags: Some(2), .. })
    ));
    let twice = added(|e| e.add("a", &[1], &[1.0]).and_then(|()| e.add("a", &[2], &[2.0])));
    assert_eq!(
        twice.expect_err("added twice").to_string(),
        "metric \"a\" was added before; add all of its points at once"
    );
    let mixed = added(|e| e.add("a", &[1], &[1.0]).and_then(|()| e.add(7, &[2], &[2.0])));
    assert!(mixed.expect_err("two kinds").to_string().contains("go by name"));
    let mixed = added(|e| e.add(7, &[1], &[1.0]).and_then(|()| e.add("a", &[2], &[2.0])));
    assert!(mixed.expect_err("two kinds").to_string().contains("go by id"));
    assert!(matches!(encoder(EncoderOptions::default()).finish(), Err(EncodeError::NoMetrics)));
}

#[test]
fn after_an_error_the_encoder_goes_on() {
    let mut encoder = encoder(EncoderOptions::default());
    encoder.add("a", &[1], &[1.0]).expect("a good metric");
    encoder.add("b", &[1, 2], &[1.0]).expect_err("lengths");
    encoder.add("b", &[1, 2], &[1.0, 2.0]).expect("a good metric");
    let bytes = encoder.finish().expect("a good blob");
    assert_eq!(NumericBlob::open(&bytes).map(|blob| blob.len()), Ok(2));
}

#[test]
fn v1_takes_as_many_points_as_the_worst_case_allows() {
    use TimestampEncoding::{Delta, DeltaPacked, Raw};
    for (timestamps, values, most) in [
        (Raw, ValueEncoding::Raw, 8191),
        (DeltaPacked, ValueEncoding::Raw, 8191),
        (Delta, ValueEncoding::Raw, 7281),
        (Raw, ValueEncoding::Alp, 7281),
        (DeltaPacked, ValueEncoding::Gorilla, 7281),
    ] {
        let options = EncoderOptions { timestamps, values, ..EncoderOptions::default() };
        let (times, numbers) = (vec![0; most + 1], vec![0.0; most + 1]);
        encoder(options).add(1, &times[1..], &numbers[1..]).expect("as many as fit");
        let error = encoder(options).add(1, &times, &numbers).expect_err("one more");
        assert!(matches!(error, EncodeError::TooManyPoints { .. }), "{error}");
        let v2 = EncoderOptions { layout: Layout::V2, ..options };
        encoder(v2).add(1, &times, &numbers).expect("V2 takes them");
    }
}

#[test]
fn v2_widens_its_index_only_when_it_must() {
    let raw = EncoderOptions {
        layout: Layout::V2,
        timestamps: TimestampEncoding::Delta,
        values: ValueEncoding::Raw,
        ..EncoderOptions::default()
    };
    let extended = |points: usize, last: bool| {
        let mut encoder = encoder(raw);
        let (times, values) = (vec![0; points], vec![0.5; points]);
        encoder.add(5, &times, &values).expect("a good metric");
        encoder.add(if last { 4 } else { 6 }, &[0], &[0.0]).expect("a good metric");
        let bytes = encoder.finish().expect("a good blob");
        let blob = NumericBlob::open(&bytes).expect("a good blob");
        let mut values = Vec::new();
        blob.find(5).expect("it was added").values_into(&mut values).expect("a good metric");
        assert_eq!(values.len(), points);
        blob.header().extended
    };
    assert!(!extended(8191, false), "65,528 bytes fit");
    assert!(extended(8192, false), "65,536 bytes do not");
    assert!(!extended(8192, true), "the length of the last column is not stored");
    assert!(extended(65_536, true), "but its count is");
}

#[test]
fn tags_that_are_all_empty_leave_no_trace() {
    let mut tagged = encoder(EncoderOptions::default());
    tagged.add_tagged(1, &[1, 2], &[1.0, 2.0], &["", ""]).expect("a good metric");
    let mut plain = encoder(EncoderOptions::default());
    plain.add(1, &[1, 2], &[1.0, 2.0]).expect("a good metric");
    assert_eq!(tagged.finish().expect("a good blob"), plain.finish().expect("a good blob"));
}

#[test]
fn metrics_without_tags_get_empty_ones_where_others_have_some() {
    for layout in [Layout::V1, Layout::V2] {
        let mut encoder = encoder(EncoderOptions { layout, ..EncoderOptions::default() });
        encoder.add(3, &[1, 2], &[1.0, 2.0]).expect("a good metric");
        encoder.add_tagged(2, &[1], &[1.0], &["warm"]).expect("a good metric");
        let bytes = encoder.finish().expect("a good blob");
        let blob = NumericBlob::open(&bytes).expect("a good blob");
        let tags = |id: u64| {
            let mut tags = Vec::new();
            blob.find(id).expect("it was added").tags_into(&mut tags).expect("good tags");
            tags.into_iter().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(tags(3), ["", ""]);
        assert_eq!(tags(2), ["warm"]);
    }
}
