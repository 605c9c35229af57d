//! A service in this process, over a mirror of our own fixtures.

#[path = "../../../etl/tests/util/mod.rs"]
mod mirror;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mirror::{Answer, Mirror};
use phalanx_etl::core::timetable::Plan;
use phalanx_etl::engine::Options;
use phalanx_etl::providers::Provider;
use phalanx_etl::source::{Context, Extract, Failure, Source};
use phalanx_etl::{Item, Reject, Verdict};
use phalanx_etl_service::{Config, Service};
use phalanx_service::Token;
use serde_json::Value;

pub(crate) const TOKEN: &str = "secret";

/// What a service is started with.
pub(crate) struct Setup {
    dir: tempfile::TempDir,
    plans: BTreeMap<String, Plan>,
    slow: Option<Mirror>,
    /// The provider that is replaced by one with a bug.
    bug: Option<&'static str>,
}

/// It panics whatever it is asked.
struct Bug;

impl Provider for Bug {
    fn id(&self) -> &'static str {
        "bug"
    }

    fn upstream(&self) -> &'static str {
        "nowhere"
    }

    fn open(&self, _: &Source, _: Option<&str>, _: &Context) -> Result<Box<dyn Extract>, Failure> {
        panic!("a bug")
    }

    fn understand(&self, _: &Item) -> Result<Verdict, Reject> {
        panic!("a bug")
    }
}

impl Setup {
    /// Nothing is scheduled.
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../etl/tests/fixtures/feeds");
        copy(&fixtures, &dir.path().join("mirror"));
        let asvs = "chapter_id,chapter_name,section_id,section_name,req_id,req_description,L\n\
                    V1,Encoding,V1.1,Architecture,V1.1.1,Verify it.,2\n";
        fs::create_dir_all(dir.path().join("mirror/asvs")).unwrap();
        fs::write(dir.path().join("mirror/asvs/asvs-5.0.0-en.csv"), asvs).unwrap();
        let feed = r#"{"resultsPerPage": 1, "startIndex": 0, "totalResults": 1, "format": "NVD_CVE", "version": "2.0",
            "vulnerabilities": [{"cve": {"id": "CVE-2024-1000", "descriptions": [{"lang": "en", "value": "A door."}],
            "weaknesses": [{"description": [{"lang": "en", "value": "CWE-10"}]}]}}]}"#;
        fs::create_dir_all(dir.path().join("mirror/nvd")).unwrap();
        fs::write(dir.path().join("mirror/nvd/nvdcve-2.0-2024.json"), feed).unwrap();
        let mut setup = Self { dir, plans: BTreeMap::new(), slow: None, bug: None };
        for id in ["asvs", "attack", "capec", "cce", "cve", "cwe", "ssg"] {
            setup.plan(id, "never", Duration::from_secs(86_400));
        }
        setup
    }

    /// cve comes over HTTP in pages of ten, each of which takes a while.
    pub(crate) fn with_slow_cve(mut self) -> Self {
        let records: Vec<Value> = (0..10_000).map(mirror::cve).collect();
        self.slow = Some(Mirror::new(move |request| {
            std::thread::sleep(Duration::from_millis(200));
            Answer::Body(mirror::page(request, &records, 10))
        }));
        self
    }

    /// That provider panics whenever it runs.
    pub(crate) fn with_bug_in(mut self, id: &'static str) -> Self {
        self.bug = Some(id);
        self
    }

    pub(crate) fn plan(&mut self, id: &str, schedule: &str, fresh_within: Duration) {
        let plan = Plan { schedule: schedule.parse().unwrap(), jitter: Duration::ZERO, fresh_within };
        self.plans.insert(id.to_owned(), plan);
    }

    pub(crate) fn db(&self) -> PathBuf {
        self.dir.path().join("x.db")
    }

    #[track_caller]
    pub(crate) fn start(&self) -> Running {
        self.try_start().unwrap()
    }

    pub(crate) fn try_start(&self) -> Result<Running, String> {
        let mut options = Options::new(self.db());
        options.mirror = Some(Source::parse(&self.dir.path().join("mirror").display().to_string(), None));
        if let Some(slow) = &self.slow {
            options.sources.insert("cve".to_owned(), Source::parse(&slow.url, None));
            options.credentials.insert("NVD_API_KEY".to_owned(), "key".to_owned());
        }
        for config in options.providers.iter_mut().filter(|config| Some(config.id.as_str()) == self.bug) {
            config.executor = Some(Arc::new(Bug));
        }
        let said: Arc<Mutex<Vec<String>>> = Arc::default();
        let lines = Arc::clone(&said);
        let config = Config {
            options,
            plans: self.plans.clone(),
            http_addr: "127.0.0.1:0".to_owned(),
            token: Token::new(TOKEN),
            seed: 1,
            log: Arc::new(move |line| lines.lock().unwrap().push(line.to_owned())),
        };
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let service = runtime.block_on(Service::start(config)).map_err(|error| error.to_string())?;
        Ok(Running { url: service.url(), service, said, runtime })
    }
}

pub(crate) struct Running {
    pub(crate) url: String,
    service: Service,
    said: Arc<Mutex<Vec<String>>>,
    runtime: tokio::runtime::Runtime,
}

impl Running {
    pub(crate) fn ask(&self, method: &str, path: &str, token: Option<&str>) -> (u16, Value) {
        let (status, text) = self.raw(method, path, token);
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    pub(crate) fn get(&self, path: &str) -> (u16, Value) {
        self.ask("GET", path, None)
    }

    pub(crate) fn post(&self, path: &str) -> (u16, Value) {
        self.ask("POST", path, Some(TOKEN))
    }

    pub(crate) fn text(&self, path: &str) -> String {
        self.raw("GET", path, None).1
    }

    /// What was said so far.
    pub(crate) fn said(&self) -> Vec<String> {
        self.said.lock().unwrap().clone()
    }

    pub(crate) fn stop(self) {
        self.runtime.block_on(self.service.stop()).unwrap();
    }

    fn raw(&self, method: &str, path: &str, token: Option<&str>) -> (u16, String) {
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(20)))
            .build()
            .into();
        let mut request = ureq::http::Request::builder().method(method).uri(format!("{}{path}", self.url));
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let mut response = agent.run(request.body("").unwrap()).unwrap();
        (response.status().as_u16(), response.body_mut().read_to_string().unwrap_or_default())
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::write(target, fs::read(path).unwrap()).unwrap();
        }
    }
}
