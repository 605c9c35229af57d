//! What becomes of a message: committed, tried again, or put aside with its reason.

use crate::common::{at, broken, maps, s, start, wait};
use phalanx_cluster_core::Config;
use phalanx_sim::{MessageKind, Setup, World};

/// CI-4: a success is committed, a failure is tried again up to three times, what can never succeed is a dead letter.
#[test]
fn a_message_is_committed_tried_again_or_dead_lettered() {
    let mut world = World::new(Setup { config: Config::default(), partitions: 12, ..Setup::default() });
    start(&mut world, 3);
    world.run_until(at(60));
    for (partition, kind) in [
        MessageKind::Good,
        MessageKind::Flaky(1),
        MessageKind::Flaky(2),
        MessageKind::Flaky(3),
        MessageKind::Poison,
    ]
    .into_iter()
    .enumerate()
    {
        world.publish(partition as u32, kind);
        // The next of the same partition waits for its turn, and is not harmed by the one before.
        world.publish(partition as u32, MessageKind::Good);
    }
    wait(&mut world, s(60));
    let counts = world.counts();
    assert_eq!((counts.published, counts.committed, counts.dead_lettered), (10, 8, 2));
    assert_eq!((counts.lost, counts.double_committed, counts.order_violations), (0, 0, 0));
    assert_eq!(broken(&mut world), [""; 0]);
    assert_eq!(maps(&world), [(30, 1, "post_cold_start", 3, 0)]);
}
