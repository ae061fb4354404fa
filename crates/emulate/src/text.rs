//! Links written as text: `rate=100Mb/s,delay=10ms,loss=1%,queue=30ms`.
//!
//! ```text
//!   link    = [ item { "," item } ]
//!   item    = [ "back." ] key [ "=" value ]          words within a value are separated by spaces
//! ```
//!
//! | item | meaning | default |
//! |---|---|---|
//! | `rate=100Mb/s` | rate of the line | no limit |
//! | `trace=FILE` | a recorded rate in mahimahi's format, in place of `rate` | |
//! | `delay=10ms` | propagation delay | 0 |
//! | `jitter=uniform 5ms`, `jitter=normal 5ms`, `jitter=pareto 1ms 1.5 100ms` | variation of the delay: uniform up to that addition; normal around `delay` with that deviation; heavy-tailed (scale, shape, cap). With a final `reorders` packets may overtake | none |
//! | `loss=1%` | loss probability | 0% |
//! | `bursts=1% 25%`, `bursts=1% 25% 80% 0.1%` | loss in bursts (Gilbert, Elliott): probability per packet to turn bad, to turn good, loss in the bad state, loss in the good state | none, 100%, 0% |
//! | `reorder=1% 5ms` | share of packets that arrive later, by that time | none |
//! | `duplicate=1%`, `corrupt=1%` | share of packets that arrive twice, or with one bit flipped | 0% |
//! | `queue=30ms`, `queue=64KiB` | limit of the queue: as time at the rate, or in bytes | 1MiB |
//! | `codel`, `codel=5ms 100ms`, `codel=5ms 100ms ecn` | CoDel on that queue: target, interval, and marks instead of drops for ECN-capable packets | drop-tail |
//! | `overhead=38B` | bytes on the line per packet above its own length | 0B; 28B in a relay, 48B on IPv6 |
//! | `state=silent`, `state=held`, `state=up` | down from the start: packets are dropped, or wait | up |
//! | `down=2s..3s silent`, `down=2s..3s held` | down in that time | never |
//! | `flap=10s 1s silent` | alternately up and down for these times | never |
//! | `at=5s rate=10Mb/s` | a change at that time: `rate`, `delay`, `jitter`, `loss`, `bursts`, `reorder`, `duplicate`, `corrupt` or `state`; `none` removes a setting | |
//! | `every=10s` | `down` and `at` repeat with this period | once |
//! | `back.KEY=...` | any of these, for the backward direction only, replacing the value for both directions; `rate` and `trace` replace each other, and so do `down`, `flap`, `at` and `every` | both directions are equal |
//! | `name=l0` | name of the link, and of its device on both sides | l0, l1, ...; in a relay its address |
//! | `mtu=1500` | MTU of the device in bytes | 1500 |
//! | `left=10.1.0.1/24`, `right=10.1.0.2/24` | addresses of the sides; may be repeated | none |
//!
//! The last three rows describe devices, so a relay rejects them. `down`, `flap` and `at` may be
//! repeated (`flap` once per direction); every other key may be given once per direction. `rate`,
//! `jitter`, `bursts`, `reorder`, `codel` and `down` may be `none`. Times count from the start of
//! the emulation. The name of a file cannot contain a comma.

mod error;
mod schedule;
mod value;

use std::path::Path;

use netem::{CoDel, Discipline, LinkConfig, Trace};
use units::{ByteSize, Duration};

use super::cidr::Cidr;
use crate::mtu::MTU_MIN;
use schedule::ScheduleText;

pub use error::LinkTextError;

/// The settings of a link, parsed from text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkText {
    /// From left to right, or towards the server.
    pub forward: LinkConfig,
    /// The opposite direction.
    pub backward: LinkConfig,
    /// The settings of its devices.
    pub device: DeviceText,
}

/// The settings of a link's devices; `None` and empty where the text has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceText {
    /// The name of the devices.
    pub name: Option<String>,
    /// The MTU in bytes.
    pub mtu: Option<u16>,
    /// Addresses of the left device.
    pub left: Vec<Cidr>,
    /// Addresses of the right device.
    pub right: Vec<Cidr>,
}

