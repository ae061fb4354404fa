//! Plots as SVG text: panels side by side, each with axes, error bars and a legend.

mod axis;

use std::fmt::Write;

use axis::Axis;

use crate::Estimate;

/// Size of the area between the axes, in pixels.
const AREA_WIDTH: f64 = 332.0;
const AREA_HEIGHT: f64 = 296.0;

/// Margins around the axes, in pixels, for labels left and below. The margins for the title above
/// and the legend to the right depend on their texts.
const LEFT: f64 = 72.0;
const BOTTOM: f64 = 48.0;

/// Sizes of text in pixels: the baseline of the first line, the distance of lines, and the width of
/// a wide letter, because a renderer's font is not known here.
const FIRST_LINE: f64 = 20.0;
const LINE_STEP: f64 = 18.0;
const LETTER: f64 = 7.0;
const TITLE_LETTER: f64 = 8.2;

/// Distance in pixels from the axes to the names in the legend, and from the longest name to the
/// border.
const LEGEND_GAP: f64 = 42.0;
const LEGEND_END: f64 = 8.0;

/// Minimum width of a panel; a narrower one would break its title into many lines.
const PANEL_WIDTH_MIN: f64 = 560.0;

/// Distance between legend entries, in pixels.
const LEGEND_STEP: f64 = 16.0;

/// Half the width of the caps of an error bar, in pixels.
const WHISKER: f64 = 4.0;

/// Colours assigned in order to curves without a colour.
const COLOURS: [&str; 8] = ["#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#17becf"];

/// One plot: axes and curves.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Panel {
    /// The title.
    pub title: String,
    /// The line below the title; may be empty.
    pub subtitle: String,
    /// Label of the x axis, with its unit.
    pub x_label: String,
    /// Label of the y axis, with its unit.
    pub y_label: String,
    /// The curves, in the order of the legend.
    pub curves: Vec<Curve>,
    /// Marked ranges of x, drawn behind the curves.
    pub bands: Vec<Band>,
    /// Whether both axes have the same range, so that equal values lie on the diagonal.
    pub equal_scales: bool,
    /// Whether x is a count, so that its axis has only whole numbers.
    pub counts: bool,
    /// Whether y cannot be negative, so that intervals are drawn no lower than zero.
    pub is_never_negative: bool,
}

/// A marked range of x.
#[derive(Clone, Debug, PartialEq)]
pub struct Band {
    /// The name shown by a viewer.
    pub name: String,
    /// The beginning and the end; equal if it is one moment.
    pub range: (f64, f64),
}

/// A curve of a plot.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// The name in the legend.
    pub name: String,
    /// x values, and y values with their intervals.
    pub points: Vec<(f64, Estimate)>,
    /// The line style.
    pub stroke: Stroke,
    /// The colour as `#rrggbb`; `None` takes the next of eight default colours.
    pub colour: Option<&'static str>,
    /// Whether to draw a circle, and the interval if there is one, at each point.
    pub has_marks: bool,
}

/// A line style.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stroke {
    /// A thick line.
    Solid,
    /// A thin line.
    Thin,
    /// A thin dashed line.
    Dashed,
    /// A thin dotted line.
    Dotted,
}

impl Curve {
    /// Creates a measured curve: a solid line with marks and intervals.
    pub fn measured(name: impl Into<String>, points: Vec<(f64, Estimate)>) -> Self {
        Self { name: name.into(), points, stroke: Stroke::Solid, colour: None, has_marks: true }
    }

    /// Creates a reference curve: a line without marks through exact values.
    pub fn reference(name: impl Into<String>, points: Vec<(f64, f64)>, stroke: Stroke, colour: &'static str) -> Self {
        let exact = |(x, mean)| (x, Estimate { mean, plus_minus: None });
        let points = points.into_iter().map(exact).collect();
        Self { name: name.into(), points, stroke, colour: Some(colour), has_marks: false }
    }
}

impl Stroke {
    const fn style(self) -> &'static str {
        match self {
            Self::Solid => "stroke-width=\"2\"",
            Self::Thin => "stroke-width=\"1\"",
            Self::Dashed => "stroke-dasharray=\"6 4\"",
            Self::Dotted => "stroke-dasharray=\"2 3\"",
        }
    }
}

/// Returns the panels side by side, as the text of an SVG file. Points with values that are not
/// finite are omitted.
pub fn svg(panels: &[Panel]) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _written = write_all(&mut out, panels);
    out
}

fn write_all(out: &mut String, panels: &[Panel]) -> std::fmt::Result {
    let frame = Frame::of(panels);
    let width = frame.width * panels.len() as f64;
    // A long legend increases the height.
    let entries = panels.iter().map(|panel| panel.curves.len()).max().unwrap_or(0);
    let height = frame.height().max(frame.top + LEGEND_STEP * (entries as f64 + 1.0));
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>"
    )?;
    for (index, panel) in panels.iter().enumerate() {
        writeln!(out, "<g transform=\"translate({},0)\">", frame.width * index as f64)?;
        write_panel(out, panel, frame)?;
        writeln!(out, "</g>")?;
    }
    writeln!(out, "</svg>")
}

