//! A defender on one account with another application, and on buckets of a version without groups.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use phalanx_cluster::backend::{AppendCondition, Backend as _, Kv, StoreConfig, StoreKind};
use phalanx_cluster::{Delivery, Failure, Handler, Worker, core};
use phalanx_cluster_nats::{Config, Nats};
use phalanx_defender::names::{alarm_log, store_config};
use phalanx_testkit::nats::Server;
use phalanx_testkit::wait::until;
use serde_json::Value;

use crate::util::fleet::Member;
use crate::util::running::{ask, csv};
use crate::variables::{ground, list, list_named, start};

/// Counts what it processes.
#[derive(Clone, Default)]
struct Count(Arc<AtomicUsize>);

#[async_trait]
impl Handler for Count {
    async fn handle(&self, _: Delivery) -> Result<(), Failure> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

fn send_run(member: &Member, chamber: usize) {
    let path = format!("/api/v1/contexts?tool=etch-01&chamber={chamber}&context=run-1");
    let (status, answer) = ask(&member.url, "POST", &path, Some("t"), "text/csv", &csv(500));
    assert!(status < 300, "{status} {answer}");
}

#[test]
fn a_defender_and_another_application_on_one_account_process_all_their_messages() {
    let server = Server::start().unwrap();
    let ground = ground(&server);
    list(&ground, "one", &[1, 1, 1, 1]);
    let defender = start(&ground, "one", &[("FLEET_SIZE", "1")]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (parcels, processed) = (StoreConfig::of("parcels"), Count::default());
    let nats = runtime.block_on(Nats::connect(&Config::new(server.url()))).unwrap();
    let builder = Worker::builder(parcels.clone(), Arc::new(nats.clone()))
        .partitions((0..4).map(|n| (n.to_string(), 1)).collect::<Vec<_>>())
        .config(core::Config { fleet_size: Some(1), ..core::Config::default() })
        .handler(processed.clone());
    let worker = runtime.block_on(builder.start()).unwrap();
    until("the defender is ready", || defender.is_ready().then_some(()));
    for partition in 0..4 {
        send_run(&defender, partition);
        runtime.block_on(async {
            let log = nats.log(&parcels.log).await.unwrap();
            let subject = parcels.subjects.subject(&partition.to_string());
            log.append(&subject, "parcel".into(), AppendCondition::None).await.unwrap();
        });
    }
    until("both have processed all of theirs", || {
        let runs = defender.get("/api/v1/status")["messagesProcessed"] == 4;
        (runs && processed.0.load(Ordering::Relaxed) == 4).then_some(())
    });
    assert_eq!(defender.get("/api/v1/cluster")["workers"].as_array().map(Vec::len), Some(1));
    assert_eq!(worker.assignment().len(), 4);
    assert!(!defender.said().contains("named no group"), "new buckets name their group: {}", defender.said());
    runtime.block_on(worker.shutdown());
}

/// Values of the last version without groups: two defenders with four chambers, recorded from its processes.
const MAP: &str = include_str!("fixtures/map.json");
const STATE: &str = include_str!("fixtures/state.json");
const LEASE: &str = include_str!("fixtures/lease.json");

fn json(runtime: &tokio::runtime::Runtime, bucket: &dyn Kv, key: &str) -> Value {
    let entry = runtime.block_on(bucket.get(key)).unwrap().unwrap();
    serde_json::from_slice(&entry.value).unwrap()
}

#[test]
fn a_fleet_of_a_version_without_groups_is_adopted_with_one_line_and_moves_nothing() {
    let server = Server::start().unwrap();
    let ground = ground(&server);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let nats = runtime.block_on(Nats::connect(&Config::new(server.url()))).unwrap();
    let config = store_config();
    let assignments = runtime.block_on(async {
        for bucket in config.buckets() {
            nats.bucket(bucket).await.unwrap();
        }
        for log in config.logs().into_iter().chain([&alarm_log()]) {
            nats.log(log).await.unwrap();
        }
        let assignments = nats.bucket(&config.assignments).await.unwrap();
        assignments.put("current", MAP.into()).await.unwrap();
        assignments.put("defender-state", STATE.into()).await.unwrap();
        nats.bucket(&config.election).await.unwrap().put("leader", LEASE.into()).await.unwrap();
        assignments
    });
    for name in ["one", "two"] {
        list_named(&ground, name, &["A", "B", "C", "D"].map(|chamber| (chamber.to_owned(), 10)));
    }
    let one = start(&ground, "one", &[("FLEET_SIZE", "2")]);
    until("the first has an id", || one.id());
    let two = start(&ground, "two", &[("FLEET_SIZE", "2")]);
    until("both serve the stored map", || {
        let version = |member: &Member| member.get("/api/v1/status")["assignmentVersion"].as_u64();
        (one.is_ready() && two.is_ready() && version(&one) == Some(1) && version(&two) == Some(1))
            .then_some(())
    });
    let adopted = "named no group and belong to group \"defender\" from now on";
    assert_eq!((one.said().matches(adopted).count(), two.said().matches(adopted).count()), (1, 0));
    for (kind, name) in config
        .buckets()
        .map(|bucket| (StoreKind::Bucket, bucket.name.clone()))
        .into_iter()
        .chain(config.logs().map(|log| (StoreKind::Log, log.name.clone())))
        .chain([(StoreKind::Log, alarm_log().name)])
    {
        let description = runtime.block_on(nats.description(kind, &name)).unwrap();
        assert_eq!(description, "phalanx group defender", "{name}");
    }
    // The leader has written its epoch to the map: every field of the earlier version remains.
    let (before, after): (Value, Value) =
        (serde_json::from_str(MAP).unwrap(), json(&runtime, &*assignments, "current"));
    assert_eq!(after["group"], "defender");
    for (field, value) in before.as_object().unwrap() {
        match field.as_str() {
            "timestamp" | "leaderEpoch" | "defenderInfo" => assert!(!after[field].is_null(), "{field}"),
            _ => assert_eq!(&after[field], value, "{field}"),
        }
    }
    // A leader of the earlier version that never saw the group writes the map without it.
    let mut without = after;
    without.as_object_mut().unwrap().remove("group");
    without["version"] = 2.into();
    runtime.block_on(assignments.put("current", without.to_string().into())).unwrap();
    until("both follow it", || {
        let version = |member: &Member| member.get("/api/v1/status")["assignmentVersion"].as_u64();
        (version(&one) == Some(2) && version(&two) == Some(2)).then_some(())
    });
}
