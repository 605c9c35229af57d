//! Sources that mean harm: addresses, redirects, sizes, entities.

use crate::util;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::Path;

use phalanx_etl::engine::{Engine, Options, Summary};
use phalanx_etl::source::{Limits, Source};
use phalanx_etl::store::Reader;

const SMALL: Limits = Limits { download: 10_000, unpacked: 100_000 };

fn load(dir: &Path, id: &str, source: &str) -> Summary {
    let mut options = Options::new(dir.join("x.db"));
    util::alone(&mut options);
    options.limits = SMALL;
    options.credentials.insert("NVD_API_KEY".to_owned(), "s3cret-key".to_owned());
    for provider in &mut options.providers {
        provider.max_retries = 0;
    }
    options.sources.insert(id.to_owned(), Source::parse(source, None));
    Engine::new(options).expect("it can be had").run(&[id.to_owned()], &mut |_| {}).expect("it can be had")
}

/// The run failed and says why.
#[track_caller]
fn assert_refused(summary: &Summary, why: &str) {
    let run = &summary.runs[0];
    let reason = run.reason.clone().unwrap_or_default();
    assert_eq!(run.outcome.as_deref(), Some("failed"), "{run:?}");
    assert!(reason.contains(why), "{reason}");
}

/// Answers every request with `answer`, until the test process ends.
fn serve(answer: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("it can be had");
    let url = format!("http://{}", listener.local_addr().expect("it can be had"));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut lines = BufReader::new(stream.try_clone().expect("a second handle")).lines();
            while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
            let _ = stream.write_all(&answer);
        }
    });
    url
}

