//! A fleet of `phalanx defender` processes that elects through three `phalanx election-agent` processes, on a real NATS
//! server, while leaders of both kinds are killed, restarted and cut off.

use std::time::{Duration, Instant};

use crate::election_set::Set;
use crate::util::fleet::{Ground, Member};
use crate::util::running::strategy;
use phalanx_cluster::backend::Backend as _;
use phalanx_cluster_nats::{Config, Nats};
use phalanx_defender::names::store_config;
use phalanx_election::client::Client;
use phalanx_testkit::nats::Server;
use phalanx_testkit::proxy::Proxy;
use phalanx_testkit::wait::until;

const ELECTION: &str = "fab-1";
/// The usual lease.
const TERM: Duration = Duration::from_secs(10);
/// What the promise leaves for the election itself, and one second for the asking.
const AFTERWARDS: Duration = Duration::from_secs(2);

/// A defender whose ways to the agent can be cut.
struct Seat {
    member: Member,
    ways: Vec<Proxy>,
}

struct Trial {
    ground: Ground,
    agents: Set,
    seats: Vec<Seat>,
    names: usize,
}

impl Trial {
    fn start_one(&mut self) {
        self.names += 1;
        let name = format!("pod-{}", self.names);
        let ways: Vec<Proxy> = self.agents.nodes.values().map(|node| leading_to(node.grpc)).collect();
        let addresses: Vec<String> = ways.iter().map(|way| way.address().to_string()).collect();
        let folder = self.ground.folder.path().join(&name);
        std::fs::create_dir_all(&folder).unwrap();
        let mut command = self.ground.phalanx();
        command.args([
            "defender",
            "--http-addr",
            "127.0.0.1:0",
            "--strategy-file",
            &strategy(),
            "--data-dir",
        ]);
        command.arg(folder).env_remove("CASSANDRA_HOSTS").envs([
            ("ELECTION_AGENT_ADDR", addresses.join(",").as_str()),
            ("POD_NAMESPACE", ELECTION),
            ("FLEET_SIZE", "3"),
            ("POD_NAME", &name),
            ("API_TOKEN", "secret"),
        ]);
        let member = self.ground.start(&name, command);
        self.seats.push(Seat { member, ways });
    }

    /// The places of those that say they lead.
    fn leaders(&self) -> Vec<usize> {
        (0..self.seats.len()).filter(|&place| self.seats[place].member.leads()).collect()
    }

    /// The map's version and how many workers it is for.
    fn map(&self) -> Option<(u64, usize)> {
        let cluster = self.seats.first()?.member.get("/api/v1/cluster");
        let named =
            cluster["workers"].as_array()?.iter().filter(|worker| worker["state"] == "STABLE").count();
        Some((cluster["mapVersion"].as_u64()?, named))
    }

    /// Waits until all are ready and one leads, and says which.
    #[track_caller]
    fn steady(&self, size: usize) -> usize {
        until("a steady fleet", || {
            let ready = self.seats.iter().all(|seat| seat.member.is_ready());
            let leaders = self.leaders();
            (ready && self.map()?.1 == size && leaders.len() == 1).then(|| leaders[0])
        })
    }

    /// How long until somebody else than `before` leads. At no look do two lead.
    #[track_caller]
    fn another_leads(&self, before: &str, since: Instant) -> Duration {
        until("another leader", || {
            let leaders = self.leaders();
            assert!(leaders.len() <= 1, "{leaders:?} lead at once");
            let name = &self.seats[*leaders.first()?].member.name;
            (name != before).then(|| since.elapsed())
        })
    }
}

fn leading_to(node: std::net::SocketAddr) -> Proxy {
    let proxy = Proxy::new().unwrap();
    proxy.lead_to(node);
    proxy
}

/// Who leads the fleet, and the epoch, as the agent says.
async fn granted(client: &Client) -> (String, u64) {
    let leadership = client.leader(ELECTION).await.unwrap();
    (leadership.leader, leadership.epoch)
}

