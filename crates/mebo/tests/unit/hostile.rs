//! A bounded fuzz run that is always on: mutated blobs never panic, and never allocate more than their bytes justify.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use crate::common::all_blobs;
use phalanx_mebo::{Blob, Error, Limits, ReadOptions};

/// Counts what the current thread has allocated, and the most it had at once.
struct Counting;

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(change: isize) {
    let live = LIVE.get() + change;
    LIVE.set(live);
    PEAK.set(PEAK.get().max(live));
}

#[allow(unsafe_code, reason = "an allocator cannot be written without; this one only counts and passes on")]
// SAFETY: every call goes to the system's allocator unchanged, and its result is handed back unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most that was allocated at once while `work` ran.
fn peak_of(work: impl FnOnce()) -> usize {
    let before = LIVE.get();
    PEAK.set(before);
    work();
    (PEAK.get() - before) as usize
}

const LIMITS: Limits = Limits { decompressed_bytes: 1 << 20, points_per_metric: 1 << 16 };

/// What reading a blob may cost.
///
/// Of the blob itself: 40 bytes for an index entry of 16 and tables beside it, and one metric's points, 32 bytes for each
/// byte of timestamps. Of what is compressed: up to three payloads that a decompressor makes room for, the points that are
/// in them, and its own state.
fn justified(bytes: &[u8]) -> usize {
    let plain = 48 * bytes.len() + (4 << 10);
    let tagged_or_text = bytes.first().is_some_and(|flags| flags & 1 == 1) || bytes.get(1) == Some(&0xEB);
    if !tagged_or_text && bytes.get(3) == Some(&0x11) {
        return plain;
    }
    let payloads = LIMITS.decompressed_bytes.min((128 << 10) * (1 + bytes.len() / 64));
    plain + 3 * payloads + 32 * payloads.min(LIMITS.points_per_metric as usize) + (256 << 10)
}

fn read_everything(bytes: &[u8], repair_legacy: bool) -> Result<usize, Error> {
    let options = ReadOptions { limits: LIMITS, repair_legacy };
    let mut points = 0;
    match Blob::open_with(bytes, options)? {
        Blob::Numeric(blob) => {
            let (mut timestamps, mut values) = (Vec::new(), Vec::new());
            for metric in blob.metrics() {
                timestamps.clear();
                values.clear();
                let mut tags = Vec::new();
                metric.decode_into(&mut timestamps, &mut values)?;
                metric.tags_into(&mut tags)?;
                points += metric.points()?.filter(Result::is_ok).count();
                assert_eq!(blob.find(metric.id()).map(|found| found.id()), Some(metric.id()));
                if !metric.is_empty() {
                    metric.point(metric.len() / 2)?;
                }
            }
        }
        Blob::Text(blob) => {
            for metric in blob.metrics() {
                for point in metric.points()? {
                    point?;
                    points += 1;
                }
            }
        }
    }
    Ok(points)
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() >> 11) as usize % bound.max(1)
    }
}

/// One to four changes, each of a kind that parsers are known to fall over.
fn mutate(bytes: &mut Vec<u8>, donor: &[u8], random: &mut Random) {
    for _ in 0..=random.below(4) {
        if bytes.is_empty() {
            return;
        }
        // The header and the index decide most; payloads are larger but duller.
        let reach = if random.below(2) == 0 { bytes.len().min(160) } else { bytes.len() };
        let at = random.below(reach);
        match random.below(8) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.next() as u8,
            2 => bytes[at] = [0, 0xFF, 0x7F, 0x80][random.below(4)],
            3 => {
                let value = [u32::MAX, 0, 1, 0x7FFF_FFFF, bytes.len() as u32][random.below(5)];
                let end = (at + 4).min(bytes.len());
                bytes[at..end].copy_from_slice(&value.to_le_bytes()[..end - at]);
            }
            4 => bytes.truncate(at),
            5 => {
                let (from, to) = (random.below(donor.len()), random.below(donor.len()));
                let part = &donor[from.min(to)..from.max(to).min(from.min(to) + 64)];
                bytes.splice(at..at, part.iter().copied());
            }
            6 => {
                let end = (at + random.below(32)).min(bytes.len());
                bytes.drain(at..end);
            }
            _ => {
                let len = random.below(16).min(donor.len()).min(bytes.len() - at);
                let from = random.below(donor.len() - len + 1);
                bytes[at..at + len].copy_from_slice(&donor[from..from + len]);
            }
        }
    }
}

#[test]
fn no_mutation_panics_or_allocates_more_than_it_justifies() {
    const MUTATIONS: usize = 400_000;
    // Large blobs say nothing new and take their time.
    let blobs: Vec<(String, Vec<u8>)> =
        all_blobs().into_iter().filter(|(_, blob)| blob.len() < 40_000).collect();
    let (mut refused, mut points, mut costliest) = (0, 0, 0.0f64);
    for seed in 0..MUTATIONS {
        let mut random = Random((seed as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let (name, blob) = &blobs[seed % blobs.len()];
        let mut bytes = blob.clone();
        let donor = &blobs[random.below(blobs.len())].1;
        mutate(&mut bytes, donor, &mut random);
        let mut result = Ok(0);
        let peak = peak_of(|| result = read_everything(&bytes, seed % 2 == 0));
        let justified = justified(&bytes);
        assert!(peak <= justified, "{name}, seed {seed}: {peak} bytes at once for a blob of {}", bytes.len());
        costliest = costliest.max(peak as f64 / justified as f64);
        match result {
            Ok(read) => points += read,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                refused += 1;
            }
        }
    }
    // Mutations that refuse everything, or nothing, would test nothing.
    assert!(refused > MUTATIONS / 10 && refused < MUTATIONS, "{refused} refused");
    assert!(points > MUTATIONS, "{points} points read");
    println!(
        "measured: {MUTATIONS} mutations of {} blobs, {refused} refused, at most {:.0} % of the memory they justify",
        blobs.len(),
        costliest * 100.0
    );
}

/// Two bytes of index and an empty column of timestamps cannot vouch for four billion equal values.
#[test]
fn an_alp_column_of_width_zero_allocates_no_more_than_its_timestamps_vouch_for() {
    let mut bytes = vec![0x30, 0xEA, 0x62, 0x11];
    bytes.extend(0u64.to_le_bytes());
    for field in [1u32, 32, 64, 65, 81] {
        bytes.extend(field.to_le_bytes());
    }
    bytes.extend(7u64.to_le_bytes());
    bytes.extend(u32::MAX.to_le_bytes());
    bytes.extend([0; 20]);
    bytes.push(0);
    bytes.extend([0; 16]);
    let unlimited = Limits { points_per_metric: u32::MAX, ..Limits::default() };
    let peak = peak_of(|| {
        let options = ReadOptions { limits: unlimited, repair_legacy: false };
        let error = Blob::open_with(&bytes, options).expect_err("one byte of timestamps");
        assert_eq!(error.kind(), phalanx_mebo::ErrorKind::Truncated, "{error}");
        let error = Blob::open(&bytes).expect_err("four billion points");
        assert_eq!(error.kind(), phalanx_mebo::ErrorKind::TooLarge, "{error}");
    });
    assert!(peak < 4096, "{peak} bytes");
}
