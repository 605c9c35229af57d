//! The whole of it on real servers: three NATS nodes, a Cassandra, six `phalanx defender` processes and a fab that never
//! stops sending, while defenders are killed, servers are restarted and the fleet is updated twice.
//!
//! What was lost or done twice is counted from what the fab sent and what is read back from Cassandra.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::util::fleet::{Ground, Member};
use crate::util::run;
use jiff::Timestamp;
use phalanx_cluster::backend::Backend as _;
use phalanx_cluster_nats::Nats;
use phalanx_defender::collector::Collector;
use phalanx_defender::names::store_config;
use phalanx_defender::record::{Chamber, Outcome};
use phalanx_defender::store::cassandra::Config;
use phalanx_defender::store::{Cassandra, ChartStore};
use phalanx_defender::traces::{EncodedTraces, Recording, Series};
use phalanx_fab::{Fab, STRATEGY};
use phalanx_testkit::cassandra::Server;
use phalanx_testkit::nats::Cluster;
use phalanx_testkit::wait::until;
use serde_json::Value;

const CHAMBERS: usize = 24;
const DEFENDERS: u32 = 6;
/// One run of each chamber takes so long.
const ROUND: Duration = Duration::from_millis(1500);
/// Outage of a NATS node.
const OUTAGE: Duration = Duration::from_secs(3);
/// Six seconds until a silent worker is given up, one to redistribute, and one for the asking.
const RECOVERY: Duration = Duration::from_secs(8);

struct Trial {
    ground: Ground,
    strategy: String,
    members: Vec<Member>,
    names: usize,
}

impl Trial {
    fn start_one(&mut self) {
        self.names += 1;
        let name = format!("pod-{}", self.names);
        self.start_as(&name);
    }

    fn start_as(&mut self, name: &str) {
        // A shorter window: what is measured is what follows it.
        let settings = [("SCALE_WINDOW_SECONDS", "3")];
        let member = self.ground.defender(name, DEFENDERS, &self.strategy, &settings);
        self.members.push(member);
    }

    fn follower(&self) -> usize {
        self.members.iter().position(|member| !member.leads()).expect("somebody follows")
    }

    /// The map, as the first that knows one says.
    fn map(&self) -> Option<(u64, BTreeMap<String, String>)> {
        let maps = self.members.iter().filter_map(|member| {
            let map = member.get("/api/v1/assignments?all=true");
            let owners = map["chambers"].as_array()?.iter().map(|one| {
                let text = |name: &str| one[name].as_str().unwrap_or_default().to_owned();
                (format!("{}:{}", text("toolId"), text("chamberId")), text("defenderId"))
            });
            Some((map["version"].as_u64()?, owners.collect()))
        });
        maps.max_by_key(|(version, _): &(u64, BTreeMap<String, String>)| *version)
    }

    /// Waits until all are ready, hold an id, and own all chambers between them by one map that stays.
    fn steady(&self) -> u64 {
        let mut since: Option<(u64, Instant)> = None;
        until("a steady fleet", || {
            let ids: BTreeSet<String> = self.members.iter().filter_map(Member::id).collect();
            let (version, owners) = self.map()?;
            let own: BTreeSet<&String> = owners.values().collect();
            let settled = ids.len() == DEFENDERS as usize
                && owners.len() == CHAMBERS
                && own.iter().copied().eq(ids.iter())
                && self.members.iter().all(Member::is_ready);
            if !settled {
                since = None;
                return None;
            }
            let (known, at) = *since.get_or_insert((version, Instant::now()));
            if known != version {
                since = Some((version, Instant::now()));
            }
            (known == version && at.elapsed() > Duration::from_secs(2)).then_some(version)
        })
    }

    /// Kills one, and says how long its chambers had no owner that had applied the map.
    fn kill(&mut self, place: usize) -> (Duration, usize) {
        let mut victim = self.members.remove(place);
        let id = victim.id().expect("it has an id");
        let (version, owners) = self.map().expect("there is a map");
        let orphans = owners.values().filter(|owner| **owner == id).count();
        let died = Instant::now();
        victim.process.kill();
        until("its chambers have new owners", || {
            let (now, owners) = self.map()?;
            (now > version && owners.values().all(|owner| *owner != id)).then_some(())
        });
        let took = died.elapsed();
        assert!(took <= RECOVERY, "{orphans} chambers of {id} had no owner for {took:?}");
        (took, orphans)
    }
}

