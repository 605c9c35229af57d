//! Ten workers as processes, three NATS nodes, a publisher that never stops, and everything that can befall them.
//!
//! The checker knows only what the handlers wrote, what the cursor bucket holds, and what was done to whom and when.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::fleet::{
    CursorValue, Fleet, MACHINE, Member, Published, Run, SECOND, commits, connect, cursor_history, map,
    owners, runs,
};
use phalanx_cluster::backend::{Backend as _, Log};
use phalanx_cluster_nats::Nats;
use phalanx_ledger::{now_ns, settings};
use phalanx_testkit::nats::Cluster;
use phalanx_testkit::wait::until_async;

const PARTS: usize = 500;
const WORKERS: usize = 10;
const HISTORY: u8 = 64;
/// Messages per second, and for how long at least.
const RATE: u64 = 100;
const PUBLISHING: Duration = Duration::from_secs(150);
/// What the design promises after a crash, and after a leader's; and what the test allows on top.
const PROMISE: f64 = 7.0;
const SLACK: f64 = 1.0;

/// Something that was done to a worker, or to the broker.
#[derive(Clone, Debug)]
struct Blow {
    what: &'static str,
    worker: String,
    at: u128,
    until: u128,
    /// What the victim owned.
    parts: BTreeSet<usize>,
}

/// A number from a seed.
struct Rng(u64);

impl Rng {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

struct Trial {
    nats: Nats,
    fleet: Fleet,
    members: Vec<Member>,
    blows: Vec<Blow>,
    rng: Rng,
    names: usize,
}

impl Trial {
    fn start_one(&mut self) {
        let name = format!("w{:02}", self.names);
        self.names += 1;
        let member = self.fleet.start(&name);
        self.members.push(member);
    }

    fn leader(&self) -> usize {
        self.members.iter().position(Member::leads).expect("somebody leads")
    }

    fn follower(&mut self) -> usize {
        let followers: Vec<usize> = (0..self.members.len()).filter(|&n| !self.members[n].leads()).collect();
        followers[self.rng.below(followers.len())]
    }

    async fn owned_by(&self, member: usize) -> BTreeSet<usize> {
        let id = self.members[member].id().expect("it has an id");
        let (_, map) = map(&self.nats).await.expect("there is a map");
        map.into_iter().filter(|(_, owner)| *owner == id).map(|(part, _)| part).collect()
    }

    async fn kill(&mut self, what: &'static str, member: usize) {
        let parts = self.owned_by(member).await;
        let mut victim = self.members.remove(member);
        let at = now_ns();
        victim.process.kill();
        eprintln!("{what}: {} with {} partitions", victim.name, parts.len());
        self.blows.push(Blow { what, worker: victim.name, at, until: at, parts });
    }

