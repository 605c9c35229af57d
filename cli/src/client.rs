//! Speaks with a running service over HTTP.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use clap::Args;
use phalanx_defender::app::DataFolder;
use serde_json::Value;
use ureq::http::{Method, Request, StatusCode};
use ureq::tls::TlsConfig;

/// Where a service listens that was told nothing else.
pub(crate) const USUAL: &str = "http://127.0.0.1:8080";
/// The service itself gives up after 30 s.
const PATIENCE: Duration = Duration::from_secs(35);
/// The largest answer: a thousand points are some hundred kB.
const LARGEST: u64 = 64 << 20;

/// What sort of service is asked, for errors that say what to try.
pub(crate) struct Sort {
    pub(crate) name: &'static str,
    /// What starts one, or says where one is.
    pub(crate) remedy: &'static str,
    /// Where its token is found.
    pub(crate) token: &'static str,
}

const DEFENDER: Sort = Sort {
    name: "defender",
    remedy: "start one with `phalanx defender --data-dir FOLDER`, or name another address with --url or PHALANX_URL, or \
             its folder with --data-dir",
    token: "API_TOKEN, or the data folder with --data-dir",
};

/// Which defender is asked.
#[derive(Args, Clone)]
#[command(next_help_heading = "Which defender")]
pub(crate) struct ServiceArgs {
    /// Where it listens, such as http://127.0.0.1:8080; any worker of a fleet will do.
    ///
    /// Without it the data folder says where, and without that it is http://127.0.0.1:8080.
    #[arg(long, env = "PHALANX_URL", value_name = "URL")]
    pub(crate) url: Option<String>,

    /// The data folder of an embedded defender: it says where that listens, and its token.
    #[arg(long, env = "DATA_DIR", value_name = "FOLDER")]
    pub(crate) data_dir: Option<PathBuf>,

    /// The token for what changes something; better in the variable than where every process can read it.
    #[arg(long, env = "API_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
}

/// How the answer is printed.
#[derive(Args, Clone, Copy)]
pub(crate) struct OutputArgs {
    /// Print what the service answers, as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

impl ServiceArgs {
    /// Who is asked. Nothing is sent yet.
    pub(crate) fn client(&self) -> Result<Client> {
        let folder = self.data_dir.as_deref().map(DataFolder::at);
        let given = |text: &Option<String>| text.clone().filter(|text| !text.trim().is_empty());
        let url = match (given(&self.url), &folder) {
            (Some(url), _) => url,
            (None, Some(folder)) => folder.address().ok_or_else(|| {
                let shown = self.data_dir.as_deref().unwrap_or_else(|| "".as_ref()).display();
                anyhow!(
                    "no defender runs on {shown}: start one with `phalanx defender --data-dir {shown}`, or name a \
                     running one with --url or PHALANX_URL"
                )
            })?,
            (None, None) => USUAL.to_owned(),
        };
        let token = given(&self.token).or_else(|| folder.and_then(|folder| folder.token()));
        Client::new(&DEFENDER, &url, token)
    }
}

/// A service that can be asked.
pub(crate) struct Client {
    sort: &'static Sort,
    agent: ureq::Agent,
    base: String,
    token: Option<String>,
}

impl Client {
    pub(crate) fn new(sort: &'static Sort, url: &str, token: Option<String>) -> Result<Self> {
        let base = url.trim().trim_end_matches('/').to_owned();
        if !base.starts_with("http://") && !base.starts_with("https://") {
            bail!("{url:?} is no address like {USUAL}");
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ureq::Agent::config_builder()
            .tls_config(TlsConfig::builder().unversioned_rustls_crypto_provider(provider).build())
            .http_status_as_error(false)
            .timeout_global(Some(PATIENCE))
            .build();
        Ok(Self { sort, agent: config.into(), base, token })
    }

    /// Where it is asked.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    pub(crate) fn get(&self, path: &str) -> Result<Value> {
        self.ask(Method::GET, path, "", Vec::new())
    }

