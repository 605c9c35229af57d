//! `phalanx schema`, run as a person would, without a server.

use crate::util;
use crate::util::{phalanx, phalanx_command, run};

/// `phalanx` without what the surroundings say of Cassandra.
fn alone(arguments: &[&str]) -> util::Run {
    let mut command = phalanx_command();
    for name in ["HOSTS", "KEYSPACE", "CONSISTENCY", "USER", "PASSWORD", "TLS_CA", "TLS_CERT", "TLS_KEY"] {
        command.env_remove(format!("CASSANDRA_{name}"));
    }
    run(command.args(arguments))
}

#[test]
fn show_prints_every_table_with_its_key_and_age() {
    let text = alone(&["schema", "show"]).succeeds().stdout;
    for part in [
        "CREATE KEYSPACE IF NOT EXISTS defense_system WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 3};",
        "PRIMARY KEY ((tool_id, chamber_id, context_id), chunk)",
        "PRIMARY KEY ((tool_id, chamber_id, indicator), timestamp, context_id)",
        "CLUSTERING ORDER BY (timestamp DESC, context_id ASC)",
        "CLUSTERING ORDER BY (raised_at DESC, alarm_id ASC)",
        "PRIMARY KEY ((day), raised_at, alarm_id)",
        "default_time_to_live = 2592000",
        "default_time_to_live = 604800",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    for table in
        ["t_charts", "u_charts", "contexts", "chart_state", "alarms", "alarms_by_day", "chamber_metadata"]
    {
        assert!(text.contains(&format!("CREATE TABLE IF NOT EXISTS defense_system.{table} (")), "{table}");
    }
}

#[test]
fn show_takes_a_keyspace_and_a_replication() {
    let text =
        alone(&["schema", "show", "--keyspace", "fab7", "--replication", "east=3,west=2"]).succeeds().stdout;
    assert!(text.contains("fab7.u_charts") && text.contains("'east': 3, 'west': 2"), "{text}");
    assert!(!text.contains("defense_system"));
}

#[test]
fn wrong_use_is_told_with_the_value() {
    let run = alone(&["schema", "show", "--replication", "many"]).fails_with(2);
    assert!(run.stderr.contains("\"many\"") && run.stderr.contains("dc1=3"), "{}", run.stderr);
    let run = alone(&["schema", "show", "--keyspace", "a; DROP"]).fails_with(1);
    assert!(run.stderr.contains("a; DROP"), "{}", run.stderr);
    let run = alone(&["schema", "apply"]).fails_with(2);
    assert!(run.stderr.contains("--cassandra-hosts"), "{}", run.stderr);
    let run = alone(&["schema", "apply", "--cassandra-hosts", "127.0.0.1:1", "--consistency", "most"])
        .fails_with(2);
    assert!(run.stderr.contains("LOCAL_QUORUM"), "{}", run.stderr);
}

#[test]
fn half_a_pair_is_named() {
    let hosts = ["schema", "apply", "--cassandra-hosts", "127.0.0.1:1"];
    let with = |more: &[&str]| alone(&[&hosts[..], more].concat()).fails_with(1).stderr;
    assert!(with(&["--cassandra-user", "anna"]).contains("CASSANDRA_PASSWORD"));
    assert!(with(&["--cassandra-password", "s3cret"]).contains("CASSANDRA_USER"));
    assert!(!with(&["--cassandra-password", "s3cret"]).contains("s3cret"));
    assert!(with(&["--cassandra-tls-cert", "c.pem"]).contains("CASSANDRA_TLS_KEY"));
    let both = ["--cassandra-tls-cert", "c.pem", "--cassandra-tls-key", "k.pem"];
    assert!(with(&both).contains("CASSANDRA_TLS_CA"));
    assert!(with(&["--cassandra-tls-ca", "/no/such.pem"]).contains("/no/such.pem"));
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let run = alone(&["schema", "apply", "--cassandra-hosts", "127.0.0.1:1"]).fails_with(1);
    assert!(run.stderr.contains("127.0.0.1:1") && run.stderr.contains("does not answer"), "{}", run.stderr);
}

#[test]
fn help_names_every_variable() {
    let help = phalanx(&["schema", "apply", "--help"]).succeeds().stdout;
    for name in ["HOSTS", "KEYSPACE", "CONSISTENCY", "USER", "PASSWORD", "TLS_CA", "TLS_CERT", "TLS_KEY"] {
        assert!(help.contains(&format!("CASSANDRA_{name}")), "{name}");
    }
}
