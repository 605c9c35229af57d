//! The shared-timestamp table of V2 blobs (§5): metrics measured at the same moments store them once.

use std::collections::HashMap;

use crate::bytes::{Cursor, Endian};
use crate::error::Error;

/// Reads the table that fills `start..end` of the blob: for each metric, whose timestamp column is its own.
pub(crate) fn read(
    blob: &[u8],
    start: usize,
    end: usize,
    endian: Endian,
    counts: &[u32],
) -> Result<Vec<u32>, Error> {
    if end <= start {
        return Err(Error::corrupt(start, "timestamps are said to be shared, but there is no table of them"));
    }
    let mut owners: Vec<u32> = (0..counts.len() as u32).collect();
    let mut used = vec![false; counts.len()];
    let mut take = |index: u16, at: usize| -> Result<usize, Error> {
        let index = usize::from(index);
        match used.get_mut(index) {
            None => Err(Error::corrupt(
                at,
                format!("shared timestamps of metric {index}, but there are {}", counts.len()),
            )),
            Some(true) => Err(Error::corrupt(at, format!("metric {index} shares timestamps twice"))),
            Some(used) => {
                *used = true;
                Ok(index)
            }
        }
    };

    let mut cursor = Cursor::new(blob.get(..end).unwrap_or(blob), start, endian);
    let groups = cursor.u16("the shared-timestamp table")?;
    if groups == 0 {
        return Err(Error::corrupt(start, "the shared-timestamp table is empty"));
    }
    for _ in 0..groups {
        let at = cursor.at();
        let owner = take(cursor.u16("a group of shared timestamps")?, at)?;
        let members = cursor.u16("a group of shared timestamps")?;
        for _ in 0..members {
            let at = cursor.at();
            let member = take(cursor.u16("a group of shared timestamps")?, at)?;
            if counts[member] != counts[owner] {
                return Err(Error::corrupt(
                    at,
                    format!(
                        "metric {member} has {} points but shares the timestamps of metric {owner}, which has {}",
                        counts[member], counts[owner]
                    ),
                ));
            }
            owners[member] = owner as u32;
        }
    }
    match cursor.at() {
        at if at < end => {
            Err(Error::corrupt(at, format!("{} bytes follow the shared-timestamp table", end - at)))
        }
        _ => Ok(owners),
    }
}

/// Finds equal columns: for each, the first column with the same bytes.
pub(crate) fn owners(columns: &[&[u8]]) -> Vec<u32> {
    let mut first = HashMap::with_capacity(columns.len());
    columns.iter().zip(0..).map(|(&column, i)| *first.entry(column).or_insert(i)).collect()
}

/// Appends the table for `owners`. Does nothing where nothing is shared; says whether something is.
pub(crate) fn write(owners: &[u32], endian: Endian, out: &mut Vec<u8>) -> bool {
    let mut groups: Vec<(u32, Vec<u16>)> = Vec::new();
    let mut group_of = HashMap::new();
    for (&owner, i) in owners.iter().zip(0..) {
        if owner != i {
            let group = *group_of.entry(owner).or_insert_with(|| {
                groups.push((owner, Vec::new()));
                groups.len() - 1
            });
            groups[group].1.push(i as u16);
        }
    }
    if groups.is_empty() {
        return false;
    }
    // Found by their first members; listed by their owners.
    groups.sort_unstable_by_key(|(owner, _)| *owner);
    endian.put_u16(groups.len() as u16, out);
    for (owner, members) in groups {
        endian.put_u16(owner as u16, out);
        endian.put_u16(members.len() as u16, out);
        members.iter().for_each(|&member| endian.put_u16(member, out));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// §14.3: entry 0 shared by entry 2, entry 1 by entry 3.
    const WORKED: [u8; 14] = [2, 0, 0, 0, 1, 0, 2, 0, 1, 0, 1, 0, 3, 0];

    fn read_table(table: &[u8], counts: &[u32]) -> Result<Vec<u32>, Error> {
        read(table, 0, table.len(), Endian::Little, counts)
    }

    #[test]
    fn the_worked_table_reads_and_writes() {
        let owners = [0, 1, 0, 1, 4];
        assert_eq!(read_table(&WORKED, &[4; 5]).as_deref(), Ok(&owners[..]));
        let mut table = Vec::new();
        assert!(write(&owners, Endian::Little, &mut table));
        assert_eq!(table, WORKED);
    }

    #[test]
    fn groups_are_listed_by_their_owner_not_by_their_first_member() {
        let mut table = Vec::new();
        write(&[0, 1, 1, 0], Endian::Little, &mut table);
        assert_eq!(table, [2, 0, 0, 0, 1, 0, 3, 0, 1, 0, 1, 0, 2, 0]);
    }

    #[test]
    fn nothing_shared_writes_nothing() {
        let mut table = Vec::new();
        assert!(!write(&[0, 1, 2], Endian::Little, &mut table));
        assert_eq!(table, []);
    }

    #[track_caller]
    fn refused(change: impl FnOnce(&mut Vec<u8>, &mut Vec<u32>), why: &str) {
        let (mut table, mut counts) = (WORKED.to_vec(), vec![4; 5]);
        change(&mut table, &mut counts);
        let error = read_table(&table, &counts).expect_err("a broken table");
        assert!(error.to_string().contains(why), "{error}");
    }

    #[test]
    fn every_violation_of_the_table_is_refused() {
        refused(|table, _| table.truncate(0), "no table");
        refused(|table, _| table.truncate(1), "needs 2 bytes");
        refused(|table, _| table.truncate(13), "needs 2 bytes");
        refused(|table, _| table[0] = 0, "is empty");
        refused(|table, _| table[2] = 5, "of metric 5, but there are 5");
        refused(|table, _| table[8] = 0, "metric 0 shares timestamps twice");
        refused(|table, _| table[8] = 2, "metric 2 shares timestamps twice");
        refused(|table, _| table[6] = 0, "metric 0 shares timestamps twice");
        refused(|table, _| table[12] = 2, "metric 2 shares timestamps twice");
        refused(|table, _| table.push(0), "1 bytes follow");
        refused(|_, counts| counts[3] = 5, "metric 3 has 5 points");
    }
}
