//! How long the charts run before they signal, by seeded simulation through the very monitors that judge production.

use phalanx_spc::chart::{Design, Judgement, Kind, Monitor, Sample};

/// xoshiro256++, seeded by splitmix64.
struct Random([u64; 4]);

impl Random {
    fn new(mut seed: u64) -> Self {
        Self(std::array::from_fn(|_| {
            seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = seed;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        }))
    }

    /// Evenly from −1 to 1.
    fn even(&mut self) -> f64 {
        let s = &mut self.0;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        (result >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    /// Two standard normal values, by Marsaglia's polar method, which is exact.
    fn normals(&mut self) -> [f64; 2] {
        loop {
            let (x, y) = (self.even(), self.even());
            let square = x * x + y * y;
            if square < 1.0 && square > 0.0 {
                let scale = (-2.0 * square.ln() / square).sqrt();
                return [x * scale, y * scale];
            }
        }
    }
}

const RUNS: u64 = 120_000;
const THREADS: u64 = 2;

/// The mean of [`RUNS`] run lengths of values with this mean and σ = 1.
fn average_run_length(kind: Kind, sigmas: f64, mean: f64) -> f64 {
    let design = Design { sigmas, target: Some(0.0), sd: Some(1.0), ..Design::new(kind) };
    let fresh = Monitor::fixed(design).expect("nothing to learn");
    let part = |seed: u64| {
        let mut random = Random::new(seed);
        (0..RUNS / THREADS).map(|_| run_length(fresh.clone(), &mut random, mean)).sum::<u64>()
    };
    let total: u64 = std::thread::scope(|scope| {
        let parts: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || part(7 + thread))).collect();
        parts.into_iter().map(|part| part.join().expect("no run panics")).sum()
    });
    total as f64 / RUNS as f64
}

fn run_length(mut monitor: Monitor, random: &mut Random, mean: f64) -> u64 {
    let mut length = 0;
    loop {
        for value in random.normals() {
            length += 1;
            let (next, judgement) = monitor.update(&Sample::Value(value + mean));
            let Judgement::Judged(judged) = judgement else { panic!("{judgement:?}") };
            if !judged.signals.is_empty() {
                return length;
            }
            monitor = next;
        }
    }
}

#[track_caller]
fn check(name: &str, found: f64, expected: f64, share: f64) {
    println!("measured: ARL of {name} {found:.2}, expected {expected}");
    assert!((found / expected - 1.0).abs() < share, "{name}: {found} is not {expected} ± {share}");
}

#[test]
fn three_sigma_limits_run_as_long_as_the_normal_distribution_says() {
    check("3 σ in control", average_run_length(Kind::Imr, 3.0, 0.0), 370.4, 0.01);
    // 1 / (Φ(−2) + Φ(−4))
    check("3 σ after a shift of 1 σ", average_run_length(Kind::Imr, 3.0, 1.0), 43.89, 0.01);
}

#[test]
fn ewma_runs_as_long_as_lucas_and_saccucci_say() {
    let kind = Kind::Ewma { lambda: 0.1, asymptotic: true };
    check("EWMA in control", average_run_length(kind, 2.814, 0.0), 500.0, 0.02);
    check("EWMA after a shift of 1 σ", average_run_length(kind, 2.814, 1.0), 10.3, 0.02);
}
