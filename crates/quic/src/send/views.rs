//! The view of the paths from which the scheduler chooses.

use scheduler::PathView;

/// The paths from which the scheduler chooses, and their indices. The allocation is reused from
/// plan to plan.
#[derive(Debug, Default)]
pub(crate) struct Views {
    pub(super) views: Vec<PathView>,
    pub(super) path_indices: Vec<usize>,
}

impl Views {
    pub(super) fn clear(&mut self) {
        self.views.clear();
        self.path_indices.clear();
    }

    pub(super) fn push(&mut self, at: usize, view: PathView) {
        self.views.push(view);
        self.path_indices.push(at);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &PathView)> {
        self.path_indices.iter().copied().zip(&self.views)
    }
}