/// The size of all panels of a plot, from their texts.
#[derive(Clone, Copy)]
struct Frame {
    width: f64,
    /// The margin above the axes.
    top: f64,
}

impl Frame {
    fn of(panels: &[Panel]) -> Self {
        let names = panels.iter().flat_map(|panel| &panel.curves).map(|curve| curve.name.chars().count());
        let legend = LEGEND_GAP + names.max().unwrap_or(0) as f64 * LETTER + LEGEND_END;
        let width = (LEFT + AREA_WIDTH + legend).max(PANEL_WIDTH_MIN);
        let lines = |panel: &Panel| Self { width, top: 0.0 }.title(panel).len();
        let lines = panels.iter().map(lines).max().unwrap_or(0).max(2);
        Self { width, top: FIRST_LINE + LINE_STEP * lines as f64 }
    }

    const fn height(self) -> f64 {
        self.top + AREA_HEIGHT + BOTTOM
    }

    /// Returns the lines of the title, then the lines of the subtitle, each with a flag that is
    /// true for the title.
    fn title(self, panel: &Panel) -> Vec<(String, bool)> {
        let space = self.width - LEFT - LEGEND_END;
        let title = broken(&panel.title, (space / TITLE_LETTER) as usize).into_iter().map(|line| (line, true));
        title.chain(broken(&panel.subtitle, (space / LETTER) as usize).into_iter().map(|line| (line, false))).collect()
    }
}

