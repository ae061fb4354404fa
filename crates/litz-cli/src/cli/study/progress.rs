//! The progress display on standard error: a line for each running study, and above them one for
//! each finished study.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Refresh interval of the lines.
const TICK: Duration = Duration::from_millis(200);

/// The progress of the studies.
pub(super) struct Progress {
    all: MultiProgress,
    total: ProgressBar,
    running: BTreeMap<String, ProgressBar>,
}

impl Progress {
    /// Shows the progress of `count` items called `what`; with `quiet` shows nothing.
    pub(super) fn new(what: &str, count: usize, quiet: bool) -> Self {
        let is_seen = !quiet && io::stderr().is_terminal();
        let target = if is_seen { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let all = MultiProgress::with_draw_target(target);
        let template = format!("[{{bar:30}}] {{pos}} of {{len}} {what}  {{elapsed}}");
        let total = all.add(styled(ProgressBar::new(count as u64), &template));
        Self { all, total, running: BTreeMap::new() }
    }

    /// A study has started.
    pub(super) fn begin(&mut self, id: &str) {
        let line = self
            .all
            .add(styled(ProgressBar::new_spinner(), "  {spinner} {msg}  {elapsed}").with_message(id.to_owned()));
        if !self.all.is_hidden() {
            line.enable_steady_tick(TICK);
        }
        self.running.insert(id.to_owned(), line);
    }

    /// A study has ended.
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

    /// Hides the lines while `speak` prints.
    pub(super) fn suspend(&self, speak: impl FnOnce()) {
        self.all.suspend(speak);
    }

    /// Removes all lines.
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
