//! `litz tunnel up --userspace`: the tunnel without a network device, and without rights. Our TCP/IP is the
//! host in the tunnel; programs reach it through a SOCKS5 proxy and forwarded ports of this host.
//!
//! ```text
//!  program ── kernel ── proxy, forwarded ports ── our TCP, UDP ── pair of devices ── entry, exit ══ tunnel
//! ```
//!
//! | module | content |
//! |---|---|
//! | [`network`] | the stack: connects and binds |
//! | [`names`] | names, looked up through the tunnel |
//! | [`tcp`] | connections of programs, carried by connections of the stack |
//! | [`udp`] | packets of programs, each flow or relay with a port of the stack |

mod names;
mod network;
mod tcp;
mod udp;

use std::net::IpAddr;
use std::sync::Arc;

use clap::Args;
use forward::address::{Protocol, Target};
use forward::spec::{Bind, Dynamic, Forward, Listen};
use forwarding::handshakes::Handshakes;
use forwarding::listener::{Bound, places};
use net::tun::Tun;
use network::Network;
use serde_json::json;
use tcp::Front;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tunnel::policy::Terms;
use units::Duration;

use crate::cli::forward::report::Report;
use crate::cli::heading;

/// Threads that carry data between programs and the stack.
const WORKERS: usize = 2;

/// Threads that look names up, of which one may take as long as its resolver.
const LOOKUPS_MAX: usize = 64;

/// The port of SOCKS (RFC 1928, section 3).
const SOCKS_PORT: u16 = 1080;

#[derive(Args, Debug, Clone, Default)]
pub(super) struct UserspaceOptions {
    /// Use no network device, and no rights: programs reach the tunnel through --dynamic and --local
    #[arg(long, conflicts_with_all = ["all", "kill_switch"], help_heading = heading::USERSPACE)]
    pub(super) userspace: bool,

    /// With --userspace, listen here as a SOCKS5 proxy, with UDP; may be repeated [default: 1080, without
    /// --local]
    ///
    /// The proxy asks for no password. So other hosts may use it only with --gateway.
    #[arg(short = 'D', long = "dynamic", value_name = "[BIND:]PORT", requires = "userspace",
          help_heading = heading::USERSPACE)]
    dynamic: Vec<Dynamic>,

    /// With --userspace, listen here, and connect to a target in the tunnel; may be repeated
    ///
    /// FORWARD is [BIND:]PORT:HOST:HOSTPORT, as for `litz forward`. `udp:` before it forwards UDP.
    #[arg(short = 'L', long = "local", value_name = "FORWARD", requires = "userspace",
          help_heading = heading::USERSPACE)]
    local: Vec<Forward>,

    /// Let --dynamic listen on addresses that other hosts can reach
    #[arg(short, long, requires = "userspace", help_heading = heading::USERSPACE)]
    gateway: bool,
}

impl UserspaceOptions {
    /// # Errors
    /// A message for the user.
    pub(super) fn check(&self) -> Result<(), String> {
        if let Some(open) = self.dynamic.iter().find(|dynamic| !dynamic.bind.is_loopback() && !self.gateway) {
            return Err(format!(
                "-D {}:{} would let other hosts use the proxy, which asks for no password: add --gateway if you want \
                 that",
                open.bind, open.port
            ));
        }
        if let Some(forward) = self.local.iter().find(|forward| matches!(forward.target, Target::Unix(_))) {
            let target = &forward.target;
            return Err(format!("-L to {target}: there are no UNIX sockets in a tunnel; name a host and a port"));
        }
        Ok(())
    }

    /// The proxies, with the one that there is without any wish.
    fn proxies(&self) -> Vec<Dynamic> {
        if self.dynamic.is_empty() && self.local.is_empty() {
            return vec![Dynamic { bind: Bind::Loopback, port: SOCKS_PORT }];
        }
        self.dynamic.clone()
    }
}

/// The ports of this host at which programs reach the tunnel. They are open before anything else is
/// tried: connections wait until the tunnel is there.
pub(super) struct Ports {
    runtime: Runtime,
    proxies: Vec<Bound>,
    forwards: Vec<(Bound, Target)>,
}

