//! Every way to prove who we are, against a server that demands it.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::invalid;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use nkeys::KeyPair;
use phalanx_cluster::backend::{Backend, BucketConfig};
use phalanx_cluster_nats::{Config, Nats, Tls};
use phalanx_testkit::nats::Server;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer};
use serde_json::{Value, json};
use tempfile::tempdir;

/// Whoever is let in can work.
async fn works(config: &Config) {
    let nats = Nats::connect(config).await.expect("let in");
    let bucket = nats.bucket(&BucketConfig::new("work")).await.unwrap();
    bucket.create("key", "value".into()).await.unwrap();
}

/// Whoever is not let in hears it at once, and the error shows no secret.
async fn refused(config: &Config) -> String {
    let text = invalid(Nats::connect(config).await);
    assert!(!text.contains("s3cret"), "{text}");
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn user_and_password() {
    let server = Server::start_with("authorization { user: anna, password: s3cret }").unwrap();
    let config = Config::new(server.url());
    refused(&config).await;
    refused(&Config { user: Some(("anna".into(), "s3cretwrong".into())), ..config.clone() }).await;
    works(&Config { user: Some(("anna".into(), "s3cret".into())), ..config }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn token() {
    let server = Server::start_with("authorization { token: s3cret }").unwrap();
    let config = Config::new(server.url());
    refused(&config).await;
    refused(&Config { token: Some("s3cretwrong".into()), ..config.clone() }).await;
    works(&Config { token: Some("s3cret".into()), ..config }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nkey_as_a_seed_and_as_a_file() {
    let user = KeyPair::new_user();
    let seed = user.seed().unwrap();
    let server =
        Server::start_with(&format!("authorization {{ users: [ {{ nkey: {} }} ] }}", user.public_key()))
            .unwrap();
    let config = Config::new(server.url());
    refused(&config).await;
    refused(&Config { nkey: Some(KeyPair::new_user().seed().unwrap()), ..config.clone() }).await;
    works(&Config { nkey: Some(seed.clone()), ..config.clone() }).await;

    let folder = tempdir().unwrap();
    let file = folder.path().join("user.nk");
    fs::write(&file, format!("{seed}\n")).unwrap();
    let nats = Nats::connect(&Config { nkey: Some(file.display().to_string()), ..config.clone() }).await;
    assert!(nats.is_ok());

    let text = refused(&Config { nkey: Some("/no/such/file".into()), ..config }).await;
    assert!(text.contains("nkey"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_file() {
    let (operator, account, system, user) =
        (KeyPair::new_operator(), KeyPair::new_account(), KeyPair::new_account(), KeyPair::new_user());
    let unlimited = json!({ "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true,
        "conn": -1, "leaf": -1, "mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1 });
    let without_jetstream = json!({ "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1,
        "wildcards": true, "conn": -1, "leaf": -1 });
    let of_operator = jwt(&operator, &operator, json!({ "type": "operator", "version": 2 }));
    let of_account =
        jwt(&operator, &account, json!({ "type": "account", "version": 2, "limits": unlimited }));
    let of_system =
        jwt(&operator, &system, json!({ "type": "account", "version": 2, "limits": without_jetstream }));
    let of_user = |signer: &KeyPair| {
        let claims = json!({ "type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1, "pub": {}, "sub": {} });
        jwt(signer, &user, claims)
    };
    let server = Server::start_with(&format!(
        "operator: {of_operator}\nsystem_account: {}\nresolver: MEMORY\n\
         resolver_preload: {{ {}: {of_account}, {}: {of_system} }}\n",
        system.public_key(),
        account.public_key(),
        system.public_key(),
    ))
    .unwrap();

    let folder = tempdir().unwrap();
    let creds = |name: &str, jwt: &str| {
        let path = folder.path().join(name);
        let seed = user.seed().unwrap();
        let text = format!(
            "-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        );
        fs::write(&path, text).unwrap();
        Some(path)
    };
    let config = Config::new(server.url());
    refused(&config).await;
    let stranger = KeyPair::new_account();
    refused(&Config { creds: creds("stranger.creds", &of_user(&stranger)), ..config.clone() }).await;
    let text = refused(&Config { creds: Some("/no/such.creds".into()), ..config.clone() }).await;
    assert!(text.contains("/no/such.creds"), "{text}");
    works(&Config { creds: creds("user.creds", &of_user(&account)), ..config }).await;
}

fn jwt(signer: &KeyPair, subject: &KeyPair, nats: Value) -> String {
    let header = json!({ "typ": "JWT", "alg": "ed25519-nkey" });
    let claims = json!({ "jti": subject.public_key(), "iat": 1, "iss": signer.public_key(), "name": "test",
        "sub": subject.public_key(), "nats": nats });
    let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let text = format!("{}.{}", encode(&header), encode(&claims));
    let signature = signer.sign(text.as_bytes()).unwrap();
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_authority_and_a_client_certificate() {
    let folder = tempdir().unwrap();
    let pki = Pki::new(folder.path());
    let (server_certificate, server_key) = pki.certificate("server");
    let client = pki.certificate("client");
    let server = Server::start_with(&format!(
        "tls {{ cert_file: {server_certificate:?}, key_file: {server_key:?}, ca_file: {:?}, verify: true }}\n",
        pki.ca
    ))
    .unwrap();
    let config = Config::new(server.url());
    let with = |ca: Option<PathBuf>, certificate| Config { tls: Tls { ca, certificate }, ..config.clone() };

    // Without the authority, the server is a stranger; without a certificate, we are.
    assert!(Nats::connect(&config).await.is_err());
    assert!(Nats::connect(&with(Some(pki.ca.clone()), None)).await.is_err());
    let other_folder = tempdir().unwrap();
    let other = Pki::new(other_folder.path());
    assert!(Nats::connect(&with(Some(other.ca.clone()), Some(client.clone()))).await.is_err());
    assert!(Nats::connect(&with(Some(pki.ca.clone()), Some(other.certificate("client")))).await.is_err());

    let text = refused(&with(Some("/no/such.pem".into()), Some(client.clone()))).await;
    assert!(text.contains("/no/such.pem"), "{text}");
    works(&with(Some(pki.ca.clone()), Some(client))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_authority_alone() {
    let folder = tempdir().unwrap();
    let pki = Pki::new(folder.path());
    let (certificate, key) = pki.certificate("server");
    let server =
        Server::start_with(&format!("tls {{ cert_file: {certificate:?}, key_file: {key:?} }}\n")).unwrap();
    let config = Config::new(server.url());
    assert!(Nats::connect(&config).await.is_err());
    works(&Config { tls: Tls { ca: Some(pki.ca.clone()), certificate: None }, ..config }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn encryption_that_was_asked_for_is_not_given_up() {
    let folder = tempdir().unwrap();
    let pki = Pki::new(folder.path());
    let server = Server::start().unwrap();
    let tls = Tls { ca: Some(pki.ca.clone()), certificate: None };
    assert!(Nats::connect(&Config { tls, ..Config::new(server.url()) }).await.is_err());
}

/// An authority, made for one test.
struct Pki {
    folder: PathBuf,
    ca: PathBuf,
    issuer: Issuer<'static, rcgen::KeyPair>,
}

impl Pki {
    fn new(folder: &Path) -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "authority of a test");
        let ca = folder.join("ca.pem");
        fs::write(&ca, params.self_signed(&key).unwrap().pem()).unwrap();
        Self { folder: folder.to_owned(), ca, issuer: Issuer::new(params, key) }
    }

    /// A certificate and its key, for this machine.
    fn certificate(&self, name: &str) -> (PathBuf, PathBuf) {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let paths = (self.folder.join(format!("{name}.pem")), self.folder.join(format!("{name}.key")));
        fs::write(&paths.0, certificate.pem()).unwrap();
        fs::write(&paths.1, key.serialize_pem()).unwrap();
        paths
    }
}
