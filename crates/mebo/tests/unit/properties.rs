//! What is written is read back, bit for bit, whatever the series is.

use crate::common::{Decoded, Values, bits, decode_all, other_ways_agree};
use phalanx_mebo::{
    Compression, Encoder, EncoderOptions, Endian, Layout, NumericBlob, ReadOptions, TimestampEncoding,
    ValueEncoding,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

fn options() -> impl Strategy<Value = EncoderOptions> {
    let compressions = || select(Compression::ALL);
    (
        select(&[Layout::V1, Layout::V2][..]),
        select(&[Endian::Little, Endian::Big][..]),
        select(TimestampEncoding::ALL),
        select(ValueEncoding::ALL),
        compressions(),
        compressions(),
        any::<bool>(),
    )
        .prop_map(
            |(
                layout,
                endian,
                timestamps,
                values,
                timestamp_compression,
                value_compression,
                shared_timestamps,
            )| {
                EncoderOptions {
                    layout,
                    endian,
                    timestamps,
                    values,
                    timestamp_compression,
                    value_compression,
                    shared_timestamps,
                }
            },
        )
}

/// Clocks that tick, stand still, jump back, and are at the ends of their range.
fn timestamps(count: usize) -> impl Strategy<Value = Vec<i64>> {
    let regular = (any::<i32>(), any::<i16>(), vec(-50..50i64, count)).prop_map(|(start, step, jitter)| {
        (0..).zip(jitter).map(|(i, late)| i64::from(start) + i * i64::from(step) + late).collect()
    });
    let extremes = [i64::MIN, i64::MAX, 0, -1, 1, i64::MIN + 1, 1 << 62, -(1 << 62), 1_735_689_600_000_000];
    prop_oneof![
        3 => regular,
        1 => vec(any::<i64>(), count),
        1 => vec(select(extremes.to_vec()), count),
        1 => any::<i64>().prop_map(move |time| vec![time; count]),
    ]
}

/// Decimals, doubles of full precision, and every kind that is not an ordinary number.
fn values(count: usize) -> impl Strategy<Value = Vec<f64>> {
    let special = [
        f64::NAN,
        f64::from_bits(0x7FF0_0000_0000_0001),
        f64::from_bits(0xFFF8_DEAD_BEEF_0001),
        0.0,
        -0.0,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::from_bits(1),
        -f64::MIN_POSITIVE / 2.0,
        f64::MIN_POSITIVE,
        f64::MAX,
        f64::MIN,
        9.2e18,
        9_007_199_254_740_993.0,
    ];
    let decimal =
        (-1_000_000..1_000_000i32, 0..6i32).prop_map(|(digits, e)| f64::from(digits) / 10f64.powi(e));
    prop_oneof![
        2 => vec(decimal.clone(), count),
        2 => vec((0.9..1.1f64).prop_map(|v| v * 1e-3), count),
        1 => vec(any::<u64>().prop_map(f64::from_bits), count),
        1 => vec(prop_oneof![8 => decimal, 1 => select(special.to_vec())], count),
        1 => vec(select(special.to_vec()), count),
        1 => any::<u64>().prop_map(move |bits| vec![f64::from_bits(bits); count]),
    ]
}

type Series = (Vec<i64>, Vec<f64>, Vec<String>);

fn series() -> impl Strategy<Value = Series> {
    (1..200usize).prop_flat_map(|count| {
        let tags = prop_oneof![Just(vec![String::new(); count]), vec("[a-zµ]{0,6}", count)];
        (timestamps(count), values(count), tags)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_series_comes_back_bit_for_bit(
        options in options(),
        mut metrics in vec((1..1000u64, series()), 1..6),
        twins in any::<bool>(),
    ) {
        metrics.sort_by_key(|(id, _)| *id);
        metrics.dedup_by_key(|(id, _)| *id);
        if twins {
            // Timestamps to share.
            let times = metrics[0].1.0.clone();
            for (_, (timestamps, ..)) in &mut metrics {
                if timestamps.len() == times.len() {
                    timestamps.clone_from(&times);
                }
            }
        }
        // V1 keeps this order, V2 does not.
        metrics.reverse();
        let mut encoder = Encoder::new(metrics[0].1.0[0], options);
        for (id, (timestamps, values, tags)) in &metrics {
            encoder.add_tagged(*id, timestamps, values, tags).expect("a good metric");
        }
        let bytes = encoder.finish().expect("a good blob");

        let tagged = metrics.iter().any(|(_, (_, _, tags))| tags.iter().any(|tag| !tag.is_empty()));
        let mut expected: Vec<Decoded> = metrics
            .into_iter()
            .map(|(id, (timestamps, values, tags))| Decoded {
                id,
                name: None,
                timestamps,
                values: Values::Bits(bits(&values)),
                tags: tagged.then_some(tags),
            })
            .collect();
        if options.layout == Layout::V2 {
            expected.reverse();
        }
        prop_assert_eq!(decode_all(&bytes, ReadOptions::default()), Ok(expected));
        other_ways_agree(&NumericBlob::open(&bytes).expect("a good blob"));
    }

    /// The layout changes the order of columns, never their bytes; so does the order of adding under V2.
    #[test]
    fn the_order_of_adding_does_not_change_a_v2_blob(
        mut options in options(),
        mut metrics in vec((1..1000u64, series()), 2..6),
    ) {
        options.layout = Layout::V2;
        metrics.sort_by_key(|(id, _)| *id);
        metrics.dedup_by_key(|(id, _)| *id);
        let write = |metrics: &[(u64, Series)]| {
            let mut encoder = Encoder::new(0, options);
            for (id, (timestamps, values, _)) in metrics {
                encoder.add(*id, timestamps, values).expect("a good metric");
            }
            encoder.finish().expect("a good blob")
        };
        let ascending = write(&metrics);
        metrics.reverse();
        prop_assert!(write(&metrics) == ascending);
    }
}
