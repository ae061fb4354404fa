//! `litz study claims`: decides the claims of the papers.

use std::sync::Arc;

use studies::Options;
use studies::claims::{self, Claim, Context, Decision};
use studies::render::Conditions;
use studies::render::verdicts::{ClaimReport, ClaimsReport, text};

use super::options::ConditionOptions;
use super::progress::Progress;
use super::runs::{self, Job, Watch};
use super::{Fault, failed, files, stopped, unknown};
use crate::cli::{out, signals};
use crate::provenance::PROGRAM;

/// A claim to decide. All claims share a context, so that each study runs once.
struct ClaimJob {
    claim: &'static Claim,
    context: Arc<Context>,
}

impl Job for ClaimJob {
    type Found = Decision;

    fn id(&self) -> &str {
        &self.claim.id
    }

    fn run(&self, options: &Options) -> Decision {
        claims::decide(self.claim, &self.context.with_threads(options.threads))
    }
}

/// Decides claims and prints the result.
///
/// # Errors
/// The exit status and the message.
pub(super) fn run(ids: &[String], conditions: &ConditionOptions) -> Result<(), Fault> {
    let options = conditions.options().map_err(failed)?;
    let chosen = chosen(ids)?;
    let cancel = signals::cancel_token().map_err(|error| failed(format!("cannot handle interrupts: {error}")))?;
    let context = Arc::new(Context::new(options));
    let job = |claim| ClaimJob { claim, context: Arc::clone(&context) };
    let jobs: Arc<[ClaimJob]> = chosen.into_iter().map(job).collect();
    let mut speaker = ClaimPrinter {
        jobs: &jobs,
        json: conditions.json,
        progress: Progress::new("claims", jobs.len(), conditions.json),
        reports: Vec::new(),
    };
    let made = runs::make(&jobs, deciders(&options), &options, &cancel, &mut speaker);
    speaker.progress.clear();
    let report = ClaimsReport::new(Conditions::of(&options, PROGRAM), speaker.reports);
    if conditions.json {
        out::line(&files::json(&report).map_err(failed)?);
    } else {
        out::print(&format!("\n{}", report.describe()));
    }
    made.map_err(stopped)
}

/// Number of claims to decide at once. Successive claims often need the same study, so threads
/// serve a study's replications first, and only the rest serve further claims.
fn deciders(options: &Options) -> usize {
    options.threads.div_ceil(options.replications.max(1) as usize)
}

/// The claims with these names or of these documents, in the order of the documents.
///
/// # Errors
/// If a name is unknown. The message suggests similar names.
fn chosen(ids: &[String]) -> Result<Vec<&'static Claim>, Fault> {
    let is_meant = |claim: &Claim, id: &str| {
        claim.id == id || studies::document::of(&claim.id).is_some_and(|document| document.number == id)
    };
    let all = claims::all();
    if let Some(id) = ids.iter().find(|id| !all.iter().any(|claim| is_meant(claim, id))) {
        return Err(unknown("claim", id, "litz study claims", all.iter().map(|claim| claim.id.as_str())));
    }
    Ok(all.iter().filter(|claim| ids.is_empty() || ids.iter().any(|id| is_meant(claim, id))).collect())
}

struct ClaimPrinter<'a> {
    jobs: &'a [ClaimJob],
    json: bool,
    progress: Progress,
    reports: Vec<ClaimReport>,
}

impl Watch<Decision> for ClaimPrinter<'_> {
    fn began(&mut self, index: usize) {
        self.progress.begin(&self.jobs[index].claim.id);
    }

    fn ended(&mut self, index: usize) {
        self.progress.end(&self.jobs[index].claim.id);
    }

    fn found(&mut self, index: usize, decision: Decision) -> Result<(), String> {
        let report = ClaimReport { claim: self.jobs[index].claim.clone(), decision };
        if !self.json {
            let text_of_report = text(&report);
            self.progress.suspend(|| out::print(&text_of_report));
        }
        self.reports.push(report);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_serve_replications_before_further_claims() {
        let of = |threads, replications| {
            deciders(&Options {
                seed: 1,
                replications,
                confidence: 0.9,
                precision: None,
                effort: studies::Effort::Quick,
                threads,
            })
        };
        assert_eq!((of(1, 5), of(5, 5), of(6, 5), of(32, 5)), (1, 1, 2, 7));
    }

    #[test]
    fn claims_are_selected_by_name_or_by_document() {
        let ids = |ids: &[&str]| -> Vec<&str> {
            let ids: Vec<_> = ids.iter().map(ToString::to_string).collect();
            chosen(&ids).expect("they are known").into_iter().map(|claim| claim.id.as_str()).collect()
        };
        assert_eq!(ids(&["002-03", "000-01"]), ["000-01", "002-03"]);
        assert_eq!(ids(&["003"]).len(), 7);
        assert_eq!(ids(&[]).len(), 75);
        let (_, message) = chosen(&["02-03".to_owned()]).expect_err("there is no such document");
        assert!(message.contains("no claim \"02-03\"") && message.contains("002-03"), "{message}");
    }
}