impl Ports {
    /// Opens those of the options.
    ///
    /// # Errors
    /// A message for the user: a port is taken, or the system refuses a thread.
    pub(super) fn open(options: &UserspaceOptions) -> Result<Self, String> {
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.worker_threads(WORKERS).max_blocking_threads(LOOKUPS_MAX).enable_all().build();
        let runtime = runtime.map_err(|error| format!("cannot start the threads for sockets: {error}"))?;
        let context = runtime.enter();
        let open = |listen: &Listen| Bound::open_here(listen).map_err(|error| error.to_string());
        let proxy =
            |dynamic: Dynamic| open(&Listen::Port { protocol: Protocol::Tcp, bind: dynamic.bind, port: dynamic.port });
        let proxies = options.proxies().into_iter().map(proxy).collect::<Result<_, String>>()?;
        let forward = |forward: &Forward| Ok((open(&forward.listen)?, forward.target.clone()));
        let forwards = options.local.iter().map(forward).collect::<Result<_, String>>()?;
        drop(context);
        Ok(Self { runtime, proxies, forwards })
    }
}

/// The host in the tunnel, with its listeners on this host. All end when this is dropped.
pub(super) struct Userspace {
    network: Arc<Network>,
    handshakes: Arc<Handshakes>,
    /// Taken when this is dropped.
    runtime: Option<Runtime>,
    /// Dropped with the runtime.
    _listeners: JoinSet<()>,
}

impl Userspace {
    /// Starts on `tun`, with what the server has assigned.
    ///
    /// # Errors
    /// A message for the user: the system refuses a thread.
    pub(super) fn start(
        ports: Ports,
        tun: Tun,
        terms: &Terms,
        busy_poll: Duration,
        report: &Arc<Report>,
    ) -> Result<Self, String> {
        let Ports { runtime, proxies, forwards } = ports;
        let network = Arc::new(Network::start(tun, terms, busy_poll)?);
        let (mut listeners, handshakes) = (JoinSet::new(), Arc::<Handshakes>::default());
        {
            let _context = runtime.enter();
            let (network, report, handshakes) = (Arc::clone(&network), Arc::clone(report), Arc::clone(&handshakes));
            let front = Front { network, report, places: places(), handshakes };
            serve(proxies, forwards, &front, &mut listeners);
        }
        Ok(Self { network, handshakes, runtime: Some(runtime), _listeners: listeners })
    }

    /// Looks up names at these servers from now on.
    pub(super) fn use_name_servers(&self, servers: &[IpAddr]) {
        self.network.use_name_servers(servers);
    }
}

impl Drop for Userspace {
    fn drop(&mut self) {
        if let Some(runtime) = &self.runtime {
            runtime.block_on(self.handshakes.end());
        }
        self.network.close();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn serve(proxies: Vec<Bound>, forwards: Vec<(Bound, Target)>, front: &Front, tasks: &mut JoinSet<()>) {
    for bound in proxies {
        tell(&front.report, "dynamic", &bound, "SOCKS5");
        let front = front.clone();
        let places = Arc::clone(&front.places);
        bound.serve_with(&places, move |socket, permit, origin| front.serve_proxy(socket, permit, origin), tasks);
    }
    for (bound, target) in forwards {
        tell(&front.report, "local", &bound, &target.to_string());
        let Target::Host(protocol, target) = target else { continue };
        match protocol {
            Protocol::Tcp => {
                let front = front.clone();
                let places = Arc::clone(&front.places);
                let act = move |socket, permit, origin| front.serve_target(socket, permit, origin, target.clone());
                bound.serve_with(&places, act, tasks);
            }
            Protocol::Udp => {
                for socket in bound.into_udp() {
                    let (front, target) = (front.clone(), target.clone());
                    tasks.spawn(async move { udp::forward_packets(&front, Arc::new(socket), target).await });
                }
            }
        }
    }
}

fn tell(report: &Report, kind: &str, bound: &Bound, target: &str) {
    let listen = &bound.listen;
    let event = json!({
        "event": "forwarding", "kind": kind, "listen": listen.to_string(), "target": target,
        "address": bound.address().map(|address| address.to_string()),
    });
    report.tell(&event, &format!("{listen} leads to {target}"));
}
