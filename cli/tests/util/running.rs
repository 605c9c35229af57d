//! A real defender, alone in a folder, asked over HTTP.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::phalanx_command;
use phalanx_testkit::wait::until;

/// A defender that is killed when the test ends.
pub(crate) struct Running {
    pub(crate) child: Child,
    pub(crate) url: String,
    pub(crate) token: String,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The strategy of these tests.
pub(crate) fn strategy() -> String {
    concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/strategies/etch.toml").to_owned()
}

/// `phalanx defender` in that folder, not started yet.
pub(crate) fn command(folder: &Path) -> Command {
    let mut command = phalanx_command();
    command.args(["defender", "--http-addr", "127.0.0.1:0", "--strategy-file", &strategy(), "--data-dir"]);
    command.arg(folder).stderr(Stdio::null());
    command
}

/// A defender in that folder, ready.
pub(crate) fn start(folder: &Path) -> Running {
    start_as(folder, &mut command(folder))
}

/// That defender in that folder, ready.
pub(crate) fn start_as(folder: &Path, command: &mut Command) -> Running {
    // One that was killed has left its address behind.
    let _ = std::fs::remove_file(folder.join("api-address"));
    let mut child = command.spawn().unwrap();
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).ok().filter(|text| !text.is_empty());
    let url = until("an address", || {
        assert!(child.try_wait().unwrap().is_none(), "the defender ended");
        read("api-address")
    });
    let running = Running { child, url, token: read("api-token").unwrap_or_default() };
    until("it is ready", || (running.get("/health/ready").0 == 200).then_some(()));
    running
}

/// Asks anything that listens.
pub(crate) fn ask(
    url: &str,
    method: &str,
    path: &str,
    token: Option<&str>,
    kind: &str,
    body: &str,
) -> (u16, Value) {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(Duration::from_secs(20)))
        .build()
        .into();
    let mut request = ureq::http::Request::builder().method(method).uri(format!("{url}{path}"));
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let request = request.header("content-type", kind).body(body.to_owned()).unwrap();
    let Ok(mut response) = agent.run(request) else { return (0, Value::Null) };
    let text = response.body_mut().read_to_string().unwrap_or_default();
    (response.status().as_u16(), serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

/// The value of a series of its metrics.
pub(crate) fn metric(url: &str, series: &str) -> Option<f64> {
    let (_, text) = ask(url, "GET", "/metrics", None, "text/plain", "");
    text.as_str()?.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.trim().parse().ok())
}

impl Running {
    pub(crate) fn ask(
        &self,
        method: &str,
        path: &str,
        token: Option<&str>,
        kind: &str,
        body: &str,
    ) -> (u16, Value) {
        ask(&self.url, method, path, token, kind, body)
    }

    pub(crate) fn get(&self, path: &str) -> (u16, Value) {
        self.ask("GET", path, None, "text/plain", "")
    }

    pub(crate) fn send(&self, context: &str, csv: &str) -> (u16, Value) {
        let path = format!("/api/v1/contexts?tool=etch-01&chamber=A&context={context}");
        self.ask("POST", &path, Some(&self.token), "text/csv", csv)
    }
}

/// A minute of a run at that power.
pub(crate) fn csv(power: u32) -> String {
    let lines = (0..60)
        .map(|s| format!("{},{},3,60.{},40,{}\n", s * 1_000_000, power, s % 7, if s < 10 { 1 } else { 3 }));
    std::iter::once("time,RF_POWER,RF_REFLECTED,ESC_TEMP,PRESSURE,STEP\n".to_owned()).chain(lines).collect()
}
