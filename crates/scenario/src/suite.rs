//! The runs that a scenario's checks need, and the verdicts on them.

use std::collections::{BTreeMap, BTreeSet};

use crate::check::{Verdict, against_best, verdicts};
use crate::model::{CheckKind, Scenario};
use crate::outcome::Outcome;
use crate::world::RunPlan;

/// The runs of a scenario that its checks need.
#[derive(Clone, Debug)]
pub struct Suite<'a> {
    scenario: &'a Scenario,
    /// The paths of the run to which all checks apply.
    main: Vec<usize>,
    /// The sets of paths that are compared with the best single path of each set.
    compared: Vec<Vec<usize>>,
    seeds: Vec<u64>,
}

/// The verdicts on one run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunVerdicts {
    /// The run.
    pub plan: RunPlan,
    /// The verdicts on it.
    pub verdicts: Vec<Verdict>,
}

impl<'a> Suite<'a> {
    /// Creates the suite of everything that the file requests: all paths and its subsets, with each
    /// seed.
    pub fn new(scenario: &'a Scenario, seeds: impl IntoIterator<Item = u64>) -> Self {
        let main = scenario.all_paths();
        let mut compared = vec![main.clone()];
        compared.extend(scenario.subsets.iter().filter(|subset| **subset != main).cloned());
        Self { scenario, main, compared, seeds: seeds.into_iter().collect() }
    }

    /// Restricts the suite to these paths, without subsets.
    #[must_use]
    pub fn with_paths(mut self, paths: Vec<usize>) -> Self {
        self.compared = vec![paths.clone()];
        self.main = paths;
        self
    }

    /// Returns the runs, each once, by ascending seed; for each seed, the run with all paths comes
    /// first.
    pub fn plans(&self) -> Vec<RunPlan> {
        // Every seed has the same sets of paths.
        let (mut sets, mut known) = (Vec::new(), BTreeSet::new());
        let mut add = |paths: Vec<usize>| {
            if known.insert(paths.clone()) {
                sets.push(paths);
            }
        };
        add(self.main.clone());
        for paths in self.compared() {
            add(paths.clone());
            paths.iter().for_each(|&path| add(vec![path]));
        }
        let seeds: BTreeSet<u64> = self.seeds.iter().copied().collect();
        seeds.iter().flat_map(|&seed| sets.iter().map(move |paths| RunPlan { paths: paths.clone(), seed })).collect()
    }

    /// Returns the verdicts, by seed: first on the run with all paths, then on the subsets. Runs
    /// without an outcome are omitted.
    pub fn evaluate(&self, outcomes: &BTreeMap<RunPlan, Outcome>) -> Vec<RunVerdicts> {
        let mut run_verdicts = Vec::new();
        for &seed in &self.seeds {
            let find = |paths: &[usize]| outcomes.get(&RunPlan { paths: paths.to_vec(), seed });
            let mut found = find(&self.main).map(|outcome| verdicts(self.scenario, outcome)).unwrap_or_default();
            for paths in self.compared() {
                let alone: Vec<_> = paths.iter().filter_map(|&path| find(&[path])).collect();
                let Some(together) = find(paths).filter(|_| alone.len() == paths.len()) else { continue };
                let compared = against_best(self.scenario, together, &alone);
                if *paths == self.main {
                    found.extend(compared.into_iter().filter(|verdict| verdict.line.is_some()));
                } else {
                    let plan = RunPlan { paths: paths.clone(), seed };
                    run_verdicts.push(RunVerdicts { plan, verdicts: compared });
                }
            }
            run_verdicts.push(RunVerdicts { plan: RunPlan { paths: self.main.clone(), seed }, verdicts: found });
        }
        run_verdicts.sort_by_key(|of_run| (of_run.plan.seed, of_run.plan.paths != self.main));
        run_verdicts
    }

    fn compared(&self) -> impl Iterator<Item = &Vec<usize>> {
        let compares = self.scenario.checks.iter().any(|check| matches!(check.kind, CheckKind::AgainstBestPath { .. }));
        self.compared.iter().filter(move |paths| compares && paths.len() > 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{LINKS_MAX, SEEDS_MAX, SUBSETS_MAX};
    use crate::testing::scenario;

    const THREE: &str = "
        [[link]]
        name = 'a'
        [[link]]
        name = 'b'
        [[link]]
        name = 'c'
        [[subset]]
        paths = ['a', 'b']
    ";

    #[test]
    fn every_run_is_listed_once() {
        let compared = scenario(&format!("{THREE}[[check]]\nkind = 'against-best-path'\n"));
        let paths = |suite: Suite<'_>| suite.plans().into_iter().map(|plan| plan.paths).collect::<Vec<_>>();
        assert_eq!(paths(Suite::new(&compared, [7])), [vec![0, 1, 2], vec![0], vec![1], vec![2], vec![0, 1]]);
        assert_eq!(paths(Suite::new(&compared, [7]).with_paths(vec![1, 2])), [vec![1, 2], vec![1], vec![2]]);
        assert_eq!(paths(Suite::new(&compared, [7]).with_paths(vec![1])), [vec![1]]);
        assert_eq!(Suite::new(&compared, 1..=10).plans().len(), 50);
        let plain = scenario(THREE);
        assert_eq!(paths(Suite::new(&plain, [1, 2, 2])), [vec![0, 1, 2], vec![0, 1, 2]]);
    }

    /// Checks that the list is fast: comparing each run with all others would take minutes.
    #[test]
    fn the_largest_suite_is_listed_quickly() {
        let links: String = (0..LINKS_MAX).map(|link| format!("[[link]]\nname = 'l{link}'\n")).collect();
        let pairs = (1..LINKS_MAX).flat_map(|other| (0..other).map(move |one| (one, other))).take(SUBSETS_MAX);
        let subsets: String =
            pairs.map(|(one, other)| format!("[[subset]]\npaths = ['l{one}', 'l{other}']\n")).collect();
        let scenario = scenario(&format!("{links}{subsets}[[check]]\nkind = 'against-best-path'\n"));
        let plans = Suite::new(&scenario, 1..=u64::from(SEEDS_MAX)).plans();
        assert_eq!(plans.len(), SEEDS_MAX as usize * (1 + LINKS_MAX + SUBSETS_MAX));
        assert_eq!((plans[0].paths.len(), plans[96].seed, plans[97].seed), (LINKS_MAX, 1, 2));
    }
}