#[test]
fn a_fleet_elects_through_the_agent_whoever_of_both_dies() {
    let server = Server::start().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _inside = runtime.enter();
    let agents = runtime.block_on(Set::start(3));
    let folder = tempfile::tempdir().unwrap();
    let ground =
        Ground { nats: server.url(), replicas: 1, cassandra: String::new(), keyspace: String::new(), folder };
    let mut trial = Trial { ground, agents, seats: Vec::new(), names: 0 };
    (0..3).for_each(|_| trial.start_one());

    // The agent grants, and NATS is not asked.
    let leader = trial.steady(3);
    let client = trial.agents.client();
    let (holder, first) = runtime.block_on(granted(&client));
    let id = trial.seats[leader].member.id().unwrap();
    assert!(holder.starts_with(&format!("{id}.")), "{holder} and not {id}");
    runtime.block_on(async {
        let nats = Nats::connect(&Config::new(server.url())).await.unwrap();
        let bucket = nats.bucket(&store_config().election).await.unwrap();
        assert!(bucket.get("leader").await.unwrap().is_none(), "no lease lies at NATS");
    });

    // A fail-over of the agent while a window is open changes neither the leader nor what the window ends in.
    let url = trial.seats[leader].member.url.clone();
    let mut scale = trial.ground.phalanx();
    let scaled = scale.args(["scale", "4", "--url", &url]).env("API_TOKEN", "secret").status().unwrap();
    assert!(scaled.success());
    let dead = runtime.block_on(trial.agents.leader());
    trial.agents.kill(dead);
    trial.start_one();
    assert_eq!(trial.steady(4), leader, "the same leads");
    assert_eq!(runtime.block_on(granted(&trial.agents.client())), (holder, first), "and by the same lease");
    trial.agents.start_node(dead, &[]);
    let back = trial.agents.nodes[&dead].grpc;
    for seat in &trial.seats {
        seat.ways[dead as usize - 1].lead_to(back);
    }

    // A leader that leaves in good order gives its lease back: nobody waits for a term, and nothing moves.
    let (version, _) = trial.map().unwrap();
    let mut gone = trial.seats.remove(leader);
    gone.member.leave();
    let took = trial.another_leads(&gone.member.name, Instant::now());
    println!("measured: another leads {:.2} s after the leader left", took.as_secs_f64());
    assert!(took <= AFTERWARDS, "{took:?}");
    trial.start_one();
    trial.steady(4);
    assert_eq!(trial.map().unwrap().0, version, "a restart of the leader makes no map");

    // All are replaced one by one, the leader too, each by one that waited: nothing moves.
    for _ in 0..4 {
        trial.start_one();
        until("a standby", || trial.seats.last()?.member.is_ready().then_some(()));
        trial.seats.remove(0).member.leave();
        trial.steady(4);
    }
    assert_eq!(trial.map().unwrap().0, version, "a rolling update makes no map");
    let leader = trial.steady(4);
    let (_, second) = runtime.block_on(granted(&trial.agents.client()));
    assert!(second > first, "epoch {second} after {first}");

    // A leader that dies is succeeded when its lease is over.
    let mut gone = trial.seats.remove(leader);
    let died = Instant::now();
    gone.member.process.kill();
    let took = trial.another_leads(&gone.member.name, died);
    println!("measured: another leads {:.2} s after kill -9 of the leader", took.as_secs_f64());
    assert!(took <= TERM + AFTERWARDS, "{took:?}");
    trial.start_one();
    let leader = trial.steady(4);

    // A leader that is cut off from the agent stops by itself, before another leads.
    let cut = Instant::now();
    trial.seats[leader].ways.iter().for_each(Proxy::cut_both);
    let name = trial.seats[leader].member.name.clone();
    let took = trial.another_leads(&name, cut);
    println!("measured: another leads {:.2} s after the leader was cut off", took.as_secs_f64());
    assert!(took <= TERM + AFTERWARDS, "{took:?}");
    assert!(trial.seats[leader].member.is_ready(), "it works on: {}", trial.seats[leader].member.said());
    trial.seats[leader].ways.iter().for_each(Proxy::mend);
    trial.steady(4);
    let (_, last) = runtime.block_on(granted(&trial.agents.client()));
    assert!(last > second + 1, "epoch {last} after {second}");
}
