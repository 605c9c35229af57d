//! Index entries as they are written (§3).

use crate::bytes::Endian;

/// An index entry as it is written: offsets are the lengths of the columns before.
pub(super) struct IndexEntry {
    pub(super) id: u64,
    pub(super) count: u32,
    pub(super) timestamps: u32,
    pub(super) values: u32,
    pub(super) tags: u32,
}

impl IndexEntry {
    fn fields(&self) -> [u32; 4] {
        [self.count, self.timestamps, self.values, self.tags]
    }

    pub(super) fn is_compact(&self) -> bool {
        self.fields().iter().all(|&field| field <= u16::MAX.into())
    }

    pub(super) fn write(&self, extended: bool, endian: Endian, out: &mut Vec<u8>) {
        endian.put_u64(self.id, out);
        for field in self.fields() {
            if extended {
                endian.put_u32(field, out);
            } else {
                endian.put_u16(field as u16, out);
            }
        }
        if extended {
            endian.put_u64(0, out);
        }
    }
}
