//! A link as people write it: `rate=100Mb/s,delay=10ms,loss=1%,queue=30ms`.
//!
//! ```text
//!   link    = [ item { "," item } ]
//!   item    = [ "back." ] key [ "=" value ]          words within a value are apart by spaces
//! ```
//!
//! | item | meaning | without it |
//! |---|---|---|
//! | `rate=100Mb/s` | what the line carries | no limit |
//! | `trace=FILE` | the same from a recording, in mahimahi's format, in place of `rate` | |
//! | `delay=10ms` | from the end of the line to the arrival | 0 |
//! | `jitter=uniform 5ms`, `jitter=normal 5ms`, `jitter=pareto 1ms 1.5 100ms` | delays that differ: up to that much more; around `delay` with that deviation; with a heavy tail (scale, shape, cap). With `reorders` behind, packets may overtake | none |
//! | `loss=1%` | share of packets that vanish | 0% |
//! | `bursts=1% 25%`, `bursts=1% 25% 80% 0.1%` | loss in bursts (Gilbert, Elliott): chance a packet to turn bad, to turn good, then loss while bad, loss while good | none, 100%, 0% |
//! | `reorder=1% 5ms` | share of packets that arrive that much later | none |
//! | `duplicate=1%`, `corrupt=1%` | share of packets that arrive twice, or with one bit turned around | 0% |
//! | `queue=30ms`, `queue=64KiB` | what waits for the line at most: what it carries in that time, or bytes | 1MiB |
//! | `codel`, `codel=5ms 100ms`, `codel=5ms 100ms ecn` | CoDel on that queue: target, interval, and marks in place of drops where packets allow it | drop-tail |
//! | `overhead=38B` | what each packet costs on the line above its own length | 0B; 28B in a relay, 48B on IPv6 |
//! | `state=silent`, `state=held`, `state=up` | cut from the start: packets vanish, or wait | up |
//! | `down=2s..3s silent`, `down=2s..3s held` | cut in that time | never |
//! | `flap=10s 1s silent` | up for a time, down for a time, for ever | never |
//! | `at=5s rate=10Mb/s` | from that time on: `rate`, `delay`, `jitter`, `loss`, `bursts`, `reorder`, `duplicate`, `corrupt` or `state`; `none` takes one away | |
//! | `every=10s` | `down` and `at` begin again after that time | once |
//! | `back.KEY=...` | any of these, for the way back alone, in place of what both ways have: `rate` and `trace` take each other's place, and so do `down`, `flap`, `at` and `every` | both ways alike |
//! | `name=l0` | the link, and its device on both sides | l0, l1, ...; in a relay its address |
//! | `mtu=1500` | bytes of the device's largest packet | 1500 |
//! | `left=10.1.0.1/24`, `right=10.1.0.2/24` | addresses of the sides, more than once if there are several | none |
//!
//! The last two rows describe devices, so a relay refuses them. `down`, `flap` and `at` may stand more than once (`flap`
//! once a way); every other key once a way. `rate`, `jitter`, `bursts`, `reorder`, `codel` and `down` may be `none`. Times count from
//! the start of the emulation. A text has no way to write a comma in the name of a file.

mod error;
mod schedule;
mod value;

use std::path::Path;

use netem::{CoDel, Discipline, LinkConfig, Trace};
use units::{ByteSize, Duration};

use crate::{Cidr, MTU_MIN};
use schedule::ScheduleText;

pub use error::LinkTextError;

/// The settings of a link, as read from a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkText {
    /// From left to right, or towards the server.
    pub forward: LinkConfig,
    /// Back.
    pub backward: LinkConfig,
    /// What is said of its devices.
    pub device: DeviceText,
}

/// What a text says of a link's devices; `None` and empty where it says nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceText {
    /// What they are called.
    pub name: Option<String>,
    /// Bytes of the largest packet.
    pub mtu: Option<u16>,
    /// Addresses of the left one.
    pub left: Vec<Cidr>,
    /// Addresses of the right one.
    pub right: Vec<Cidr>,
}

