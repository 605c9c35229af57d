//! What leaderships cost: three nodes on this machine, each with its own file that is flushed for every write.
#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the code under test is pure; what tests it has clocks, files and output"
)]

use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use phalanx_election::agent::{Agent, Config};
use phalanx_election::client::{Acquired, Candidacy, Client, Held};
use phalanx_election::node;
use phalanx_election::security::Security;
use tempfile::TempDir;

const TTL: Duration = Duration::from_secs(60);
const LATENCIES: usize = 1000;
const HOLDERS: usize = 100;
const LOAD: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() {
    let (agents, _folders) = start().await;
    let addresses: Vec<String> = agents.iter().map(|agent| agent.grpc_addr().to_string()).collect();
    let client = Client::new(&addresses, &Security::default()).expect("a client");
    println!("election agent, 3 nodes on one machine, a flush to disk for every write");
    println!("{:<44} {:>10} {:>10} {:>10}", "", "p50", "p95", "p99");

    let mut acquired = Vec::new();
    let mut held = None;
    for number in 0..LATENCIES {
        let start = Instant::now();
        held = Some(acquire(&client, &format!("election-{number}")).await);
        acquired.push(start.elapsed());
    }
    print("acquire, one at a time", &mut acquired);

    let mut held = held.expect("the last one");
    let mut renewed = Vec::new();
    for _ in 0..LATENCIES {
        let start = Instant::now();
        held = client.renew(&held).await.expect("renewed");
        renewed.push(start.elapsed());
    }
    print("renew, one at a time", &mut renewed);

    let mut ready = Vec::new();
    for number in 0..HOLDERS {
        let client = Client::new(&addresses, &Security::default()).expect("a client");
        ready.push((acquire(&client, &format!("load-{number}")).await, client));
    }
    let start = Instant::now();
    let holders: Vec<_> = ready
        .into_iter()
        .map(|(mut held, client)| {
            tokio::spawn(async move {
                let mut times = Vec::new();
                while start.elapsed() < LOAD {
                    let asked = Instant::now();
                    held = client.renew(&held).await.expect("renewed");
                    times.push(asked.elapsed());
                }
                times
            })
        })
        .collect();
    let mut times = Vec::new();
    for holder in holders {
        times.extend(holder.await.expect("no panic"));
    }
    let rate = times.len() as f64 / start.elapsed().as_secs_f64();
    print(&format!("renew, {HOLDERS} holders without a pause"), &mut times);
    println!("renewals/s: {rate:.0}");

    let mut looked = Vec::new();
    for _ in 0..LATENCIES {
        let start = Instant::now();
        client.leader("election-0").await.expect("an answer");
        looked.push(start.elapsed());
    }
    print("get leader, confirmed by a majority", &mut looked);
    for agent in agents {
        agent.stop().await;
    }
}

async fn acquire(client: &Client, election: &str) -> Held {
    match client.acquire(&Candidacy::new(election, "holder", TTL)).await {
        Ok(Acquired::Leads(held)) => held,
        other => panic!("{other:?}"),
    }
}

async fn start() -> (Vec<Agent>, Vec<TempDir>) {
    // All must know where the others are before any of them is there.
    let ports: Vec<TcpListener> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port")).collect();
    let addresses: Vec<String> =
        ports.iter().map(|port| port.local_addr().expect("an address").to_string()).collect();
    drop(ports);
    let peers = || (1..).zip(addresses.iter().cloned()).collect();
    let (mut agents, mut folders) = (Vec::new(), Vec::new());
    for (id, address) in (1..).zip(&addresses) {
        let folder = tempfile::tempdir().expect("a folder");
        let node = node::Config {
            id,
            data_dir: folder.path().to_owned(),
            peers: peers(),
            join: Vec::new(),
            advertise: String::new(),
            security: Security::default(),
            log: Arc::new(|_| {}),
        };
        let config = Config { grpc_addr: address.clone(), http_addr: "127.0.0.1:0".to_owned(), node };
        agents.push(Agent::start(config).await.expect("an agent"));
        folders.push(folder);
    }
    let client = Client::new(&addresses, &Security::default()).expect("a client");
    while client.leader("none").await.is_err() {}
    (agents, folders)
}

fn print(what: &str, times: &mut [Duration]) {
    times.sort_unstable();
    let at = |part: f64| format!("{:.2} ms", times[(times.len() as f64 * part) as usize].as_secs_f64() * 1e3);
    println!("{what:<44} {:>10} {:>10} {:>10}", at(0.5), at(0.95), at(0.99));
}
