//! Parses `[[link]]`.

use netem::{BurstLoss, CoDel, ConfigError, Discipline, Distribution, Jitter, LinkConfig, Trace};
use units::{ByteSize, Duration, Ratio};

use super::names::read_name;
use super::reader::Table;
use crate::model::{Link, OVERHEAD_BYTES};

/// Loads a trace by the name in the file.
pub type FindTrace<'a> = &'a dyn Fn(&str) -> Result<Trace, String>;

/// Maximum queue size in bytes.
const QUEUE_BYTES_MAX: u64 = 1 << 32;

pub(super) fn read(table: &Table<'_, '_>, trace: FindTrace<'_>) -> Option<Link> {
    let name = table.required("name", read_name(table, "name"));
    let start = LinkConfig { overhead_bytes: OVERHEAD_BYTES, ..LinkConfig::default() };
    let forward = read_direction(table, start, trace);
    let back = match table.table("back") {
        Some(other) => {
            let back = read_direction(&other, forward.clone(), trace);
            other.finish();
            back
        }
        None => forward.clone(),
    };
    table.finish();
    if let Err(error) = forward.validate() {
        let (key, message) = explain(&error);
        table.add_problem(key, message);
    } else if let Err(error) = back.validate() {
        let (key, message) = explain(&error);
        table.add_problem("back", format!("{key}: {message}"));
    }
    Some(Link { name: name?, forward, back, line: table.line })
}

/// Returns the key of a configuration error, and a message in terms of the format.
pub(crate) fn explain(error: &ConfigError) -> (&'static str, String) {
    let (key, message) = match error {
        ConfigError::ZeroRate => ("rate", "must be above zero"),
        ConfigError::RateAndTrace => ("rate", "a link has a rate or a trace, not both"),
        ConfigError::QueueDelayWithoutRate => ("queue", "a time needs a rate or a trace; without one, give a size"),
        ConfigError::CoDel => ("codel", "target must be at most interval"),
        ConfigError::BurstLoss => ("bursts", "enter, leave and loss must be above zero"),
        ConfigError::ZeroReorderDelay => ("reorder", "by must be above zero"),
        other => return ("link", other.to_string()),
    };
    (key, message.to_owned())
}

/// Returns the settings of one direction; keys that are missing keep the values of `config`.
fn read_direction(table: &Table<'_, '_>, mut config: LinkConfig, trace: FindTrace<'_>) -> LinkConfig {
    let config_before = config.clone();
    if let Some(rate) = table.rate("rate") {
        (config.rate, config.trace) = (Some(rate), None);
    }
    if let Some(found) = table.parsed("trace", |name| check_file_name(name).and_then(|()| trace(name))) {
        if table.has("rate") {
            table.add_problem("trace", "a link has a rate or a trace, not both");
        }
        (config.rate, config.trace) = (None, Some(found));
    }
    config.delay = table.duration("delay").unwrap_or(config_before.delay);
    if let Some(jitter) = table.table("jitter").map(|jitter| read_jitter(&jitter)) {
        config.jitter = jitter;
    }
    config.loss = table.ratio("loss").unwrap_or(config_before.loss);
    if let Some(bursts) = table.table("bursts").map(|bursts| read_bursts(&bursts)) {
        config.burst_loss = bursts;
    }
    config.duplicate = table.ratio("duplicate").unwrap_or(config_before.duplicate);
    config.corrupt = table.ratio("corrupt").unwrap_or(config_before.corrupt);
    if let Some((share, by)) = table.table("reorder").and_then(|reorder| read_reorder(&reorder)) {
        (config.reorder, config.reorder_by) = (share, by);
    }
    config.overhead_bytes = table.size("overhead", 0..10_001).unwrap_or(config_before.overhead_bytes);
    read_queue(table, &mut config);
    if let Some(codel) = table.table("codel") {
        config.discipline = Discipline::CoDel(read_codel(&codel));
    }
    config
}

/// Restricts file names to the scenario's folder and its subfolders, so that a scenario from
/// elsewhere cannot read other files.
fn check_file_name(name: &str) -> Result<(), String> {
    let is_plain = |part: &str| !matches!(part, "" | "." | "..") && !part.contains(['\\', ':', '\0']);
    if name.split('/').all(is_plain) {
        return Ok(());
    }
    Err(format!("{name:?} must name a file in this file's folder or below it: no \"..\", no absolute path"))
}

