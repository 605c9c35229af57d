//! Facts about traces.

use bytes::Bytes;

use super::samples::chamber;
use crate::store::{CHUNK_BYTES_MAX, CHUNKS_MAX, ChartStore, StoreError};

/// As they were sent, an empty one too.
pub async fn chunks_come_back_in_order(store: &dyn ChartStore) {
    let chamber = chamber();
    assert_eq!(store.t_chart(&chamber, "run").await.expect("an answer"), None);
    for count in [1, 2, 4, 5, 12, CHUNKS_MAX] {
        let chunks: Vec<Bytes> = (0..count).map(|i| Bytes::from(vec![7; i])).collect();
        let context = format!("run ' {count}");
        store.put_t_chart(&chamber, &context, &chunks).await.expect("stored");
        assert_eq!(store.t_chart(&chamber, &context).await.expect("an answer"), Some(chunks), "{count}");
    }
}

/// Up to the limit each, and together far above it.
pub async fn large_chunks_come_back(store: &dyn ChartStore) {
    let chamber = chamber();
    let chunks: Vec<Bytes> = (0..6_u8).map(|i| Bytes::from(vec![i; CHUNK_BYTES_MAX])).collect();
    store.put_t_chart(&chamber, "run", &chunks).await.expect("stored");
    let found = store.t_chart(&chamber, "run").await.expect("an answer").expect("traces");
    assert!(found == chunks, "{} chunks of {} bytes", found.len(), found[0].len());
}

/// With the numbers, before anything is written.
pub async fn chunks_above_the_limits_are_refused(store: &dyn ChartStore) {
    let chamber = chamber();
    let too_large = vec![Bytes::from_static(b"x"), Bytes::from(vec![0; CHUNK_BYTES_MAX + 1])];
    for chunks in [vec![], too_large, vec![Bytes::new(); CHUNKS_MAX + 1]] {
        let error = store.put_t_chart(&chamber, "run", &chunks).await.expect_err("refused");
        assert!(matches!(error, StoreError::Refused(_)), "{error}");
        assert_eq!(store.t_chart(&chamber, "run").await.expect("an answer"), None);
    }
}

/// Also by fewer chunks.
pub async fn traces_that_were_sent_again_replace_the_first(store: &dyn ChartStore) {
    let chamber = chamber();
    let sent = |count: u8| (0..count).map(|i| Bytes::from(vec![i, count])).collect::<Vec<_>>();
    for count in [3, 5, 2, 2] {
        store.put_t_chart(&chamber, "run", &sent(count)).await.expect("stored");
        assert_eq!(store.t_chart(&chamber, "run").await.expect("an answer"), Some(sent(count)));
    }
}
