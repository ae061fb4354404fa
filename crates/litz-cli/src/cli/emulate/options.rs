//! The arguments of `litz emulate`, and the links that they describe.

use std::net::SocketAddr;

use clap::{Args, Subcommand};
use emulate::{DeviceText, LinkText, RelayLink};
use units::Duration;

use crate::cli::bounded::read_trace;

/// The end of the help texts.
pub(crate) const HELP: &str = "\
A link is a comma-separated list of settings, which docs/guide/emulate.md describes in full:
  rate=100Mb/s           rate of the line
  trace=FILE             the same from a recording in mahimahi's format
  delay=10ms             time from the end of the line to the arrival
  jitter=normal 5ms      variation of the delay: normal, uniform or pareto; with `reorders`, packets may overtake
  loss=1%                share of packets that are lost
  bursts=1% 25%          loss in bursts: probability of entering and of leaving the bad state
  reorder=1% 5ms         share of packets that arrive that much later
  duplicate=1%           share of packets that arrive twice
  corrupt=1%             share of packets that arrive with one bit inverted
  queue=30ms             limit of the queue before the line, as a time or as bytes (64KiB)
  codel=5ms 100ms        CoDel on that queue; with `ecn` it marks packets
  overhead=38B           cost of each packet on the line beyond its length
  state=silent           cut from the start: packets are lost (silent) or wait (held)
  down=2s..3s silent     cut in that time
  flap=10s 1s silent     up, down, up, down, without end
  at=5s rate=10Mb/s      another value from that time on
  every=10s              `down` and `at` begin again after that time
  back.KEY=VALUE         KEY in the return direction only; by default both are alike

Exit status:
  0    the time given by --for has passed
  2    an error: bad arguments, missing privilege, a device that was removed
  130  ended by Ctrl-C or SIGTERM, after the statistics";

/// The end of the help text of `limits`.
pub(crate) const LIMITS_HELP: &str = "\
Takes about twenty seconds and needs an otherwise idle machine. Without root, links between network \
namespaces are not measured.

Exit status:
  0    the result was printed
  2    an error: bad arguments, no socket, a namespace that cannot be created
  130  interrupted: nothing is printed, and the namespaces are removed";

/// The usage of `relay`, which clap would not wrap.
const RELAY_USAGE: &str = "\
litz emulate relay [OPTIONS] --listen <ADDRESS:PORT>
             --to <ADDRESS:PORT>";

/// Sizes of the IP and UDP headers, which a link carries with each datagram.
const IPV4_UDP_HEADER_BYTES: u64 = 28;
const IPV6_UDP_HEADER_BYTES: u64 = 48;

#[derive(Args, Debug)]
pub(crate) struct EmulateOptions {
    #[command(subcommand)]
    pub(super) form: Form,
}

#[derive(Subcommand, Debug)]
pub(super) enum Form {
    /// Relay UDP datagrams between clients and servers on this machine; needs no privilege
    #[command(after_help = HELP, override_usage = RELAY_USAGE)]
    Relay(RelayOptions),
    /// Connect network namespaces for all IP traffic; needs root on Linux
    #[command(after_help = HELP)]
    Tun(TunOptions),
    /// Measure what this machine can emulate: packets per second and timing error
    #[command(after_help = LIMITS_HELP)]
    Limits(LimitsOptions),
}

/// Options of both forms.
#[derive(Args, Debug)]
pub(super) struct RunOptions {
    /// Seed of all faults: the same packets at the same times have the same faults
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,

    /// End after this time [default: at Ctrl-C]
    #[arg(long = "for", value_name = "TIME")]
    pub(super) span: Option<Duration>,

    /// Print JSON lines on standard output instead of text
    #[arg(long)]
    pub(super) json: bool,

    /// Print the progress every second
    #[arg(long)]
    pub(super) progress: bool,
}

#[derive(Args, Debug)]
pub(super) struct RelayOptions {
    /// Address that clients send to, port 0 for any free port; each --listen makes a link
    #[arg(long, value_name = "ADDRESS:PORT", required = true)]
    listen: Vec<SocketAddr>,

    /// Address of the server: one for each --listen, in that order, or one for all
    #[arg(long, value_name = "ADDRESS:PORT", required = true)]
    to: Vec<SocketAddr>,

    /// Settings of the link: one for each --listen, or one for all
    #[arg(long, value_name = "LINK")]
    link: Vec<String>,

    /// Settings that differ in the return direction: one for each --listen, or one for all
    #[arg(long, value_name = "LINK")]
    back: Vec<String>,

    #[command(flatten)]
    pub(super) run: RunOptions,
}

