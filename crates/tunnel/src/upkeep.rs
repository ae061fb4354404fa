//! Settings of a host that are to stay as they were made, although other programs remove them: decides what is
//! made again, when, and what the user is told.
//!
//! Network managers remove rules and routes that they do not know, and a link that goes down loses its
//! routes. A setting that is missing is made again at once. If that fails, it is tried again with growing
//! pauses, and told. If it is removed again and again, that is told, too, and it is still made again.

use units::{Duration, Instant};

/// The first pause after a failure, and after a setting was made again: two programs that undo each other's
/// changes leave the processor to others meanwhile. It is well below the 200 ms within which a setting is back.
const PAUSE_FIRST: Duration = Duration::from_millis(50);

/// The longest pause: a failure that lasts costs an attempt in this time.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// A failure is told after so many attempts in succession, 150 ms after the first one: what is missing for a moment,
/// because its device changes, is not.
const ATTEMPTS_UNTOLD_MAX: u32 = 2;

/// A setting that was made again so often, without a pause of [`CONTEST_PAUSE`], is removed by a program that means it.
const RESTORES_UNTOLD_MAX: u32 = 10;

/// A setting that has stayed so long is not contested.
const CONTEST_PAUSE: Duration = Duration::from_secs(10);

/// A setting as it is on the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Presence {
    /// It is there.
    Present,
    /// It is not.
    Missing,
    /// It cannot be, because what it belongs to is gone, as a device is that is made again. It is not missed.
    Impossible,
}

/// Something that the user is told of a setting.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// It is missing and cannot be made again, for this reason.
    Missing(String),
    /// It is there again, after it was told that it is missing.
    Back,
    /// It was told that it is missing, and cannot be there any more: what it belongs to is gone.
    Impossible,
    /// Another program removes it again and again.
    Contested,
}

/// The settings that are to be there. They are made in their own order: a device comes before its routes.
#[derive(Clone, Debug)]
pub struct Upkeep<S> {
    entries: Vec<Entry<S>>,
}

#[derive(Clone, Debug)]
struct Entry<S> {
    setting: S,
    /// Attempts that have failed, in succession.
    failures: u32,
    /// How often it was made again without a long pause, and when it was last.
    restores: u32,
    restored: Instant,
    /// Not before this is it tried again.
    due: Instant,
    /// It is to be looked at again then, whatever happens before.
    is_awaited: bool,
    /// Why it is missing, once that was told.
    told: Option<String>,
}

impl<S> Default for Upkeep<S> {
    fn default() -> Self {
        Self { entries: Vec::new() }
    }
}

impl<S: Clone + Ord> Upkeep<S> {
    /// Keeps a setting that was made at `now`, from now on.
    pub fn keep(&mut self, setting: S, now: Instant) {
        if !self.settings().any(|kept| *kept == setting) {
            let (failures, restores, restored, due, is_awaited) = (0, 0, now, now, false);
            self.entries.push(Entry { setting, failures, restores, restored, due, is_awaited, told: None });
        }
    }

    /// Keeps only the settings for which `stays` is true.
    pub fn retain(&mut self, stays: impl Fn(&S) -> bool) {
        self.entries.retain(|entry| stays(&entry.setting));
    }

    /// The settings.
    pub fn settings(&self) -> impl Iterator<Item = &S> {
        self.entries.iter().map(|entry| &entry.setting)
    }

    /// The settings that are told to be missing, with the reasons.
    pub fn missing(&self) -> impl Iterator<Item = (&S, &str)> {
        self.entries.iter().filter_map(|entry| Some((&entry.setting, entry.told.as_deref()?)))
    }

