//! [`Slab`]: a bounded table whose entries keep their key.

/// A table of at most `len_max` values with small keys. Keys of removed values are reused.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    /// The entries. Each is boxed: its memory is freed with it, and it does not move when the table
    /// grows.
    entries: Vec<Option<Box<T>>>,
    free: Vec<u32>,
    len_max: usize,
}

impl<T> Slab<T> {
    pub(crate) fn new(len_max: usize) -> Self {
        Self { entries: Vec::new(), free: Vec::new(), len_max: len_max.min(u32::MAX as usize) }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len() >= self.len_max
    }

    /// Adds `value` and returns its key. Returns `None` if the table is full: the value is dropped.
    pub(crate) fn insert(&mut self, value: T) -> Option<u32> {
        if self.is_full() {
            return None;
        }
        let key = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() as u32 - 1
        });
        self.entries[key as usize] = Some(Box::new(value));
        Some(key)
    }

    /// Returns the values, by key.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().filter_map(|entry| entry.as_deref())
    }

    pub(crate) fn get_mut(&mut self, key: u32) -> Option<&mut T> {
        self.entries.get_mut(key as usize)?.as_deref_mut()
    }

    pub(crate) fn remove(&mut self, key: u32) -> Option<T> {
        let value = self.entries.get_mut(key as usize)?.take()?;
        self.free.push(key);
        Some(*value)
    }

    /// Returns the keys in use, ascending.
    pub(crate) fn keys(&self) -> impl Iterator<Item = u32> + '_ {
        self.entries.iter().enumerate().filter(|(_, entry)| entry.is_some()).map(|(key, _)| key as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_reused_and_the_bound_holds() {
        let mut slab = Slab::new(2);
        let (a, b) = (slab.insert('a').unwrap(), slab.insert('b').unwrap());
        assert_eq!((slab.insert('c'), slab.len(), slab.is_full()), (None, 2, true));
        assert_eq!(slab.remove(a), Some('a'));
        assert_eq!((slab.remove(a), slab.get_mut(a)), (None, None));
        assert_eq!(slab.keys().collect::<Vec<_>>(), [b]);
        assert_eq!(slab.insert('d'), Some(a));
        *slab.get_mut(b).unwrap() = 'e';
        assert_eq!((slab.get_mut(a).copied(), slab.get_mut(b).copied(), slab.len()), (Some('d'), Some('e'), 2));
    }
}
