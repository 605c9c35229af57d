//! A table with one row for each partition, which grows on demand.

/// One value for each partition.
#[derive(Debug)]
pub(crate) struct PerPartition<T>(Vec<T>);

impl<T> Default for PerPartition<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Default> PerPartition<T> {
    /// Returns the value of a partition, and creates it first if necessary.
    pub(crate) fn at(&mut self, partition: u32) -> &mut T {
        let index = partition as usize;
        if self.0.len() <= index {
            self.0.resize_with(index + 1, T::default);
        }
        &mut self.0[index]
    }

    /// Returns the value of a partition, if it has one.
    pub(crate) fn get(&self, partition: u32) -> Option<&T> {
        self.0.get(partition as usize)
    }

    /// Returns every partition with its value, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..).zip(&self.0)
    }

    /// Returns every partition with its value, in order, to change it.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        (0..).zip(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_created_on_demand() {
        let mut table: PerPartition<u32> = PerPartition::default();
        assert_eq!(table.get(2), None);
        *table.at(2) += 7;
        assert_eq!(table.iter().collect::<Vec<_>>(), [(0, &0), (1, &0), (2, &7)]);
    }
}
