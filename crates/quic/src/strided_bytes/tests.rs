use proptest::prelude::*;

use super::*;

/// A buffer in which every byte encodes its position, and the bytes that `layout` selects from it.
fn selected(layout: &Layout) -> (Bytes, Vec<u8>) {
    let end = layout.start + layout.step * layout.count.max(1) + layout.len;
    let buffer: Vec<u8> = (0..end).map(|index| (index ^ (index >> 8)) as u8).collect();
    let bytes = (0..layout.count).flat_map(|index| &buffer[layout.start + index * layout.step..][..layout.len]);
    let bytes = bytes.copied().collect();
    (buffer.into(), bytes)
}

proptest! {
    #[test]
    fn however_it_is_cut_the_bytes_are_the_same(
        (start, len, gap, count) in (0..50usize, 1..40usize, 0..30usize, 0..12usize),
        cuts in prop::collection::vec((0..5u8, 0..100usize), 0..30),
    ) {
        let layout = Layout { start, step: len + gap, len, count };
        let (buffer, expected) = selected(&layout);
        let mut strided = StridedBytes::new(buffer, &layout);
        let mut taken: Vec<u8> = Vec::new();
        for (kind, want) in cuts {
            let want = want.min(strided.len());
            match kind {
                0 => taken.extend(strided.split_to(want).pieces().flatten()),
                1 => taken.extend(strided.next_piece().unwrap_or_default()),
                2 => taken.extend(&strided.split_to(want).to_bytes()),
                3 => {
                    let mut out = vec![0; want];
                    prop_assert_eq!(strided.copy_to(&mut out), want);
                    taken.extend(out);
                }
                _ => {
                    taken.extend(strided.to_bytes().slice(..want));
                    strided.advance(want);
                }
            }
            prop_assert_eq!(taken.len() + strided.len(), expected.len());
            prop_assert_eq!(strided.front(), strided.pieces().next().unwrap_or_default());
        }
        taken.extend(strided.to_bytes());
        prop_assert_eq!(taken, expected);
    }
}

#[test]
fn layouts_grow_by_pieces_of_the_same_length_at_the_same_distance() {
    let mut layout = Layout::single(10..30);
    assert!(layout.extend(&Layout::single(40..60)));
    assert!(layout.extend(&Layout::single(70..90)));
    assert_eq!(layout, Layout { start: 10, step: 30, len: 20, count: 3 });
    assert!(!layout.extend(&Layout::single(101..121)), "another distance");
    assert!(!layout.extend(&Layout::single(100..119)), "another length");
    assert_eq!(layout.piece(2), Layout { start: 70, step: 30, len: 20, count: 1 });
}

#[test]
fn one_piece_is_not_copied() {
    let whole = Bytes::from(vec![7; 100]);
    let mut strided = StridedBytes::from(whole.clone());
    strided.advance(10);
    assert_eq!(strided.to_bytes().as_ptr(), whole[10..].as_ptr());
    assert_eq!(strided, StridedBytes::from(Bytes::from(vec![7; 90])));
    assert!(StridedBytes::from(Bytes::new()).next_piece().is_none());
}
