use phalanx_sim::chaos::{Run, shorten};
use std::time::{Duration, Instant};
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let (from, to): (u64, u64) = (a[1].parse().unwrap(), a[2].parse().unwrap());
    let workers: usize = a[3].parse().unwrap();
    let chambers: usize = a[4].parse().unwrap();
    let secs: u64 = a[5].parse().unwrap();
    let shrink = a.get(6).is_some_and(|s| s == "shrink" || s == "trace");
    let t = Instant::now();
    let (mut ev, mut sim, mut bad) = (0, 0.0, 0);
    let mut kinds = std::collections::BTreeMap::<String, (u64, u64)>::new();
    for seed in from..to {
        let mut run = Run::new(seed, workers, chambers, Duration::from_secs(secs));
        if a.get(6).is_some_and(|s| s == "none") {
            run.faults.clear();
            run.shakes.clear();
        }
        let o = run.run();
        ev += o.events;
        sim += o.simulated.as_secs_f64();
        if !o.violations.is_empty() {
            bad += 1;
            for v in o.violations.iter().take(1) {
                let k = kinds.entry(format!("{}", v.invariant)).or_insert((0, seed));
                k.0 += 1;
            }
            println!("seed {seed}: {} violations; {}", o.violations.len(), o.violations[0]);
            if a.get(6).is_some_and(|s| s == "all") {
                for v in o.violations.iter().take(30) {
                    println!("   => {v}");
                }
            }
            if shrink {
                let (run, few) = shorten(&run, &o, || true);
                for i in &few {
                    println!("    {i} dice {}", i.dice);
                }
                let mut lines: Vec<String> = Vec::new();
                let o = run.run_with(&few, Some(&mut |l: &str| lines.push(l.to_owned())));
                for v in o.violations.iter().take(5) {
                    println!("   => {v}");
                }
                if a[6] == "trace" {
                    std::fs::write("/tmp/trace.txt", lines.join("\n")).unwrap();
                }
            }
        }
        if to - from == 1 {
            println!("{:?} {:?} {:?} {:x}", o.counts, o.recovery, o.faults, o.trace_hash);
        }
    }
    let w = t.elapsed().as_secs_f64();
    println!(
        "bad {bad} of {}; {:?}; {:.2} cluster-hours in {w:.1}s = {:.2}/s; {:.0} events/s",
        to - from,
        kinds,
        sim / 3600.0,
        sim / 3600.0 / w,
        ev as f64 / w
    );
}
