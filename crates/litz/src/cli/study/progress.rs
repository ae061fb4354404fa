//! On standard error, if somebody looks: a line for each study that runs, and one above them for each that has ended.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How often the lines move.
const TICK: Duration = Duration::from_millis(200);

/// What runs and how much there is.
pub(super) struct Progress {
    all: MultiProgress,
    total: ProgressBar,
    running: BTreeMap<String, ProgressBar>,
}

impl Progress {
    /// Of `count` of `what`; `quiet` shows nothing.
    pub(super) fn new(what: &str, count: usize, quiet: bool) -> Self {
        let is_seen = !quiet && io::stderr().is_terminal();
        let target = if is_seen { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let all = MultiProgress::with_draw_target(target);
        let template = format!("[{{bar:30}}] {{pos}} of {{len}} {what}  {{elapsed}}");
        let total = all.add(styled(ProgressBar::new(count as u64), &template));
        Self { all, total, running: BTreeMap::new() }
    }

    /// This one runs now.
    pub(super) fn begin(&mut self, id: &str) {
        let line = self
            .all
            .add(styled(ProgressBar::new_spinner(), "  {spinner} {msg}  {elapsed}").with_message(id.to_owned()));
        if !self.all.is_hidden() {
            line.enable_steady_tick(TICK);
        }
        self.running.insert(id.to_owned(), line);
    }

    /// This one runs no longer.
    pub(super) fn end(&mut self, id: &str) {
        if let Some(line) = self.running.remove(id) {
            let took = line.elapsed().as_secs_f64();
            line.finish_and_clear();
            self.all.remove(&line);
            if !self.all.is_hidden() {
                self.all.suspend(|| super::out::note(&format!("  {id}: {took:.1} s")));
            }
        }
        self.total.inc(1);
    }

    /// Speaks where the lines are.
    pub(super) fn suspend(&self, speak: impl FnOnce()) {
        self.all.suspend(speak);
    }

    /// Shows nothing any more.
    pub(super) fn clear(&mut self) {
        for line in std::mem::take(&mut self.running).into_values() {
            line.finish_and_clear();
        }
        self.total.finish_and_clear();
    }
}

fn styled(bar: ProgressBar, template: &str) -> ProgressBar {
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("━╸─"));
    }
    bar
}