/// What was sent: by chamber, the runs whose submission was acknowledged.
type Sent = Vec<(usize, u64)>;

/// The fab sends all chambers in turn until it is told to stop; what is refused is sent again until it is taken.
async fn send(fab: Fab, collector: Collector, stop: Arc<AtomicBool>) -> Sent {
    let mut sent = Vec::new();
    for run in 0.. {
        for number in 0..CHAMBERS {
            if stop.load(Ordering::SeqCst) {
                return sent;
            }
            let (context, chunks) = traces(&fab, number, run);
            let chamber = chamber(&fab, number);
            let timestamp = Timestamp::now();
            while collector.submit(&chamber, &context, timestamp, &chunks).await.is_err() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            sent.push((number, run));
            tokio::time::sleep(ROUND / CHAMBERS as u32).await;
        }
    }
    sent
}

fn traces(fab: &Fab, number: usize, run: u64) -> (String, EncodedTraces) {
    let run = fab.run(number, run);
    let series = run.traces.into_iter().map(|trace| Series {
        svid: trace.svid,
        timestamps: run.times_us.clone(),
        values: trace.values,
    });
    (run.context, Recording::from_series(series).unwrap().to_chunks().unwrap())
}

fn chamber(fab: &Fab, number: usize) -> Chamber {
    let model = &fab.chambers()[number];
    Chamber::new(&model.tool, &model.name).unwrap()
}

/// What of all that was sent is not processed, how many were too often, and how many are dead.
async fn count(fab: &Fab, store: &dyn ChartStore, sent: &Sent) -> (Sent, usize, usize) {
    let (mut lost, mut double, mut dead) = (Sent::new(), 0, 0);
    for number in 0..CHAMBERS {
        let mut processed = BTreeMap::<Arc<str>, usize>::new();
        for row in store.contexts(&chamber(fab, number), None, 100_000).await.unwrap() {
            *processed.entry(row.context).or_default() += usize::from(row.outcome == Outcome::Processed);
            dead += usize::from(row.outcome == Outcome::Dead);
        }
        for (_, run) in sent.iter().filter(|(of, _)| *of == number) {
            let times = processed.get(format!("run-{run:06}").as_str()).copied().unwrap_or_default();
            if times == 0 {
                lost.push((number, *run));
            }
            double += times.saturating_sub(1);
        }
    }
    (lost, double, dead)
}

