//! Tables and curves as CSV (RFC 4180, with LF line endings). Each line has one value, so lines are
//! easy to filter and columns keep their meaning.

use measure::Estimate;

use crate::outcome::{Plot, Table};

/// Formats one line per cell. A field is empty if there is no value. Differences and tolerances are
/// fractions.
pub fn table(table: &Table) -> String {
    let mut out = "row,quantity,unit,paper,ours,plus_minus,difference,tolerance,within,fitted\n".to_owned();
    for row in &table.rows {
        for (column, cell) in table.columns.iter().zip(&row.cells) {
            let [ours, plus_minus] = parts(cell.ours.as_ref());
            line(
                &mut out,
                &[
                    row.label.clone(),
                    column.name.clone(),
                    column.unit.clone(),
                    number(cell.paper),
                    ours,
                    plus_minus,
                    number(cell.difference()),
                    number(cell.tolerance),
                    cell.is_within().map(|within| within.to_string()).unwrap_or_default(),
                    cell.fitted.to_string(),
                ],
            );
        }
    }
    out
}

/// Formats one line per point.
pub fn plot(plot: &Plot) -> String {
    let mut out = String::new();
    let axis = |column: &crate::Column| match column.unit.as_str() {
        "" => column.name.clone(),
        unit => format!("{} ({unit})", column.name),
    };
    line(&mut out, &["series".to_owned(), axis(&plot.x), axis(&plot.y), "plus_minus".to_owned()]);
    for series in &plot.series {
        for (x, estimate) in &series.points {
            let [y, plus_minus] = parts(Some(estimate));
            line(&mut out, &[series.name.clone(), number(Some(*x)), y, plus_minus]);
        }
    }
    out
}

fn parts(estimate: Option<&Estimate>) -> [String; 2] {
    [number(estimate.map(|estimate| estimate.mean)), number(estimate.and_then(|estimate| estimate.plus_minus))]
}

/// Formats a number with enough digits to restore it.
fn number(value: Option<f64>) -> String {
    value.filter(|value| value.is_finite()).map(|value| value.to_string()).unwrap_or_default()
}

fn line(out: &mut String, fields: &[String]) {
    let fields: Vec<_> = fields.iter().map(|field| quoted(field)).collect();
    *out += &fields.join(",");
    out.push('\n');
}

fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{Cell, Column, Row, Series};

    #[test]
    fn a_cell_is_a_line_and_commas_are_quoted() {
        let ours = Estimate { mean: 210.0, plus_minus: Some(1.5) };
        let text = table(&Table {
            title: "t".to_owned(),
            columns: vec![Column::new("throughput", "Mb/s"), Column::new("share", "")],
            rows: vec![Row {
                label: "4 \"PPs\", 6 rings".to_owned(),
                cells: vec![Cell::compared(200.0, ours, 0.1).fitted(), Cell::default()],
            }],
        });
        let lines: Vec<_> = text.lines().skip(1).collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].starts_with("\"4 \"\"PPs\"\", 6 rings\",throughput,Mb/s,200,210,1.5,0.05"), "{text}");
        assert!(lines[0].ends_with(",0.1,true,true"), "{text}");
        assert!(lines[1].ends_with("rings\",share,,,,,,,,false"), "{text}");
    }

    #[test]
    fn a_point_is_a_line_and_axes_have_units() {
        let exact = Estimate { mean: 2.5, plus_minus: None };
        let text = plot(&Plot {
            title: "p".to_owned(),
            x: Column::new("processors", ""),
            y: Column::new("rate", "Mb/s"),
            series: vec![Series { name: "a".to_owned(), points: vec![(1.0, exact)] }],
        });
        assert_eq!(text, "series,processors,rate (Mb/s),plus_minus\na,1,2.5,\n");
    }
}