/// Items that a text has at most: each of a schedule's changes is one.
pub const ITEMS_MAX: usize = 1024;

/// What stands before a key that concerns the way back alone.
const BACK: &str = "back.";

/// The keys of a way, for errors.
const WAY_KEYS: &str = "rate, trace, delay, jitter, loss, bursts, reorder, duplicate, corrupt, queue, codel, overhead, \
                        state, down, flap, at, every";

/// Keys that may stand several times.
const REPEATED: [&str; 4] = ["down", "at", "left", "right"];

impl LinkText {
    /// Reads a text. `overhead_bytes` is what each packet costs above its own length if the text does not say. `read` reads
    /// the file of a trace.
    ///
    /// # Errors
    /// A [`LinkTextError`] for the first item that is wrong: it names the key and says what is allowed.
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
        let way = |items: &[&Item<'_>]| way(items, overhead_bytes, &read);
        let forward = way(&both)?;
        let backward = if back.is_empty() {
            forward.clone()
        } else {
            // What is said of the way back takes the place of what is said of both, key by key.
            let replaced = |key: &str| back.iter().any(|item| takes_the_place(item.key, key));
            let kept = both.iter().copied().filter(|item| !replaced(item.key));
            way(&kept.chain(back.iter().copied()).collect::<Vec<_>>())?
        };
        Ok(Self { forward, backward, device })
    }
}

/// `key=value`, or `key` alone with an empty value.
#[derive(Clone, Copy, Debug)]
struct Item<'a> {
    is_back: bool,
    key: &'a str,
    value: &'a str,
}

fn is_device_key(key: &str) -> bool {
    matches!(key, "name" | "mtu" | "left" | "right")
}

/// A line has a rate or a trace, so one of them takes the place of the other; and flapping is a schedule of its own.
fn takes_the_place(back: &str, both: &str) -> bool {
    let kind = |key| match key {
        "rate" | "trace" => "pace",
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
            return Err(item.error(&format!("expected one of {WAY_KEYS}")));
        }
        if items.len() == ITEMS_MAX {
            return Err(item.error(&format!("there are more than {ITEMS_MAX} items")));
        }
        let is_same = |other: &Item<'_>| (other.is_back, other.key) == (item.is_back, item.key);
        if !REPEATED.contains(&item.key) && items.iter().any(is_same) {
            return Err(item.error("it stands twice; once is enough"));
        }
        if item.is_back && is_device_key(item.key) {
            return Err(item.error("the device is the same both ways: leave `back.` out"));
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
            device.mtu = Some(mtu.ok_or_else(|| {
                item.error(&format!("expected the bytes of the largest packet, from {MTU_MIN} to {}", u16::MAX))
            })?);
        }
        "left" => device.left.push(item.value.parse().map_err(|error| item.error(&format!("{error}")))?),
        "right" => device.right.push(item.value.parse().map_err(|error| item.error(&format!("{error}")))?),
        _ => {}
    }
    Ok(())
}

/// The settings of one way.
fn way(
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
            "overhead" => config.overhead_bytes = item.quantity::<ByteSize>()?.as_bytes(),
            "down" | "flap" | "at" | "every" => schedule.add(item)?,
            key => match value::change(key, item.value) {
                Some(change) => change.map_err(|expected| item.error(&expected))?.apply(&mut config),
                None => {
                    return Err(item.error(&format!(
                        "there is no such key: there are {WAY_KEYS}, each for both ways or, with `{BACK}` before it, for \
                         the way back; and for devices name, mtu, left, right"
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
            item.error("expected a file: a line for each 1500 bytes that could pass, with its time in milliseconds")
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
        "expected a target and an interval, such as 5ms 100ms, with `ecn` behind to mark; nothing; or none";
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