#[derive(Args, Debug)]
pub(super) struct TunOptions {
    /// Network namespace of the left side [default: the current one]
    #[arg(long, value_name = "NAME", required_unless_present = "right_netns")]
    left_netns: Option<String>,

    /// Network namespace of the right side [default: the current one]
    #[arg(long, value_name = "NAME")]
    right_netns: Option<String>,

    /// A link and its devices, such as left=10.1.0.1/24,right=10.1.0.2/24,rate=1Gb/s; may
    /// be repeated
    #[arg(long, value_name = "LINK", required = true)]
    link: Vec<String>,

    /// Settings that differ in the return direction, right to left: one for each --link, or one for
    /// all
    #[arg(long, value_name = "LINK")]
    back: Vec<String>,

    #[command(flatten)]
    pub(super) run: RunOptions,
}

#[derive(Args, Debug)]
pub(super) struct LimitsOptions {
    /// Duration of each measurement
    #[arg(long = "for", value_name = "TIME", default_value = "2s")]
    pub(super) span: Duration,

    /// Print one JSON object on standard output instead of text
    #[arg(long)]
    pub(super) json: bool,
}

impl RelayOptions {
    /// The links, or a message for the user.
    pub(super) fn links(&self) -> Result<Vec<RelayLink>, String> {
        let count = self.listen.len();
        let of_all = |name, given| one_for_each(name, given, "--listen", count);
        of_all("--to", self.to.len())?;
        of_all("--link", self.link.len())?;
        of_all("--back", self.back.len())?;
        self.listen.iter().enumerate().map(|(index, &listen)| self.link(index, listen)).collect()
    }

    fn link(&self, index: usize, listen: SocketAddr) -> Result<RelayLink, String> {
        let server = *nth(&self.to, index).ok_or("--to is missing")?;
        let headers = if listen.is_ipv4() { IPV4_UDP_HEADER_BYTES } else { IPV6_UDP_HEADER_BYTES };
        let LinkText { forward, backward, device } = parse(nth(&self.link, index), nth(&self.back, index), headers)?;
        let DeviceText { name, mtu, left, right } = device;
        let unfit = [("mtu", mtu.is_some()), ("left", !left.is_empty()), ("right", !right.is_empty())];
        if let Some((key, _)) = unfit.into_iter().find(|&(_, is_given)| is_given) {
            return Err(format!("--link: `{key}`: a relay has no network devices; use `litz emulate tun`"));
        }
        Ok(RelayLink {
            name: name.unwrap_or_else(|| listen.to_string()),
            listen,
            server: Some(server),
            forward,
            backward,
        })
    }
}

#[cfg(target_os = "linux")]
impl TunOptions {
    /// Checks that the namespaces exist; `folder` is where `ip netns` keeps them.
    pub(super) fn check_namespaces(&self, folder: &std::path::Path) -> Result<(), String> {
        let given = [("--left-netns", &self.left_netns), ("--right-netns", &self.right_netns)];
        for (option, name) in given.into_iter().filter_map(|(option, name)| Some((option, name.as_ref()?))) {
            if !folder.join(name).exists() {
                return Err(format!(
                    "{option}: there is no network namespace {name}; `ip netns list` lists them, `ip netns add {name}` \
                     makes one"
                ));
            }
        }
        Ok(())
    }

    /// The links, or a message for the user.
    pub(super) fn links(&self) -> Result<Vec<emulate::TunLink>, String> {
        one_for_each("--back", self.back.len(), "--link", self.link.len())?;
        let links = self.link.iter().enumerate().map(|(index, text)| {
            let LinkText { forward, backward, device } = parse(Some(text), nth(&self.back, index), 0)?;
            let DeviceText { name, mtu, left, right } = device;
            let side =
                |namespace: &Option<String>, addresses| emulate::Side { namespace: namespace.clone(), addresses };
            Ok(emulate::TunLink {
                name: name.unwrap_or_else(|| format!("l{index}")),
                left: side(&self.left_netns, left),
                right: side(&self.right_netns, right),
                mtu: mtu.unwrap_or(emulate::MTU_DEFAULT),
                forward,
                backward,
            })
        });
        links.collect()
    }
}

/// The value for link `index`: its own, or the only one.
fn nth<T>(given: &[T], index: usize) -> Option<&T> {
    given.get(index).or_else(|| given.first())
}

fn one_for_each(name: &str, given: usize, of: &str, count: usize) -> Result<(), String> {
    if given <= 1 || given == count {
        return Ok(());
    }
    Err(format!(
        "{name} is given {given} times and {of} {count} times: give {name} once for all links, or once for each"
    ))
}

