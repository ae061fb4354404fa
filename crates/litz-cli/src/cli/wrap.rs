//! Wraps paragraphs and lists for the terminal.

/// If a list has less space than this beside its names, its texts continue below the names.
const TEXT_WIDTH_MIN: usize = 24;

/// Wraps each line of `text`: one that begins at the left is a paragraph. An indented one is an item
/// of a list, whose further lines begin below the text after its name and two spaces.
pub(crate) fn wrap(text: &str, width: usize) -> String {
    let lines: Vec<String> = text.split('\n').map(|line| wrap_line(line, width)).collect();
    lines.join("\n")
}

fn wrap_line(line: &str, width: usize) -> String {
    let (start, indent) = text_start(line);
    let indent = if indent + TEXT_WIDTH_MIN > width { line.len() - line.trim_start().len() + 4 } else { indent };
    let mut out = line[..start].to_owned();
    let mut column = out.chars().count();
    let mut is_first = true;
    for word in line[start..].split_whitespace() {
        let length = word.chars().count();
        if !is_first && column + 1 + length > width {
            out = format!("{}\n{:indent$}", out.trim_end(), "");
            (column, is_first) = (indent, true);
        }
        if !is_first {
            out.push(' ');
            column += 1;
        }
        out += word;
        column += length;
        is_first = false;
    }
    out
}

/// Where the text of a line begins, in bytes and in columns: after the spaces that follow its name,
/// or after its indentation.
pub(crate) fn text_start(line: &str) -> (usize, usize) {
    let indent = line.len() - line.trim_start().len();
    if indent == 0 {
        return (0, 0);
    }
    let Some(gap) = line[indent..].find("  ").map(|gap| indent + gap) else { return (indent, indent) };
    let start = line.len() - line[gap..].trim_start().len();
    (start, line[..start].chars().count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_continues_below_its_text() {
        let text =
            "One two three four five six seven\n\nStatus:\n  0  all files are complete and verified now\n  12   bad";
        let expected = "One two three four five\nsix seven\n\nStatus:\n  0  all files are\n      complete and\n      verified now\n  12   bad";
        assert_eq!(wrap(text, 24), expected);
        let beside = "  0  all files are complete and\n     verified";
        assert_eq!(wrap("  0  all files are complete and verified", 31), beside);
    }
}
