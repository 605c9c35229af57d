//! A chamber: its recipe, its sensors, and the truth about them.

use crate::fault::Fault;
use crate::random::Random;

/// The charts of the fab's [strategy](crate::STRATEGY).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Indicator {
    /// The mean forward power in the main step.
    Power,
    /// The mean pressure in the main step.
    Pressure,
    /// The deviation of the temperature in the main step.
    Noise,
}

impl Indicator {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Power, Self::Pressure, Self::Noise];

    /// The name of its chart.
    pub fn name(self) -> &'static str {
        match self {
            Self::Power => "rf-power",
            Self::Pressure => "pressure",
            Self::Noise => "temperature-noise",
        }
    }

    /// The sensor it comes from.
    pub fn svid(self) -> &'static str {
        match self {
            Self::Power => "RF_POWER",
            Self::Pressure => "PRESSURE",
            Self::Noise => "ESC_TEMP",
        }
    }
}

/// How a healthy indicator is distributed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Truth {
    /// Normally.
    Normal {
        /// Its mean.
        mean: f64,
        /// Its deviation from run to run.
        sigma: f64,
    },
    /// As the sample deviation of so many normal values.
    Deviation {
        /// How many.
        values: u64,
        /// Their true deviation.
        sigma: f64,
    },
}

/// A process chamber.
#[derive(Clone, Debug, PartialEq)]
pub struct Chamber {
    /// The tool it belongs to.
    pub tool: String,
    /// Its name there.
    pub name: String,
    /// How many sensors its runs have.
    pub svids: usize,
    /// How often they are sampled.
    pub frequency_hz: u32,
    /// How long a run takes.
    pub duration_s: u32,
    /// What goes wrong with it, if anything does.
    pub fault: Option<Fault>,
    levels: [Level; 3],
}

/// A sensor in use: its level, how that differs from run to run, and its noise within one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Level {
    pub(crate) mean: f64,
    pub(crate) between_runs: f64,
    pub(crate) within_run: f64,
}

impl Chamber {
    pub(crate) fn new(seed: u64, number: usize, of: usize, fault: Option<Fault>) -> Self {
        let mut random = Random::of(seed, "chamber", number as u64);
        // Between the lightest and the heaviest by equal factors, whatever their order.
        let place = match number {
            0 => 0.0,
            1 => 1.0,
            _ => random.unit(),
        };
        let svids = (5.0 * 10_f64.powf(place)).round() as usize;
        let frequency_hz = if place < 0.34 {
            1
        } else if place < 0.67 {
            2
        } else {
            4
        };
        let duration_s = (50.0 * 3_f64.powf(place)).round() as u32;
        let level = |mean: f64, between: f64, within: f64, random: &mut Random| {
            let mean = mean * random.between(0.9, 1.1);
            Level { mean, between_runs: mean * between, within_run: mean * within }
        };
        let levels = [
            level(500.0, 0.004, 0.006, &mut random),
            level(40.0, 0.01, 0.02, &mut random),
            level(60.0, 0.002, 0.004, &mut random),
        ];
        let (tool, name) = (number / 4, number % 4);
        let kind = ["etch", "cvd", "pvd"][tool % 3];
        let digits = of.to_string().len().max(2);
        Self {
            tool: format!("{kind}-{:0digits$}", tool + 1),
            name: ["A", "B", "C", "D"][name].to_owned(),
            svids,
            frequency_hz,
            duration_s,
            fault,
            levels,
        }
    }

    /// What it weighs: sensors × samples a second × seconds.
    pub fn weight(&self) -> u64 {
        self.svids as u64 * self.samples()
    }

    /// Samples of a sensor in a run.
    pub fn samples(&self) -> u64 {
        u64::from(self.frequency_hz) * u64::from(self.duration_s)
    }

    /// The step of a sample: a fifth of a run settles, three fifths are the main step, the rest cools down.
    pub(crate) fn step(&self, sample: u64) -> u8 {
        let share = sample as f64 / self.samples() as f64;
        if share < 0.2 {
            1
        } else if share < 0.8 {
            2
        } else {
            3
        }
    }

    /// Samples of a sensor in the main step.
    pub(crate) fn main_samples(&self) -> u64 {
        (0..self.samples()).filter(|sample| self.step(*sample) == 2).count() as u64
    }

    pub(crate) fn level(&self, indicator: Indicator) -> Level {
        self.levels[indicator as usize]
    }

    /// How a healthy indicator of this chamber is distributed.
    pub fn truth(&self, indicator: Indicator) -> Truth {
        let Level { mean, between_runs, within_run } = self.level(indicator);
        let values = self.main_samples();
        match indicator {
            Indicator::Noise => Truth::Deviation { values, sigma: within_run },
            Indicator::Power | Indicator::Pressure => {
                let sigma = (between_runs.powi(2) + within_run.powi(2) / values as f64).sqrt();
                Truth::Normal { mean, sigma }
            }
        }
    }
}
