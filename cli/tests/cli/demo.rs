//! The demo, as a stranger runs it.

use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::util::phalanx;

#[test]
fn the_demo_loses_nothing_does_nothing_twice_and_finds_the_faults() {
    let run = phalanx(&["demo", "--for", "45s", "--seed", "3", "--json"]).succeeds();
    let summary: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    let number = |path: &str| summary.pointer(path).and_then(serde_json::Value::as_f64).unwrap_or(-1.0);
    let first = run.stderr.lines().next().unwrap_or_default();
    assert!(first.starts_with("Phalanx demo") && first.contains("http://127.0.0.1:"), "{first}");
    assert!(number("/published") > 1_000.0, "{summary}");
    assert_eq!(number("/published"), number("/committed"), "{summary}");
    assert_eq!(
        (number("/lost"), number("/doubleCommitted"), number("/deadLettered")),
        (0.0, 0.0, 0.0),
        "{summary}"
    );
    let (injected, found) =
        (number("/detection/shiftsAtLeast2Sigma/injected"), number("/detection/shiftsAtLeast2Sigma/found"));
    assert!(injected > 0.0 && found >= 0.9 * injected, "{summary}");
    assert!(number("/detection/falseAlarms/found") <= number("/detection/falseAlarms/bound"), "{summary}");
    // The crash and the growth make one map each; the rolling update makes none.
    assert_eq!(number("/mapVersions"), 2.0, "{summary}");
    assert_eq!(number("/seed"), 3.0);
}

#[test]
fn a_time_that_is_none_is_refused_with_what_is_allowed() {
    for wrong in ["5s", "soon", "3h", ""] {
        let run = phalanx(&["demo", "--for", wrong]).fails_with(2);
        assert!(run.stderr.contains("30s to 60m") || run.stderr.contains("like 60s or 2m"), "{}", run.stderr);
    }
}

#[test]
fn servers_that_do_not_go_together_are_refused_with_the_reason() {
    for (wrong, part) in [
        (&["--processes"][..], "--processes needs --nats URL and --cassandra HOSTS"),
        (&["--processes", "--nats", "n"], "a store that all of them reach"),
        (&["--nats", "n"], "--cassandra HOSTS"),
        (&["--cassandra", "c"], "--nats URL"),
    ] {
        let run = phalanx(&[&["demo"][..], wrong].concat()).fails_with(2);
        assert!(run.stderr.contains(part), "{}", run.stderr);
    }
}

/// Runs the demo on a terminal of 80×24, presses these keys once it is drawn, and says all that the terminal got, and what
/// the terminal is like afterwards.
fn on_a_terminal(keys: &str, environment: &[(&str, &str)]) -> String {
    let binary = env!("CARGO_BIN_EXE_phalanx");
    let shell = format!("stty rows 24 cols 80; {binary} demo --for 30s; echo \"exit code $?\"; stty -a");
    let mut command = Command::new("script");
    command.args(["-qec", &shell, "/dev/null"]).env("TERM", "xterm-256color").env_remove("NO_COLOR");
    command.envs(environment.iter().copied()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("util-linux has script");
    let (mut input, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let (send, parts) = mpsc::channel();
    std::thread::spawn(move || {
        let mut part = [0; 4096];
        while let Ok(length @ 1..) = output.read(&mut part) {
            let _ = send.send(part[..length].to_vec());
        }
    });
    let (mut got, mut pressed) = (Vec::new(), false);
    let deadline = Instant::now() + Duration::from_secs(60);
    while let Ok(part) = parts.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        got.extend(part);
        let text = String::from_utf8_lossy(&got);
        let drawn = text.split_once("\x1b[?1049h").map_or("", |(_, drawn)| drawn);
        // The fleet, and the first line of what happens.
        if !pressed && drawn.contains("defender-4") && drawn.contains("simulated") {
            input.write_all(keys.as_bytes()).unwrap();
            pressed = true;
        }
    }
    child.wait().unwrap();
    assert!(pressed, "the fleet was never drawn: {}", String::from_utf8_lossy(&got));
    String::from_utf8_lossy(&got).into_owned()
}

#[test]
fn on_a_terminal_it_is_drawn_and_whoever_ends_it_gets_the_terminal_back() {
    for keys in ["q", "\x03"] {
        let got = on_a_terminal(keys, &[]);
        let (drawn, after) = got.rsplit_once("\x1b[?1049l").expect("the other screen is left");
        assert!(drawn.contains("\x1b[?1049h") && drawn.contains("what happens"), "{got}");
        assert!(drawn.contains("\x1b[38;5;2"), "what is well is green: {drawn:?}");
        assert!(after.contains("\x1b[?25h"), "the cursor is shown again: {after:?}");
        assert!(after.contains("on 5 defenders") && after.contains("ended before it was over"), "{after}");
        assert!(after.contains("exit code 1"), "{after}");
        assert!(after.contains(" icanon") && after.contains(" echo "), "{after}");
    }
}

#[test]
fn with_no_color_nothing_is_coloured_on_a_terminal_either() {
    let got = on_a_terminal("q", &[("NO_COLOR", "1")]);
    assert!(got.contains("what happens"), "{got}");
    for colour in ["\x1b[38;", "\x1b[31m", "\x1b[32m", "\x1b[33m"] {
        assert!(!got.contains(colour), "{colour:?} in {got:?}");
    }
}