/// Largest number of items in a text; each change of a schedule is one item.
pub const ITEMS_MAX: usize = 1024;

/// The prefix of keys for the backward direction only.
const BACK: &str = "back.";

/// The keys of a direction, for error messages.
const DIRECTION_KEYS: &str = "rate, trace, delay, jitter, loss, bursts, reorder, duplicate, corrupt, queue, codel, l4s, overhead, \
                        state, down, flap, at, every";

/// Keys that may be repeated.
const REPEATED: [&str; 4] = ["down", "at", "left", "right"];

impl LinkText {
    /// Parses a text. `overhead_bytes` is the default overhead per packet. `read` reads the file of
    /// a trace.
    ///
    /// # Errors
    /// Returns a [`LinkTextError`] for the first invalid item: it names the key and the permitted
    /// values.
    pub fn parse(
        text: &str,
        overhead_bytes: u64,
        read: impl Fn(&Path) -> std::io::Result<String>,
    ) -> Result<Self, LinkTextError> {
        let items: Vec<Item<'_>> = split(text)?;
        let mut device = DeviceText::default();
        for item in items.iter().filter(|item| !item.is_back) {
            device_item(&mut device, item)?;
        }
        let (back, both): (Vec<_>, Vec<_>) =
            items.iter().filter(|item| !is_device_key(item.key)).partition(|item| item.is_back);
        let direction_config = |items: &[&Item<'_>]| direction_config(items, overhead_bytes, &read);
        let forward = direction_config(&both)?;
        let backward = if back.is_empty() {
            forward.clone()
        } else {
            // Settings for the backward direction replace those for both directions, key by key.
            let replaced = |key: &str| back.iter().any(|item| replaces(item.key, key));
            let kept = both.iter().copied().filter(|item| !replaced(item.key));
            direction_config(&kept.chain(back.iter().copied()).collect::<Vec<_>>())?
        };
        Ok(Self { forward, backward, device })
    }
}

/// An item `key=value`, or `key` alone with an empty value.
#[derive(Clone, Copy, Debug)]
struct Item<'a> {
    is_back: bool,
    key: &'a str,
    value: &'a str,
}

fn is_device_key(key: &str) -> bool {
    matches!(key, "name" | "mtu" | "left" | "right")
}

/// Returns whether the key `back` replaces `both`. A line has a rate or a trace, so each replaces
/// the other; the same holds for the keys of a schedule.
fn replaces(back: &str, both: &str) -> bool {
    let kind = |key| match key {
        "rate" | "trace" => "capacity",
        "down" | "flap" | "at" | "every" => "schedule",
        other => other,
    };
    kind(back) == kind(both)
}

fn split(text: &str) -> Result<Vec<Item<'_>>, LinkTextError> {
    let mut items: Vec<Item<'_>> = Vec::new();
    if text.trim().is_empty() {
        return Ok(items);
    }
    for part in text.split(',') {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        let (whole_key, value) = (key.trim(), value.trim());
        let key = whole_key.strip_prefix(BACK).unwrap_or(whole_key);
        let item = Item { is_back: key.len() < whole_key.len(), key, value };
        if key.is_empty() {
            return Err(item.error(&format!("expected one of {DIRECTION_KEYS}")));
        }
        if items.len() == ITEMS_MAX {
            return Err(item.error(&format!("there are more than {ITEMS_MAX} items")));
        }
        let is_same = |other: &Item<'_>| (other.is_back, other.key) == (item.is_back, item.key);
        if !REPEATED.contains(&item.key) && items.iter().any(is_same) {
            return Err(item.error("the key is given twice"));
        }
        if item.is_back && is_device_key(item.key) {
            return Err(item.error("a device has the same settings in both directions: remove `back.`"));
        }
        items.push(item);
    }
    Ok(items)
}

