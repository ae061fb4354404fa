//! Claims and their decisions, as text and as JSON (`docs/spec/study.md`).

use serde::Serialize;

use super::lines::wrapped;
use super::numbers::{estimate, printed};
use super::report::Conditions;
use crate::claims::{Claim, Decision, Figure, Verdict};

/// Value of `format`.
const FORMAT: &str = "litz-claims";
/// Value of `version`.
const FORMAT_VERSION: u32 = 1;

/// Claims that were decided under the same conditions.
#[derive(Clone, Debug, Serialize)]
pub struct ClaimsReport {
    format: &'static str,
    version: u32,
    #[serde(flatten)]
    conditions: Conditions,
    counts: Counts,
    claims: Vec<ClaimReport>,
}

/// A claim and its decision.
#[derive(Clone, Debug, Serialize)]
pub struct ClaimReport {
    /// The claim.
    #[serde(flatten)]
    pub claim: Claim,
    /// The decision.
    #[serde(flatten)]
    pub decision: Decision,
}

/// Number of claims per verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    holds: usize,
    refuted: usize,
    not_decidable: usize,
}

impl ClaimsReport {
    /// Creates a report on these claims.
    pub fn new(conditions: Conditions, claims: Vec<ClaimReport>) -> Self {
        let mut counts = Counts::default();
        for claim in &claims {
            counts.add(claim.decision.verdict);
        }
        Self { format: FORMAT, version: FORMAT_VERSION, conditions, counts, claims }
    }

    /// Returns the counts as text.
    pub fn describe(&self) -> String {
        let Counts { holds, refuted, not_decidable } = self.counts;
        let total = self.claims.len();
        format!(
            "{total} claims: {holds} hold, {refuted} refuted, {not_decidable} not decidable here\n{}\n",
            self.conditions.describe()
        )
    }
}

impl Counts {
    const fn add(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Holds => self.holds += 1,
            Verdict::Refuted => self.refuted += 1,
            Verdict::NotDecidable => self.not_decidable += 1,
        }
    }
}

/// Formats a claim as text.
pub fn text(report: &ClaimReport) -> String {
    let verdict = match report.decision.verdict {
        Verdict::Holds => "holds",
        Verdict::Refuted => "REFUTED",
        Verdict::NotDecidable => "not decidable here",
    };
    let mut out = wrapped(&format!("{}  ", report.claim.id), &report.claim.statement);
    let why = format!("{verdict}: {}", report.decision.explanation);
    out += &wrapped("        ", &why);
    if !report.decision.figures.is_empty() {
        let figures: Vec<_> = report.decision.figures.iter().map(figure).collect();
        out += &wrapped("        ", &figures.join("; "));
    }
    out
}

fn figure(figure: &Figure) -> String {
    let unit = if figure.unit.is_empty() { String::new() } else { format!(" {}", figure.unit) };
    let paper = figure.paper.map(|paper| format!("paper {}", printed(paper)));
    let remarks: Vec<_> = paper.into_iter().chain(figure.fitted.then(|| "fitted".to_owned())).collect();
    let remarks = if remarks.is_empty() { String::new() } else { format!(" ({})", remarks.join("; ")) };
    format!("{} {}{unit}{remarks}", figure.name, estimate(&figure.ours))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::decision::exact;
    use crate::claims::{self, Decision};
    use crate::{Effort, Options};

    #[test]
    fn a_verdict_has_its_reason_and_numbers() {
        let claim = claims::all()[0].clone();
        let decision = Decision::of(false, "yes", "no")
            .with("gain", "", 1.7, exact(1.25))
            .with("rate", "Mb/s", None, exact(3.0))
            .with("delay", "us", 1092.0, exact(1158.0))
            .fitted()
            .with("share", "", None, exact(0.5))
            .fitted();
        let text = text(&ClaimReport { claim, decision });
        for words in [
            "000-01  A single",
            "REFUTED: no",
            "gain 1.250 (paper 1.7); rate 3 Mb/s; delay",
            "(paper 1092; fitted)",
            "(fitted)",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }

    #[test]
    fn verdicts_are_counted() {
        let options =
            Options { seed: 1, replications: 1, confidence: 0.9, precision: None, effort: Effort::Quick, threads: 1 };
        let program = measure::Program { litz_version: "9.9.9", litz_commit: "0123" };
        let report = |decision| ClaimReport { claim: claims::all()[0].clone(), decision };
        let reports = vec![
            report(Decision::of(true, "", "")),
            report(Decision::of(false, "", "")),
            report(Decision::not_decidable("")),
            report(Decision::of(true, "", "")),
        ];
        let text = ClaimsReport::new(Conditions::of(&options, program), reports).describe();
        assert!(text.contains("litz 9.9.9 (commit 0123), seed 1"), "{text}");
        assert!(text.starts_with("4 claims: 2 hold, 1 refuted, 1 not decidable here"), "{text}");
    }
}