    /// Waits until the map is for exactly so many workers and has not changed for a while.
    async fn steady(&self, workers: usize) -> u64 {
        let mut since: Option<(u64, Instant)> = None;
        until_async("a steady map", async || {
            let (version, owned) = map(&self.nats).await?;
            if owners(&owned).len() != workers {
                return None;
            }
            let (known, at) = *since.get_or_insert((version, Instant::now()));
            if known != version {
                since = Some((version, Instant::now()));
            }
            (known == version && at.elapsed() > Duration::from_secs(3)).then_some(version)
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_workers_lose_nothing_double_nothing_and_keep_the_order_whatever_befalls_them() {
    let _machine = MACHINE.write().await;
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(now_ns() as u64 | 1);
    println!("measured: seed {seed}");
    let mut servers = Cluster::start().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let fleet = Fleet {
        binary: env!("CARGO_BIN_EXE_ledger"),
        url: servers.urls(),
        dir: dir.path().to_owned(),
        parts: PARTS,
        size: WORKERS,
        replicas: 3,
        history: HISTORY,
        env: Vec::new(),
    };
    let nats = connect(&servers.urls(), 3).await;
    let log = open_log(&nats).await;
    let mut trial =
        Trial { nats: nats.clone(), fleet, members: Vec::new(), blows: Vec::new(), rng: Rng(seed), names: 0 };
    (0..WORKERS).for_each(|_| trial.start_one());
    trial.steady(WORKERS).await;

    let published = Published::default();
    let stop = Arc::new(AtomicBool::new(false));
    let publishing = tokio::spawn(publish(log.clone(), published.clone(), stop.clone(), seed));
    let began = Instant::now();
    let pause = |seconds| tokio::time::sleep(Duration::from_secs(seconds));

    pause(5).await;
    let victim = trial.follower();
    trial.kill("kill -9", victim).await;
    pause(12).await;
    let victim = trial.follower();
    trial.kill("kill -9", victim).await;
    pause(12).await;
    let leader = trial.leader();
    trial.kill("kill -9 of the leader", leader).await;
    pause(12).await;
    (0..3).for_each(|_| trial.start_one());
    trial.steady(WORKERS).await;

    // A worker stands still for 15 s: the others take over, and what it does when it wakes changes nothing.
    let sleeper = trial.follower();
    let parts = trial.owned_by(sleeper).await;
    let (name, at) = (trial.members[sleeper].name.clone(), now_ns());
    trial.members[sleeper].process.pause();
    pause(15).await;
    trial.members[sleeper].process.resume();
    trial.blows.push(Blow { what: "SIGSTOP", worker: name, at, until: now_ns(), parts });
    trial.steady(WORKERS).await;

    // The NATS node that leads the log dies and comes back.
    let leading = stream_leader(&servers, &nats).await;
    let node = servers.named(&leading).expect("the leader is one of ours");
    let at = now_ns();
    node.kill();
    pause(10).await;
    servers.named(&leading).expect("it is still ours").restart().unwrap();
    trial.blows.push(Blow {
        what: "kill -9 of the NATS node that leads the stream",
        worker: String::new(),
        at,
        until: now_ns(),
        parts: BTreeSet::new(),
    });
    trial.steady(WORKERS).await;

    // A graceful restart, then a rolling update with surge 3: nothing may move.
    let before = trial.steady(WORKERS).await;
    let restarting = trial.follower();
    let mut member = trial.members.remove(restarting);
    let at = now_ns();
    assert!(member.process.terminate(Duration::from_secs(30)).is_some_and(|status| status.success()));
    let again = trial.fleet.start(&member.name);
    trial.members.push(again);
    trial.blows.push(Blow {
        what: "graceful restart",
        worker: member.name,
        at,
        until: now_ns(),
        parts: BTreeSet::new(),
    });
    until_async("it has its id again", async || trial.members.last().and_then(Member::id)).await;
    pause(3).await;
    let at = now_ns();
    let old: Vec<Member> = std::mem::take(&mut trial.members);
    let had_leader = old.iter().any(Member::leads);
    (0..3).for_each(|_| trial.start_one());
    for mut member in old {
        pause(1).await;
        assert!(member.process.terminate(Duration::from_secs(30)).is_some_and(|status| status.success()));
        if trial.members.len() < WORKERS {
            trial.start_one();
        }
    }
    pause(12).await;
    let after = map(&nats).await.expect("there is a map").0;
    let new_versions = after - before;
    trial.blows.push(Blow {
        what: "rolling update",
        worker: String::new(),
        at,
        until: now_ns(),
        parts: BTreeSet::new(),
    });
    assert!(had_leader, "the leader was among the old");

    while began.elapsed() < PUBLISHING {
        pause(1).await;
    }
    stop.store(true, Ordering::Relaxed);
    publishing.await.unwrap();
    let total = published.len();
    until_async("everything is committed", async || {
        let cursors = cursor_history(&nats, HISTORY).await;
        (cursors.values().map(|values| commits(values).len()).sum::<usize>() >= total).then_some(())
    })
    .await;
    let cursors = cursor_history(&nats, HISTORY).await;
    check(&published, &cursors, &runs(dir.path()), &trial.blows, new_versions);
    for member in &mut trial.members {
        member.process.terminate(Duration::from_secs(30));
    }
}

async fn open_log(nats: &Nats) -> Arc<dyn Log> {
    until_async("the stream", async || nats.log(&settings(HISTORY).log).await.ok()).await
}

async fn publish(log: Arc<dyn Log>, published: Published, stop: Arc<AtomicBool>, seed: u64) {
    let mut rng = Rng(seed ^ 0x9e37_79b9_7f4a_7c15);
    let mut next = vec![0_u64; PARTS];
    let mut tick = tokio::time::interval(Duration::from_millis(1000 / RATE));
    while !stop.load(Ordering::Relaxed) {
        tick.tick().await;
        let part = rng.below(PARTS);
        published.publish(&log, part, next[part]).await;
        next[part] += 1;
    }
}

/// The node that leads the stream `WORK`, by what the nodes say of themselves.
async fn stream_leader(servers: &Cluster, nats: &Nats) -> String {
    until_async("the stream has a leader", async || {
        nats.stream_leader("WORK").await.ok().flatten().filter(|_| servers.urls().len() > 1)
    })
    .await
}

fn seconds(ns: u128) -> f64 {
    ns as f64 / SECOND as f64
}

fn check(
    published: &Published,
    cursors: &BTreeMap<usize, Vec<CursorValue>>,
    runs: &[Run],
    blows: &[Blow],
    new_versions: u64,
) {
    let published = published.0.lock().unwrap().clone();
    assert!(published.len() >= 10_000, "only {} messages were published", published.len());
    for wanted in [
        "kill -9",
        "kill -9 of the leader",
        "SIGSTOP",
        "kill -9 of the NATS node that leads the stream",
        "graceful restart",
        "rolling update",
    ] {
        assert!(blows.iter().any(|blow| blow.what == wanted), "{wanted} did not happen");
    }

    // Every message is committed exactly once, and in order.
    let mut committed: BTreeMap<&str, usize> = BTreeMap::new();
    for (part, values) in cursors {
        assert!(
            values.len() < usize::from(HISTORY),
            "partition {part} has more values than the bucket keeps"
        );
        let commits = commits(values);
        let order: Vec<u64> = commits.iter().map(|commit| published[&commit.context].1).collect();
        assert!(order.is_sorted(), "partition {part} was committed in the order {order:?}");
        for commit in commits {
            *committed.entry(&commit.context).or_default() += 1;
        }
    }
    let lost: Vec<_> = published.keys().filter(|id| !committed.contains_key(id.as_str())).collect();
    let doubled: Vec<_> = committed.iter().filter(|(_, count)| **count > 1).collect();
    assert!(lost.is_empty(), "{} lost: {lost:?}", lost.len());
    assert!(doubled.is_empty(), "{} committed twice: {doubled:?}", doubled.len());

    // A second end only where a blow fell between the first and its commit.
    let mut ends: BTreeMap<&str, Vec<&Run>> = BTreeMap::new();
    for run in runs.iter().filter(|run| run.end.is_some()) {
        ends.entry(&run.id).or_default().push(run);
    }
    let mut repeated = 0;
    for (id, runs) in ends.iter().filter(|(_, runs)| runs.len() > 1) {
        repeated += runs.len() - 1;
        for run in &runs[..runs.len() - 1] {
            let end = run.end.unwrap();
            let struck = |blow: &&Blow| {
                let hits = blow.worker == run.worker || blow.what.contains("NATS");
                hits && blow.at <= end + 3 * SECOND && end <= blow.until + 3 * SECOND
            };
            assert!(blows.iter().any(|blow| struck(&blow)), "{id} ended twice without cause: {runs:?}");
        }
    }
    assert_eq!(ends.len(), published.len(), "some message has no end");

    // Never two workers on one partition, but for one that stood still.
    let mut by_part: BTreeMap<usize, Vec<&Run>> = BTreeMap::new();
    for run in runs {
        by_part.entry(run.part).or_default().push(run);
    }
    let stood_still = |run: &Run| {
        blows.iter().any(|blow| {
            blow.what == "SIGSTOP"
                && blow.worker == run.worker
                && run.start <= blow.until
                && run.end.unwrap_or(blow.until) >= blow.at
        })
    };
    for (part, runs) in &by_part {
        for pair in runs.windows(2).filter(|pair| pair[0].worker != pair[1].worker) {
            let end = pair[0].end.unwrap_or(pair[0].start);
            assert!(
                end <= pair[1].start || stood_still(pair[0]) || stood_still(pair[1]),
                "two workers on partition {part} at once: {pair:?}"
            );
        }
        let mut newest = 0;
        for run in runs.iter().filter(|run| run.end.is_some()) {
            assert!(run.seq >= newest || stood_still(run), "partition {part}: {run:?} after {newest}");
            newest = newest.max(run.seq);
        }
    }

    // After each kill the orphans are served again in time.
    for blow in blows.iter().filter(|blow| blow.what.starts_with("kill") && !blow.parts.is_empty()) {
        let after = blow.parts.iter().filter_map(|part| {
            by_part
                .get(part)?
                .iter()
                .find(|run| run.start > blow.at && run.worker != blow.worker)
                .map(|run| (run, part))
        });
        // A partition counts if something of it was waiting while it had no owner.
        let waits: Vec<f64> = after
            .filter(|(run, _)| published[&run.id].2 < blow.at + 6 * SECOND)
            .map(|(run, _)| seconds(run.start - blow.at))
            .collect();
        assert!(!waits.is_empty(), "{}: nothing of its partitions was waiting", blow.what);
        let worst = waits.into_iter().fold(0.0, f64::max);
        println!(
            "measured: {}: {} partitions served again after {worst:.2} s at most",
            blow.what,
            blow.parts.len()
        );
        assert!(worst <= PROMISE + SLACK, "{}: {worst:.2} s", blow.what);
    }
    assert_eq!(new_versions, 0, "the restart and the rolling update made new versions of the map");
    let latency = |share: f64| {
        let mut waits: Vec<u128> =
            runs.iter().map(|run| run.start.saturating_sub(published[&run.id].2)).collect();
        waits.sort_unstable();
        waits[((waits.len() - 1) as f64 * share) as usize] as f64 / 1e6
    };
    println!(
        "measured: {} messages committed once each, in order, {repeated} processed again; published to started: p50 {:.1} ms, p99 {:.0} ms",
        published.len(),
        latency(0.5),
        latency(0.99)
    );
}