/// Breaks a text into lines of at most `letters`.
fn broken(text: &str, letters: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= letters => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Mapping of values to pixel coordinates in a panel.
struct Layout {
    frame: Frame,
    x: Axis,
    y: Axis,
    /// See [`Panel::is_never_negative`].
    is_never_negative: bool,
}

impl Layout {
    fn of(panel: &Panel, frame: Frame) -> Self {
        let axis = |values: &mut dyn Iterator<Item = f64>| {
            if panel.counts { Axis::of_counts(values) } else { Axis::over(values) }
        };
        let points = || panel.curves.iter().flat_map(|curve| curve.points.iter().filter(|point| is_finite(point)));
        let x = axis(&mut points().map(|(x, _)| *x));
        let is_never_negative = panel.is_never_negative;
        let y = Axis::over(points().flat_map(|(_, estimate)| <[f64; 2]>::from(range(estimate, is_never_negative))));
        if !panel.equal_scales {
            return Self { frame, x, y, is_never_negative };
        }
        let both = axis(&mut [x.low, x.high, y.low, y.high].into_iter());
        Self { frame, x: both, y: both, is_never_negative }
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + self.x.share(value) * AREA_WIDTH
    }

    fn y(&self, value: f64) -> f64 {
        self.frame.height() - BOTTOM - self.y.share(value) * AREA_HEIGHT
    }
}

/// Returns the ends of an interval for drawing. The interval of few runs may include values that
/// the quantity cannot have.
fn range(estimate: &Estimate, is_never_negative: bool) -> (f64, f64) {
    let (low, high) = estimate.range();
    if is_never_negative && estimate.mean >= 0.0 { (low.max(0.0), high) } else { (low, high) }
}

fn is_finite((x, estimate): &(f64, Estimate)) -> bool {
    let (low, high) = estimate.range();
    x.is_finite() && low.is_finite() && high.is_finite()
}

fn write_panel(out: &mut String, panel: &Panel, frame: Frame) -> std::fmt::Result {
    let layout = Layout::of(panel, frame);
    for band in &panel.bands {
        write_band(out, &layout, band)?;
    }
    write_axes(out, &layout, panel)?;
    for (index, (line, is_title)) in frame.title(panel).iter().enumerate() {
        let y = FIRST_LINE + LINE_STEP * index as f64;
        let style = if *is_title { "font-size=\"14\"" } else { "fill=\"#555\"" };
        writeln!(out, "<text x=\"{LEFT}\" y=\"{y}\" {style}>{}</text>", escape(line))?;
    }
    let mut colours = COLOURS.iter().cycle();
    for (row, curve) in panel.curves.iter().enumerate() {
        let colour = curve.colour.or_else(|| colours.next().copied()).unwrap_or("black");
        write_curve(out, &layout, curve, colour)?;
        write_legend(out, frame, row, curve, colour)?;
    }
    Ok(())
}

/// Writes the part of a band that is inside the axes; a moment is as wide as a line.
fn write_band(out: &mut String, layout: &Layout, band: &Band) -> std::fmt::Result {
    let (low, high) = (band.range.0.max(layout.x.low), band.range.1.min(layout.x.high));
    // Both comparisons are false for NaN.
    if !(low <= layout.x.high && high >= low) {
        return Ok(());
    }
    let (left, right) = (layout.x(low), layout.x(high));
    let (top, bottom) = (layout.y(layout.y.high), layout.y(layout.y.low));
    writeln!(
        out,
        "<rect class=\"band\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"#d62728\" \
         fill-opacity=\"0.15\"><title>{}</title></rect>",
        (right - left).max(1.0),
        bottom - top,
        escape(&band.name)
    )
}

fn write_axes(out: &mut String, layout: &Layout, panel: &Panel) -> std::fmt::Result {
    let (left, right) = (layout.x(layout.x.low), layout.x(layout.x.high));
    let (bottom, top) = (layout.y(layout.y.low), layout.y(layout.y.high));
    writeln!(out, "<path d=\"M{left:.1} {top:.1}V{bottom:.1}H{right:.1}\" fill=\"none\" stroke=\"black\"/>")?;
    for (value, label) in layout.x.ticks() {
        let (x, below) = (layout.x(value), bottom + 18.0);
        writeln!(
            out,
            "<path d=\"M{x:.1} {bottom:.1}v4\" stroke=\"black\"/>\n\
             <text x=\"{x:.1}\" y=\"{below:.1}\" text-anchor=\"middle\">{label}</text>"
        )?;
    }
    for (value, label) in layout.y.ticks() {
        let y = layout.y(value);
        writeln!(
            out,
            "<path d=\"M{left:.1} {y:.1}h-4\" stroke=\"black\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
            left - 8.0,
            y + 4.0
        )?;
    }
    let (across, up) = (f64::midpoint(left, right), f64::midpoint(bottom, top));
    writeln!(
        out,
        "<text x=\"{across:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n\
         <text transform=\"translate(16,{up:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
        bottom + 38.0,
        escape(&panel.x_label),
        escape(&panel.y_label)
    )
}

fn write_curve(out: &mut String, layout: &Layout, curve: &Curve, colour: &str) -> std::fmt::Result {
    let points = || curve.points.iter().filter(|point| is_finite(point));
    let places: Vec<_> =
        points().map(|(x, estimate)| format!("{:.1},{:.1}", layout.x(*x), layout.y(estimate.mean))).collect();
    writeln!(
        out,
        "<polyline class=\"{}\" points=\"{}\" fill=\"none\" stroke=\"{colour}\" {}/>",
        escape(&curve.name),
        places.join(" "),
        curve.stroke.style()
    )?;
    if curve.has_marks {
        for (x, estimate) in points() {
            write_mark(out, layout, *x, estimate, colour)?;
        }
    }
    Ok(())
}

fn write_mark(out: &mut String, layout: &Layout, at: f64, estimate: &Estimate, colour: &str) -> std::fmt::Result {
    let (x, y) = (layout.x(at), layout.y(estimate.mean));
    if estimate.plus_minus.is_some() {
        let (low, high) = range(estimate, layout.is_never_negative);
        let (low, high) = (layout.y(low), layout.y(high));
        let (before, after) = (x - WHISKER, x + WHISKER);
        writeln!(
            out,
            "<path class=\"interval\" d=\"M{x:.1} {low:.1}V{high:.1}M{before:.1} {low:.1}H{after:.1}M{before:.1} \
             {high:.1}H{after:.1}\" stroke=\"{colour}\"/>"
        )?;
    }
    writeln!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{colour}\"/>")
}

