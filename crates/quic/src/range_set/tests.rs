use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const LIMIT: u64 = 60;

#[derive(Clone, Debug)]
enum Operation {
    Insert(Range<u64>),
    InsertOne(u64),
    Remove(Range<u64>),
    RemoveBelow(u64),
    PopFront(u64),
}

fn operation() -> impl Strategy<Value = Operation> {
    let range = || (0..LIMIT, 0..12u64).prop_map(|(start, len)| start..(start + len).min(LIMIT));
    prop_oneof![
        4 => range().prop_map(Operation::Insert),
        4 => (0..LIMIT).prop_map(Operation::InsertOne),
        3 => range().prop_map(Operation::Remove),
        1 => (0..LIMIT / 2).prop_map(Operation::RemoveBelow),
        1 => (1..5u64).prop_map(Operation::PopFront),
    ]
}

/// The slow, obvious set.
fn apply(oracle: &mut BTreeSet<u64>, set: &mut RangeSet, operation: Operation) {
    match operation {
        Operation::Insert(range) => {
            set.insert(range.clone());
            oracle.extend(range);
        }
        Operation::InsertOne(value) => assert_eq!(set.insert_one(value), oracle.insert(value)),
        Operation::Remove(range) => {
            set.remove(range.clone());
            oracle.retain(|value| !range.contains(value));
        }
        Operation::RemoveBelow(floor) => {
            set.remove_below(floor);
            oracle.retain(|value| *value >= floor);
        }
        Operation::PopFront(len) => match set.pop_front(len) {
            Some(taken) => {
                assert!(taken.end - taken.start <= len);
                assert_eq!(oracle.first(), Some(&taken.start));
                taken.for_each(|value| assert!(oracle.remove(&value)));
            }
            None => assert!(oracle.is_empty()),
        },
    }
}

proptest! {
    #[test]
    fn ranges_contain_the_same_numbers_as_a_plain_set(operations in prop::collection::vec(operation(), 1..80)) {
        let (mut set, mut oracle) = (RangeSet::new(), BTreeSet::new());
        for operation in operations {
            apply(&mut oracle, &mut set, operation);
            let held: Vec<u64> = set.iter().flatten().collect();
            prop_assert_eq!(&held, &oracle.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(set.max(), oracle.last().copied());
            for pair in set.iter().collect::<Vec<_>>().windows(2) {
                prop_assert!(pair[0].end < pair[1].start, "adjacent ranges must be merged: {:?}", pair);
            }
            for value in 0..LIMIT {
                prop_assert_eq!(set.contains(value), oracle.contains(&value));
            }
            let gaps: Vec<u64> = set.gaps_in(5..LIMIT).flatten().collect();
            prop_assert_eq!(gaps, (5..LIMIT).filter(|value| !oracle.contains(value)).collect::<Vec<_>>());
        }
    }
}