    /// The settings to make now, in order, and what is to be told of those that are there.
    pub fn look(&mut self, now: Instant, presence: impl Fn(&S) -> Presence) -> (Vec<S>, Vec<(S, Notice)>) {
        let (mut due, mut notices) = (Vec::new(), Vec::new());
        for entry in &mut self.entries {
            let presence = presence(&entry.setting);
            entry.is_awaited = presence == Presence::Missing;
            match presence {
                Presence::Missing if now >= entry.due => due.push(entry.setting.clone()),
                Presence::Missing => {}
                Presence::Present | Presence::Impossible => {
                    entry.failures = 0;
                    let notice = if presence == Presence::Present { Notice::Back } else { Notice::Impossible };
                    notices.extend(entry.told.take().map(|_| (entry.setting.clone(), notice)));
                }
            }
        }
        due.sort();
        (due, notices)
    }

    /// Takes the outcome of making a setting that [`look`](Self::look) has named. Returns what is to be told.
    pub fn handle_outcome(&mut self, now: Instant, setting: &S, outcome: Result<(), String>) -> Option<Notice> {
        let entry = self.entries.iter_mut().find(|entry| entry.setting == *setting)?;
        entry.is_awaited = true;
        match outcome {
            Ok(()) => {
                entry.failures = 0;
                let is_apart = now.saturating_since(entry.restored) >= CONTEST_PAUSE;
                entry.restores = if is_apart { 1 } else { entry.restores.saturating_add(1) };
                (entry.restored, entry.due) = (now, now + PAUSE_FIRST);
                if entry.told.take().is_some() {
                    return Some(Notice::Back);
                }
                (entry.restores == RESTORES_UNTOLD_MAX).then_some(Notice::Contested)
            }
            Err(why) => {
                let pause = PAUSE_FIRST.saturating_mul(1 << entry.failures.min(16));
                entry.failures = entry.failures.saturating_add(1);
                entry.due = now + pause.min(PAUSE_MAX);
                if entry.failures <= ATTEMPTS_UNTOLD_MAX || entry.told.is_some() {
                    return None;
                }
                entry.told = Some(why.clone());
                Some(Notice::Missing(why))
            }
        }
    }

