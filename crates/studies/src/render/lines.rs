//! Layout of text in columns and wrapped lines.

/// Line width in characters.
const WIDTH: usize = 118;

/// Formats rows with aligned columns. The first column and those in `left` are left-aligned, the
/// others right-aligned.
pub(super) fn columns(rows: &[Vec<String>], left: &[usize]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| length(cell)).max().unwrap_or(0);
    let widths: Vec<_> = (0..count).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let padding = " ".repeat(widths[column] - length(cell));
            let is_left = column == 0 || left.contains(&column);
            line += "  ";
            line += &if is_left { format!("{cell}{padding}") } else { format!("{padding}{cell}") };
        }
        out += line.trim_end();
        out.push('\n');
    }
    out
}

/// Wraps `text` after `head`. Further lines are indented to the first word.
pub(super) fn wrapped(head: &str, text: &str) -> String {
    let indent = length(head);
    let (mut out, mut line) = (String::new(), head.to_owned());
    let mut is_empty = true;
    for word in text.split_whitespace() {
        if !is_empty && length(&line) + 1 + length(word) > WIDTH {
            out += line.trim_end();
            out.push('\n');
            line = " ".repeat(indent);
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line += word;
        is_empty = false;
    }
    out + line.trim_end() + "\n"
}

/// Returns the length in characters, as a terminal counts them.
pub(super) fn length(text: &str) -> usize {
    text.chars().count()
}

/// Returns whether these rows are wider than a line.
pub(super) fn is_too_wide(rows: &[Vec<String>]) -> bool {
    columns(rows, &[]).lines().any(|line| length(line) > WIDTH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let text = columns(&[row(["a", "1", "x"]), row(["long", "1 ± 2", ""]), row(["", "10", "yy"])], &[2]);
        assert_eq!(text, "  a         1  x\n  long  1 ± 2\n           10  yy\n");
    }

    #[test]
    fn wrapped_lines_are_indented_to_the_first_word() {
        let text = wrapped("  note  ", &"word ".repeat(40));
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].starts_with("  note  word") && lines[1].starts_with("        word"), "{text}");
        assert!(lines.iter().all(|line| length(line) <= WIDTH) && text.matches("word").count() == 40);
        let long = "x".repeat(200);
        assert_eq!(wrapped("- ", &long), format!("- {long}\n"));
    }
}
