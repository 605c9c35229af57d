//! The Election Agent with links that are cut, processes that die, disks that are full; and every operation of it all checked.

use crate::election_set;
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::election_set::{Set, TERM, agent, take};
use crate::history::{Act, Op, check};
use crate::util::phalanx;
use phalanx_election::client::{Acquired, Candidacy, Client, Error, Held};
use phalanx_testkit::process::bound_to_parent;
use phalanx_testkit::proxy::Direction;
use phalanx_testkit::wait::until_async;

const LONG: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn a_raft_leader_that_is_cut_off_grants_nothing_and_the_others_go_on() {
    let set = Set::start(3).await;
    let held = take(&set.client(), "fab-1", "a", LONG).await;
    let old = set.leader().await;
    set.isolate(old);
    let cut = Instant::now();
    let others: Vec<u64> = [1, 2, 3].into_iter().filter(|id| *id != old).collect();
    let renewed =
        until_async("a renewal at the others", async || match set.client_of(&others).renew(&held).await {
            Ok(renewed) => Some(renewed),
            Err(Error::Unknown(_) | Error::NotDone(_)) => None,
            Err(error) => panic!("{error}"),
        })
        .await;
    println!("measured: renewed {:?} after the Raft leader was cut off", cut.elapsed());
    assert_eq!(renewed.epoch, held.epoch);
    // The one that is alone neither grants, nor answers what may be old, nor lets a watch believe it.
    let alone = set.client_of(&[old]);
    let answer = alone.acquire(&Candidacy::new("fab-2", "b", LONG)).await;
    assert!(matches!(answer, Err(Error::Unknown(_) | Error::NotDone(_))), "{answer:?}");
    assert!(alone.leader("fab-1").await.is_err());
    assert!(alone.watch("fab-1").await.is_err());
    set.mend();
    set.leader().await;
    // What was left open may have been done or not; it is the same everywhere.
    let seen: Vec<_> = {
        let mut seen = Vec::new();
        for id in [1, 2, 3] {
            seen.push(set.client_of(&[id]).leader("fab-2").await.unwrap());
        }
        seen.into_iter().map(|one| (one.leader, one.epoch)).collect()
    };
    assert!(seen.iter().all(|one| *one == seen[0]), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_minority_grants_nothing_and_ends_nothing() {
    let set = Set::start(3).await;
    let held = take(&set.client(), "fab-1", "a", TERM).await;
    let mut watch = set.client().watch("fab-1").await.unwrap();
    // No two nodes hear each other: nobody is a majority.
    set.links.values().for_each(phalanx_testkit::proxy::Proxy::cut_both);
    for id in [1, 2, 3] {
        let answer = set.client_of(&[id]).acquire(&Candidacy::new("fab-1", "b", TERM)).await;
        assert!(matches!(answer, Err(Error::Unknown(_) | Error::NotDone(_))), "{answer:?} of node {id}");
    }
    let ended = until_async("the watch to end", async || match watch.message().await {
        Ok(Some(event)) => {
            assert_eq!(event.leader, "a", "nobody but a majority ends a term");
            None
        }
        Ok(None) | Err(_) => Some(()),
    });
    ended.await;
    set.mend();
    set.leader().await;
    // Its holder has stopped long since, and others get it once a full term has passed under the new leader.
    assert!(held.is_over());
    let next = until_async("the next leadership", async || {
        match set.client().acquire(&Candidacy::new("fab-1", "c", TERM)).await {
            Ok(Acquired::Leads(next)) => Some(next),
            _ => None,
        }
    })
    .await;
    assert!(next.epoch > held.epoch);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_raft_leader_that_is_heard_but_hears_nobody_makes_room() {
    let set = Set::start(3).await;
    let held = take(&set.client(), "fab-1", "a", LONG).await;
    let deaf = set.leader().await;
    for ((from, to), link) in &set.links {
        // What it asks arrives; no answer comes back, and nothing that others ask.
        if *from == deaf {
            link.cut(Direction::Back);
        }
        if *to == deaf {
            link.cut(Direction::There);
        }
    }
    let cut = Instant::now();
    let others: Vec<u64> = [1, 2, 3].into_iter().filter(|id| *id != deaf).collect();
    let client = set.client_of(&others);
    let renewed = until_async("a renewal at the others", async || client.renew(&held).await.ok()).await;
    assert_eq!(renewed.epoch, held.epoch);
    println!("measured: renewed {:?} after the Raft leader had become deaf", cut.elapsed());
    assert_ne!(set.leader_among(&others).await, deaf);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_that_hears_nobody_disturbs_nobody_for_long() {
    let set = Set::start(3).await;
    let mut held = take(&set.client(), "fab-1", "a", Duration::from_secs(10)).await;
    let deaf = set.leader().await % 3 + 1;
    for ((from, to), link) in &set.links {
        // Nobody's words reach it; its own candidacies reach the others.
        if *to == deaf {
            link.cut(Direction::There);
        }
        if *from == deaf {
            link.cut(Direction::Back);
        }
    }
    let others: Vec<u64> = [1, 2, 3].into_iter().filter(|id| *id != deaf).collect();
    let client = set.client_of(&others);
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(6) {
        match client.renew(&held).await {
            Ok(renewed) => held = renewed,
            Err(Error::Unknown(_) | Error::NotDone(_)) => {}
            Err(error) => panic!("{error}"),
        }
        assert!(!held.is_over(), "{held:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    set.mend();
    set.leader().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_joins_and_another_is_taken_out_by_command() {
    let mut set = Set::prepared(4);
    for id in 1..=3 {
        // The fourth is none of those who begin.
        let three: Vec<String> = (1..=3)
            .map(|to| {
                set.links
                    .get(&(id, to))
                    .map_or_else(|| format!("{to}=127.0.0.1:1"), |way| format!("{to}={}", way.address()))
            })
            .collect();
        let mut command = agent(&set.data_dir(id));
        command.args(["--node-id", &id.to_string(), "--peers", &three.join(",")]);
        let log = set.data_dir(0).with_extension(format!("log{id}"));
        let node = election_set::Node::start(command, &log);
        for ((_, to), proxy) in &set.links {
            if *to == id {
                proxy.lead_to(node.grpc);
            }
        }
        set.nodes.insert(id, node);
    }
    set.leader().await;
    let held = take(&set.client(), "fab-1", "a", LONG).await;
    let through = set.nodes[&2].grpc.to_string();
    let advertised = set.links[&(1, 4)].address().to_string();
    set.start_node(4, &["--join", &through, "--advertise", &advertised]);
    until_async("the fourth to vote", async || {
        let status = set.client_of(&[4]).status().await.pop()?.1.ok()?;
        (status.members.len() == 4 && status.members.iter().all(|member| member.voter)).then_some(())
    })
    .await;
    let removed = phalanx(&["election", "remove", "1", "--addr", &through]).succeeds();
    assert!(!removed.stdout.contains("\n1 "), "{}", removed.stdout);
    set.kill(1);
    set.leader().await;
    let renewed = until_async("a renewal", async || set.client_of(&[4]).renew(&held).await.ok()).await;
    assert_eq!(renewed.epoch, held.epoch);
    let unknown = phalanx(&["election", "remove", "9", "--addr", &through]);
    assert!(unknown.fails_with(1).stderr.contains("there is no node 9"));
}

#[test]
fn a_folder_that_cannot_be_used_is_a_clear_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "not a folder").unwrap();
    let refusal = |command: &mut Command| {
        let output = command.output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let text = refusal(&mut agent(&file));
    assert!(text.contains("the data folder") && text.contains("cannot be made"), "{text}");
    let text = refusal(&mut agent("/proc/phalanx".as_ref()));
    assert!(text.contains("/proc/phalanx cannot be made"), "{text}");
    let used = folder.path().join("used");
    let node = election_set::Node::start(agent(&used), &folder.path().join("log"));
    let text = refusal(&mut agent(&used));
    assert!(text.contains("another agent uses the data folder"), "{text}");
    drop(node);
    let text = refusal(agent(&used).args(["--node-id", "2"]));
    assert!(text.contains("belongs to node 1, not to node 2"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_is_full_ends_the_node_with_a_clear_error_and_loses_nothing_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    // The kernel refuses to let a file grow beyond this, as a full disk does.
    let script = "trap '' XFSZ; ulimit -f 4096; exec \"$@\"";
    let whole = agent(&data);
    let mut command = bound_to_parent("sh".as_ref());
    command.args(["-c", script, "sh"]).arg(whole.get_program()).args(whole.get_args());
    let log = folder.path().join("log");
    let mut node = election_set::Node::start(command, &log);
    let client = Client::new(&[node.grpc.to_string()], &Default::default()).unwrap();
    let mut acknowledged = BTreeMap::new();
    for number in 0u64.. {
        let election = format!("election-{number}-{}", "x".repeat(100));
        let candidacy = Candidacy::new(&election, "y".repeat(200), LONG);
        match client.acquire(&candidacy).await {
            Ok(Acquired::Leads(held)) => drop(acknowledged.insert(election, held)),
            Ok(Acquired::Other(other)) => panic!("{} leads", other.leader),
            Err(_) => break,
        }
        assert!(number < 100_000, "the disk is never full");
    }
    until_async("the node to end", async || (!node.process.is_alive()).then_some(())).await;
    let said = node.said();
    assert!(said.contains("election.redb cannot be written") && said.contains("restart it"), "{said}");
    let again = election_set::Node::start(agent(&data), &folder.path().join("log-again"));
    let client = Client::new(&[again.grpc.to_string()], &Default::default()).unwrap();
    let all = until_async("its memory", async || client.list().await.ok()).await;
    let epochs: BTreeMap<_, _> = all.into_iter().map(|one| (one.election, one.epoch)).collect();
    for (election, held) in &acknowledged {
        assert_eq!(epochs.get(election), Some(&held.epoch), "{election}");
    }
    println!("measured: {} acknowledged leaderships were kept over a full disk", acknowledged.len());
}

const ELECTIONS: u32 = 20;
const CANDIDATES: u32 = 4;
const OPERATIONS_MIN: usize = 10_000;

/// What everybody saw, by election.
#[derive(Default)]
struct Book {
    operations: BTreeMap<u32, Vec<Op>>,
    /// Who may have acted: from its answer to its own deadline.
    reigns: BTreeMap<u32, Vec<(u64, u64, u32)>>,
}

impl Book {
    /// Counts the operations, without what an answered call may have done besides.
    fn count(&self) -> usize {
        let is_besides = |op: &&Op| op.answered.is_some() && matches!(op.act, Act::MaybeGranted(_));
        self.operations.values().flatten().filter(|op| !is_besides(op)).count()
    }
}

struct Recorder {
    book: Mutex<Book>,
    start: Instant,
}

impl Recorder {
    fn now(&self) -> u64 {
        self.start.elapsed().as_micros() as u64
    }

    fn note(&self, election: u32, called: u64, answered: bool, act: Act) {
        let answered = answered.then(|| self.now());
        self.book.lock().unwrap().operations.entry(election).or_default().push(Op { called, answered, act });
    }

    fn reigned(&self, election: u32, who: u32, from: u64, until: u64) {
        self.book.lock().unwrap().reigns.entry(election).or_default().push((from, until, who));
    }

    fn count(&self) -> usize {
        self.book.lock().unwrap().count()
    }
}

/// A candidate that takes, keeps, gives back, drops and looks, as chance has it.
struct Candidate {
    client: Client,
    recorder: Arc<Recorder>,
    election: u32,
    who: u32,
    chance: u64,
    held: Option<Held>,
}

impl Candidate {
    async fn run(mut self, stop: Arc<AtomicBool>) {
        while !stop.load(Ordering::Relaxed) {
            let roll = self.roll(100);
            let called = self.recorder.now();
            match self.held.take() {
                Some(held) if roll < 60 => self.renew(called, held).await,
                Some(held) if roll < 80 => self.release(called, &held).await,
                // Forgotten, as by somebody who dies: its term runs out.
                Some(_) if roll < 85 => {}
                held => {
                    self.held = held;
                    if roll.is_multiple_of(2) { self.acquire(called).await } else { self.look(called).await }
                }
            }
            tokio::time::sleep(Duration::from_millis(20 + self.roll(60))).await;
        }
    }

    fn roll(&mut self, sides: u64) -> u64 {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        self.chance % sides
    }

    fn name(&self) -> String {
        format!("election-{}", self.election)
    }

    fn note(&self, called: u64, answered: bool, act: Act) {
        self.recorder.note(self.election, called, answered, act);
    }

    fn reign(&self, called: u64) {
        let until = called + TERM.as_micros() as u64;
        self.recorder.reigned(self.election, self.who, self.recorder.now(), until);
    }

    async fn acquire(&mut self, called: u64) {
        // Whoever has it already is another candidate for itself: that is not what is looked at here.
        if self.held.is_some() {
            return self.look(called).await;
        }
        let candidacy = Candidacy::new(self.name(), self.who.to_string(), TERM);
        match self.client.acquire(&candidacy).await {
            Ok(Acquired::Leads(held)) => {
                self.note(called, true, Act::MaybeGranted(self.who));
                self.note(called, true, Act::Granted(self.who, held.epoch));
                self.reign(called);
                self.held = Some(held);
            }
            Ok(Acquired::Other(other)) => {
                self.note(called, true, Act::MaybeGranted(self.who));
                self.note(called, true, Act::Taken(other.leader.parse().unwrap(), other.epoch));
            }
            Err(Error::Unknown(_)) => self.note(called, false, Act::MaybeGranted(self.who)),
            Err(Error::NotDone(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }

    async fn renew(&mut self, called: u64, held: Held) {
        match self.client.renew(&held).await {
            Ok(renewed) => {
                self.note(called, true, Act::Kept(self.who, renewed.epoch));
                self.reign(called);
                self.held = Some(renewed);
            }
            Err(Error::Ended(_)) => self.note(called, true, Act::NotKept(self.who, held.epoch)),
            // A renewal that may have happened lengthens a term at most: nothing follows from it.
            Err(Error::Unknown(_) | Error::NotDone(_)) => self.held = Some(held),
            Err(error) => panic!("{error}"),
        }
    }

    async fn release(&mut self, called: u64, held: &Held) {
        match self.client.release(held).await {
            Ok(()) => self.note(called, true, Act::Released(self.who, held.epoch)),
            Err(Error::Ended(_)) => self.note(called, true, Act::NotKept(self.who, held.epoch)),
            Err(Error::Unknown(_)) => self.note(called, false, Act::MaybeReleased(self.who, held.epoch)),
            Err(Error::NotDone(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }

    async fn look(&mut self, called: u64) {
        // Who does not answer has shown nothing.
        if let Ok(seen) = self.client.leader(&self.name()).await {
            let act = match seen.leader.parse() {
                Ok(who) => Act::SawLeader(who, seen.epoch),
                Err(_) => Act::SawNobody(seen.epoch),
            };
            self.note(called, true, act);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_operations_under_faults_could_have_come_from_one_hand() {
    let mut set = Set::start(3).await;
    // Clients reach the nodes by ways that follow a node to its next port.
    let doors: BTreeMap<u64, phalanx_testkit::proxy::Proxy> =
        [1, 2, 3].map(|id| (id, phalanx_testkit::proxy::Proxy::new().unwrap())).into();
    for (id, door) in &doors {
        door.lead_to(set.nodes[id].grpc);
    }
    let addresses: Vec<String> = doors.values().map(|door| door.address().to_string()).collect();
    let recorder = Arc::new(Recorder { book: Mutex::default(), start: Instant::now() });
    let stop = Arc::new(AtomicBool::new(false));
    let mut candidates = Vec::new();
    for number in 0..ELECTIONS * CANDIDATES {
        let candidate = Candidate {
            client: Client::new(&addresses, &Default::default()).unwrap(),
            recorder: recorder.clone(),
            election: number / CANDIDATES,
            who: number % CANDIDATES,
            chance: 0x9e37_79b9_7f4a_7c15 ^ (u64::from(number) + 1),
            held: None,
        };
        candidates.push(tokio::spawn(candidate.run(stop.clone())));
    }
    let pause = Duration::from_secs(3);
    for round in 0u64.. {
        tokio::time::sleep(pause).await;
        let leader = set.leader().await;
        match round {
            0 | 3 => {
                set.kill(leader);
                tokio::time::sleep(pause).await;
                set.start_node(leader, &[]);
                doors[&leader].lead_to(set.nodes[&leader].grpc);
            }
            1 => {
                set.isolate(leader);
                tokio::time::sleep(pause).await;
                set.mend();
            }
            2 => {
                for ((from, to), link) in &set.links {
                    if *from == leader {
                        link.cut(Direction::Back);
                    }
                    if *to == leader {
                        link.cut(Direction::There);
                    }
                }
                tokio::time::sleep(pause).await;
                set.mend();
            }
            4 => {
                // Stands still for longer than a term, and wakes believing that it leads.
                set.nodes[&leader].process.pause();
                tokio::time::sleep(pause).await;
                set.nodes[&leader].process.resume();
            }
            _ if recorder.count() >= OPERATIONS_MIN => break,
            _ => {}
        }
    }
    stop.store(true, Ordering::Relaxed);
    for candidate in candidates {
        candidate.await.unwrap();
    }
    let book = std::mem::take(&mut *recorder.book.lock().unwrap());
    let count = book.count();
    let open: usize = book.operations.values().flatten().filter(|op| op.answered.is_none()).count();
    assert!(count >= OPERATIONS_MIN, "{count}");
    let term = TERM.as_micros() as u64;
    let start = Instant::now();
    for (election, operations) in &book.operations {
        if let Err(op) = check(term, operations) {
            let near = |other: &&Op| other.called.abs_diff(op.called) < 3 * term;
            let mut around: Vec<_> = operations.iter().filter(near).collect();
            around.sort_by_key(|op| op.called);
            let around: Vec<String> = around.iter().map(|op| format!("{op:?}")).collect();
            panic!("election {election}: no order explains {op:?}; around it:\n{}", around.join("\n"));
        }
    }
    for (election, reigns) in &book.reigns {
        let mut reigns = reigns.clone();
        reigns.sort_unstable();
        // Whoever gave it back reigns no more; all others until their own deadline.
        let released: Vec<Op> = book.operations[election]
            .iter()
            .filter(|op| matches!(op.act, Act::Released(..) | Act::MaybeReleased(..)))
            .copied()
            .collect();
        for (index, (from, until, who)) in reigns.iter().enumerate() {
            let until = released
                .iter()
                .filter(|op| matches!(op.act, Act::Released(by, _) | Act::MaybeReleased(by, _) if by == *who))
                .filter(|op| op.called >= *from)
                .map(|op| op.called)
                .min()
                .map_or(*until, |given_back| given_back.min(*until));
            for (other_from, _, other) in &reigns[index + 1..] {
                assert!(
                    other == who || *other_from >= until,
                    "election {election}: {who} reigns until {until}, {other} from {other_from}"
                );
            }
        }
    }
    println!(
        "measured: {count} operations of {ELECTIONS} elections under faults, {open} of them without an answer, checked in {:?}",
        start.elapsed()
    );
}