fn answer(body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

#[test]
fn only_http_and_https_are_read() {
    for url in ["file:///etc/passwd", "ftp://example.org/capec.xml", "gopher://example.org/"] {
        let dir = tempfile::tempdir().unwrap();
        assert_refused(&load(dir.path(), "capec", url), "only http and https URLs are read");
        assert_refused(&load(dir.path(), "cve", url), "only http and https URLs are read");
    }
}

#[test]
fn a_redirect_to_another_scheme_or_to_nowhere_is_refused() {
    for (to, why) in [
        ("file:///etc/passwd", "neither http nor https"),
        ("ftp://example.org/x", "neither http nor https"),
        ("https://example.org/x.xml", "another scheme"),
        ("", "nowhere"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let url =
            serve(format!("HTTP/1.1 302 Found\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n").into_bytes());
        assert_refused(&load(dir.path(), "capec", &format!("{url}/capec.xml")), why);
    }
}

/// An address of this machine that is not loopback: to a client it is a host like any other. Nothing is sent to find it.
fn own_address() -> Option<std::net::IpAddr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    socket
        .local_addr()
        .ok()
        .map(|address| address.ip())
        .filter(|ip| !ip.is_loopback() && !ip.is_unspecified())
}

#[test]
fn a_redirect_from_another_host_to_this_very_machine_is_refused_by_a_real_request() {
    let Some(address) = own_address() else {
        println!("skipped: this machine has no address but loopback");
        return;
    };
    // What nobody may be led to: it would be read gladly.
    let inside = TcpListener::bind("127.0.0.1:0").unwrap();
    inside.set_nonblocking(true).unwrap();
    let port = inside.local_addr().unwrap().port();
    let outside = TcpListener::bind((address, 0)).unwrap();
    let url = format!("http://{}/capec.xml", outside.local_addr().unwrap());
    std::thread::spawn(move || {
        let targets = [format!("http://127.0.0.1:{port}/x.xml"), format!("http://localhost:{port}/x.xml")];
        for (at, mut stream) in outside.incoming().flatten().enumerate() {
            let mut lines = BufReader::new(stream.try_clone().expect("a second handle")).lines();
            while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
            let to = &targets[at % targets.len()];
            let answer = format!(
                "HTTP/1.1 302 Found\r\nlocation: {to}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            );
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    for _ in 0..2 {
        let dir = tempfile::tempdir().unwrap();
        assert_refused(&load(dir.path(), "capec", &url), "this machine itself");
    }
    assert!(inside.accept().is_err(), "nobody has knocked");
}

#[test]
fn redirects_without_end_are_not_followed_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let url = serve(
        b"HTTP/1.1 302 Found\r\nlocation: /again.xml\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            .to_vec(),
    );
    assert_refused(&load(dir.path(), "capec", &format!("{url}/capec.xml")), "redirects in a row");
}

#[test]
fn a_download_that_is_too_long_is_refused() {
    let body = format!("<Attack_Pattern_Catalog>{}</Attack_Pattern_Catalog>", " ".repeat(20_000));
    let url = serve(answer(body.as_bytes()));
    for id in ["capec", "cwe"] {
        let dir = tempfile::tempdir().unwrap();
        assert_refused(
            &load(dir.path(), id, &format!("{url}/x.xml")),
            "the answer has more than 10000 bytes",
        );
    }
}

#[test]
fn what_unpacks_to_too_much_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let bomb = |name: &str| {
        let file = fs::File::create(dir.path().join(name)).unwrap();
        let mut gzip = flate2::write::GzEncoder::new(file, flate2::Compression::best());
        gzip.write_all(br#"{"format": "NVD_CVE", "version": "2.0", "vulnerabilities": ["#).unwrap();
        gzip.write_all(&vec![b' '; 1_000_000]).unwrap();
        gzip.finish().unwrap();
    };
    bomb("bomb.json.gz");
    for id in ["cve", "attack"] {
        let source = dir.path().join("bomb.json.gz").display().to_string();
        assert_refused(&load(dir.path(), id, &source), "unpacks to more than 100000 bytes");
    }
    let mut archive = zip::ZipWriter::new(fs::File::create(dir.path().join("bomb.xlsx")).unwrap());
    archive.start_file("xl/workbook.xml", zip::write::SimpleFileOptions::default()).unwrap();
    archive.write_all(&vec![b' '; 1_000_000]).unwrap();
    archive.finish().unwrap();
    for id in ["cce", "attack"] {
        let source = dir.path().join("bomb.xlsx").display().to_string();
        assert_refused(&load(dir.path(), id, &source), "unpacks to more than 100000 bytes");
    }
    let mut archive = zip::ZipWriter::new(fs::File::create(dir.path().join("bomb.zip")).unwrap());
    archive.start_file("ssg-x-ds.xml", zip::write::SimpleFileOptions::default()).unwrap();
    archive.write_all(&vec![b' '; 1_000_000]).unwrap();
    archive.finish().unwrap();
    let source = dir.path().join("bomb.zip").display().to_string();
    assert_refused(&load(dir.path(), "ssg", &source), "unpacks to more than 100000 bytes");
}

#[test]
fn entities_are_neither_declared_nor_expanded() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.xml");
    let entry = r#"<Attack_Pattern ID="1" Name="N"><Description>&secret;</Description></Attack_Pattern>"#;
    let catalogue = format!("<Attack_Pattern_Catalog>{entry}</Attack_Pattern_Catalog>");
    fs::write(&file, format!(r#"<!DOCTYPE x [<!ENTITY secret SYSTEM "file:///etc/passwd">]>{catalogue}"#))
        .unwrap();
    assert_refused(&load(dir.path(), "capec", &file.display().to_string()), "document type declaration");
    fs::write(&file, catalogue).unwrap();
    let summary = load(dir.path(), "capec", &file.display().to_string());
    assert_eq!((summary.runs[0].stored, summary.runs[0].dead_lettered), (0, 1), "{summary:?}");
}

#[test]
fn what_nests_too_deep_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("deep.json");
    fs::write(&file, format!(r#"{{"type": "bundle", "objects": [{}]}}"#, "[".repeat(50_000))).unwrap();
    let run = load(dir.path(), "attack", &file.display().to_string()).runs[0].clone();
    assert_eq!(run.stored, 0, "{run:?}");
    let file = dir.path().join("ssg-deep-ds.xml");
    fs::write(&file, format!("<Benchmark id='x'>{}", "<Group id='g'>".repeat(5000))).unwrap();
    let run = load(dir.path(), "ssg", &file.display().to_string()).runs[0].clone();
    assert!(run.reason.clone().unwrap_or_default().contains("200 deep"), "{run:?}");
}

#[test]
fn keys_are_in_no_error_and_in_no_provenance() {
    let dir = tempfile::tempdir().unwrap();
    let url = serve(answer(b"<html>no such thing</html>"));
    let address = url.replace("http://", "http://user:s3cret-key@");
    load(dir.path(), "cve", &format!("{address}/cves?apiKey=s3cret-key"));
    load(dir.path(), "capec", &format!("{address}/capec.xml?token=s3cret-key"));
    load(dir.path(), "cwe", &format!("{address}/cwe.xml?token=s3cret-key"));
    let reader = Reader::open(&dir.path().join("x.db")).unwrap();
    assert_eq!(reader.runs().unwrap().len(), 3);
    for file in ["x.db", "x.db-wal"] {
        let bytes = fs::read(dir.path().join(file)).unwrap_or_default();
        assert!(!bytes.windows(10).any(|window| window == b"s3cret-key"), "{file}");
    }
}