    /// When to look again, if nothing changes before. That time may have come since the last [look](Self::look), which
    /// takes some time itself: then it is now.
    #[must_use]
    pub fn next_look(&self) -> Option<Instant> {
        self.entries.iter().filter(|entry| entry.is_awaited).map(|entry| entry.due).min()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    fn kept(settings: &[u8]) -> Upkeep<u8> {
        let mut upkeep = Upkeep::default();
        settings.iter().for_each(|setting| upkeep.keep(*setting, at(0)));
        upkeep
    }

    #[test]
    fn a_failure_that_lasts_is_told_once_within_200_ms_and_its_end_too() {
        let mut upkeep = kept(&[1]);
        let (mut now, mut told) = (at(1000), Vec::new());
        while now < at(20_000) {
            let (due, notices) = upkeep.look(now, |_| Presence::Missing);
            assert!(notices.is_empty());
            for setting in due {
                let notice = upkeep.handle_outcome(now, &setting, Err("no".to_owned()));
                told.extend(notice.map(|notice| (now, notice)));
            }
            now = upkeep.next_look().expect("it is missing");
        }
        assert_eq!(told, [(at(1150), Notice::Missing("no".to_owned()))]);
        assert_eq!(upkeep.missing().collect::<Vec<_>>(), [(&1, "no")]);
        assert_eq!(upkeep.look(now, |_| Presence::Present), (vec![], vec![(1, Notice::Back)]));
        assert_eq!((upkeep.missing().count(), upkeep.next_look()), (0, None));
    }

    #[test]
    fn what_is_missing_and_whose_device_goes_is_not_told_to_be_back() {
        let mut upkeep = kept(&[1]);
        for attempt in 0..3 {
            let now = at(1000 * (attempt + 1));
            assert_eq!(upkeep.look(now, |_| Presence::Missing), (vec![1], vec![]));
            let told = upkeep.handle_outcome(now, &1, Err("no".to_owned()));
            assert_eq!(told.is_some(), attempt == 2);
        }
        assert_eq!(upkeep.look(at(4000), |_| Presence::Impossible), (vec![], vec![(1, Notice::Impossible)]));
        assert_eq!(upkeep.missing().count(), 0);
        // It is told once, and what comes with a new device is no news.
        assert_eq!(upkeep.look(at(5000), |_| Presence::Impossible), (vec![], vec![]));
        assert_eq!(upkeep.look(at(6000), |_| Presence::Present), (vec![], vec![]));
    }

    #[test]
    fn what_is_removed_again_at_once_is_looked_at_again() {
        let mut upkeep = kept(&[1]);
        assert_eq!(upkeep.look(at(1000), |_| Presence::Missing).0, [1]);
        assert_eq!(upkeep.handle_outcome(at(1000), &1, Ok(())), None);
        assert!(upkeep.look(at(1049), |_| Presence::Missing).0.is_empty());
        // Whenever it is asked: the look may have taken until after that.
        assert_eq!(upkeep.next_look(), Some(at(1050)));
        assert_eq!(upkeep.look(at(1060), |_| Presence::Missing).0, [1]);
    }

    #[test]
    fn a_program_that_does_not_give_up_is_told_once_and_gets_no_more_than_a_share_of_the_processor() {
        let mut upkeep = kept(&[1]);
        let (mut made, mut told) = (0, Vec::new());
        for ms in 1000..6000 {
            // It is removed as soon as it is there.
            for setting in upkeep.look(at(ms), |_| Presence::Missing).0 {
                made += 1;
                told.extend(upkeep.handle_outcome(at(ms), &setting, Ok(())));
            }
        }
        assert_eq!((made, told), (100, vec![Notice::Contested]));
    }

    proptest! {
        /// A host on which another program removes and adds settings, and devices come and go.
        #[test]
        fn what_can_be_there_is_back_within_200_ms_and_nothing_else_is_touched(
            steps in proptest::collection::vec((0..12_u8, 0..120_u64, any::<bool>(), any::<bool>()), 1..200),
        ) {
            let wanted = [3, 1, 4, 5, 9];
            let mut upkeep = kept(&wanted);
            let mut host: BTreeSet<u8> = wanted.into_iter().collect();
            let mut gone = BTreeSet::new();
            let mut now = at(0);
            let mut missing_since = [None; 12];
            for (setting, pause_ms, removes, is_of_device) in steps {
                let end = now + Duration::from_millis(pause_ms);
                match (removes, is_of_device) {
                    (true, false) => drop(host.remove(&setting)),
                    (false, false) => drop(host.insert(setting)),
                    (true, true) => { gone.insert(setting); host.remove(&setting); }
                    (false, true) => drop(gone.remove(&setting)),
                }
                // The change is seen at once, and later looks are made when they are due.
                loop {
                    let before = host.clone();
                    let presence = |of: &u8| if gone.contains(of) { Presence::Impossible }
                        else if host.contains(of) { Presence::Present } else { Presence::Missing };
                    let (due, _) = upkeep.look(now, presence);
                    prop_assert!(due.is_sorted() && due.iter().all(|of| wanted.contains(of)), "in order: {due:?}");
                    for setting in &due {
                        prop_assert!(!host.contains(setting) && !gone.contains(setting));
                        host.insert(*setting);
                        upkeep.handle_outcome(now, setting, Ok(()));
                    }
                    for of in 0..12_u8 {
                        let is_missing = wanted.contains(&of) && !host.contains(&of) && !gone.contains(&of);
                        let since = missing_since[usize::from(of)].filter(|_| is_missing).unwrap_or(now);
                        missing_since[usize::from(of)] = is_missing.then_some(since);
                        prop_assert!(now.saturating_since(since) < Duration::from_millis(200));
                        prop_assert!(wanted.contains(&of) || before.contains(&of) == host.contains(&of), "foreign");
                    }
                    match upkeep.next_look() {
                        Some(next) if next <= end && next > now => now = next,
                        _ => break,
                    }
                }
                now = end;
            }
        }
    }
}
