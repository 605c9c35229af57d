//! The tables: one row per setting.

use crate::{AnySetting, Choice, File, Fraction, Replicas, Seconds, Secret, Setting, Switch, Text, Whole};

/// Declares one constant per row, and the list of them in that order.
macro_rules! settings {
    ($(#[$about:meta])* $list:ident: $( $name:ident: $kind:ty = $value:expr, $default:literal, $help:literal; )+) => {
        $(
            #[doc = $help]
            pub const $name: Setting<$kind> = Setting {
                name: stringify!($name),
                flag: {
                    const FLAG: [u8; stringify!($name).len()] = flag(stringify!($name));
                    text(&FLAG)
                },
                kind: $value,
                default: $default,
                help: $help,
            };
        )+

        $(#[$about])*
        pub const $list: &[&dyn AnySetting] = &[$(&$name),+];
    };
}

/// Returns the bytes of the flag of a variable: `MAX_DEFENDERS` is `max-defenders`.
const fn flag<const LENGTH: usize>(name: &str) -> [u8; LENGTH] {
    let (name, mut flag, mut at) = (name.as_bytes(), [0; LENGTH], 0);
    while at < LENGTH {
        flag[at] = if name[at] == b'_' { b'-' } else { name[at].to_ascii_lowercase() };
        at += 1;
    }
    flag
}

const fn text(bytes: &[u8]) -> &str {
    match str::from_utf8(bytes) {
        Ok(text) => text,
        Err(_) => panic!("names are ASCII"),
    }
}

settings! {
    /// Settings of the stores, for every command that opens them.
    CONNECTIONS:
    NATS_SERVERS: Text = Text, "", "Addresses of NATS, separated by commas; without them the coordination is embedded";
    NATS_STREAM_NAME: Text = Text, "dc-notifications", "Stream of completion notifications";
    NATS_KV_ASSIGNMENTS: Text = Text, "defender-assignments", "Bucket of the assignment map";
    NATS_KV_HEARTBEATS: Text = Text, "defender-heartbeats", "Bucket of heartbeats";
    NATS_KV_STABLE_IDS: Text = Text, "stable-ids", "Bucket of id claims";
    NATS_KV_CURSORS: Text = Text, "chamber-cursors", "Bucket of cursors";
    NATS_KV_ELECTION: Text = Text, "defender-election", "Bucket of the leader's lease";
    NATS_STREAM_DEAD_LETTERS: Text = Text, "dc-dead-letters", "Stream of dead letters";
    NATS_STREAM_ALARMS: Text = Text, "dc-alarms", "Stream of alarms";
    NATS_REPLICAS: Replicas = Replicas, "1", "How many NATS servers keep each bucket and stream: 1 or 3";
    NATS_USER: Text = Text, "", "User at NATS";
    NATS_PASSWORD: Secret = Secret, "", "Password at NATS";
    NATS_TOKEN: Secret = Secret, "", "Token at NATS";
    NATS_CREDS: File = File, "", "Credentials file for NATS";
    NATS_NKEY: Secret = Secret, "", "Nkey seed for NATS, or the file that has it";
    NATS_TLS_CA: File = File, "", "PEM file of whom to believe at NATS";
    NATS_TLS_CERT: File = File, "", "PEM file of who we are at NATS";
    NATS_TLS_KEY: File = File, "", "PEM file of its key";
    CASSANDRA_HOSTS: Text = Text, "", "Hosts of Cassandra, separated by commas; without them charts are kept in SQLite";
    CASSANDRA_KEYSPACE: Text = Text, "defense_system", "Keyspace of the charts";
    CASSANDRA_CONSISTENCY: Choice = LEVELS, "LOCAL_QUORUM", "How many replicas must have answered";
    CASSANDRA_USER: Text = Text, "", "User at Cassandra";
    CASSANDRA_PASSWORD: Secret = Secret, "", "Password at Cassandra";
    CASSANDRA_TLS_CA: File = File, "", "PEM file of whom to believe at Cassandra";
    CASSANDRA_TLS_CERT: File = File, "", "PEM file of who we are at Cassandra";
    CASSANDRA_TLS_KEY: File = File, "", "PEM file of its key";
    DATA_DIR: File = File, "", "Where everything embedded is kept";
}

settings! {
    /// Further settings of a defender.
    DEFENDER:
    ELECTION_AGENT_ADDR: Text = Text, "", "Addresses of an election agent's nodes, separated by commas; without them NATS elects the leader";
    ELECTION_AGENT_TOKEN: Secret = Secret, "", "Token at the election agent";
    ELECTION_AGENT_TLS_CA: File = File, "", "PEM file of whom to believe at the election agent";
    ELECTION_AGENT_TLS_CERT: File = File, "", "PEM file of who we are at the election agent";
    ELECTION_AGENT_TLS_KEY: File = File, "", "PEM file of its key";
    ELECTION_TTL_SECONDS: Seconds = Seconds, "10", "How long the leader's lease lasts; it is renewed at half of it";
    MAX_DEFENDERS: Whole<u32> = Whole { min: 1, max: 100_000 }, "100", "How many ids there are";
    FLEET_SIZE: Whole<u32> = Whole { min: 1, max: 100_000 }, "", "How many defenders there should be; surplus ones stand by";
    HEARTBEAT_INTERVAL_SECONDS: Seconds = Seconds, "2", "How often a sign of life is sent; three missed are a crash";
    ASSIGNMENT_STABILIZATION_WINDOW_SECONDS: Seconds = Seconds, "30", "COLD_START_WINDOW_SECONDS where that is not set";
    COLD_START_WINDOW_SECONDS: Seconds = Seconds, "30", "How long a cold start waits for defenders";
    SCALE_WINDOW_SECONDS: Seconds = Seconds, "10", "How long a planned change waits for more; 1 where the coordination is embedded";
    REPLACEMENT_GRACE_SECONDS: Seconds = Seconds, "45", "How long the chambers of a defender that left wait for its successor";
    CRASH_IMMEDIATE: Switch = Switch, "true", "Whether a crash is acted on at once; false: after SCALE_WINDOW_SECONDS";
    ASSIGNMENT_CONTROLLER_ENABLED: Switch = Switch, "true", "Whether this defender may lead";
    ASSIGNMENT_VNODE_COUNT: Whole<u32> = Whole { min: 1, max: 10_000 }, "200", "Virtual nodes per defender on the hash ring";
    WEIGHT_REBALANCE_ENABLED: Switch = Switch, "true", "Whether loads are balanced by weight; false: by a hash ring alone";
    WEIGHT_REBALANCE_THRESHOLD: Fraction = Fraction { min: 0.001, max: 1.0 }, "0.20", "How far a load may be from the mean, as a part of it";
    WEIGHT_REBALANCE_MAX_ITERATIONS: Whole<u32> = Whole { min: 0, max: 1_000 }, "5", "How often the fleet is gone through to balance it";
    WEIGHT_CACHE_TTL_SECONDS: Seconds = Seconds, "3600", "How long the leader keeps weights";
    WEIGHT_UPDATE_INTERVAL_SECONDS: Seconds = Seconds, "86400", "How often weights are estimated from runs";
    CACHE_SIZE_MB: Whole<usize> = Whole { min: 1, max: 1_000_000 }, "100", "What the cache may hold";
    PROCESS_TIMEOUT_SECONDS: Seconds = Seconds, "5", "How long one run may take";
    MAX_CONCURRENT_MESSAGES: Whole<usize> = Whole { min: 1, max: 10_000 }, "10", "How many runs are in work at once";
    SUBSCRIPTION_UPDATE_TIMEOUT_SECONDS: Seconds = Seconds, "30", "How long hanging a doorbell may take";
    SUBSCRIPTION_RETRY_ATTEMPTS: Whole<u32> = Whole { min: 1, max: 100 }, "3", "How often it is tried";
    SUBSCRIPTION_BACKOFF_SECONDS: Seconds = Seconds, "2", "How long is waited in between; that doubles";
    POD_NAME: Text = Text, "", "What people call this process; the host's name without it";
    POD_UID: Text = Text, "", "What tells this process from every other; random without it";
    POD_NAMESPACE: Text = Text, "", "Name of the election at the election agent: fleets that share one have different ones; `default` without it";
    HTTP_ADDR: Text = Text, "127.0.0.1:8080", "Where the HTTP API listens";
    API_TOKEN: Secret = Secret, "", "Token for what changes something; embedded, one is made where there is none";
    STRATEGY_FILE: File = File, "", "The strategy file; strategy.toml in the data folder without it";
}

/// Consistency levels for both reads and writes.
const LEVELS: Choice = Choice(&["ONE", "TWO", "THREE", "QUORUM", "ALL", "LOCAL_QUORUM", "LOCAL_ONE"]);

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::markdown;

    fn all() -> impl Iterator<Item = &'static &'static dyn AnySetting> {
        CONNECTIONS.iter().chain(DEFENDER)
    }

    #[test]
    fn every_setting_has_a_name_of_its_own_and_an_allowed_default() {
        let names: BTreeSet<_> = all().map(|setting| setting.name()).collect();
        assert_eq!((names.len(), all().count()), (60, 60));
        for setting in all() {
            assert!(setting.default_is_allowed(), "{}: {}", setting.name(), setting.default());
            assert!(!setting.help().contains('|'), "{}", setting.name());
        }
    }

    #[test]
    fn the_table_has_a_row_for_every_setting_with_its_range() {
        let table = markdown(all());
        assert_eq!(table.lines().count(), 62);
        assert!(table.contains(
            "| `MAX_DEFENDERS` | `100` | a whole number from 1 to 100000 | How many ids there are |"
        ));
        assert!(table.contains("| `NATS_SERVERS` |  |  | Addresses of NATS"));
        assert_eq!(NATS_STREAM_DEAD_LETTERS.flag, "nats-stream-dead-letters");
        assert!(API_TOKEN.is_secret() && !POD_UID.is_secret());
    }
}
