//! `phalanx schema apply` on a real Cassandra.

use crate::util::phalanx;
use phalanx_testkit::cassandra::Keyspace;

#[test]
fn apply_makes_the_tables_once_and_refuses_another_replication() {
    let keyspace = Keyspace::create().unwrap();
    let apply = ["schema", "apply", "--cassandra-hosts", keyspace.hosts(), "--keyspace", keyspace.name()];
    let run = phalanx(&apply).succeeds();
    assert!(run.stdout.contains(keyspace.name()) && run.stdout.ends_with(": made\n"), "{run:?}");
    assert!(phalanx(&apply).succeeds().stdout.ends_with(": already there\n"));
    let other = phalanx(&[&apply[..], &["--replication", "3"]].concat()).fails_with(1);
    assert!(other.stderr.contains("replication") && other.stderr.contains("ALTER KEYSPACE"), "{other:?}");
}
