//! Every setting of a defender: an environment variable with the name of the requirements, and a flag.

use clap::Args;

/// Declares settings once: the flags of the commands and the list that tests and documents walk come from it.
macro_rules! variables {
    (
        $(#[$about:meta])* $name:ident, $list:ident $(, with $inner:ident: $Inner:ident)?;
        $( $field:ident, $env:literal, $default:literal, $help:literal $(, $hidden:ident)? ; )+
    ) => {
        $(#[$about])*
        #[derive(Args, Clone, Debug, Default)]
        pub(crate) struct $name {
            $( #[command(flatten)] pub(crate) $inner: $Inner, )?
            $(
                #[arg(long, env = $env, value_name = "VALUE", help = variables!(@help $default, $help), $($hidden = true)?)]
                pub(crate) $field: Option<String>,
            )+
        }

        /// Name, default and meaning of each.
        #[cfg(test)]
        pub(crate) const $list: &[(&str, &str, &str)] = &[$(($env, $default, $help)),+];
    };
    (@help "", $help:literal) => { $help };
    (@help $default:literal, $help:literal) => { concat!($help, " [default: ", $default, "]") };
}

variables! {
    /// Where coordination and charts are kept; what is right is decided by [`Places`](super::places::Places).
    Connections, CONNECTIONS;
    nats_servers, "NATS_SERVERS", "", "Addresses of NATS, separated by commas; without them the coordination is embedded";
    nats_stream_name, "NATS_STREAM_NAME", "dc-notifications", "Stream of completion notifications";
    nats_kv_assignments, "NATS_KV_ASSIGNMENTS", "defender-assignments", "Bucket of the assignment map";
    nats_kv_heartbeats, "NATS_KV_HEARTBEATS", "defender-heartbeats", "Bucket of heartbeats";
    nats_kv_stable_ids, "NATS_KV_STABLE_IDS", "stable-ids", "Bucket of id claims";
    nats_kv_cursors, "NATS_KV_CURSORS", "chamber-cursors", "Bucket of cursors";
    nats_kv_election, "NATS_KV_ELECTION", "defender-election", "Bucket of the leader's lease";
    nats_stream_dead_letters, "NATS_STREAM_DEAD_LETTERS", "dc-dead-letters", "Stream of dead letters";
    nats_stream_alarms, "NATS_STREAM_ALARMS", "dc-alarms", "Stream of alarms";
    nats_replicas, "NATS_REPLICAS", "1", "How many NATS servers keep each bucket and stream: 1 or 3";
    nats_user, "NATS_USER", "", "User at NATS";
    nats_password, "NATS_PASSWORD", "", "Password at NATS", hide_env_values;
    nats_token, "NATS_TOKEN", "", "Token at NATS", hide_env_values;
    nats_creds, "NATS_CREDS", "", "Credentials file for NATS";
    nats_nkey, "NATS_NKEY", "", "Nkey seed for NATS, or the file that has it", hide_env_values;
    nats_tls_ca, "NATS_TLS_CA", "", "PEM file of whom to believe at NATS";
    nats_tls_cert, "NATS_TLS_CERT", "", "PEM file of who we are at NATS";
    nats_tls_key, "NATS_TLS_KEY", "", "PEM file of its key";
    cassandra_hosts, "CASSANDRA_HOSTS", "", "Hosts of Cassandra, separated by commas; without them charts are kept in SQLite";
    cassandra_keyspace, "CASSANDRA_KEYSPACE", "defense_system", "Keyspace of the charts";
    cassandra_consistency, "CASSANDRA_CONSISTENCY", "LOCAL_QUORUM", "How many replicas must have answered";
    cassandra_user, "CASSANDRA_USER", "", "User at Cassandra";
    cassandra_password, "CASSANDRA_PASSWORD", "", "Password at Cassandra", hide_env_values;
    cassandra_tls_ca, "CASSANDRA_TLS_CA", "", "PEM file of whom to believe at Cassandra";
    cassandra_tls_cert, "CASSANDRA_TLS_CERT", "", "PEM file of who we are at Cassandra";
    cassandra_tls_key, "CASSANDRA_TLS_KEY", "", "PEM file of its key";
    data_dir, "DATA_DIR", "", "Where everything embedded is kept";
}

variables! {
    /// What was given; what is right is decided by the plan of a defender, for all of it at once.
    Variables, OTHERS, with connections: Connections;
    election_agent_addr, "ELECTION_AGENT_ADDR", "", "Addresses of an election agent's nodes, separated by commas; without them NATS elects the leader";
    election_agent_token, "ELECTION_AGENT_TOKEN", "", "Token at the election agent", hide_env_values;
    election_agent_tls_ca, "ELECTION_AGENT_TLS_CA", "", "PEM file of whom to believe at the election agent";
    election_agent_tls_cert, "ELECTION_AGENT_TLS_CERT", "", "PEM file of who we are at the election agent";
    election_agent_tls_key, "ELECTION_AGENT_TLS_KEY", "", "PEM file of its key";
    election_ttl_seconds, "ELECTION_TTL_SECONDS", "10", "How long the leader's lease lasts; it is renewed at half of it";
    max_defenders, "MAX_DEFENDERS", "100", "How many ids there are";
    fleet_size, "FLEET_SIZE", "", "How many defenders there should be; surplus ones stand by";
    heartbeat_interval_seconds, "HEARTBEAT_INTERVAL_SECONDS", "2", "How often a sign of life is sent; three missed are a crash";
    assignment_stabilization_window_seconds, "ASSIGNMENT_STABILIZATION_WINDOW_SECONDS", "30", "COLD_START_WINDOW_SECONDS where that is not set";
    cold_start_window_seconds, "COLD_START_WINDOW_SECONDS", "30", "How long a cold start waits for defenders";
    scale_window_seconds, "SCALE_WINDOW_SECONDS", "10", "How long a planned change waits for more; 1 where the coordination is embedded";
    replacement_grace_seconds, "REPLACEMENT_GRACE_SECONDS", "45", "How long the chambers of a defender that left wait for its successor";
    crash_immediate, "CRASH_IMMEDIATE", "true", "Whether a crash is acted on at once; false: after SCALE_WINDOW_SECONDS";
    assignment_controller_enabled, "ASSIGNMENT_CONTROLLER_ENABLED", "true", "Whether this defender may lead";
    assignment_vnode_count, "ASSIGNMENT_VNODE_COUNT", "200", "Virtual nodes per defender on the hash ring";
    weight_rebalance_enabled, "WEIGHT_REBALANCE_ENABLED", "true", "Whether loads are balanced by weight; false: by a hash ring alone";
    weight_rebalance_threshold, "WEIGHT_REBALANCE_THRESHOLD", "0.20", "How far a load may be from the mean, as a part of it";
    weight_rebalance_max_iterations, "WEIGHT_REBALANCE_MAX_ITERATIONS", "5", "How often the fleet is gone through to balance it";
    weight_cache_ttl_seconds, "WEIGHT_CACHE_TTL_SECONDS", "3600", "How long the leader keeps weights";
    weight_update_interval_seconds, "WEIGHT_UPDATE_INTERVAL_SECONDS", "86400", "How often weights are estimated from runs";
    cache_size_mb, "CACHE_SIZE_MB", "100", "What the cache may hold";
    process_timeout_seconds, "PROCESS_TIMEOUT_SECONDS", "5", "How long one run may take";
    max_concurrent_messages, "MAX_CONCURRENT_MESSAGES", "10", "How many runs are in work at once";
    subscription_update_timeout_seconds, "SUBSCRIPTION_UPDATE_TIMEOUT_SECONDS", "30", "How long hanging a doorbell may take";
    subscription_retry_attempts, "SUBSCRIPTION_RETRY_ATTEMPTS", "3", "How often it is tried";
    subscription_backoff_seconds, "SUBSCRIPTION_BACKOFF_SECONDS", "2", "How long is waited in between; that doubles";
    pod_name, "POD_NAME", "", "What people call this process; the host's name without it";
    pod_uid, "POD_UID", "", "What tells this process from every other; random without it";
    pod_namespace, "POD_NAMESPACE", "", "Name of the election at the election agent: fleets that share one have different ones; `default` without it";
    http_addr, "HTTP_ADDR", "127.0.0.1:8080", "Where the HTTP API listens";
    api_token, "API_TOKEN", "", "Token for what changes something; embedded, one is made where there is none", hide_env_values;
    strategy_file, "STRATEGY_FILE", "", "The strategy file; strategy.toml in the data folder without it";
}
