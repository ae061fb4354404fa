//! The options of `litz tunnel up`.

use std::ffi::OsString;
use std::path::Path;

use clap::Args;
use tunnel::policy::{MTU_MIN, Policy};
use tunnel::{Prefix, Selector, UrgentKinds};

use crate::cli::credential::CredentialOptions;
use crate::cli::heading;
use crate::cli::path_options::PathOptions;
use crate::cli::transport_options::TransportOptions;
use crate::cli::tunnel::settings::{self, DEVICE_DEFAULT};
use crate::cli::tunnel::settings_file;
use crate::cli::tunnel::userspace::UserspaceOptions;

#[derive(Args, Debug)]
pub(crate) struct UpOptions {
    /// The ticket that `litz tunnel serve` printed, unless it is given otherwise; or a file with these options,
    /// whose name ends with .toml
    #[arg(value_name = "TICKET|FILE")]
    pub(super) ticket_argument: Option<OsString>,

    #[command(flatten)]
    pub(super) credential: CredentialOptions,

    /// Name of the network device that is made
    #[arg(long, value_name = "NAME", default_value = DEVICE_DEFAULT, value_parser = settings::device_name,
          help_heading = heading::TUNNEL)]
    pub(super) tun: String,

    /// Largest packet that goes through the tunnel, in bytes [default: that of the server, which is also the
    /// maximum]
    #[arg(long, value_name = "BYTES", default_value_t = u16::MAX,
          value_parser = clap::value_parser!(u16).range(i64::from(MTU_MIN)..), hide_default_value = true,
          help_heading = heading::TUNNEL)]
    pub(super) mtu: u16,

    /// Send all packets of this host through the tunnel, except to networks for which it has routes of its
    /// own besides the default route
    ///
    /// The server must forward packets, which the command checks, and translate addresses towards its own networks.
    /// The changes of the routes are undone at the end, by `litz tunnel down`, or when the next command starts.
    #[arg(long, help_heading = heading::TUNNEL)]
    pub(super) all: bool,

    /// Send packets to this network through the tunnel if the server names it, although this host reaches it
    /// otherwise; may be repeated
    ///
    /// Without it, a server gets packets to private addresses alone (RFC 1918, RFC 4193), to none that this host has a
    /// network or a route for, and at most to as many as a /12 of IPv4 and a /40 of IPv6 have.
    #[arg(long, value_name = "PREFIX", value_parser = settings::accepted_route, help_heading = heading::TUNNEL)]
    pub(super) accept_route: Vec<Prefix>,

    /// With --all, refuse packets while the tunnel is down instead of sending them outside
    ///
    /// They are refused from the start of this command on, and also after it was killed or has failed, until
    /// `litz tunnel down`, whatever socket they come from. That needs nftables.
    #[arg(long, requires = "all", help_heading = heading::TUNNEL)]
    pub(super) kill_switch: bool,

    /// Let TCP connections to these targets end at each side of the tunnel and travel as streams; may be
    /// repeated
    ///
    /// WHICH is `all`, ports (443, 8000-9000), a network (10.0.0.0/8), or both (10.0.0.0/8:443,
    /// [fd00::/8]:443) of the targets to which programs of this side connect. Such a connection does not
    /// notice losses and delays of the links. It is reset when the tunnel's connection is lost; others
    /// survive that.
    #[arg(long, value_name = "WHICH", help_heading = heading::TUNNEL)]
    pub(super) terminate: Vec<Selector>,

    /// Look up all names at the name servers that the server names
    #[arg(long, conflicts_with = "userspace", help_heading = heading::TUNNEL)]
    pub(super) dns: bool,

    /// Packets to send at once, on two paths: a list of `ef`, `dns` and `small`, or `none`
    ///
    /// `ef` are packets with the DSCP EF, `dns` those of DNS, and `small` those of up to 300 bytes that are
    /// not TCP. They may take an eighth of all bytes, or 1 Mb/s if that is more; the rest is sent as other
    /// packets are.
    #[arg(long, value_name = "KINDS", default_value_t = UrgentKinds::default(), help_heading = heading::TUNNEL)]
    pub(super) redundant: UrgentKinds,

    /// Keep each flow to one path, instead of dividing its packets over all
    ///
    /// A flow then has the rate of one link, and its packets never wait for those of a slower one. A new flow
    /// takes the path with the highest rate for each of its flows, and goes on elsewhere when that fails. The
    /// option applies to what this end sends; the other end has it, too.
    #[arg(long, help_heading = heading::TUNNEL)]
    pub(super) pin: bool,

    #[command(flatten)]
    pub(super) userspace: UserspaceOptions,

    #[command(flatten)]
    pub(super) paths: PathOptions,

    #[command(flatten)]
    pub(super) transport: TransportOptions,
}

impl UpOptions {
    /// The file with the options, if the argument is one.
    pub(crate) fn settings(&self) -> Option<&Path> {
        self.ticket_argument.as_deref().filter(|argument| settings_file::is_settings_file(argument)).map(Path::new)
    }

    pub(crate) fn is_json(&self) -> bool {
        self.transport.json
    }

    /// What the user wants of what a server assigns.
    pub(super) fn policy(&self) -> Policy {
        let asked = self.accept_route.iter().copied();
        // Only programs that use the proxy send packets into the tunnel then.
        let all = [Prefix::ALL_IPV4, Prefix::ALL_IPV6].into_iter().filter(|_| self.userspace.userspace);
        Policy { all: self.all, asked: asked.chain(all).collect(), mtu_max: self.mtu }
    }
}
