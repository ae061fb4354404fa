//! Links of TUN devices, with the model of `netem` between them.

use emulate::{Running, Side, TunLink, Tunnels};
use netem::{Distribution, Jitter, LinkConfig};

use super::{Carried, Hosts, address, device};
use crate::contender::Failure;
use crate::multipath::case::Line;
use litz::units::{Duration, Rate, Ratio};

const MTU: u16 = 1500;
/// Bytes of an Ethernet header, added to the length of each packet.
const OVERHEAD_BYTES: u64 = 14;
const SEED: u64 = 7;

/// The links while they run.
pub struct Emulated(Running);

impl Emulated {
    pub fn make(hosts: &Hosts, lines: &[Line]) -> Result<Self, Failure> {
        let links = lines.iter().enumerate().map(|(index, line)| link(hosts, index, line)).collect::<Result<_, _>>()?;
        Ok(Self(Tunnels::start(links, SEED)?))
    }

    pub fn carried(&self) -> Vec<Carried> {
        let of = |report: emulate::LinkReport| {
            let link = report.forward.link;
            Carried { bytes: link.delivered_bytes, packets: link.delivered, dropped: link.undelivered() }
        };
        self.0.stats().into_iter().map(of).collect()
    }

    pub fn cut(&self, link: usize) -> Result<(), Failure> {
        self.0.cut(link).map_err(|error| format!("link {link}: {error}").into())
    }

    pub fn restore(&self, link: usize) -> Result<(), Failure> {
        self.0.restore(link).map_err(|error| format!("link {link}: {error}").into())
    }

    pub fn lateness(&self) -> String {
        let words = |report: emulate::LinkReport| {
            let late = report.forward.lateness;
            let (mean, max) = (std::time::Duration::from(late.mean()), std::time::Duration::from(late.max));
            format!("{}: mean {mean:?}, worst {max:?}, {} of {} by 1 ms or more", report.name, late.late, late.count)
        };
        self.0.stats().into_iter().map(words).collect::<Vec<_>>().join("; ")
    }
}

fn link(hosts: &Hosts, index: usize, line: &Line) -> Result<TunLink, Failure> {
    let us = |us: u32| Duration::from_micros(u64::from(us));
    let jitter = Jitter { distribution: Distribution::Normal { deviation: us(line.jitter_us) }, reorders: false };
    let config = LinkConfig {
        rate: line.rate_mbps.map(|mbps| Rate::from_mbps(u64::from(mbps))),
        delay: us(line.delay_us),
        jitter: (line.jitter_us > 0).then_some(jitter),
        loss: Ratio::from_millionths(u64::from(line.loss_millionths)),
        queue_delay: Some(us(line.queue_ms * 1000)),
        overhead_bytes: OVERHEAD_BYTES,
        ..LinkConfig::default()
    };
    let side = |host: &String, is_b| -> Result<Side, Failure> {
        Ok(Side { namespace: Some(host.clone()), addresses: vec![format!("{}/24", address(index, is_b)).parse()?] })
    };
    Ok(TunLink {
        name: device(index),
        left: side(&hosts.a, false)?,
        right: side(&hosts.b, true)?,
        mtu: MTU,
        forward: config.clone(),
        backward: config,
    })
}
