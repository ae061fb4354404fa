//! [`Scheduling`]: the choice of the channel for the next chunk.

/// Rule that chooses the channel for the next chunk of a replicated stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Scheduling {
    /// First come, first served: the first channel that can take one. A faster channel is chosen
    /// more often.
    #[default]
    FirstCome,
    /// All channels in turn, waiting for the next one. For channels of equal rate.
    RoundRobin,
    /// The channel with the shortest queue in time: its bytes not taken by the peer, divided by the
    /// rate at which the peer took them so far.
    Adaptive,
}

/// Load of a channel, for scheduling.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    /// Whether it can take a chunk now.
    pub(super) is_able: bool,
    pub(super) is_alive: bool,
    /// Bytes not taken by the peer's application.
    pub(super) waiting: u64,
    /// Bytes taken by it.
    pub(super) taken: u64,
}

impl Scheduling {
    /// Returns the channel for the next chunk; `None` if it must wait. `last` is the channel of the
    /// previous chunk.
    pub(super) fn choose(self, channels: &[Load], last: usize) -> Option<usize> {
        let count = channels.len();
        let mut in_turn = (1..=count).map(|step| (last + step) % count).filter(|index| channels[*index].is_alive);
        match self {
            Self::FirstCome => in_turn.find(|index| channels[*index].is_able),
            Self::RoundRobin => in_turn.next().filter(|index| channels[*index].is_able),
            // All channels have had the same time, so the bytes taken stand for the rate. Adding
            // one compares new channels by the bytes that wait.
            Self::Adaptive => in_turn.filter(|index| channels[*index].is_able).min_by(|one, other| {
                let [one, other] = [channels[*one], channels[*other]];
                let time = |of: Load, by: Load| u128::from(of.waiting) * u128::from(by.taken + 1);
                time(one, other).cmp(&time(other, one))
            }),
        }
    }
}

impl std::fmt::Display for Scheduling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::FirstCome => "first-come",
            Self::RoundRobin => "round-robin",
            Self::Adaptive => "adaptive",
        })
    }
}

impl std::str::FromStr for Scheduling {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Self::FirstCome, Self::RoundRobin, Self::Adaptive];
        let named = all.into_iter().find(|scheduling| scheduling.to_string() == text);
        named.ok_or_else(|| format!("`{text}` is none of first-come, round-robin and adaptive"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: Load = Load { is_able: true, is_alive: true, waiting: 0, taken: 0 };
    const FULL: Load = Load { is_able: false, ..FREE };
    const DEAD: Load = Load { is_able: false, is_alive: false, ..FREE };

    #[test]
    fn the_first_able_channel_after_the_last_one_is_next() {
        let choose = |channels: &[Load], last| Scheduling::FirstCome.choose(channels, last);
        assert_eq!(choose(&[FREE, FREE, FREE], 0), Some(1));
        assert_eq!(choose(&[FREE, FULL, DEAD], 0), Some(0));
        assert_eq!(choose(&[FULL, DEAD], 0), None);
    }

    #[test]
    fn in_turn_means_to_wait_for_the_next_that_is_alive() {
        let choose = |channels: &[Load], last| Scheduling::RoundRobin.choose(channels, last);
        assert_eq!(choose(&[FREE, FULL, FREE], 0), None);
        assert_eq!(choose(&[FREE, DEAD, FREE], 0), Some(2));
        assert_eq!(choose(&[DEAD, DEAD], 0), None);
    }

    #[test]
    fn the_shortest_queue_in_time_is_next() {
        let channel = |waiting, taken| Load { waiting, taken, ..FREE };
        let choose = |channels: &[Load]| Scheduling::Adaptive.choose(channels, 0);
        // 3 MB on the fast channel take as long as 1 MB on the slow one.
        assert_eq!(choose(&[channel(2_900_000, 3_000_000), channel(1_000_000, 1_000_000)]), Some(0));
        assert_eq!(choose(&[channel(3_100_000, 3_000_000), channel(1_000_000, 1_000_000)]), Some(1));
        assert_eq!(choose(&[channel(0, 9), channel(5, 900), FULL]), Some(0));
    }

    #[test]
    fn names_are_parsed() {
        for scheduling in [Scheduling::FirstCome, Scheduling::RoundRobin, Scheduling::Adaptive] {
            assert_eq!(scheduling.to_string().parse(), Ok(scheduling));
        }
        assert!("fifo".parse::<Scheduling>().is_err());
    }
}
