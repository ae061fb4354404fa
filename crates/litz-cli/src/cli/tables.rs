//! The common part of the tables of `bench`, `predict` and `profile`: each begins with the warnings
//! about its figures.

use std::fmt;

/// The warnings, one per line, followed by the table that `write` appends.
pub(super) fn with_warnings(warnings: &[String], write: impl FnOnce(&mut String) -> fmt::Result) -> String {
    let mut out: String = warnings.iter().map(|warning| format!("warning: {warning}\n")).collect();
    // Writing to a string does not fail.
    let _written = write(&mut out);
    out
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;

    #[test]
    fn warnings_precede_the_table() {
        let warnings = ["busy".to_owned(), "slow".to_owned()];
        assert_eq!(with_warnings(&warnings, |out| writeln!(out, "row")), "warning: busy\nwarning: slow\nrow\n");
        assert_eq!(with_warnings(&[], |out| writeln!(out, "row")), "row\n");
    }
}
