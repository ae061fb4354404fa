use proptest::prelude::*;
use units::Rng;

use super::*;

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Rng::from_seed(seed).fill(&mut bytes);
    bytes
}

fn root_by_segments(content: &[u8], base_log2: u8, order: impl Iterator<Item = u32>) -> Option<FileHash> {
    let layout = Layout::new(content.len() as u64, base_log2).unwrap();
    let mut tree = HashTree::new(layout);
    for segment in order {
        let (offset, len) = layout.range(segment);
        let mut hasher = layout.hasher(segment);
        for piece in content[offset as usize..(offset + len) as usize].chunks(777) {
            hasher.update(piece);
        }
        tree.insert(segment, hasher.finish());
    }
    tree.root()
}

#[test]
fn the_root_is_blake3_of_the_content_for_every_shape_of_tree() {
    for len in [0, 1, 1023, 1024, 1025, 2047, 2048, 2049, 3072, 4097, 7 * 1024, 8 * 1024, 8 * 1024 + 1, 65_537] {
        let content = bytes(len as u64, len);
        let expected = FileHash(*blake3::hash(&content).as_bytes());
        for base_log2 in [10, 11, 12, 16, 22] {
            let count = Layout::new(len as u64, base_log2).unwrap().count();
            assert_eq!(root_by_segments(&content, base_log2, 0..count), Some(expected), "{len} bytes by 2^{base_log2}");
            assert_eq!(root_by_segments(&content, base_log2, (0..count).rev()), Some(expected));
            if count > 0 {
                assert_eq!(root_by_segments(&content, base_log2, 1..count), None, "a segment is missing");
            }
        }
    }
}

#[test]
fn the_hash_is_displayed_as_b3sum_prints_it() {
    // The first vector of BLAKE3's own test vectors: no input.
    let empty = root_by_segments(&[], 22, 0..0).unwrap();
    assert_eq!(empty.to_string(), "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262");
}

#[test]
fn no_file_has_more_segments_than_the_bound() {
    for (size, log2) in [(1 << 38, 22), ((1 << 38) + 1, 23), (1 << 40, 24), (u64::MAX, 48)] {
        let layout = Layout::new(size, BASE_LOG2_DEFAULT).unwrap();
        assert_eq!(layout.log2, log2, "{size}");
        assert!(layout.count() <= SEGMENTS_MAX);
        let (offset, len) = layout.range(layout.count() - 1);
        assert_eq!(offset + len, size, "the last segment ends the file");
    }
    assert!(Layout::new(1, 9).is_none() && Layout::new(1, 31).is_none());
}

#[test]
fn a_set_on_the_wire_contains_only_segments_of_the_file() {
    assert!(SegmentSet::from_bytes(&[0b0000_0111], 3).is_some());
    assert!(SegmentSet::from_bytes(&[0b0000_1111], 3).is_none());
    assert!(SegmentSet::from_bytes(&[1, 0], 8).is_none(), "longer than the file");
    assert!(SegmentSet::from_bytes(&[1], 0).is_none());
}

proptest! {
    #[test]
    fn a_set_is_a_set(segments in prop::collection::btree_set(0..500_u32, 0..50)) {
        let mut set = SegmentSet::default();
        for segment in &segments {
            prop_assert!(set.insert(*segment));
            prop_assert!(!set.insert(*segment));
        }
        prop_assert_eq!(set.iter().collect::<Vec<_>>(), segments.iter().copied().collect::<Vec<_>>());
        let read = SegmentSet::from_bytes(set.as_bytes(), 500).unwrap();
        prop_assert_eq!(read.as_bytes(), set.as_bytes());
        prop_assert_eq!(set.len() as usize, segments.len());
    }
}
