//! Where coordination and charts are kept.

use std::path::PathBuf;

use phalanx_cluster::backend::{LogConfig, StoreConfig};
use phalanx_cluster_nats as nats;
use phalanx_defender::names::{alarm_log, store_config};
use phalanx_defender::store::cassandra;

use super::reader::{Reader, text};
use super::variables::Connections;

/// Where everything is kept.
#[derive(Clone)]
pub(crate) struct Places {
    pub(crate) coordination: Coordination,
    pub(crate) charts: Charts,
    pub(crate) settings: StoreConfig,
    /// The log of alarms.
    pub(crate) alarms: LogConfig,
}

/// Where defenders meet.
#[derive(Clone, Debug)]
pub(crate) enum Coordination {
    /// In this process, kept in a folder.
    Embedded(PathBuf),
    /// At NATS.
    Nats(Box<nats::Config>),
}

/// Where charts are kept.
#[derive(Clone, Debug)]
pub(crate) enum Charts {
    /// In a file of this folder.
    Sqlite(PathBuf),
    /// In Cassandra.
    Cassandra(Box<cassandra::Config>),
}

impl Places {
    /// What follows from the settings; what is wrong with them is noted by the reader. `name` is what NATS shows of us.
    pub(crate) fn new(reader: &mut Reader, given: &Connections, name: &str) -> Option<Self> {
        let data_dir = text(&given.data_dir).map(PathBuf::from);
        let embedded = text(&given.nats_servers).is_none();
        let charts = charts(reader, given, embedded, data_dir.as_ref());
        let coordination = coordination(reader, given, name, data_dir.as_ref());
        let (settings, alarms) = (settings(given), alarms(given));
        Some(Self { coordination: coordination?, charts: charts?, settings, alarms })
    }
}

fn settings(given: &Connections) -> StoreConfig {
    let mut settings = store_config();
    name(&mut settings.log.name, &given.nats_stream_name);
    name(&mut settings.assignments.name, &given.nats_kv_assignments);
    name(&mut settings.heartbeats.name, &given.nats_kv_heartbeats);
    name(&mut settings.stable_ids.name, &given.nats_kv_stable_ids);
    name(&mut settings.cursors.name, &given.nats_kv_cursors);
    name(&mut settings.election.name, &given.nats_kv_election);
    name(&mut settings.dead_letters.name, &given.nats_stream_dead_letters);
    settings
}

fn alarms(given: &Connections) -> LogConfig {
    let mut alarms = alarm_log();
    name(&mut alarms.name, &given.nats_stream_alarms);
    alarms
}

fn name(place: &mut String, given: &Option<String>) {
    if let Some(name) = text(given) {
        *place = name;
    }
}

fn coordination(
    reader: &mut Reader,
    given: &Connections,
    name: &str,
    data_dir: Option<&PathBuf>,
) -> Option<Coordination> {
    let Some(servers) = text(&given.nats_servers) else {
        let Some(folder) = data_dir else {
            reader.wrong.push(
                "neither NATS_SERVERS nor DATA_DIR is set: name NATS to join a fleet, or a folder to work alone \
                 (--data-dir FOLDER)"
                    .to_owned(),
            );
            return None;
        };
        return Some(Coordination::Embedded(folder.clone()));
    };
    let config = nats::Config {
        name: name.to_owned(),
        user: reader
            .pair(["NATS_USER", "NATS_PASSWORD"], [text(&given.nats_user), text(&given.nats_password)]),
        token: text(&given.nats_token),
        creds: text(&given.nats_creds).map(PathBuf::from),
        nkey: text(&given.nats_nkey),
        tls: nats::Tls {
            ca: text(&given.nats_tls_ca).map(PathBuf::from),
            certificate: reader
                .pair(
                    ["NATS_TLS_CERT", "NATS_TLS_KEY"],
                    [text(&given.nats_tls_cert), text(&given.nats_tls_key)],
                )
                .map(|(certificate, key)| (certificate.into(), key.into())),
        },
        replicas: reader.parsed("NATS_REPLICAS", given.nats_replicas.as_ref(), "1 or 3", 1, |count| {
            matches!(count, 1 | 3)
        }),
        ..nats::Config::new(servers)
    };
    Some(Coordination::Nats(Box::new(config)))
}

fn charts(
    reader: &mut Reader,
    given: &Connections,
    embedded: bool,
    data_dir: Option<&PathBuf>,
) -> Option<Charts> {
    let Some(hosts) = text(&given.cassandra_hosts) else {
        return match data_dir {
            Some(folder) => Some(Charts::Sqlite(folder.clone())),
            None if embedded => None,
            None => {
                reader.wrong.push(
                    "NATS_SERVERS is set and CASSANDRA_HOSTS is not: defenders of a fleet take over each other's charts, \
                     so they need a store that all of them reach. Set CASSANDRA_HOSTS, or --data-dir if a file that only \
                     this machine has is what you want"
                        .to_owned(),
                );
                None
            }
        };
    };
    let consistency = reader.parsed(
        "CASSANDRA_CONSISTENCY",
        given.cassandra_consistency.as_ref(),
        "ONE, TWO, THREE, QUORUM, ALL, LOCAL_QUORUM, EACH_QUORUM or LOCAL_ONE",
        cassandra::Consistency::default(),
        |_| true,
    );
    let certificate = reader.pair(
        ["CASSANDRA_TLS_CERT", "CASSANDRA_TLS_KEY"],
        [text(&given.cassandra_tls_cert), text(&given.cassandra_tls_key)],
    );
    let ca = text(&given.cassandra_tls_ca);
    if certificate.is_some() && ca.is_none() {
        reader
            .wrong
            .push("CASSANDRA_TLS_CERT is set and CASSANDRA_TLS_CA is not: say whom to believe".to_owned());
    }
    let usual = cassandra::Config::new(hosts);
    Some(Charts::Cassandra(Box::new(cassandra::Config {
        keyspace: text(&given.cassandra_keyspace).unwrap_or_else(|| usual.keyspace.clone()),
        consistency,
        user: reader.pair(
            ["CASSANDRA_USER", "CASSANDRA_PASSWORD"],
            [text(&given.cassandra_user), text(&given.cassandra_password)],
        ),
        tls: ca.map(|ca| cassandra::Tls {
            ca: ca.into(),
            certificate: certificate.map(|(certificate, key)| (certificate.into(), key.into())),
        }),
        ..usual
    })))
}