fn parse(link: Option<&String>, back: Option<&String>, overhead_bytes: u64) -> Result<LinkText, String> {
    let mut text = link.cloned().unwrap_or_default();
    for item in back.iter().flat_map(|back| back.split(',')).filter(|item| !item.trim().is_empty()) {
        if !text.trim().is_empty() {
            text.push(',');
        }
        text += &format!("back.{}", item.trim());
    }
    LinkText::parse(&text, overhead_bytes, read_trace).map_err(|error| format!("--link: {error}"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use units::Rate;

    use super::*;

    #[derive(Parser, Debug)]
    struct Command {
        #[command(flatten)]
        options: EmulateOptions,
    }

    fn form(arguments: &str) -> Result<Form, String> {
        let words = arguments.split('|').map(str::trim);
        let parsed = Command::try_parse_from(std::iter::once("emulate").chain(words));
        parsed.map(|command| command.options.form).map_err(|error| error.to_string())
    }

    fn relay(arguments: &str) -> Result<Vec<RelayLink>, String> {
        match form(&format!("relay|{arguments}"))? {
            Form::Relay(options) => options.links(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_listen_makes_a_link_and_single_values_apply_to_all() {
        let links = relay(
            "--listen|127.0.0.1:1|--to|127.0.0.1:9|--link|rate=10Mb/s|--listen|[::1]:2|--link|name=b,rate=20Mb/s|--back|delay=7ms",
        )
        .unwrap();
        let rates: Vec<_> = links.iter().map(|link| link.forward.rate.unwrap()).collect();
        assert_eq!(rates, [Rate::from_mbps(10), Rate::from_mbps(20)]);
        assert!(links.iter().all(|link| link.server == Some("127.0.0.1:9".parse().unwrap())));
        assert!(
            links.iter().all(|link| link.backward.delay == Duration::from_millis(7) && link.forward.delay.is_zero())
        );
        assert_eq!(links.iter().map(|link| link.name.as_str()).collect::<Vec<_>>(), ["127.0.0.1:1", "b"]);
        assert_eq!(links.iter().map(|link| link.forward.overhead_bytes).collect::<Vec<_>>(), [28, 48]);
        assert_eq!(relay("--listen|127.0.0.1:1|--to|127.0.0.1:9").unwrap().len(), 1);
    }

    #[test]
    fn contradictory_arguments_are_refused() {
        let three = "--listen|127.0.0.1:1|--listen|127.0.0.1:2|--listen|127.0.0.1:3";
        for (arguments, expected) in [
            (format!("{three}|--to|127.0.0.1:8|--to|127.0.0.1:9"), "--to is given 2 times and --listen 3 times"),
            (format!("{three}|--to|127.0.0.1:8|--link||--link|"), "--link is given 2 times"),
            (
                "--listen|127.0.0.1:1|--to|127.0.0.1:9|--link|left=10.0.0.1/8".to_owned(),
                "a relay has no network devices",
            ),
            ("--listen|127.0.0.1:1|--to|127.0.0.1:9|--link|rate=1".to_owned(), "`rate=1`"),
            ("--listen|127.0.0.1:1|--to|127.0.0.1:9|--back|rate=1".to_owned(), "`back.rate=1`"),
            ("--listen|127.0.0.1:1".to_owned(), "--to"),
            ("--to|127.0.0.1:1".to_owned(), "--listen"),
        ] {
            let error = relay(&arguments).unwrap_err();
            assert!(error.contains(expected), "{arguments}: {error}");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn tunnels_have_names_addresses_and_two_sides() {
        let Form::Tun(options) = form(
            "tun|--left-netns|a|--right-netns|b|--link|left=10.1.0.1/24,right=10.1.0.2/24|--link|name=x,mtu=9000,back.loss=1%",
        )
        .unwrap() else {
            panic!("not a tunnel")
        };
        let links = options.links().unwrap();
        assert_eq!(
            links.iter().map(|link| (link.name.as_str(), link.mtu)).collect::<Vec<_>>(),
            [("l0", 1500), ("x", 9000)]
        );
        assert_eq!(links[0].left.addresses, ["10.1.0.1/24".parse().unwrap()]);
        assert_eq!(links[0].right.namespace.as_deref(), Some("b"));
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), "").unwrap();
        let error = options.check_namespaces(folder.path()).unwrap_err();
        assert!(error.contains("--right-netns: there is no network namespace b"), "{error}");
        std::fs::write(folder.path().join("b"), "").unwrap();
        assert_eq!(options.check_namespaces(folder.path()), Ok(()));
        assert!(links[1].forward.loss.is_zero() && !links[1].backward.loss.is_zero());
        assert!(form("tun|--link|name=x").unwrap_err().contains("--left-netns"));
        assert!(form("tun|--left-netns|a").unwrap_err().contains("--link"));
    }
}
