//! How a chamber is packed: two runs of bytes, one for its chart state and one for its points.
//!
//! Points lie chart by chart, the newest first, each with its length before it: a new point goes in front by copying, and
//! nothing is unpacked that nobody asks for. Only this process reads what it wrote; bytes that do not fit are no entry.

use std::sync::Arc;

use phalanx_cluster::core::Position;
use phalanx_cluster::core::types::Sequence;

use crate::record::{Flags, HISTORY, Limits, Mark, Past, StateRow, UChart};
use crate::store::encoding::Time;

/// Bytes out.
#[derive(Default)]
struct Packer(Vec<u8>);

impl Packer {
    fn long(&mut self, value: u64) {
        self.0.extend(value.to_le_bytes());
    }

    fn int(&mut self, value: u32) {
        self.0.extend(value.to_le_bytes());
    }

    fn bytes(&mut self, value: &[u8]) {
        self.int(u32::try_from(value.len()).unwrap_or(u32::MAX));
        self.0.extend(value);
    }

    fn number(&mut self, value: Option<f64>) {
        // What has no value is never NaN in a row, so NaN can say so here.
        self.long(value.unwrap_or(f64::NAN).to_bits());
    }

    fn position(&mut self, at: Position) {
        self.long(at.generation);
        self.long(at.sequence.0);
    }
}

/// Bytes in.
struct Unpacker<'a>(&'a [u8]);

impl<'a> Unpacker<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(taken)
    }

    fn long(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn int(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.int()?;
        self.take(len as usize)
    }

    fn text(&mut self) -> Option<Arc<str>> {
        Some(std::str::from_utf8(self.bytes()?).ok()?.into())
    }

    fn number(&mut self) -> Option<Option<f64>> {
        Some(Some(f64::from_bits(self.long()?)).filter(|number| !number.is_nan()))
    }

    fn position(&mut self) -> Option<Position> {
        Some(Position { generation: self.long()?, sequence: Sequence(self.long()?) })
    }
}

pub(super) fn pack_state(state: &StateRow) -> Vec<u8> {
    let mut out = Packer(Vec::with_capacity(64 + 56 * state.history.len() + state.state.len()));
    out.position(state.mark.position);
    out.long(state.mark.take);
    out.long(state.mark.stamp);
    out.int(state.predecessor.is_some().into());
    out.position(state.predecessor.unwrap_or_default());
    out.bytes(state.context.as_bytes());
    out.long(state.stream);
    out.int(u32::try_from(state.history.len()).unwrap_or(u32::MAX));
    for past in &state.history {
        out.bytes(past.context.as_bytes());
        out.long(past.generation);
        out.long(past.sequence);
        out.long(past.take);
    }
    out.bytes(&state.state);
    out.0
}

pub(super) fn unpack_state(bytes: &[u8]) -> Option<StateRow> {
    let mut from = Unpacker(bytes);
    let mark = Mark { position: from.position()?, take: from.long()?, stamp: from.long()? };
    let has_predecessor = from.int()? == 1;
    let predecessor = Some(from.position()?).filter(|_| has_predecessor);
    let (context, stream, count) = (from.text()?, from.long()?, from.int()?);
    let past = |from: &mut Unpacker<'_>| {
        Some(Past {
            context: from.text()?,
            generation: from.long()?,
            sequence: from.long()?,
            take: from.long()?,
        })
    };
    let history = (0..count).map(|_| past(&mut from)).collect::<Option<_>>()?;
    let state = from.bytes()?.to_vec();
    Some(StateRow { mark, predecessor, context, stream, history, state })
}

