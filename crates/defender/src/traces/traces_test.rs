use phalanx_mebo::{Compression, Encoder, EncoderOptions, Layout, ValueEncoding};
use proptest::prelude::*;

use super::*;
use crate::strategy::Strategy as DefenseStrategy;

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

fn csv(text: &str) -> Result<Recording, String> {
    Recording::from_csv(text.as_bytes()).map_err(|error| error.to_string())
}

fn json(text: &str) -> Result<Recording, String> {
    Recording::from_json(text.as_bytes()).map_err(|error| error.to_string())
}

const WIDE: &str = "time,A,B\n0,1,10\n1000000,2,\n2000000,3,30\n";

#[test]
fn wide_long_and_json_say_the_same() {
    let wide = csv(WIDE).unwrap();
    let long = csv("time,svid,value\n0,A,1\n0,B,10\n1000000,A,2\n2000000,A,3\n2000000,B,30\n").unwrap();
    let as_encode_takes_it =
        csv("timestamp,metric,value\n2000000,B,30\n0,A,1\n0,B,10\n1000000,A,2\n2000000,A,3\n").unwrap();
    let shared =
        json(r#"{"time":[0,1000000,"1970-01-01T00:00:02Z"],"traces":{"A":[1,2,3],"B":[10,null,30]}}"#)
            .unwrap();
    let own =
        json(r#"{"traces":{"B":{"time":[0,2000000],"values":[10,30]},"A":{"time":[0,1000000,2000000],"values":[1,2,3]}}}"#)
            .unwrap();
    let tagged =
        csv("timestamp,metric,value,tag\n0,A,1,x\n0,B,10,\n1000000,A,2,\n2000000,A,3,\n2000000,B,30,y\n");
    assert_eq!(wide, long);
    assert_eq!(wide, tagged.unwrap());
    assert_eq!(wide, shared);
    assert_eq!(wide, own);
    let sorted = |recording: &Recording| {
        let mut series = recording.series().to_vec();
        series.sort_by(|a, b| a.svid.cmp(&b.svid));
        series
    };
    assert_eq!(sorted(&wide), sorted(&as_encode_takes_it), "points are put in the order of time");
}

#[test]
fn only_wanted_columns_are_there_and_the_start_is_that_of_all() {
    let recording = csv("time,svid,value\n5,A,1\n7,B,2\n9,A,3\n").unwrap();
    let chunks = recording.to_chunks().unwrap();
    let traces = Traces::decode(&chunks, &names(&["B", "Z"])).unwrap();
    assert_eq!((traces.start(), traces.points(), traces.svids()), (5, 3, 2));
    assert_eq!(traces.column(0).unwrap().timestamps(), [7]);
    assert!(traces.column(1).is_none());
    assert!(traces.column(2).is_none());
}

#[test]
fn svids_that_are_sampled_together_share_their_timestamps() {
    let chunks = csv(&WIDE.replace("2,\n", "2,20\n")).unwrap().to_chunks().unwrap();
    let traces = Traces::decode(&chunks, &names(&["A", "B"])).unwrap();
    assert_eq!(traces.times.len(), 1);
    assert_eq!(traces.column(1).unwrap().values(), [10.0, 20.0, 30.0]);
}

#[test]
fn columns_of_a_chunk_whose_points_go_back_are_sorted() {
    let mut encoder = Encoder::new(0, EncoderOptions { layout: Layout::V2, ..EncoderOptions::default() });
    encoder.add("A", &[30, 10, 20], &[3.0, 1.0, 2.0]).unwrap();
    let later = encoder.finish().unwrap();
    let mut encoder = Encoder::new(0, EncoderOptions::default());
    encoder.add("A", &[5, 15], &[0.5, 1.5]).unwrap();
    let chunks = [later, encoder.finish().unwrap()];
    let traces = Traces::decode(&chunks, &names(&["A"])).unwrap();
    assert_eq!(traces.column(0).unwrap().timestamps(), [5, 10, 15, 20, 30]);
    assert_eq!(traces.column(0).unwrap().values(), [0.5, 1.0, 1.5, 2.0, 3.0]);
}

#[test]
fn svids_known_by_number_are_found() {
    let chunks = csv("time,0x0000000000000007,0x0000000000000008\n0,1,2\n").unwrap().to_chunks().unwrap();
    let traces = Traces::decode(&chunks, &names(&["0x0000000000000008"])).unwrap();
    assert_eq!(traces.column(0).unwrap().values(), [2.0]);
}

#[test]
fn a_corrupt_chunk_is_named_with_its_reason() {
    let good = csv(WIDE).unwrap().to_chunks().unwrap();
    for bad in [&b""[..], b"not a blob", &good[0][..good[0].len() - 1], &good[0][..40]] {
        let error = Traces::decode(&[&good[0][..], bad], &names(&["A", "B"])).unwrap_err();
        assert!(matches!(error, TraceError::Chunk { chunk: 2, .. }));
        assert!(error.to_string().starts_with("chunk 2 of the T-chart cannot be read: "), "{error}");
    }
    assert_eq!(Traces::decode::<&[u8]>(&[], &names(&["A"])).unwrap().points(), 0);
}

#[test]
fn a_few_bytes_that_claim_many_points_are_refused_before_memory_is_asked_for() {
    let options = EncoderOptions {
        layout: Layout::V2,
        values: ValueEncoding::Alp,
        timestamp_compression: Compression::Zstd,
        shared_timestamps: true,
        ..EncoderOptions::default()
    };
    let mut encoder = Encoder::new(0, options);
    let times: Vec<i64> = (0..1 << 20).collect();
    let values = vec![1.0; times.len()];
    let svids: Vec<String> = (0..24).map(|i| format!("S{i}")).collect();
    svids.iter().for_each(|svid| encoder.add(svid.as_str(), &times, &values).unwrap());
    let blob = encoder.finish().unwrap();
    assert!(blob.len() < 100_000, "{} bytes", blob.len());
    assert!(matches!(Traces::decode(&[&blob], &svids), Err(TraceError::TooLarge { .. })));
    assert_eq!(Traces::decode(&[&blob], &svids[..2]).unwrap().column(1).unwrap().values().len(), 1 << 20);
}

#[test]
fn equations_see_their_columns_and_missing_ones_have_no_value() {
    let strategy = DefenseStrategy::parse(
        "[[group]]\ntools=['*']\n[[group.chart]]\nname='a'\nequation='mean(B) - first(A)'\nlimits={baseline=30}\nrules=[]\n\
         [[group.chart]]\nname='b'\nequation='mean(GONE)'\nlimits={baseline=30}\nrules=[]\n\
         [[group.chart]]\nname='c'\nequation='mean(A[10s..])'\nlimits={baseline=30}\nrules=[]\n",
    )
    .unwrap();
    let charts = strategy.charts_for(&crate::record::Chamber::new("t", "c").unwrap());
    let chunks = csv(WIDE).unwrap().to_chunks().unwrap();
    let traces = Traces::decode(&chunks, charts.svids()).unwrap();
    let values: Vec<Option<f64>> = traces.evaluate(&charts).iter().map(Outcome::value).collect();
    assert_eq!(values, [Some(19.0), None, None]);
}

#[test]
fn what_is_wrong_with_a_file_is_told_with_its_place() {
    #[track_caller]
    fn refused(read: Result<Recording, String>, words: &[&str]) {
        let error = read.expect_err("it is wrong");
        for word in words {
            assert!(error.contains(word), "no {word:?} in: {error}");
        }
    }
    refused(csv(""), &["line 1", "time,svid,value"]);
    refused(csv("a,b,c\n1,2,3\n"), &["line 1", "\"a,b,c\""]);
    refused(csv("time,A\n"), &["no points"]);
    refused(csv("time,A\n0,\n"), &["no points"]);
    refused(csv("time,A\n0,1\n0.5,2\n"), &["line 3", "\"0.5\"", "microseconds"]);
    refused(csv("time,A\n0,x\n"), &["line 2", "\"x\""]);
    refused(csv("time,A\n0,1,2\n"), &["line 2", "3 cells", "2"]);
    refused(csv("time,A,A\n0,1,2\n"), &["twice"]);
    refused(csv("time,,A\n0,1,2\n"), &["not the name"]);
    refused(csv("time,svid,value\n99999999999999999999,A,1\n"), &["line 2"]);
    refused(Recording::from_csv(b"time,A\n0,\xff\n").map_err(|e| e.to_string()), &["line 2", "UTF-8"]);
    refused(json(""), &["line 1"]);
    refused(json("{\"traces\":{\"A\":[1]}}"), &["trace \"A\"", "no \"time\""]);
    refused(json("{\"time\":[0,1],\"traces\":{\"A\":[1]}}"), &["2 times and 1 values"]);
    refused(json("{\"time\":[0],\"traces\":{}}"), &["no points"]);
    refused(json("{\"time\":[\"x\"],\"traces\":{\"A\":[1]}}"), &["\"x\""]);
    refused(json(&format!("{{\"traces\":{}", "[".repeat(100_000))), &["line 1"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn chunks_give_back_what_was_put_in(
        columns in prop::collection::vec(prop::collection::vec((0i64..1_000_000, any::<f64>()), 1..40), 1..6),
        most in 1usize..60,
    ) {
        let mut text = String::from("time,svid,value\n");
        for (i, column) in columns.iter().enumerate() {
            for (time, value) in column {
                text.push_str(&format!("{time},S{i},{value:e}\n"));
            }
        }
        let recording = Recording::from_csv(text.as_bytes()).unwrap();
        let chunks = recording.chunks_of(most).unwrap();
        let wanted: Vec<String> = (0..columns.len()).map(|i| format!("S{i}")).collect();
        let traces = Traces::decode(&chunks, &wanted).unwrap();
        let mut first = i64::MAX;
        for (i, column) in columns.iter().enumerate() {
            let mut expected = column.clone();
            expected.sort_by_key(|point| point.0);
            first = first.min(expected[0].0);
            let found = traces.column(i).unwrap();
            prop_assert_eq!(found.timestamps(), expected.iter().map(|point| point.0).collect::<Vec<_>>());
            for (found, (_, expected)) in found.values().iter().zip(&expected) {
                prop_assert!(found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan());
            }
        }
        prop_assert_eq!(traces.start(), first);
    }

    #[test]
    fn mutations_and_prefixes_never_panic(at in 0usize..400, byte: u8, cut in 0usize..400) {
        let chunk = csv(WIDE).unwrap().to_chunks().unwrap()[0].to_vec();
        let mut bad = chunk.clone();
        let place = at % bad.len();
        bad[place] = byte;
        for bytes in [&bad[..], &chunk[..cut % chunk.len()]] {
            if let Ok(traces) = Traces::decode(&[bytes], &names(&["A", "B"])) {
                let _ = traces.column(0).map(|column| column.values().len());
            }
        }
        let wide = WIDE.as_bytes();
        let mut text = wide.to_vec();
        text[at % wide.len()] = byte;
        let _ = Recording::from_csv(&text);
        let _ = Recording::from_json(&text);
        let good = br#"{"time":[0,1000000],"traces":{"A":[1,2],"B":{"time":[3],"values":[10]}}}"#;
        let mut text = good.to_vec();
        text[at % good.len()] = byte;
        let _ = Recording::from_json(&text);
        prop_assert!(Recording::from_json(&good[..cut % good.len()]).is_err());
    }
}
