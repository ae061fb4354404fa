//! Which paths are in question at all, before any of them is compared with another.

use units::Instant;

use crate::{PATHS_MAX, PathView};

/// The paths in question, as bits by index.
///
/// Available paths that are not suspect; if there are none, backup paths that are not suspect (so if every path is a
/// backup, all count as available); if every path is suspect, the one of the lowest smoothed round trip time, because a
/// doubtful path is better than none: preferably one with room for a datagram now.
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
        least_doubtful(now, paths)
    }
}

fn least_doubtful(now: Instant, paths: &[PathView]) -> u32 {
    let known = paths.iter().enumerate().take(PATHS_MAX);
    let least = known.min_by_key(|(_, path)| (!path.has_room_for_datagram(now), path.srtt));
    least.map_or(0, |(index, _)| 1 << index)
}

/// The indices whose bits are set, lowest first.
pub(crate) fn bits(mut mask: u32) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let index = mask.trailing_zeros();
        mask &= mask.wrapping_sub(1);
        (index < u32::BITS).then_some(index as usize)
    })
}

/// When the first of these paths will be let go by its pacer, of those that nothing else holds back.
pub(crate) fn next_release(now: Instant, paths: &[PathView], mask: u32) -> Option<Instant> {
    let held = bits(mask)
        .filter_map(|index| paths.get(index))
        .filter(|path| path.has_room && path.release_at > now && path.window_room() >= path.datagram_bytes);
    held.map(|path| path.release_at).min()
}

/// The most that `path` takes of `bytes`: no more than its window, in whole datagrams, and never less than one.
pub(crate) fn allowance(path: &PathView, bytes: u64) -> u64 {
    let datagram_bytes = path.datagram_bytes.max(1);
    (bytes.min(path.window_room()) / datagram_bytes * datagram_bytes).max(datagram_bytes)
}

/// A full batch of `path`'s datagrams.
pub(crate) const fn batch_bytes(path: &PathView) -> u64 {
    path.datagram_bytes.saturating_mul(crate::BATCH_DATAGRAMS)
}