fn device_item(device: &mut DeviceText, item: &Item<'_>) -> Result<(), LinkTextError> {
    match item.key {
        "name" => {
            let is_name = !item.value.is_empty()
                && item.value.len() <= 15
                && item.value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
                && !matches!(item.value, "." | "..");
            if !is_name {
                return Err(item.error("expected a name for the device: 1 to 15 letters, digits, `-`, `_` or `.`"));
            }
            device.name = Some(item.value.to_owned());
        }
        "mtu" => {
            let mtu = item.value.parse().ok().filter(|mtu| *mtu >= MTU_MIN);
            device.mtu = Some(
                mtu.ok_or_else(|| item.error(&format!("expected an MTU in bytes, from {MTU_MIN} to {}", u16::MAX)))?,
            );
        }
        "left" => device.left.push(item.value.parse().map_err(|error| item.error(&format!("{error}")))?),
        "right" => device.right.push(item.value.parse().map_err(|error| item.error(&format!("{error}")))?),
        _ => {}
    }
    Ok(())
}

/// Parses the settings of one direction.
fn direction_config(
    items: &[&Item<'_>],
    overhead_bytes: u64,
    read: impl Fn(&Path) -> std::io::Result<String>,
) -> Result<LinkConfig, LinkTextError> {
    let mut config = LinkConfig { overhead_bytes, ..LinkConfig::default() };
    let mut schedule = ScheduleText::default();
    for item in items {
        match item.key {
            "trace" => config.trace = Some(trace(item, &read)?),
            "queue" => queue(item, &mut config)?,
            "codel" if item.value == value::NONE => config.discipline = Discipline::DropTail,
            "codel" => config.discipline = Discipline::CoDel(codel(item)?),
            "l4s" => config.discipline = Discipline::Step(item.quantity()?),
            "overhead" => config.overhead_bytes = item.quantity::<ByteSize>()?.as_bytes(),
            "down" | "flap" | "at" | "every" => schedule.add(item)?,
            key => match value::change(key, item.value) {
                Some(change) => change.map_err(|expected| item.error(&expected))?.apply(&mut config),
                None => {
                    return Err(item.error(&format!(
                        "there is no such key: the keys are {DIRECTION_KEYS}, each for both directions or, with the \
                         prefix `{BACK}`, for the backward direction; and for devices name, mtu, left, right"
                    )));
                }
            },
        }
    }
    config.schedule = schedule.finish()?;
    config.validate().map_err(LinkTextError::config)?;
    Ok(config)
}

fn trace(item: &Item<'_>, read: impl Fn(&Path) -> std::io::Result<String>) -> Result<Trace, LinkTextError> {
    if item.value.is_empty() {
        return Err(
            item.error("expected a file with one line per 1500 bytes that can be sent, with the time in milliseconds")
        );
    }
    let text = read(Path::new(item.value)).map_err(|error| item.error(&format!("cannot read the file: {error}")))?;
    Trace::parse(&text).map_err(|error| item.error(&error.to_string()))
}

fn queue(item: &Item<'_>, config: &mut LinkConfig) -> Result<(), LinkTextError> {
    if let Ok(delay) = item.value.parse::<Duration>() {
        config.queue_delay = Some(delay);
    } else if let Ok(bytes) = item.value.parse::<ByteSize>() {
        config.queue_bytes = bytes.as_bytes();
    } else {
        return Err(item.error("expected a time such as 30ms or a size such as 64KiB"));
    }
    Ok(())
}

fn codel(item: &Item<'_>) -> Result<CoDel, LinkTextError> {
    const EXPECTED: &str =
        "expected a target and an interval, such as 5ms 100ms, with a final `ecn` to mark packets; nothing; or none";
    let mut words: Vec<_> = item.value.split_whitespace().collect();
    let ecn = words.last() == Some(&"ecn");
    if ecn {
        words.pop();
    }
    let (target, interval) = match words[..] {
        [] => return Ok(CoDel { ecn, ..CoDel::default() }),
        [target, interval] => (target.parse(), interval.parse()),
        _ => return Err(item.error(EXPECTED)),
    };
    match (target, interval) {
        (Ok(target), Ok(interval)) => Ok(CoDel { target, interval, ecn }),
        _ => Err(item.error(EXPECTED)),
    }
}

#[cfg(test)]
mod tests;
