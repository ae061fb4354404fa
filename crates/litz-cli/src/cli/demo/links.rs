//! The demo's links.

use std::net::{Ipv4Addr, SocketAddr};

use emulate::{DeviceText, LinkText, RelayLink};
use netem::LinkConfig;
use units::{Duration, Rate};

use crate::cli::bounded::read_trace;

/// The four different links of the default: name, and one-way delay in milliseconds. Each has half
/// the rate of the one before.
const DEFAULT_LINKS: [(&str, u64); 4] = [("fibre", 5), ("cable", 15), ("wlan", 30), ("mobile", 60)];

/// Queue of a default link, in milliseconds at its rate.
const DEFAULT_QUEUE_MS: u64 = 50;

/// Rates of the fastest default link, in Mb/s, fastest first. The demo takes the first that the
/// machine can carry with ease. The last one is so slow that no machine is too slow for it.
const FASTEST_RATES_MBPS: [u64; 12] = [400, 320, 240, 160, 120, 80, 60, 40, 24, 16, 12, 8];

/// Size of the IPv4 and UDP headers, which the links carry too.
const HEADER_BYTES: u64 = 28;

/// One link.
#[derive(Clone, Debug)]
pub(super) struct DemoLink {
    pub(super) name: String,
    pub(super) rate: Rate,
    forward: LinkConfig,
    backward: LinkConfig,
}

impl DemoLink {
    /// Parses the links.
    ///
    /// # Errors
    /// A message for the user: no link, too many links, or a link that the demo cannot use.
    pub(super) fn parse_all(texts: &[String]) -> Result<Vec<Self>, String> {
        if texts.is_empty() || texts.len() > litz::paths::PATHS_MAX {
            return Err(format!("the demo needs 1 to {1} links, not {0}", texts.len(), litz::paths::PATHS_MAX));
        }
        texts.iter().enumerate().map(|(index, text)| Self::parse(index, text)).collect()
    }

    /// The default links, in total at most as fast as `sum_max`, or the slowest that there are.
    ///
    /// # Panics
    /// Never: the texts are links.
    pub(super) fn defaults(sum_max: Rate) -> Vec<Self> {
        let of = |fastest_mbps: u64| -> Vec<Self> {
            let links = DEFAULT_LINKS.iter().enumerate().map(|(index, (name, delay_ms))| {
                let rate = Rate::from_bps((fastest_mbps * 1_000_000) >> index);
                let text =
                    format!("name={name},rate={}b/s,delay={delay_ms}ms,queue={DEFAULT_QUEUE_MS}ms", rate.as_bps());
                Self::parse(index, &text).expect("the text of a link")
            });
            links.collect()
        };
        let [.., slowest] = FASTEST_RATES_MBPS;
        let mut rates = FASTEST_RATES_MBPS.into_iter().map(of);
        rates.find(|links| sum(links) <= sum_max).unwrap_or_else(|| of(slowest))
    }

    /// The link with a tenth of its delay: a short transfer over it is soon at its full rate.
    pub(super) fn nearby(&self) -> Self {
        let near = |config: &LinkConfig| LinkConfig { delay: config.delay / 10, ..config.clone() };
        Self { forward: near(&self.forward), backward: near(&self.backward), ..self.clone() }
    }

    fn parse(index: usize, text: &str) -> Result<Self, String> {
        let wrong = |what: String| format!("--link {text}: {what}");
        let LinkText { forward, backward, device } =
            LinkText::parse(text, HEADER_BYTES, read_trace).map_err(|error| wrong(error.to_string()))?;
        let DeviceText { name, mtu, left, right } = device;
        if mtu.is_some() || !left.is_empty() || !right.is_empty() {
            return Err(wrong("the demo has no network devices: remove mtu, left and right".to_owned()));
        }
        for config in [&forward, &backward] {
            config.validate().map_err(|error| wrong(error.to_string()))?;
        }
        // Otherwise the capacity of the links would not be known.
        if forward.schedule.is_some() {
            return Err(wrong("the demo makes its own outage: remove down, flap, at and every".to_owned()));
        }
        let rate = forward.rate.filter(|rate| !rate.is_zero());
        let rate = rate.ok_or_else(|| wrong("a link needs a rate above zero, such as rate=100Mb/s".to_owned()))?;
        Ok(Self { name: name.unwrap_or_else(|| format!("l{index}")), rate, forward, backward })
    }

    /// The link as a relay emulates it, on its own port.
    pub(super) fn relay_link(&self) -> RelayLink {
        RelayLink {
            name: self.name.clone(),
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            // Set when the receiver listens.
            server: None,
            forward: self.forward.clone(),
            backward: self.backward.clone(),
        }
    }

