//! The eligible paths, before they are compared.

use units::Instant;

use crate::scheduler::{BATCH_DATAGRAMS, PATHS_MAX};
use crate::view::PathView;

/// Returns the eligible paths as bits by index.
///
/// Returns the available paths that are not suspect. If there are none, returns backup paths that
/// are not suspect, so that all paths count as available if every path is a backup. If every path
/// is suspect, returns the one with the lowest smoothed round-trip time, preferably one that can
/// send a datagram now.
pub(crate) fn candidates(now: Instant, paths: &[PathView]) -> u32 {
    let (mut available, mut backup) = (0u32, 0u32);
    for (index, path) in paths.iter().enumerate().take(PATHS_MAX) {
        let bit = u32::from(!path.is_suspect) << index;
        if path.is_backup { backup |= bit } else { available |= bit }
    }
    if available != 0 {
        available
    } else if backup != 0 {
        backup
    } else {
        best_suspect(now, paths)
    }
}

fn best_suspect(now: Instant, paths: &[PathView]) -> u32 {
    let known = paths.iter().enumerate().take(PATHS_MAX);
    let least = known.min_by_key(|(_, path)| (!path.permits_datagram(now), path.srtt));
    least.map_or(0, |(index, _)| 1 << index)
}

/// Returns the indices of the set bits, in ascending order.
pub(crate) fn bits(mut mask: u32) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let index = mask.trailing_zeros();
        mask &= mask.wrapping_sub(1);
        (index < u32::BITS).then_some(index as usize)
    })
}

/// Returns the earliest time at which the pacer of one of these paths permits a datagram, for paths
/// that only the pacer blocks.
pub(crate) fn next_release(now: Instant, paths: &[PathView], mask: u32) -> Option<Instant> {
    let held = bits(mask).filter_map(|index| paths.get(index)).filter(|path| {
        path.accepts_datagrams && path.release_at > now && path.available_window() >= path.datagram_bytes
    });
    held.map(|path| path.release_at).min()
}

/// Returns the part of `bytes` that `path` may send: at most its window, in whole datagrams, and at
/// least one datagram.
pub(crate) fn sendable_bytes(path: &PathView, bytes: u64) -> u64 {
    let datagram_bytes = path.datagram_bytes.max(1);
    (bytes.min(path.available_window()) / datagram_bytes * datagram_bytes).max(datagram_bytes)
}

/// Returns a full batch of datagrams on `path`.
pub(crate) const fn batch_bytes(path: &PathView) -> u64 {
    path.datagram_bytes.saturating_mul(BATCH_DATAGRAMS)
}