    /// What is there, or nothing where there is nothing.
    pub(crate) fn find(&self, path: &str) -> Result<Option<Value>> {
        match self.exchange(Method::GET, path, "", Vec::new())? {
            (StatusCode::NOT_FOUND, _) => Ok(None),
            (status, answer) => self.good(status, answer).map(Some),
        }
    }

    /// The answer, whether it is good or bad.
    pub(crate) fn probe(&self, path: &str) -> Result<Value> {
        self.exchange(Method::GET, path, "", Vec::new()).map(|(_, answer)| answer)
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Result<Value> {
        self.ask(Method::POST, path, "application/json", body.to_string().into_bytes())
    }

    pub(crate) fn send(&self, path: &str, kind: &str, body: Vec<u8>) -> Result<Value> {
        self.ask(Method::POST, path, kind, body)
    }

    pub(crate) fn delete(&self, path: &str) -> Result<Value> {
        self.ask(Method::DELETE, path, "", Vec::new())
    }

    fn ask(&self, method: Method, path: &str, kind: &str, body: Vec<u8>) -> Result<Value> {
        let (status, answer) = self.exchange(method, path, kind, body)?;
        self.good(status, answer)
    }

    fn good(&self, status: StatusCode, answer: Value) -> Result<Value> {
        if status.is_success() {
            return Ok(answer);
        }
        let message = answer["message"].as_str().map_or_else(|| answer.to_string(), str::to_owned);
        let hint = match status {
            StatusCode::UNAUTHORIZED if self.token.is_none() => {
                format!("; name the token with {}", self.sort.token)
            }
            StatusCode::UNAUTHORIZED => "; the token that was given or found is another".to_owned(),
            _ => String::new(),
        };
        Err(anyhow!("{} says {}: {message}{hint}", self.base, status.as_u16()))
    }

    fn exchange(&self, method: Method, path: &str, kind: &str, body: Vec<u8>) -> Result<(StatusCode, Value)> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        if !kind.is_empty() {
            request = request.header("content-type", kind);
        }
        let request = request.body(body).with_context(|| format!("{:?} is no address", self.base))?;
        let mut response = self.agent.run(request).map_err(|error| {
            let Sort { name, remedy, .. } = self.sort;
            anyhow!("no {name} answers at {}: {error}. Is it running? Otherwise {remedy}", self.base)
        })?;
        let status = response.status();
        let text = response
            .body_mut()
            .with_config()
            .limit(LARGEST)
            .read_to_string()
            .with_context(|| format!("the answer of {} cannot be read", self.base))?;
        Ok((status, serde_json::from_str(&text).unwrap_or(Value::String(text))))
    }
}

/// A path made of that and these names.
///
/// Whatever is not a plain letter is escaped, so that a name stays one part of the path.
pub(crate) fn path(base: &str, names: &[&str]) -> String {
    names.iter().fold(base.to_owned(), |path, name| path + "/" + &escaped(name))
}

/// A path with a query of those that are given.
pub(crate) fn query(path: &str, parameters: &[(&str, Option<String>)]) -> String {
    let given = parameters.iter().filter_map(|(name, value)| Some((name, value.as_deref()?)));
    let query: Vec<String> = given.map(|(name, value)| format!("{name}={}", escaped(value))).collect();
    if query.is_empty() { path.to_owned() } else { format!("{path}?{}", query.join("&")) }
}

fn escaped(text: &str) -> String {
    let one = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => (byte as char).to_string(),
        other => format!("%{other:02X}"),
    };
    text.bytes().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_one_part_of_the_path_whatever_is_in_them() {
        assert_eq!(path("/a", &["b c", "d/e?f=ä"]), "/a/b%20c/d%2Fe%3Ff%3D%C3%A4");
        assert_eq!(query("/a", &[("x", Some("1&y=2".to_owned())), ("z", None)]), "/a?x=1%26y%3D2");
        assert_eq!(query("/a", &[("z", None)]), "/a");
    }

    #[test]
    fn an_address_without_a_scheme_is_refused() {
        assert!(Client::new(&DEFENDER, "localhost:8080", None).is_err());
        let client = Client::new(&DEFENDER, "http://localhost:8080/", None).unwrap();
        assert_eq!(client.base(), "http://localhost:8080");
    }
}
