//! One run of a chamber: what its sensors said.

use crate::chamber::{Chamber, Indicator, Level, Truth};
use crate::random::Random;

/// What one sensor said.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// Its name.
    pub svid: String,
    /// Its values, one for each time of the run.
    pub values: Vec<f64>,
}

/// A run.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Its number.
    pub number: u64,
    /// Its context id, the same whenever it is made.
    pub context: String,
    /// When it was sampled, in microseconds since it began.
    pub times_us: Vec<i64>,
    /// What the sensors said.
    pub traces: Vec<Trace>,
}

/// Sensors besides the step and those in use that nobody looks at; there are always some.
const OTHERS: &str = "SENSOR";

impl Run {
    pub(crate) fn new(seed: u64, chamber: &Chamber, chamber_number: usize, number: u64) -> Self {
        let mut random = Random::of(seed, "run", (chamber_number as u64) << 32 | number);
        let samples = chamber.samples();
        let interval = 1_000_000 / i64::from(chamber.frequency_hz);
        let mut traces = Vec::with_capacity(chamber.svids);
        let steps = (0..samples).map(|sample| f64::from(chamber.step(sample))).collect();
        traces.push(Trace { svid: "STEP".to_owned(), values: steps });
        for indicator in Indicator::ALL {
            traces.push(sensor(chamber, indicator, number, &mut random));
        }
        for other in traces.len()..chamber.svids {
            let level = random.between(10.0, 100.0);
            let values = (0..samples).map(|_| level + random.normal()).collect();
            traces.push(Trace { svid: format!("{OTHERS}_{other:02}"), values });
        }
        Self {
            number,
            context: format!("run-{number:06}"),
            times_us: (0..samples as i64).map(|sample| sample * interval).collect(),
            traces,
        }
    }
}

/// A sensor in use. Its level of this run is the same in every step but the first, where it ramps up, so that whoever
/// looks at the main step alone sees what there is to see.
fn sensor(chamber: &Chamber, indicator: Indicator, number: u64, random: &mut Random) -> Trace {
    let Level { mean, between_runs, within_run } = chamber.level(indicator);
    let fault = chamber.fault.filter(|fault| fault.indicator == indicator);
    let sigma = match chamber.truth(indicator) {
        Truth::Normal { sigma, .. } => sigma,
        Truth::Deviation { sigma, .. } => sigma,
    };
    let level =
        mean + between_runs * random.normal() + fault.map_or(0.0, |fault| fault.offset(number)) * sigma;
    let is_stuck = fault.is_some_and(|fault| fault.is_stuck(number));
    let samples = chamber.samples();
    let values = (0..samples).map(|sample| {
        let noise = random.normal() * within_run;
        let ramp = match chamber.step(sample) {
            1 => 0.5 + 2.5 * sample as f64 / samples as f64,
            _ => 1.0,
        };
        if is_stuck { level } else { level * ramp + noise }
    });
    Trace { svid: indicator.svid().to_owned(), values: values.collect() }
}
