//! The Election Agent as three real processes with data on disk.

use crate::election_set;
use crate::util;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::election_set::{Set, TERM, take};
use phalanx_election::client::{Acquired, Candidacy, Client, Error, Held};
use phalanx_testkit::wait::until_async;

const LONG: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn a_leadership_is_taken_kept_and_given_back_at_any_node() {
    let set = Set::start(3).await;
    let mut last = 0;
    for id in [1, 2, 3] {
        let client = set.client_of(&[id]);
        let held = take(&client, "fab-1", &format!("defender-{id}"), LONG).await;
        assert!(held.epoch > last, "{held:?}");
        last = held.epoch;
        for other in [1, 2, 3] {
            let seen = set.client_of(&[other]).leader("fab-1").await.unwrap();
            assert_eq!((&*seen.leader, seen.epoch), (&*held.leader, held.epoch), "asked at node {other}");
            let rival = Candidacy::new("fab-1", "rival", LONG);
            let answer = set.client_of(&[other]).acquire(&rival).await.unwrap();
            assert!(matches!(answer, Acquired::Other(leads) if leads.leader == held.leader));
        }
        let renewed = set.client_of(&[id % 3 + 1]).renew(&held).await.unwrap();
        assert_eq!((renewed.epoch, renewed.renewals), (held.epoch, 1));
        assert!(renewed.revision > held.revision && renewed.left() > LONG / 2);
        client.release(&renewed).await.unwrap();
        assert!(matches!(client.renew(&renewed).await, Err(Error::Ended(_))));
        assert_eq!(client.leader("fab-1").await.unwrap().leader, "");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_at_any_node_tells_grants_and_ends_and_terms_that_run_out() {
    let set = Set::start(3).await;
    let client = set.client();
    let mut watches = Vec::new();
    for id in [1, 2, 3] {
        watches.push(set.client_of(&[id]).watch("fab-1").await.unwrap());
    }
    let held = take(&client, "fab-1", "a", LONG).await;
    client.release(&held).await.unwrap();
    let short = take(&client, "fab-1", "b", TERM).await;
    let sent = Instant::now();
    for watch in &mut watches {
        let mut told = Vec::new();
        while told.last() != Some(&(String::new(), short.epoch)) {
            let event = tokio::time::timeout(LONG, watch.message()).await.expect("in time").unwrap();
            let event = event.expect("it goes on");
            told.push((event.leader, event.epoch));
        }
        assert_eq!(told[0], (String::new(), 0), "how it was");
        assert!(told.windows(2).all(|pair| pair[0].1 <= pair[1].1), "epochs only grow: {told:?}");
        assert!(told.contains(&("b".to_owned(), short.epoch)), "{told:?}");
    }
    assert!(short.is_over(), "whoever held it knew so before");
    println!("measured: a term of {TERM:?} was told to be over {:?} after it was granted", sent.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn of_fifty_candidates_at_once_one_wins() {
    let set = Arc::new(Set::start(3).await);
    let candidates = (0..50).map(|number| {
        let client = set.client_of(&[number % 3 + 1]);
        tokio::spawn(async move {
            client.acquire(&Candidacy::new("fab-1", format!("candidate-{number}"), LONG)).await.unwrap()
        })
    });
    let mut winners = Vec::new();
    let mut leaders = Vec::new();
    for candidate in candidates.collect::<Vec<_>>() {
        match candidate.await.unwrap() {
            Acquired::Leads(held) => winners.push(held.leader),
            Acquired::Other(other) => leaders.push(other.leader),
        }
    }
    assert_eq!(winners.len(), 1);
    assert!(leaders.iter().all(|leader| *leader == winners[0]), "{leaders:?}");
}

/// Somebody who holds an election and renews it, and notes when it may act.
async fn hold(client: Client, mut held: Held, stop: Arc<AtomicBool>) -> (Held, Duration) {
    let mut longest = Duration::ZERO;
    while !stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        match client.renew(&held).await {
            Ok(renewed) => held = renewed,
            Err(Error::Unknown(_) | Error::NotDone(_)) => {}
            Err(error) => panic!("{held:?} was lost: {error}"),
        }
        longest = longest.max(start.elapsed());
        assert!(!held.is_over(), "{held:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    (held, longest)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_leaderships_survive_a_kill_of_the_raft_leader_and_nobody_else_gets_one() {
    let mut set = Set::start(3).await;
    let client = set.client();
    let stop = Arc::new(AtomicBool::new(false));
    // Five times the promised fail-over: on a busy machine a hundred renewals take their time.
    let ttl = Duration::from_secs(10);
    let mut holders = Vec::new();
    for number in 0..100 {
        let held = take(&client, &format!("election-{number}"), &format!("holder-{number}"), ttl).await;
        holders.push(tokio::spawn(hold(client.clone(), held, stop.clone())));
    }
    // Whoever tries to get one of them must fail all the time.
    let refused = Arc::new(AtomicUsize::new(0));
    let rivals = (0..100).map(|number| {
        let (client, stop, refused) = (client.clone(), stop.clone(), refused.clone());
        tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let candidacy = Candidacy::new(format!("election-{number}"), "rival", ttl);
                match client.acquire(&candidacy).await {
                    Ok(Acquired::Leads(held)) => panic!("two hold election-{number}: {held:?}"),
                    Ok(Acquired::Other(_)) => {
                        refused.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(Error::Unknown(_) | Error::NotDone(_)) => {}
                    Err(error) => panic!("{error}"),
                }
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
        })
    });
    let rivals: Vec<_> = rivals.collect();
    let leader = set.leader().await;
    until_async("the rivals are refused", async || (refused.load(Ordering::Relaxed) >= 100).then_some(()))
        .await;
    set.kill(leader);
    let killed = Instant::now();
    let others: Vec<u64> = set.nodes.keys().copied().collect();
    let probe = set.client_of(&others);
    let fresh = take(&probe, "after-the-kill", "somebody", LONG).await;
    let served = killed.elapsed();
    assert_eq!(fresh.epoch, 1);
    // Longer than a term, so that whatever is not renewed would have ended.
    tokio::time::sleep(ttl + Duration::from_secs(1)).await;
    set.start_node(leader, &[]);
    set.leader().await;
    stop.store(true, Ordering::Relaxed);
    let mut longest = Duration::ZERO;
    for holder in holders {
        let (held, took) = holder.await.unwrap();
        longest = longest.max(took);
        assert_eq!(held.epoch, 1, "{held:?}");
    }
    for rival in rivals {
        rival.await.unwrap();
    }
    println!(
        "measured: granted again {served:?} after kill -9 of the Raft leader; the slowest of all renewals took {longest:?}"
    );
    assert!(served < Duration::from_secs(3), "fail-over took {served:?}, promised are 2 s");
}

#[tokio::test(flavor = "multi_thread")]
async fn epochs_and_leases_survive_a_restart_of_all_nodes_from_disk() {
    let mut set = Set::start(3).await;
    let client = set.client();
    let mut epochs = BTreeMap::new();
    for round in 0..3 {
        for number in 0..5 {
            let election = format!("election-{number}");
            let held = take(&client, &election, &format!("holder-{round}"), LONG).await;
            epochs.insert(election, held.epoch);
            if round < 2 {
                client.release(&held).await.unwrap();
            }
        }
    }
    let kept = take(&client, "kept", "holder", LONG).await;
    for id in [1, 2, 3] {
        set.kill(id);
    }
    for id in [1, 2, 3] {
        set.start_node(id, &[]);
    }
    set.leader().await;
    let client = set.client();
    for (election, epoch) in &epochs {
        let seen = client.leader(election).await.unwrap();
        assert_eq!((&*seen.leader, seen.epoch), ("holder-2", *epoch), "{election}");
    }
    let renewed = client.renew(&kept).await.unwrap();
    assert_eq!(renewed.epoch, kept.epoch);
    client.release(&renewed).await.unwrap();
    assert_eq!(take(&client, "kept", "another", LONG).await.epoch, kept.epoch + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_with_an_emptied_folder_comes_back_with_the_same_command_and_catches_up() {
    let mut set = Set::start(3).await;
    let client = set.client();
    let held = take(&client, "fab-1", "a", LONG).await;
    let leader = set.leader().await;
    let lost = leader % 3 + 1;
    set.kill(lost);
    std::fs::remove_dir_all(set.data_dir(lost)).unwrap();
    set.start_node(lost, &[]);
    until_async("the node to vote again", async || {
        let status = set.client_of(&[lost]).status().await.pop()?.1.ok()?;
        let votes = status.members.iter().any(|member| member.node_id == lost && member.voter);
        (votes && status.leases == 1).then_some(())
    })
    .await;
    // Its vote counts: with another node gone, the two that remain are a majority.
    let other = [1, 2, 3].into_iter().find(|id| *id != lost && *id != leader).unwrap();
    set.kill(other);
    let renewed = set.client_of(&[lost]).renew(&held).await.unwrap();
    assert_eq!(renewed.epoch, held.epoch);
}

#[tokio::test(flavor = "multi_thread")]
async fn five_nodes_bear_the_loss_of_two() {
    let mut set = Set::start(5).await;
    let held = take(&set.client(), "fab-1", "a", LONG).await;
    let first = set.leader().await;
    set.kill(first);
    let second = set.leader().await;
    set.kill(second);
    let client = set.client();
    let renewed = until_async("a renewal by three", async || client.renew(&held).await.ok()).await;
    assert_eq!(renewed.epoch, held.epoch);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_away_for_long_gets_a_snapshot_and_epochs_survive_it() {
    // More than are kept: a snapshot for every 2,000, and 500 behind it.
    const ENTRIES: u64 = 2600;
    const HOUR: Duration = Duration::from_secs(3600);
    let mut set = Set::start(3).await;
    let away = set.leader().await % 3 + 1;
    set.kill(away);
    let client = set.client();
    let mut epochs = BTreeMap::new();
    for number in 0..50 {
        let election = format!("election-{number}");
        let held = take(&client, &election, "first", HOUR).await;
        client.release(&held).await.unwrap();
        epochs.insert(election.clone(), take(&client, &election, "second", HOUR).await.epoch);
    }
    let mut held = take(&client, "fab-1", "a", HOUR).await;
    let status = async |id: u64| set.client_of(&[id]).status().await.pop().unwrap().1.unwrap();
    let any = *set.nodes.keys().next().unwrap();
    while status(any).await.last_log_index < ENTRIES {
        for _ in 0..100 {
            held = client.renew(&held).await.unwrap();
        }
    }
    assert!(status(any).await.snapshot_index > 0);
    set.start_node(away, &[]);
    until_async("the node to catch up", async || {
        let now = set.client_of(&[away]).status().await.pop()?.1.ok()?;
        (now.applied_index >= ENTRIES && now.snapshot_index > 0).then_some(())
    })
    .await;
    for id in [1, 2, 3] {
        set.kill(id);
    }
    for id in [1, 2, 3] {
        set.start_node(id, &[]);
    }
    set.leader().await;
    // The one that was away must be heard too: without it there is no majority.
    let other = [1, 2, 3].into_iter().find(|id| *id != away).unwrap();
    set.kill(other);
    let client = set.client_of(&[away]);
    let renewed = until_async("a renewal", async || client.renew(&held).await.ok()).await;
    assert_eq!((renewed.epoch, renewed.renewals > held.renewals), (held.epoch, true));
    for (election, epoch) in epochs {
        let seen = client.leader(&election).await.unwrap();
        assert_eq!((&*seen.leader, seen.epoch), ("second", epoch), "{election}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_see_who_leads_and_can_make_a_leader_resign() {
    let mut set = Set::start(3).await;
    let client = set.client();
    let held = take(&client, "fab-1", "anna", Duration::from_secs(2)).await;
    let addresses: Vec<String> = set.nodes.values().map(|node| node.grpc.to_string()).collect();
    let addresses = addresses.join(",");
    let status: serde_json::Value =
        serde_json::from_str(&phalanx(&["status", "--json", "--addr", &addresses])).unwrap();
    let roles: Vec<&str> =
        status.as_array().unwrap().iter().map(|node| node["role"].as_str().unwrap()).collect();
    assert_eq!(roles.iter().filter(|role| **role == "leader").count(), 1, "{roles:?}");
    assert_eq!(roles.iter().filter(|role| **role == "follower").count(), 2, "{roles:?}");
    let list: serde_json::Value =
        serde_json::from_str(&phalanx(&["list", "--json", "--addr", &addresses])).unwrap();
    assert_eq!((&list[0]["election"], &list[0]["leader"]), (&"fab-1".into(), &"anna".into()));
    assert!(phalanx(&["list", "--addr", &addresses]).contains("anna"));
    assert!(phalanx(&["members", "--addr", &addresses]).lines().count() == 4, "a heading and three nodes");

    let said = phalanx(&["resign", "fab-1", "--leader", "anna", "--addr", &addresses]);
    assert!(said.starts_with("anna leads fab-1 for "), "{said}");
    let refused = client.renew(&held).await.unwrap_err();
    assert!(matches!(&refused, Error::Ended(why) if why.contains("asked to resign")), "{refused}");
    let berta = Candidacy::new("fab-1", "berta", LONG);
    let next = until_async("the next leader", async || match client.acquire(&berta).await.unwrap() {
        Acquired::Leads(next) => Some(next),
        // Until its term is over it may act.
        Acquired::Other(other) => {
            assert_eq!(other.leader, "anna");
            None
        }
    });
    assert_eq!(next.await.epoch, held.epoch + 1);
    assert!(held.is_over());
    let mut one = set.nodes.remove(&1).unwrap();
    assert!(
        one.process.terminate(Duration::from_secs(10)).is_some_and(|status| status.success()),
        "{}",
        one.said()
    );
}

/// What `phalanx election` answers.
#[track_caller]
fn phalanx(arguments: &[&str]) -> String {
    util::phalanx(&[&["election"], arguments].concat()).succeeds().stdout
}

#[test]
fn settings_that_make_no_sense_are_refused_with_what_to_do() {
    let refusal = |arguments: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        let output = election_set::agent(folder.path()).args(arguments).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    for (arguments, expected) in [
        (&["--peers", "1=a:1,2=b:1"][..], "name 1, 3 or 5"),
        (&["--peers", "2=a:1,3=b:1,4=c:1"], "does not name this node, 1"),
        (&["--peers", "1=a:1,1=b:1,3=c:1"], "names a node twice"),
        (&["--peers", "a:1"], "ID=ADDRESS"),
        (&["--peers", "1=a,2=b:1,3=c:1"], "the port is missing"),
        (&["--tls-cert", "x.pem"], "--tls-key"),
        (&["--mutual-tls"], "--tls-ca"),
        (&["--tls-ca", "/nowhere.pem"], "/nowhere.pem cannot be read"),
        (&["--node-id", "0"], "0 is not in"),
    ] {
        let text = refusal(arguments);
        assert!(text.contains(expected), "{arguments:?}: {text}");
    }
}
