//! A table of UDP flows. A flow without packets for the idle time is removed; if the table is full,
//! the flow that has been idle longest is evicted for a new one.

use std::collections::BTreeMap;

use units::{Duration, Instant};

/// Flows by their key.
#[derive(Debug)]
pub struct Flows<K, V> {
    flows: BTreeMap<K, Flow<V>>,
    idle_time: Duration,
    count_max: usize,
}

#[derive(Debug)]
struct Flow<V> {
    value: V,
    used_at: Instant,
}

impl<K: Ord + Clone, V> Flows<K, V> {
    /// Creates an empty table of at most `count_max` flows.
    ///
    /// # Panics
    /// Panics if `count_max` is 0.
    pub fn new(idle_time: Duration, count_max: usize) -> Self {
        assert!(count_max > 0, "a table without flows");
        Self { flows: BTreeMap::new(), idle_time, count_max }
    }

    /// Adds a flow, replacing one with the same key. Returns the evicted flow.
    #[must_use = "a flow that made way has to be ended"]
    pub fn insert(&mut self, now: Instant, key: K, value: V) -> Option<V> {
        let replaced = self.flows.insert(key.clone(), Flow { value, used_at: now });
        if replaced.is_some() || self.flows.len() <= self.count_max {
            return replaced.map(|flow| flow.value);
        }
        let others = self.flows.iter().filter(|(other, _)| **other != key);
        let oldest = others.min_by_key(|(_, flow)| flow.used_at).map(|(other, _)| other.clone());
        oldest.and_then(|oldest| self.remove(&oldest))
    }

    /// Returns the flow with this key, and records a packet of it now.
    pub fn use_now(&mut self, now: Instant, key: &K) -> Option<&V> {
        let flow = self.flows.get_mut(key)?;
        flow.used_at = now;
        Some(&flow.value)
    }

    /// Removes the flow with this key.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        self.flows.remove(key).map(|flow| flow.value)
    }

    /// Removes and returns the flows that have been idle too long.
    #[must_use = "these flows have to be ended"]
    pub fn poll_idle(&mut self, now: Instant) -> Vec<V> {
        let is_idle = |flow: &Flow<V>| now.saturating_since(flow.used_at) >= self.idle_time;
        let idle: Vec<K> = self.flows.iter().filter(|(_, flow)| is_idle(flow)).map(|(key, _)| key.clone()).collect();
        idle.iter().filter_map(|key| self.remove(key)).collect()
    }

    /// Returns the number of flows.
    pub fn len(&self) -> usize {
        self.flows.len()
    }

    /// Returns whether there is no flow.
    pub fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    fn flows(count_max: usize) -> Flows<u64, &'static str> {
        Flows::new(Duration::from_secs(10), count_max)
    }

    #[test]
    fn a_flow_without_packets_ends() {
        let mut flows = flows(10);
        assert_eq!(flows.insert(at(0), 1, "one"), None);
        assert_eq!(flows.insert(at(5), 2, "two"), None);
        assert!(flows.poll_idle(at(9)).is_empty());
        assert_eq!(flows.use_now(at(9), &1), Some(&"one"));
        assert_eq!(flows.poll_idle(at(15)), ["two"]);
        assert_eq!(flows.use_now(at(16), &2), None);
        assert_eq!(flows.poll_idle(at(19)), ["one"]);
        assert!(flows.is_empty());
    }

    #[test]
    fn the_longest_idle_flow_makes_way() {
        let mut flows = flows(2);
        assert_eq!(flows.insert(at(0), 1, "one"), None);
        assert_eq!(flows.insert(at(1), 2, "two"), None);
        assert_eq!(flows.use_now(at(2), &1), Some(&"one"));
        assert_eq!(flows.insert(at(3), 3, "three"), Some("two"));
        assert_eq!(flows.insert(at(4), 3, "again"), Some("three"));
        assert_eq!(flows.len(), 2);
        // A new flow never evicts itself, whatever the clock says.
        assert_eq!(flows.insert(at(0), 4, "four"), Some("one"));
        assert_eq!(flows.use_now(at(5), &4), Some(&"four"));
    }

    #[test]
    fn thousands_of_flows_stay_within_the_bound() {
        let mut flows = Flows::new(Duration::from_secs(10), 100);
        let made_way = (0..5000_u64).filter(|key| flows.insert(at(*key / 1000), *key, *key).is_some()).count();
        assert_eq!((made_way, flows.len()), (4900, 100));
    }
}
