//! Certificates and tokens on real connections.

use crate::alone;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use phalanx_election::agent::{Agent, Config};
use phalanx_election::client::{Acquired, Candidacy, Client, Error};
use phalanx_election::node;
use phalanx_election::security::{Security, Tls};
use phalanx_testkit::proxy::Proxy;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

const TTL: Duration = Duration::from_secs(10);

/// Somebody who vouches for others.
struct Authority {
    pem: Vec<u8>,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).expect("a certificate").pem().into_bytes();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    fn vouch(&self) -> (Vec<u8>, Vec<u8>) {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("parameters");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        (certificate.pem().into_bytes(), key.serialize_pem().into_bytes())
    }
}

async fn start(security: &Security) -> (Agent, TempDir, String) {
    let (agent, folder) = alone::start(security).await;
    let address = agent.grpc_addr().to_string();
    (agent, folder, address)
}

async fn acquire(address: &str, security: &Security) -> Result<Acquired, Error> {
    let client = Client::new(&[address.to_owned()], security).expect("a client");
    client.acquire(&Candidacy::new("fab-1", "anna", TTL)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn only_who_bears_the_token_is_answered() {
    let with = |token: &str| Security { token: Some(token.to_owned()), tls: None };
    let (_agent, _folder, address) = start(&with("secret")).await;
    assert!(matches!(acquire(&address, &with("secret")).await, Ok(Acquired::Leads(_))));
    for wrong in [Security::default(), with("other")] {
        let answer = acquire(&address, &wrong).await;
        assert!(matches!(&answer, Err(Error::Refused(why)) if why.contains("token")), "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_mutual_tls_only_those_are_heard_whom_the_authority_vouches_for() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let of = |ca: &Authority, who: Option<&Authority>, mutual: bool| Security {
        token: None,
        tls: Some(Tls { ca: Some(ca.pem.clone()), identity: who.map(Authority::vouch), mutual }),
    };
    let (_agent, _folder, address) = start(&of(&authority, Some(&authority), true)).await;
    let answer = acquire(&address, &of(&authority, Some(&authority), false)).await;
    assert!(matches!(answer, Ok(Acquired::Leads(_))), "{answer:?}");
    for wrong in [
        of(&authority, None, false),
        of(&authority, Some(&stranger), false),
        of(&stranger, Some(&authority), false),
        Security::default(),
    ] {
        assert!(acquire(&address, &wrong).await.is_err());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_that_cannot_be_used_are_refused_at_the_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let tls = Tls { ca: None, identity: Some((b"nothing".to_vec(), b"nothing".to_vec())), mutual: false };
    let security = Security { token: None, tls: Some(tls) };
    let refused = Agent::start(alone::config(&folder, &security)).await.err().expect("refused").to_string();
    assert!(refused.starts_with("the certificates cannot be used"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_speak_to_each_other_with_certificates_and_token_too() {
    let authority = Authority::new();
    let security = |mutual: bool| Security {
        token: Some("secret".to_owned()),
        tls: Some(Tls { ca: Some(authority.pem.clone()), identity: Some(authority.vouch()), mutual }),
    };
    // Where each is reached is known before any of them listens.
    let doors: Vec<Proxy> = (0..3).map(|_| Proxy::new().expect("a port")).collect();
    let peers: BTreeMap<u64, String> =
        (1..).zip(doors.iter().map(|door| door.address().to_string())).collect();
    let (mut agents, mut folders) = (Vec::new(), Vec::new());
    for (id, door) in (1..).zip(&doors) {
        let folder = tempfile::tempdir().expect("a folder");
        let node = node::Config {
            id,
            data_dir: folder.path().to_owned(),
            peers: peers.clone(),
            join: Vec::new(),
            advertise: String::new(),
            security: security(true),
            log: Arc::new(|_| {}),
        };
        let addresses = ("127.0.0.1:0".to_owned(), "127.0.0.1:0".to_owned());
        let agent = Agent::start(Config { grpc_addr: addresses.0, http_addr: addresses.1, node }).await;
        let agent = agent.expect("an agent");
        door.lead_to(agent.grpc_addr());
        agents.push(agent);
        folders.push(folder);
    }
    let addresses: Vec<String> = peers.into_values().collect();
    let client = Client::new(&addresses, &security(false)).expect("a client");
    let candidacy = Candidacy::new("fab-1", "anna", TTL);
    let leads = async {
        loop {
            match client.acquire(&candidacy).await {
                Ok(acquired) => break acquired,
                Err(Error::NotDone(_) | Error::Unknown(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
    };
    let leads = tokio::time::timeout(Duration::from_secs(60), leads).await.expect("in time");
    assert!(matches!(leads, Acquired::Leads(_)), "{leads:?}");
    for agent in agents {
        agent.stop().await;
    }
}
