//! A chart a point at a time, with a state that can be stored and moved between machines.

use serde::{Deserialize, Serialize};

use super::Point;
use super::baseline::Baseline;
use super::design::{Design, DesignError, Kind, Sample, SampleError};
use super::model::Model;
use super::step::{Memory, Phase, Stepper};
use crate::rules::{Signal, Watch, beyond};

/// The longest baseline a monitor learns from.
pub const MAX_BASELINE: u64 = 10_000;

/// The format of stored states. It changes when an older program could misread them.
const VERSION: u64 = 1;

/// A chart that takes a point at a time: it learns its limits from the first points, then judges.
///
/// Its memory does not grow with the number of points: sums while it learns (the samples themselves where the
/// estimator is robust or excludes points), then centre and σ, the chart's own carry-over, and the last few points
/// that the rules look at.
///
/// ```
/// use phalanx_spc::chart::{Design, Judgement, Kind, Monitor, Sample};
/// let mut monitor = Monitor::learning(Design::new(Kind::Imr), 4).unwrap();
/// for value in [10.0, 11.0, 9.0, 10.5] {
///     let (next, judgement) = monitor.update(&Sample::Value(value));
///     assert!(matches!(judgement, Judgement::Learning { .. }));
///     monitor = next;
/// }
/// let stored = monitor.encode();
/// let (_, judgement) = Monitor::decode(&stored).unwrap().update(&Sample::Value(20.0));
/// let Judgement::Judged(judged) = judgement else { panic!() };
/// assert_eq!(judged.signals.len(), 1);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Monitor(Box<State>);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct State {
    design: Design,
    stage: Stage,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Stage {
    Learning { seen: u64, wanted: u64, baseline: Baseline },
    Judging { model: Model, memory: Memory, watch: Watch },
}

/// What a monitor says about a sample.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(
    clippy::large_enum_variant,
    reason = "made for one point and taken apart at once: a box would only cost time"
)]
pub enum Judgement {
    /// It belongs to the baseline.
    Learning {
        /// Samples so far, with this one.
        seen: u64,
        /// Samples wanted.
        wanted: u64,
        /// Why there are no limits although enough samples were seen; learning goes on.
        problem: Option<String>,
    },
    /// It was judged.
    Judged(Judged),
    /// The chart cannot take it; the state is as before.
    Ignored(SampleError),
}

/// A judged point.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judged {
    /// The point with its limits.
    pub point: Point,
    /// What the rules found.
    pub signals: Vec<Signal>,
    /// The point of the companion chart.
    pub companion: Option<Point>,
    /// What the companion's limits found.
    pub companion_signals: Vec<Signal>,
}

/// A stored state that cannot be read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum StateError {
    #[error(
        "the stored chart state has format {found}, this program reads format {VERSION}; update the program or start the chart anew"
    )]
    Version { found: u64 },
    #[error("the stored chart state is damaged: {0}; start the chart anew")]
    Damaged(String),
    #[error("the stored chart state has a design that cannot work: {0}; start the chart anew")]
    Design(#[from] DesignError),
}

impl Monitor {
    /// A chart that has nothing to learn: target and σ, or fixed limits, are in the design.
    pub fn fixed(design: Design) -> Result<Self, DesignError> {
        design.check()?;
        let needs = match design.kind {
            kind if kind.is_count() => "",
            Kind::T2 { .. } => "",
            _ => " and standard deviation",
        };
        match Model::given(&design) {
            Some(model) => Ok(Self::judging(design, model)),
            None => Err(DesignError::NeedsBaseline(design.kind.name(), needs)),
        }
    }

    /// A chart that learns from its first `wanted` samples.
    pub fn learning(design: Design, wanted: u64) -> Result<Self, DesignError> {
        design.check()?;
        if !(2..=MAX_BASELINE).contains(&wanted) {
            return Err(DesignError::Baseline { least: 2, most: MAX_BASELINE, found: wanted });
        }
        let baseline = Baseline::new(&design, wanted);
        let stage = Stage::Learning { seen: 0, wanted, baseline };
        Ok(Self(Box::new(State { design, stage })))
    }

    /// A chart whose limits were learned before.
    pub fn learned(design: Design, model: Model) -> Result<Self, DesignError> {
        design.check()?;
        if !model.is_sound(&design) {
            return Err(DesignError::NeedsBaseline(design.kind.name(), "; this model is of another chart"));
        }
        Ok(Self::judging(design, model))
    }