fn pack_point(chart: &UChart) -> Vec<u8> {
    let (mut out, time) = (Packer::default(), Time::from(chart.timestamp));
    out.long(time.ms.cast_unsigned());
    out.int(time.ns.cast_unsigned());
    out.number(chart.value);
    let limits = chart.limits;
    out.number(limits.map(|l| l.center));
    out.number(limits.and_then(|l| l.lcl));
    out.number(limits.and_then(|l| l.ucl));
    out.number(limits.and_then(|l| l.sigma));
    out.int(chart.n);
    out.int(chart.flags.0);
    out.bytes(chart.context.as_bytes());
    out.bytes(chart.strategy.as_bytes());
    out.0
}

fn unpack_point(indicator: &Arc<str>, bytes: &[u8]) -> Option<UChart> {
    let mut from = Unpacker(bytes);
    let time = Time { ms: from.long()?.cast_signed(), ns: from.int()?.cast_signed() };
    let value = from.number()?;
    let (center, lcl, ucl, sigma) = (from.number()?, from.number()?, from.number()?, from.number()?);
    Some(UChart {
        indicator: indicator.clone(),
        timestamp: time.read().ok()?,
        value,
        limits: center.map(|center| Limits { center, lcl, ucl, sigma }),
        n: from.int()?,
        flags: Flags(from.int()?),
        context: from.text()?,
        strategy: from.text()?,
    })
}

/// The points of each chart as they lie there: name, and the packed points.
fn charts(bytes: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut from = Unpacker(bytes);
    std::iter::from_fn(move || Some((from.bytes()?, from.bytes()?)))
}

/// Packs points, of any chart; those of one chart the newest first.
pub(super) fn pack_points<'a>(points: impl Iterator<Item = &'a UChart>) -> Vec<u8> {
    let mut by_chart: Vec<(&str, Packer, usize)> = Vec::new();
    for point in points {
        let at = by_chart.iter().position(|(name, _, _)| *name == &*point.indicator).unwrap_or_else(|| {
            by_chart.push((&point.indicator, Packer::default(), 0));
            by_chart.len() - 1
        });
        let (_, packed, count) = &mut by_chart[at];
        if *count < HISTORY {
            packed.bytes(&pack_point(point));
            *count += 1;
        }
    }
    let mut out = Packer::default();
    for (name, packed, _) in by_chart {
        out.bytes(name.as_bytes());
        out.bytes(&packed.0);
    }
    out.0
}

/// Puts new points in front of what is there; of each chart the last [`HISTORY`] stay.
pub(super) fn add_points(packed: &[u8], new: &[UChart]) -> Vec<u8> {
    let mut out = Packer(Vec::with_capacity(packed.len() + 160 * new.len()));
    let mut placed = vec![false; new.len()];
    for (name, old) in charts(packed) {
        let mut front = Packer::default();
        let mut count = 0;
        for (point, placed) in new.iter().zip(&mut placed) {
            if point.indicator.as_bytes() == name {
                front.bytes(&pack_point(point));
                (*placed, count) = (true, count + 1);
            }
        }
        let kept = first(old, HISTORY.saturating_sub(count));
        out.bytes(name);
        out.int(u32::try_from(front.0.len() + kept.len()).unwrap_or(u32::MAX));
        out.0.extend(front.0);
        out.0.extend(kept);
    }
    let fresh = new.iter().zip(placed).filter(|(_, placed)| !placed).map(|(point, _)| point);
    out.0.extend(pack_points(fresh));
    out.0
}

/// As many points from the front.
fn first(points: &[u8], count: usize) -> &[u8] {
    let mut from = Unpacker(points);
    for _ in 0..count {
        if from.bytes().is_none() {
            return points;
        }
    }
    &points[..points.len() - from.0.len()]
}

/// The points of one chart, the newest first.
pub(super) fn unpack_points(packed: &[u8], indicator: &str) -> Vec<UChart> {
    let Some((_, points)) = charts(packed).find(|(name, _)| *name == indicator.as_bytes()) else {
        return Vec::new();
    };
    let (mut from, name) = (Unpacker(points), Arc::from(indicator));
    std::iter::from_fn(|| unpack_point(&name, from.bytes()?)).collect()
}