    /// The direction from the sender to the receiver.
    pub(super) const fn config(&self) -> &LinkConfig {
        &self.forward
    }

    /// The delay from the receiver to the sender.
    pub(super) const fn delay_back(&self) -> Duration {
        self.backward.delay
    }

    /// Rate, delay and loss as text.
    pub(super) fn text(&self) -> String {
        let (there, back) = (self.forward.delay, self.backward.delay);
        let mut text = format!("{}, {there} {}", self.rate, if there == back { "one-way" } else { "there" });
        if there != back {
            text += &format!(" and {back} back");
        }
        if !self.forward.loss.is_zero() {
            text += &format!(", {:.2} % loss", self.forward.loss.as_f64() * 100.0);
        }
        text
    }
}

/// The total rate of the links.
pub(super) fn sum(links: &[DemoLink]) -> Rate {
    Rate::from_bps(links.iter().fold(0, |sum, link| sum.saturating_add(link.rate.as_bps())))
}

/// Index of the fastest link; the first if there are several.
pub(super) fn fastest(links: &[DemoLink]) -> usize {
    let indices = 0..links.len();
    // `max_by_key` returns the last of several.
    indices.rev().max_by_key(|&index| links[index].rate).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use units::Duration;

    use super::*;

    fn parse(texts: &[&str]) -> Result<Vec<DemoLink>, String> {
        DemoLink::parse_all(&texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn the_default_links_differ() {
        let links = DemoLink::defaults(Rate::from_mbps(750));
        let rates: Vec<_> = links.iter().map(|link| link.rate).collect();
        assert_eq!(rates, [400, 200, 100, 50].map(Rate::from_mbps));
        let delays: Vec<_> = links.iter().map(|link| link.config().delay).collect();
        assert_eq!(delays, [5, 15, 30, 60].map(Duration::from_millis));
        assert!(links.iter().all(|link| link.config().overhead_bytes == HEADER_BYTES));
        assert_eq!((sum(&links), fastest(&links)), (Rate::from_mbps(750), 0));
    }

    #[test]
    fn slower_default_links_have_the_same_proportions() {
        for mbps in [0, 1, 15, 50, 300, 749] {
            let (most, links) = (Rate::from_mbps(mbps), DemoLink::defaults(Rate::from_mbps(mbps)));
            assert!(sum(&links) <= most.max(Rate::from_mbps(15)), "{mbps} Mb/s: {}", sum(&links));
            assert!(sum(&links).as_bps() * 3 / 2 >= most.as_bps(), "{mbps} Mb/s: {}", sum(&links));
            for pair in links.windows(2) {
                assert_eq!(pair[0].rate.as_bps(), 2 * pair[1].rate.as_bps());
                assert!(pair[0].config().delay < pair[1].config().delay);
            }
        }
    }

    #[test]
    fn both_delays_are_shown_if_they_differ() {
        let links = parse(&["rate=8Mb/s,delay=5ms", "rate=8Mb/s,delay=5ms,back.delay=40ms,loss=1%"]).unwrap();
        let texts: Vec<_> = links.iter().map(DemoLink::text).collect();
        assert_eq!(texts, ["8.0 Mb/s, 5.0 ms one-way", "8.0 Mb/s, 5.0 ms there and 40.0 ms back, 1.00 % loss"]);
    }

    #[test]
    fn the_first_of_several_fastest_links_is_chosen() {
        let links = parse(&["rate=1Mb/s", "rate=5Mb/s", "rate=5Mb/s,name=x"]).unwrap();
        assert_eq!(fastest(&links), 1);
        assert_eq!(links.iter().map(|link| link.name.as_str()).collect::<Vec<_>>(), ["l0", "l1", "x"]);
    }

    #[test]
    fn unusable_links_are_refused_with_the_reason() {
        for (text, expected) in [
            ("delay=5ms", "needs a rate"),
            ("rate=5", "rate"),
            ("rate=1Mb/s,mtu=1400", "no network devices"),
            ("rate=1Mb/s,down=1s..2s silent", "makes its own outage"),
            ("rate=1Mb/s,flap=1s 1s silent", "makes its own outage"),
            ("rate=1Mb/s,at=1s rate=2Mb/s", "makes its own outage"),
        ] {
            let error = parse(&[text]).unwrap_err();
            assert!(error.contains(expected) && error.contains(text), "{text}: {error}");
        }
        assert!(parse(&[]).unwrap_err().contains("not 0"));
        assert!(parse(&["rate=1Mb/s"; 33]).unwrap_err().contains("not 33"));
    }
}