fn write_legend(out: &mut String, frame: Frame, row: usize, curve: &Curve, colour: &str) -> std::fmt::Result {
    let (x, y) = (LEFT + AREA_WIDTH + 12.0, frame.top + LEGEND_STEP * (row as f64 + 0.5));
    writeln!(
        out,
        "<line x1=\"{x}\" y1=\"{y}\" x2=\"{}\" y2=\"{y}\" stroke=\"{colour}\" {}/>\n<text x=\"{}\" y=\"{}\">{}</text>",
        x + 24.0,
        curve.stroke.style(),
        x + 30.0,
        y + 4.0,
        escape(&curve.name)
    )
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn exact(mean: f64) -> Estimate {
        Estimate { mean, plus_minus: None }
    }

    fn panel(points: Vec<(f64, Estimate)>) -> Panel {
        Panel { curves: vec![Curve::measured("measured", points)], ..Panel::default() }
    }

    fn layout(panel: &Panel) -> Layout {
        Layout::of(panel, Frame::of(std::slice::from_ref(panel)))
    }

    /// Returns the number in an attribute of a line of SVG.
    fn attribute(line: &str, name: &str) -> f64 {
        let (_, rest) = line.split_once(&format!(" {name}=\"")).expect(line);
        rest.split('"').next().unwrap().parse().unwrap()
    }

    #[test]
    fn texts_of_any_length_are_inside_the_picture() {
        let mut panel = panel(vec![(1.0, exact(1.0))]);
        panel.curves[0].name = "a curve with a name of fifty letters, more or less".to_owned();
        panel.title = "a title of several words ".repeat(8);
        panel.subtitle = "a subtitle of several words ".repeat(20);
        let text = svg(&[panel.clone(), Panel::default()]);
        let width = attribute(text.lines().next().unwrap(), "width") / 2.0;
        let lines = text.lines().filter(|line| line.starts_with("<text x=") && !line.contains("text-anchor"));
        for line in lines {
            let (_, words) = line.split_once('>').unwrap();
            let letters = words.chars().count() - "</text>".len();
            let letter = if line.contains("font-size") { TITLE_LETTER } else { LETTER };
            assert!(attribute(line, "x") + letters as f64 * letter <= width, "{line}");
        }
        let frame = Frame::of(std::slice::from_ref(&panel));
        assert!(frame.top > FIRST_LINE + LINE_STEP * (frame.title(&panel).len() - 1) as f64, "above the axes");
        assert!(attribute(text.lines().next().unwrap(), "height") >= frame.height());
    }

    #[test]
    fn an_axis_of_counts_has_whole_numbers() {
        let mut panel = panel(vec![(1.0, exact(1.0)), (2.0, exact(1.7))]);
        let halves = layout(&panel).x.ticks().len();
        (panel.counts, panel.equal_scales) = (true, true);
        let labels: Vec<_> = layout(&panel).x.ticks().into_iter().map(|(_, label)| label).collect();
        assert_eq!(labels, ["0", "1", "2"], "{halves} ticks otherwise");
    }

    #[test]
    fn equal_scales_put_equal_values_on_the_diagonal() {
        let mut panel = panel(vec![(1.0, exact(1.0)), (4.0, exact(3.0))]);
        panel.equal_scales = true;
        let layout = layout(&panel);
        assert_eq!(layout.x, layout.y);
        let place = |value: f64| ((layout.x(value) - LEFT) / AREA_WIDTH, layout.y(value));
        for value in [0.0, 1.0, 2.5, 4.0] {
            let (across, y) = place(value);
            let up = (layout.frame.height() - BOTTOM - y) / AREA_HEIGHT;
            assert!((across - up).abs() < 1e-9, "{value}");
        }
    }

    #[test]
    fn intervals_are_drawn_and_fit_into_the_axes() {
        assert!(!svg(&[panel(vec![(1.0, exact(1.0))])]).contains("interval"));
        let wide = panel(vec![(1.0, Estimate { mean: 1.0, plus_minus: Some(0.5) })]);
        let layout = layout(&wide);
        assert!(layout.y.high >= 1.5 && layout.y.low <= 0.5);
        let ends = (format!("{:.1}V", layout.y(0.5)), format!("V{:.1}M", layout.y(1.5)));
        let text = svg(&[wide]);
        assert!(text.contains(&ends.0) && text.contains(&ends.1), "{text}");
    }

    #[test]
    fn intervals_of_what_cannot_be_negative_end_at_zero() {
        let mut panel = panel(vec![(1.0, exact(1.0)), (2.0, Estimate { mean: 2.0, plus_minus: Some(4.0) })]);
        assert!(layout(&panel).y.low < 0.0);
        panel.is_never_negative = true;
        assert_eq!((layout(&panel).y.low, layout(&panel).y.high), (0.0, 6.0));
        let bottom = format!("{:.1}V{:.1}M", layout(&panel).y(0.0), layout(&panel).y(6.0));
        assert!(svg(std::slice::from_ref(&panel)).contains(&bottom), "the interval is drawn from the axis");
        panel.equal_scales = true;
        assert_eq!((layout(&panel).x.low, layout(&panel).y.low), (0.0, 0.0));
    }

    #[test]
    fn text_is_escaped() {
        let mut panel = panel(vec![(0.0, exact(1.0))]);
        panel.title = "a<b>&\"c\"".to_owned();
        assert!(svg(&[panel]).contains(">a&lt;b&gt;&amp;&quot;c&quot;<"));
    }

    #[test]
    fn non_finite_points_are_omitted_and_an_empty_plot_is_valid() {
        let text = svg(&[panel(vec![(0.0, exact(1.0)), (1.0, exact(f64::NAN)), (f64::INFINITY, exact(2.0))])]);
        assert_eq!(text.matches("<circle").count(), 1);
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
        let empty = svg(&[panel(Vec::new())]);
        assert!(empty.starts_with("<svg ") && empty.ends_with("</svg>\n") && !empty.contains("NaN"), "{empty}");
    }
}
