//! A blob that lost its end is refused, wherever it was cut.

use crate::common::{all_blobs, decode_all};
use phalanx_mebo::{ErrorKind, ReadOptions};

/// Up to this size every prefix is tried.
const WHOLE: usize = 16 << 10;

#[test]
fn every_prefix_of_every_blob_is_refused_when_opened_or_decoded() {
    let mut tried = 0;
    for (name, bytes) in all_blobs() {
        // Of mutated blobs only those are of interest that are good as a whole.
        if decode_all(&bytes, ReadOptions::default()).is_err() || name == "zero_metrics.mebo" {
            continue;
        }
        let cuts: Vec<usize> = if bytes.len() <= WHOLE {
            (0..bytes.len()).collect()
        } else {
            let tail = bytes.len() - 64..bytes.len();
            (0..4096).chain((4096..bytes.len()).step_by(61)).chain(tail).collect()
        };
        for cut in cuts {
            let Err(error) = decode_all(&bytes[..cut], ReadOptions::default()) else {
                panic!("{name} was taken without its last {} bytes", bytes.len() - cut);
            };
            assert_ne!(error.kind(), ErrorKind::TooLarge, "{name} cut at {cut}: {error}");
            tried += 1;
        }
    }
    assert!(tried > 3_000, "{tried} prefixes");
    println!("measured: {tried} prefixes refused");
}