/// Reads a size or a time, distinguished by the unit.
fn read_queue(table: &Table<'_, '_>, config: &mut LinkConfig) {
    enum Bound {
        Bytes(u64),
        Delay(Duration),
    }
    let bound = table.parsed("queue", |text| {
        if let Ok(delay) = text.parse::<Duration>() {
            return Ok(Bound::Delay(delay));
        }
        match text.parse::<ByteSize>().map(ByteSize::as_bytes) {
            Ok(bytes) if bytes <= QUEUE_BYTES_MAX => Ok(Bound::Bytes(bytes)),
            Ok(_) => Err(format!("must be at most {QUEUE_BYTES_MAX} bytes")),
            Err(_) => Err(format!("cannot read {text:?}: expected a size such as 256KiB or a time such as 30ms")),
        }
    });
    match bound {
        Some(Bound::Bytes(bytes)) => (config.queue_bytes, config.queue_delay) = (bytes, None),
        Some(Bound::Delay(delay)) => config.queue_delay = Some(delay),
        None => {}
    }
}

/// Reads jitter; `{ distribution = "none" }` disables it, in `back` and in faults.
pub(super) fn read_jitter(table: &Table<'_, '_>) -> Option<Jitter> {
    #[derive(Clone, Copy)]
    enum Kind {
        None,
        Uniform,
        Normal,
        Pareto,
    }
    let keywords =
        [(Kind::None, "none"), (Kind::Uniform, "uniform"), (Kind::Normal, "normal"), (Kind::Pareto, "pareto")];
    let kind = table.required("distribution", table.keyword("distribution", &keywords));
    let span = |key| table.required(key, table.duration_above_zero(key));
    let Some(kind) = kind else {
        table.finish_unknown_kind(&["max", "deviation", "scale", "shape", "cap", "reorders"]);
        return None;
    };
    let spread = match kind {
        Kind::None => None,
        Kind::Uniform => span("max").map(|max| Distribution::Uniform { max }),
        Kind::Normal => span("deviation").map(|deviation| Distribution::Normal { deviation }),
        Kind::Pareto => {
            let shape = table.required("shape", table.hundredths("shape", netem::PARETO_SHAPE_HUNDREDTHS_MAX));
            let (scale, cap) = (span("scale"), span("cap"));
            scale.zip(shape).zip(cap).map(|((scale, shape_hundredths), cap)| Distribution::Pareto {
                scale,
                shape_hundredths,
                cap,
            })
        }
    };
    let reorders = !matches!(kind, Kind::None) && table.boolean("reorders").unwrap_or(false);
    table.finish();
    Some(Jitter { distribution: spread?, reorders })
}

/// Reads burst losses; `{ enter = "0" }` disables them, in `back` and in faults.
pub(super) fn read_bursts(table: &Table<'_, '_>) -> Option<BurstLoss> {
    let enter = table.required("enter", table.ratio("enter"));
    let leave = table.ratio("leave");
    let lost = table.ratio("loss").unwrap_or(Ratio::ONE);
    let lost_outside = table.ratio("loss-outside").unwrap_or(Ratio::ZERO);
    if enter.is_some_and(|enter| !enter.is_zero()) {
        table.required("leave", leave);
    }
    table.finish();
    if enter?.is_zero() {
        return None;
    }
    Some(BurstLoss { good_to_bad: enter?, bad_to_good: leave?, loss_good: lost_outside, loss_bad: lost })
}

pub(super) fn read_reorder(table: &Table<'_, '_>) -> Option<(Ratio, Duration)> {
    let share = table.required("share", table.ratio("share"));
    let by = table.duration("by");
    table.finish();
    if share?.is_zero() {
        return Some((Ratio::ZERO, Duration::ZERO));
    }
    Some((share?, table.required("by", by)?))
}

fn read_codel(table: &Table<'_, '_>) -> CoDel {
    let usual = CoDel::default();
    let codel = CoDel {
        target: table.duration_above_zero("target").unwrap_or(usual.target),
        interval: table.duration_above_zero("interval").unwrap_or(usual.interval),
        // Scenarios run without ECN.
        ecn: false,
    };
    table.finish();
    codel
}
