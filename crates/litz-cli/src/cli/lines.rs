//! Lines below a progress bar, one per path or link.

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

/// A variable number of lines.
pub(crate) struct Lines {
    all: MultiProgress,
    indent: usize,
    shown: Vec<ProgressBar>,
}

impl Lines {
    /// Starts without lines. They are appended to `all`, indented by `indent` columns.
    pub(crate) const fn new(all: MultiProgress, indent: usize) -> Self {
        Self { all, indent, shown: Vec::new() }
    }

    /// Shows exactly these lines.
    pub(crate) fn show(&mut self, texts: &[String]) {
        for surplus in self.shown.drain(texts.len().min(self.shown.len())..) {
            surplus.finish_and_clear();
            self.all.remove(&surplus);
        }
        while self.shown.len() < texts.len() {
            let line = self.all.add(ProgressBar::new_spinner());
            if let Ok(style) = ProgressStyle::with_template(&format!("{:1$}{{wide_msg}}", "", self.indent)) {
                line.set_style(style);
            }
            self.shown.push(line);
        }
        for (line, text) in self.shown.iter().zip(texts) {
            line.set_message(text.clone());
        }
    }

    /// Removes all lines.
    pub(crate) fn clear(&mut self) {
        self.show(&[]);
    }
}

#[cfg(test)]
mod tests {
    use indicatif::ProgressDrawTarget;

    use super::*;

    #[test]
    fn only_the_latest_lines_are_shown() {
        let mut lines = Lines::new(MultiProgress::with_draw_target(ProgressDrawTarget::hidden()), 2);
        for texts in [&["a", "b", "c"][..], &["d"], &[], &["e", "f"]] {
            let texts: Vec<String> = texts.iter().map(ToString::to_string).collect();
            lines.show(&texts);
            assert_eq!(lines.shown.iter().map(ProgressBar::message).collect::<Vec<_>>(), texts);
        }
        lines.clear();
        assert!(lines.shown.is_empty());
    }
}
