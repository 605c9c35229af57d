//! A mirror of the NVD's API that misbehaves on demand.

#![allow(dead_code, reason = "each test file is a crate of its own and uses its share")]

pub(crate) mod stream;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use phalanx_etl::engine::{Engine, Options, Progress, Summary};
use phalanx_etl::source::{Source, Timeouts};
use serde_json::{Value, json};

/// A request, as far as the API looks at it.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// From 0, over all connections.
    pub(crate) number: usize,
    pub(crate) query: BTreeMap<String, String>,
}

impl Request {
    pub(crate) fn start(&self) -> usize {
        self.query.get("startIndex").and_then(|text| text.parse().ok()).unwrap_or_default()
    }
}

/// What the mirror does with a request.
pub(crate) enum Answer {
    Body(String),
    /// A status, perhaps with `Retry-After`.
    Status(u16, Option<&'static str>),
    /// Announces the whole body and sends half of it.
    Cut(String),
    /// Never answers.
    Hang,
}

pub(crate) struct Mirror {
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Mirror {
    /// Serves until the test process ends.
    pub(crate) fn new(answer: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}/cves", listener.local_addr().expect("it is bound"));
        let requests: Arc<Mutex<Vec<Request>>> = Arc::default();
        let (log, answer) = (Arc::clone(&requests), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (log, answer) = (Arc::clone(&log), Arc::clone(&answer));
                std::thread::spawn(move || serve(stream, &log, &*answer));
            }
        });
        Self { url, requests }
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().expect("nobody panicked").clone()
    }
}

fn serve(stream: TcpStream, log: &Mutex<Vec<Request>>, answer: &dyn Fn(&Request) -> Answer) {
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    let mut line = String::new();
    while reader.read_line(&mut line).is_ok_and(|len| len > 0) {
        if first.is_empty() {
            first.clone_from(&line);
        }
        if line == "\r\n" {
            break;
        }
        line.clear();
    }
    let target = first.split(' ').nth(1).unwrap_or_default();
    let query = target.split_once('?').map(|(_, query)| query).unwrap_or_default();
    let query = query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let request = {
        let mut log = log.lock().expect("nobody panicked");
        let request = Request { number: log.len(), query };
        log.push(request.clone());
        request
    };
    let mut stream = reader.into_inner();
    let head = |status: u16, extra: &str, len: usize| {
        format!("HTTP/1.1 {status} x\r\ncontent-length: {len}\r\nconnection: close\r\n{extra}\r\n")
    };
    // Whoever asked may be gone already.
    let _ = match answer(&request) {
        Answer::Body(body) => stream.write_all((head(200, "", body.len()) + &body).as_bytes()),
        Answer::Status(status, retry_after) => {
            let extra = retry_after.map_or(String::new(), |after| format!("retry-after: {after}\r\n"));
            stream.write_all(head(status, &extra, 0).as_bytes())
        }
        Answer::Cut(body) => {
            stream.write_all(&(head(200, "", body.len()) + &body).as_bytes()[..body.len() / 2])
        }
        Answer::Hang => {
            // Until the other side gives up.
            let _ = reader_end(&stream);
            Ok(())
        }
    };
}

fn reader_end(stream: &TcpStream) -> std::io::Result<usize> {
    let mut nothing = String::new();
    BufReader::new(stream.try_clone()?).read_line(&mut nothing)
}

/// The `n`th record of a made-up NVD.
pub(crate) fn cve(n: usize) -> Value {
    json!({"cve": {
        "id": format!("CVE-2024-{:05}", 10_000 + n),
        "published": "2024-01-01T00:00:00.000", "lastModified": "2024-01-02T00:00:00.000",
        "vulnStatus": "Analyzed",
        "descriptions": [{"lang": "en", "value": format!("Record number {n} overflows.")}],
        "weaknesses": [{"description": [{"lang": "en", "value": format!("CWE-{}", n % 50 + 1)}]}],
        "references": [],
    }})
}

/// The page a request asks for, of `records`, at most `page_len` of them.
pub(crate) fn page(request: &Request, records: &[Value], page_len: usize) -> String {
    let start = request.start().min(records.len());
    let end = (start + page_len).min(records.len());
    page_of(start, records.len(), &records[start..end], page_len)
}

pub(crate) fn page_of(start: usize, total: usize, records: &[Value], page_len: usize) -> String {
    json!({"resultsPerPage": page_len.min(total - start.min(total)), "startIndex": start, "totalResults": total,
        "format": "NVD_CVE", "version": "2.0", "vulnerabilities": records})
    .to_string()
}

/// Loads `source` with the provider alone: what it needs counts as loaded.
pub(crate) fn load(db: &Path, id: &str, source: &Path) -> Summary {
    let mut options = Options::new(db.to_owned());
    alone(&mut options);
    options.sources.insert(id.to_owned(), Source::parse(&source.display().to_string(), None));
    let engine = Engine::new(options).expect("the built-in set is sound");
    engine.run(&[id.to_owned()], &mut |_| {}).expect("the store can be written")
}

/// Nobody waits for anybody.
pub(crate) fn alone(options: &mut Options) {
    options.providers.iter_mut().for_each(|provider| provider.dependencies.clear());
}

/// Options that read cve from `source`, quickly.
pub(crate) fn options(db: &Path, source: &str) -> Options {
    let mut options = Options::new(db.to_owned());
    alone(&mut options);
    options.sources.insert("cve".to_owned(), Source::parse(source, None));
    options.credentials.insert("NVD_API_KEY".to_owned(), "key".to_owned());
    options.timeouts = Timeouts { answer: Duration::from_millis(300), body: Duration::from_millis(300) };
    for provider in &mut options.providers {
        provider.retry_delay = Duration::from_millis(1);
    }
    options
}

/// Runs cve.
pub(crate) fn run(options: Options) -> Summary {
    run_with(options, |_, _| {})
}

/// Runs cve, and lets `watch` see its progress.
pub(crate) fn run_with(
    options: Options,
    mut watch: impl FnMut(&phalanx_etl::engine::Handle, Progress),
) -> Summary {
    let engine = Engine::new(options).expect("the built-in set is sound");
    let handle = engine.handle();
    engine.run(&["cve".to_owned()], &mut |progress| watch(&handle, progress)).expect("the store works")
}