    fn judging(design: Design, model: Model) -> Self {
        let memory = Stepper { design: &design, model: &model }.start();
        Self(Box::new(State { design, stage: Stage::Judging { model, memory, watch: Watch::default() } }))
    }

    /// The design it was made with.
    pub fn design(&self) -> &Design {
        &self.0.design
    }

    /// Centre and σ, once they are known.
    pub fn model(&self) -> Option<&Model> {
        match &self.0.stage {
            Stage::Learning { .. } => None,
            Stage::Judging { model, .. } => Some(model),
        }
    }

    /// Takes the next sample: the new state and the judgement. A sample the chart cannot take changes nothing.
    #[must_use]
    pub fn update(mut self, sample: &Sample) -> (Self, Judgement) {
        let judgement = self.take(sample);
        (self, judgement)
    }

    fn take(&mut self, sample: &Sample) -> Judgement {
        let State { design, stage } = &mut *self.0;
        if let Err(error) = design.check_sample(sample) {
            return Judgement::Ignored(error);
        }
        match stage {
            Stage::Learning { seen, wanted, baseline } => {
                if let Err(error) = baseline.check_dimension(sample) {
                    return Judgement::Ignored(error);
                }
                baseline.add(design, sample);
                *seen += 1;
                let (seen, wanted) = (*seen, *wanted);
                let problem = if seen < wanted {
                    None
                } else {
                    match baseline.finish(design) {
                        Ok(learned) => {
                            let memory = Stepper { design, model: &learned.model }.start();
                            let watch = Watch::default();
                            *stage = Stage::Judging { model: learned.model, memory, watch };
                            None
                        }
                        Err(error) => Some(error.to_string()),
                    }
                };
                Judgement::Learning { seen, wanted, problem }
            }
            Stage::Judging { model, memory, watch } => {
                if let Err(error) = model.check_sample(sample) {
                    return Judgement::Ignored(error);
                }
                let stepper = Stepper { design, model };
                let mut step = stepper.step(memory, watch.index() + 1, sample, Phase::Two);
                let found =
                    watch.push(&design.rules, design.sides, step.mark, step.point.lcl, step.point.ucl);
                step.signals.extend(found);
                Judgement::Judged(Judged {
                    companion_signals: step.companion.iter().filter_map(beyond).collect(),
                    point: step.point,
                    signals: step.signals,
                    companion: step.companion,
                })
            }
        }
    }

    /// The state as bytes: JSON with a format number. The same state always gives the same bytes.
    pub fn encode(&self) -> Vec<u8> {
        #[derive(Serialize)]
        struct Stored<'a> {
            v: u64,
            state: &'a State,
        }
        match serde_json::to_vec(&Stored { v: VERSION, state: &self.0 }) {
            Ok(bytes) => bytes,
            Err(error) => unreachable!("a state is numbers, names and lists: {error}"),
        }
    }

    /// Reads a stored state. Bytes of another format, damaged or made up, give an error.
    pub fn decode(bytes: &[u8]) -> Result<Self, StateError> {
        #[derive(Deserialize)]
        struct Header {
            v: u64,
        }
        #[derive(Deserialize)]
        struct Stored {
            state: State,
        }
        let damaged = |error: serde_json::Error| StateError::Damaged(error.to_string());
        // The format number first: what follows may look different in another format.
        let Header { v } = serde_json::from_slice(bytes).map_err(damaged)?;
        if v != VERSION {
            return Err(StateError::Version { found: v });
        }
        let Stored { state } = serde_json::from_slice(bytes).map_err(damaged)?;
        state.design.check()?;
        if !state.is_sound() {
            return Err(StateError::Damaged("its parts do not fit together".to_owned()));
        }
        Ok(Self(Box::new(state)))
    }
}

impl State {
    fn is_sound(&self) -> bool {
        let Self { design, stage } = self;
        match stage {
            Stage::Learning { wanted, baseline, .. } => {
                (2..=MAX_BASELINE).contains(wanted) && baseline.is_sound(design)
            }
            Stage::Judging { model, memory, watch } => {
                model.is_sound(design) && watch.is_sound() && Stepper { design, model }.fits(memory)
            }
        }
    }
}
