//! One value for each packet number space. Those of the handshake are freed when it is over.
//!
//! Initial and Handshake packets belong to the first round trips. Otherwise their state would stay
//! in every connection, unused.

use std::ops::{Index, IndexMut};

use wire::quic::Space;

/// The value that an absent one reads as.
pub(crate) trait Vacant: Default + 'static {
    /// Equal to the default.
    fn vacant() -> &'static Self;
}

/// Values by number space: Initial, Handshake, then the data of one path after the other. One of
/// the handshake that is absent reads as [`Vacant::vacant`] and is made when it is changed.
#[derive(Debug)]
pub(crate) struct Spaces<T> {
    /// The first path's: the only one most connections have.
    data: T,
    #[expect(clippy::box_collection, reason = "most connections have one path: the box is a word, a vector three")]
    more: Option<Box<Vec<T>>>,
    handshake: Option<Box<[T; 2]>>,
}

/// The index of the first path; the path in place `at` has the index `DATA + at`.
pub(crate) const DATA: usize = Space::Data.index();

impl<T: Vacant> Default for Spaces<T> {
    fn default() -> Self {
        Self { data: T::default(), more: None, handshake: None }
    }
}

impl<T: Vacant> Spaces<T> {
    /// The number of indices.
    pub(crate) fn count(&self) -> usize {
        Space::ALL.len() + self.more.as_ref().map_or(0, |more| more.len())
    }

    /// Adds a value for the data of another path, in the next place.
    pub(crate) fn push_path(&mut self) {
        self.more.get_or_insert_default().push(T::default());
    }

    /// Removes the value of the path in place `at`, which is not the first; those after it move up.
    pub(crate) fn remove_path(&mut self, at: usize) -> T {
        let more = self.more.as_mut().expect("the first path stays");
        let removed = more.remove(at - 1);
        if more.is_empty() {
            self.more = None;
        }
        removed
    }

    /// Discards the value of a space. Handshake is the last one (RFC 9001, section 4.9), and frees
    /// the memory.
    pub(crate) fn discard(&mut self, space: Space) {
        match (space, &mut self.handshake) {
            (Space::Initial, Some(handshake)) => handshake[0] = T::default(),
            (Space::Handshake, handshake) => *handshake = None,
            (Space::Initial, None) | (Space::Data, _) => {}
        }
    }

    /// True while Initial or Handshake may have a value.
    #[inline]
    pub(crate) fn has_handshake(&self) -> bool {
        self.handshake.is_some()
    }

    /// The values that exist, Initial first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.handshake
            .iter()
            .flat_map(|both| both.iter())
            .chain([&self.data])
            .chain(self.more.iter().flat_map(|more| more.iter()))
    }

    /// Shows the values that exist, Initial first. Cheaper than [`iter`](Self::iter), which chains
    /// four iterators.
    #[inline]
    pub(crate) fn for_each(&self, mut visit: impl FnMut(&T)) {
        if let Some(handshake) = &self.handshake {
            handshake.iter().for_each(&mut visit);
        }
        visit(&self.data);
        if let Some(more) = &self.more {
            more.iter().for_each(visit);
        }
    }

    /// The values that exist, Initial first, to be changed.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let more = self.more.iter_mut().flat_map(|more| more.iter_mut());
        self.handshake.iter_mut().flat_map(|both| both.iter_mut()).chain([&mut self.data]).chain(more)
    }
}

impl<T: Vacant> Index<usize> for Spaces<T> {
    type Output = T;

    #[inline]
    fn index(&self, index: usize) -> &T {
        match (index, &self.handshake) {
            (DATA, _) => &self.data,
            (3.., _) => &self.more.as_ref().expect("a path has its place")[index - DATA - 1],
            (index, Some(handshake)) => &handshake[index],
            (_, None) => T::vacant(),
        }
    }
}

impl<T: Vacant> IndexMut<usize> for Spaces<T> {
    #[inline]
    fn index_mut(&mut self, index: usize) -> &mut T {
        match index {
            DATA => &mut self.data,
            3.. => &mut self.more.as_mut().expect("a path has its place")[index - DATA - 1],
            index => &mut self.handshake.get_or_insert_default()[index],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Vacant for u64 {
        fn vacant() -> &'static Self {
            &0
        }
    }

    #[test]
    fn values_of_the_handshake_are_freed_with_its_last_space_and_data_stay() {
        let mut spaces = Spaces::<u64>::default();
        assert_eq!((spaces[0], spaces[1], spaces[2], spaces.iter().count()), (0, 0, 0, 1), "reading makes nothing");
        spaces.discard(Space::Initial);
        (spaces[0], spaces[1], spaces[2]) = (10, 11, 12);
        assert_eq!(spaces.iter().copied().collect::<Vec<_>>(), [10, 11, 12]);
        spaces.discard(Space::Initial);
        spaces.discard(Space::Data);
        assert_eq!(spaces.iter().copied().collect::<Vec<_>>(), [0, 11, 12]);
        spaces.discard(Space::Handshake);
        spaces.iter_mut().for_each(|value| *value += 1);
        assert_eq!((spaces[0], spaces[1], spaces[2], spaces.has_handshake()), (0, 0, 13, false));
    }

    #[test]
    fn each_path_has_a_place_and_those_after_a_removed_one_move_up() {
        let mut spaces = Spaces::<u64>::default();
        (0..3).for_each(|_| spaces.push_path());
        (2..6).for_each(|index| spaces[index] = index as u64);
        assert_eq!((spaces.count(), spaces.remove_path(2)), (6, 4));
        assert_eq!(spaces.iter().copied().collect::<Vec<_>>(), [2, 3, 5]);
        (spaces[0], spaces[1]) = (0, 1);
        let mut seen = Vec::new();
        spaces.for_each(|value| seen.push(*value));
        assert_eq!(seen, [0, 1, 2, 3, 5]);
        spaces.discard(Space::Handshake);
        spaces.remove_path(1);
        spaces.remove_path(1);
        assert_eq!((spaces.count(), spaces[2]), (3, 2));
    }
}
