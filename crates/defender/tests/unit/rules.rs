//! Rules that the coordination protocol relies on and that this application enforces (docs/promises.md). Further rules are
//! tested with the code they belong to: the order of writes in the conformance tests of the stores, and the readiness of a
//! standby in `api.rs`.

use std::sync::Arc;
use std::time::Duration;

use crate::fleet::line::{STRATEGY, at, traces};
use crate::fleet::options;
use crate::fleet::paused::{delivery, pipeline_told, place};
use crate::fleet::served::Site;
use phalanx_cluster::Handler as _;
use phalanx_cluster::backend::{Embedded, Stores};
use phalanx_defender::collector::Collector;
use phalanx_defender::names::store_config;
use phalanx_defender::notification::Rebaseline;
use phalanx_defender::pipeline::{PATIENCE, Pipeline};
use phalanx_defender::record::{Chamber, Outcome};
use phalanx_defender::report::Report;
use phalanx_defender::store::{ChartStore, Sqlite};
use phalanx_defender::worker::Options;
use phalanx_service::Token;
use serde_json::json;

/// The first chart of the usual strategy and no other.
fn one_chart() -> String {
    let end = STRATEGY.find("[[group.chart]]\nname = \"learned\"").unwrap();
    STRATEGY[..end].to_owned()
}

async fn pipeline(store: &Arc<dyn ChartStore>, strategy: &str) -> Pipeline {
    let backend = Embedded::in_memory().unwrap();
    pipeline_told(store, &backend, strategy, Arc::new(()), PATIENCE).await
}

fn chamber() -> Chamber {
    Chamber::new("etch-01", "A").unwrap()
}

/// An earlier worker has stored the results of a run and crashed before the commit. Its successor continues from the state
/// at the committed position, not from the newest one: with that, the run would count as a repetition.
#[tokio::test]
async fn the_chart_state_is_read_at_exactly_the_committed_position() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn ChartStore> = Arc::new(Sqlite::open(&folder.path().join("charts.db")).unwrap());
    let chamber = chamber();
    for run in 1..=2 {
        store.put_t_chart(&chamber, &format!("run-{run}"), &traces(500.0)).await.unwrap();
    }
    let crashed = pipeline(&store, STRATEGY).await;
    crashed.handle(delivery(&chamber, 1, 1)).await.unwrap();
    crashed.committed(&chamber.to_string(), place(1));
    crashed.handle(delivery(&chamber, 2, 1)).await.unwrap();
    assert_eq!(store.newest_state(&chamber).await.unwrap().unwrap().mark.position, place(2));

    pipeline(&store, STRATEGY).await.handle(delivery(&chamber, 2, 2)).await.unwrap();
    let contexts = store.contexts(&chamber, None, 10).await.unwrap();
    let outcomes: Vec<_> = contexts.iter().map(|row| (row.position, row.take, row.outcome)).collect();
    assert_eq!(outcomes, [(place(2), 2, Outcome::Processed), (place(1), 1, Outcome::Processed)]);
    let state = store.state_at(&chamber, place(2)).await.unwrap().unwrap();
    let history: Vec<_> = state.history.iter().map(|past| (&*past.context, past.take)).collect();
    assert_eq!((state.predecessor, history), (Some(place(1)), vec![("run-2", 2), ("run-1", 1)]));
}

/// Two attempts at one run: the first, with more charts, crashed after its rows. Its point of the chart that the second
/// attempt does not have is still stored, and does not count.
async fn two_attempts(store: &Arc<dyn ChartStore>) {
    let chamber = chamber();
    store.put_t_chart(&chamber, "run-1", &traces(500.0)).await.unwrap();
    pipeline(store, STRATEGY).await.handle(delivery(&chamber, 1, 1)).await.unwrap();
    pipeline(store, &one_chart()).await.handle(delivery(&chamber, 1, 2)).await.unwrap();
    let tokens = async |chart| {
        let rows = store.u_charts(&chamber, chart, None, 10).await.unwrap();
        rows.into_iter().map(|(_, _, take)| take).collect::<Vec<_>>()
    };
    assert_eq!((tokens("power").await, tokens("learned").await), (vec![2], vec![1]), "both are stored");
    assert_eq!(store.contexts(&chamber, None, 10).await.unwrap()[0].take, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_api_shows_only_points_of_the_fencing_token_that_counts() {
    let site = Site::new().await;
    two_attempts(&site.store).await;
    let served = site.start("one", Token::none(), options(1)).await.ready().await;
    let (status, power) = served.get("/api/v1/charts/etch-01/A/power").await;
    assert_eq!((status, power["points"].as_array().map(Vec::len)), (200, Some(1)), "{power}");
    let (status, learned) = served.get("/api/v1/charts/etch-01/A/learned").await;
    assert_eq!(status, 404, "{learned}");
}

#[tokio::test]
async fn a_report_has_only_points_of_the_fencing_token_that_counts() {
    let site = Site::new().await;
    two_attempts(&site.store).await;
    let cursor = json!({
        "v": 1, "generation": place(1).generation, "sequence": place(1).sequence.0, "contextId": "run-1",
        "stream": 1, "stamp": 1, "holder": { "id": "defender-0", "incarnation": 1 }, "version": 1, "take": 1,
        "failures": 0, "deaths": 0, "cleanTo": 1,
    });
    site.stores.cursors.create("etch-01.A", cursor.to_string().into()).await.unwrap();
    let report = Report::find(&*site.store, &site.stores, &site.chamber, "run-1", None).await.unwrap();
    let report = report.unwrap().to_json();
    let charts: Vec<_> = report["points"].as_array().unwrap().iter().map(|point| &point["chart"]).collect();
    assert_eq!(charts, [&json!("power")], "{report}");
}

/// The log drops a message whose id it has seen lately, also under another subject, and runs of two chambers often have the
/// same id.
#[tokio::test]
async fn the_id_of_a_notification_names_tool_chamber_and_context() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn ChartStore> = Arc::new(Sqlite::open(&folder.path().join("charts.db")).unwrap());
    let stores = Stores::open(&Embedded::in_memory().unwrap(), &store_config()).await.unwrap();
    let collector = Collector::new(store, stores.log.clone());
    let chambers = [("etch-01", "A"), ("etch-01", "B"), ("etch-02", "A")]
        .map(|(tool, chamber)| Chamber::new(tool, chamber).unwrap());
    let mut sequences = Vec::new();
    for chamber in &chambers {
        for context in ["run-1", "run-2"] {
            let sent = collector.submit(chamber, context, at(1), &traces(500.0)).await.unwrap();
            assert!(!sent.duplicate, "{context} of {chamber} was dropped");
            sequences.push(sent.sequence);
        }
        let command = Rebaseline {
            chamber: chamber.clone(),
            context: "command-1".into(),
            timestamp: at(1),
            charts: None,
        };
        let sent = collector.rebaseline(&command).await.unwrap();
        assert!(!sent.duplicate, "the command for {chamber} was dropped");
        sequences.push(sent.sequence);
    }
    assert_eq!(sequences, (1..=9).collect::<Vec<u64>>());
    let again = collector.submit(&chambers[1], "run-1", at(1), &traces(500.0)).await.unwrap();
    assert_eq!((again.sequence, again.duplicate), (4, true));
}

/// A claim that expires during an outage of the broker costs a live worker its id.
#[test]
fn claims_outlive_an_outage_of_the_broker() {
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    let ttl = Options::default().settings.stable_ids.ttl;
    assert!(ttl.is_none_or(|ttl| ttl >= DAY), "claims expire after {ttl:?}");
}