#[test]
fn six_defenders_lose_nothing_and_double_nothing_whatever_befalls_them_and_their_servers() {
    let cassandra = std::thread::spawn(|| Server::start_with("commitlog_sync: batch\n"));
    let mut servers = Cluster::start().unwrap();
    let mut cassandra = cassandra.join().unwrap().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let strategy = folder.path().join("strategy.toml");
    std::fs::write(&strategy, STRATEGY).unwrap();
    let strategy = strategy.display().to_string();
    let ground = Ground {
        nats: servers.urls(),
        replicas: 3,
        cassandra: cassandra.host(),
        keyspace: String::new(),
        folder,
    };
    run(ground.phalanx().args(["schema", "apply", "--replication", "1"])).succeeds();
    let fab = Fab::new(11, CHAMBERS);
    let list = ground.folder.path().join("chambers.csv");
    std::fs::write(&list, fab.chambers_csv()).unwrap();
    run(ground.phalanx().args(["chambers", "import"]).arg(&list)).succeeds();

    let mut trial = Trial { ground, strategy, members: Vec::new(), names: 0 };
    let began = Instant::now();
    (0..DEFENDERS).for_each(|_| trial.start_one());
    trial.steady();
    println!("measured: cold start of {DEFENDERS} processes: {:.1} s", began.elapsed().as_secs_f64());

    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (nats, store) = runtime.block_on(async {
        let config = phalanx_cluster_nats::Config {
            replicas: 3,
            ..phalanx_cluster_nats::Config::new(trial.ground.nats.clone())
        };
        let store = Cassandra::connect(&Config::new(trial.ground.cassandra.clone())).await.unwrap();
        (Nats::connect(&config).await.unwrap(), Arc::new(store))
    });
    let settings = store_config();
    let notifications = runtime.block_on(nats.log(&settings.log)).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let collector = Collector::new(store.clone(), notifications);
    let sending = runtime.spawn(send(fab.clone(), collector, stop.clone()));
    until("every chamber has a run", || flows(&trial));

    let follower = trial.follower();
    let (took, orphans) = trial.kill(follower);
    println!(
        "measured: kill -9 of a defender: {orphans} chambers had new owners after {:.1} s",
        took.as_secs_f64()
    );
    let leader = trial.members.iter().position(Member::leads).expect("somebody leads");
    let (took, orphans) = trial.kill(leader);
    println!(
        "measured: kill -9 of the leader: {orphans} chambers had new owners after {:.1} s",
        took.as_secs_f64()
    );
    (0..2).for_each(|_| trial.start_one());
    trial.steady();

    let (version, at) = (trial.steady(), Instant::now());
    servers.node(1).kill();
    std::thread::sleep(OUTAGE);
    servers.node(1).restart().unwrap();
    until("everything flows again", || flows(&trial));
    println!(
        "measured: kill -9 of a NATS node: all chambers committed again after {:.1} s",
        at.elapsed().as_secs_f64()
    );

    let at = Instant::now();
    cassandra.stop();
    until("a defender reports that it is not ready", || {
        (trial.members[0].get("/health/ready")["status"] == "not ready").then_some(())
    });
    cassandra.restart().unwrap();
    let back = Instant::now();
    until("everything flows again", || flows(&trial));
    println!(
        "measured: restart of Cassandra: down for {:.1} s, all chambers committed {:.1} s after it was back",
        (back - at).as_secs_f64(),
        back.elapsed().as_secs_f64()
    );
    // A stall of the broker may have cost a worker its place; what follows is measured from a steady fleet.
    let before = trial.steady();
    println!("measured: restarts of servers made {} map versions", before - version);

    let at = Instant::now();
    for _ in 0..DEFENDERS {
        trial.start_one();
        let newcomer = trial.members.last().unwrap();
        until("the newcomer stands by", || newcomer.is_ready().then_some(()));
        trial.members.remove(0).leave();
    }
    assert_eq!(trial.steady(), before, "a rolling update with surge makes no map");
    println!("measured: rolling update with surge: 0 map versions, {:.1} s", at.elapsed().as_secs_f64());

    let at = Instant::now();
    for _ in 0..DEFENDERS {
        let mut leaving = trial.members.remove(0);
        leaving.leave();
        trial.start_as(&leaving.name);
        let newcomer = trial.members.last().unwrap();
        until("it is back", || newcomer.id());
    }
    assert_eq!(trial.steady(), before, "a rolling update without surge makes no map");
    println!("measured: rolling update without surge: 0 map versions, {:.1} s", at.elapsed().as_secs_f64());

    stop.store(true, Ordering::SeqCst);
    let sent = runtime.block_on(sending).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let (mut lost, mut double, mut dead) = runtime.block_on(count(&fab, &*store, &sent));
    while !lost.is_empty() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(500));
        (lost, double, dead) = runtime.block_on(count(&fab, &*store, &sent));
    }
    if let Some((number, _)) = lost.first() {
        let model = &fab.chambers()[*number];
        let shown = trial.members[0].get(&format!("/api/v1/chambers/{}/{}", model.tool, model.name));
        println!("{shown:#}");
        for member in &trial.members {
            println!("--- {}: {}", member.name, member.said());
        }
    }
    assert_eq!((&lost, double, dead), (&Sent::new(), 0, 0));
    println!("measured: {} runs sent, lost 0, double 0, dead 0", sent.len());
}

/// Whether every chamber has committed something of the last seconds.
fn flows(trial: &Trial) -> Option<()> {
    let (_, owners) = trial.map()?;
    let recent = Timestamp::now() - jiff::SignedDuration::from_secs(4);
    let is_recent = |name: &String| {
        let (tool, chamber) = name.split_once(':')?;
        let answer = trial.members[0].get(&format!("/api/v1/contexts/{tool}/{chamber}?limit=1"));
        let last: &Value = &answer["contexts"][0]["timestamp"];
        last.as_str()?.parse::<Timestamp>().ok().filter(|last| *last > recent)
    };
    (owners.len() == CHAMBERS && owners.keys().all(|name| is_recent(name).is_some())).then_some(())
}
