//! Locations and names of the stores, from their settings.

use phalanx_cluster::backend::{LogConfig, StoreConfig};
use phalanx_cluster_nats as nats;
use phalanx_defender::app::{ChartLocation, Connections, Coordination};
use phalanx_defender::names::{alarm_log, store_config};
use phalanx_defender::store::cassandra;
use phalanx_settings::{
    CASSANDRA_CONSISTENCY, CASSANDRA_HOSTS, CASSANDRA_KEYSPACE, CASSANDRA_PASSWORD, CASSANDRA_TLS_CA,
    CASSANDRA_TLS_CERT, CASSANDRA_TLS_KEY, CASSANDRA_USER, DATA_DIR, NATS_CREDS, NATS_KV_ASSIGNMENTS,
    NATS_KV_CURSORS, NATS_KV_ELECTION, NATS_KV_HEARTBEATS, NATS_KV_STABLE_IDS, NATS_NKEY, NATS_PASSWORD,
    NATS_REPLICAS, NATS_SERVERS, NATS_STREAM_ALARMS, NATS_STREAM_DEAD_LETTERS, NATS_STREAM_NAME, NATS_TLS_CA,
    NATS_TLS_CERT, NATS_TLS_KEY, NATS_TOKEN, NATS_USER, Parser,
};

/// Locations of the stores, and the names of buckets and logs.
#[derive(Clone)]
pub(crate) struct ConnectionSettings {
    pub(crate) connections: Connections,
    pub(crate) stores: StoreConfig,
    /// The log of alarms.
    pub(crate) alarms: LogConfig,
}

impl ConnectionSettings {
    /// Parses the settings; the parser collects the errors. `name` is the name of the connection at NATS.
    pub(crate) fn parse(parser: &mut Parser<'_>, name: &str) -> Option<Self> {
        let charts = charts(parser);
        let coordination = coordination(parser, name);
        let connections = Connections { coordination: coordination?, charts: charts? };
        Some(Self { connections, stores: stores(parser), alarms: alarms(parser) })
    }
}

fn stores(parser: &mut Parser<'_>) -> StoreConfig {
    let mut stores = store_config();
    stores.log.name = parser.get(&NATS_STREAM_NAME);
    stores.assignments.name = parser.get(&NATS_KV_ASSIGNMENTS);
    stores.heartbeats.name = parser.get(&NATS_KV_HEARTBEATS);
    stores.stable_ids.name = parser.get(&NATS_KV_STABLE_IDS);
    stores.cursors.name = parser.get(&NATS_KV_CURSORS);
    stores.election.name = parser.get(&NATS_KV_ELECTION);
    stores.dead_letters.name = parser.get(&NATS_STREAM_DEAD_LETTERS);
    stores
}

fn alarms(parser: &mut Parser<'_>) -> LogConfig {
    LogConfig { name: parser.get(&NATS_STREAM_ALARMS), ..alarm_log() }
}

fn coordination(parser: &mut Parser<'_>, name: &str) -> Option<Coordination> {
    let Some(servers) = parser.given(&NATS_SERVERS) else {
        let folder = parser.given(&DATA_DIR);
        if folder.is_none() {
            parser.errors.push(
                "neither NATS_SERVERS nor DATA_DIR is set: name NATS to join a fleet, or a folder to work alone \
                 (--data-dir FOLDER)"
                    .to_owned(),
            );
        }
        return folder.map(Coordination::Embedded);
    };
    let config = nats::Config {
        name: name.to_owned(),
        user: parser.pair(&NATS_USER, &NATS_PASSWORD),
        token: parser.given(&NATS_TOKEN),
        creds: parser.given(&NATS_CREDS),
        nkey: parser.given(&NATS_NKEY),
        tls: nats::Tls {
            ca: parser.given(&NATS_TLS_CA),
            certificate: parser.pair(&NATS_TLS_CERT, &NATS_TLS_KEY),
        },
        replicas: parser.get(&NATS_REPLICAS),
        ..nats::Config::new(servers)
    };
    Some(Coordination::Nats(Box::new(config)))
}

fn charts(parser: &mut Parser<'_>) -> Option<ChartLocation> {
    let Some(hosts) = parser.given(&CASSANDRA_HOSTS) else {
        let folder = parser.given(&DATA_DIR);
        // Without NATS the missing folder is an error of the coordination.
        if folder.is_none() && parser.given(&NATS_SERVERS).is_some() {
            parser.errors.push(
                "NATS_SERVERS is set and CASSANDRA_HOSTS is not: defenders of a fleet take over each other's charts, \
                 so they need a store that all of them reach. Set CASSANDRA_HOSTS, or --data-dir if a file that only \
                 this machine has is what you want"
                    .to_owned(),
            );
        }
        return folder.map(ChartLocation::Sqlite);
    };
    let consistency = parser.get(&CASSANDRA_CONSISTENCY).parse().unwrap_or_default();
    let certificate = parser.pair(&CASSANDRA_TLS_CERT, &CASSANDRA_TLS_KEY);
    let ca = parser.given(&CASSANDRA_TLS_CA);
    if certificate.is_some() && ca.is_none() {
        let error = "CASSANDRA_TLS_CERT is set and CASSANDRA_TLS_CA is not: say whom to believe";
        parser.errors.push(error.to_owned());
    }
    Some(ChartLocation::Cassandra(Box::new(cassandra::Config {
        keyspace: parser.get(&CASSANDRA_KEYSPACE),
        consistency,
        user: parser.pair(&CASSANDRA_USER, &CASSANDRA_PASSWORD),
        tls: ca.map(|ca| cassandra::Tls { ca, certificate }),
        ..cassandra::Config::new(hosts)
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_consistency_level_of_the_table_is_one_of_the_store() {
        for level in CASSANDRA_CONSISTENCY.kind.0 {
            assert_eq!(level.parse::<cassandra::Consistency>().unwrap().to_string(), *level);
        }
        let default = cassandra::Consistency::default().to_string();
        assert_eq!(CASSANDRA_CONSISTENCY.default, default);
    }
}
