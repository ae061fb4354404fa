//! The settings of the system. Scripts change them with the command `sysctl`; the runner gives them a
//! stand-in that appends each `name=value` to a file, which is read when a socket is made.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use recovery::Algorithm;
use tcp::{AckPolicy, TcpConfig};
use units::Duration;

/// The settings that scripts of the kernel assume.
#[derive(Debug)]
pub(crate) struct Settings {
    path: PathBuf,
    mtu: usize,
    /// The address of the host.
    pub(crate) local: IpAddr,
    /// Received data are acknowledged at once, as Linux does at the beginning of a connection.
    acks_at_once: bool,
    /// No segment says PSH: the script was changed to expect that.
    pub(crate) is_push_hidden: bool,
}

impl Settings {
    /// `flags`: the path of the file, the MTU of the device, the address of the host, and words for
    /// habits of Linux that a script expects: `/tmp/settings,1500,192.168.0.1,acks-at-once`.
    pub(crate) fn new(flags: &str) -> Self {
        let fields: Vec<_> = flags.split(',').collect();
        let [path, mtu, local, habits @ ..] = &fields[..] else { panic!("PATH,MTU,ADDRESS[,HABIT...]: {flags:?}") };
        let (mtu, local) = (mtu.parse().expect("the MTU"), local.parse().expect("an address"));
        let mut settings = Self { path: path.into(), mtu, local, acks_at_once: false, is_push_hidden: false };
        for habit in habits {
            match *habit {
                "acks-at-once" => settings.acks_at_once = true,
                "no-push" => settings.is_push_hidden = true,
                _ => panic!("no habit is named {habit:?}"),
            }
        }
        settings
    }

    fn read(&self) -> BTreeMap<String, String> {
        let text = std::fs::read_to_string(&self.path).unwrap_or_default();
        let pair = |line: &str| line.split_once('=').map(|(name, value)| (name.trim().into(), value.trim().into()));
        text.lines().filter_map(pair).collect()
    }

    /// The configuration of a new connection, which the peer has opened or this side.
    pub(crate) fn config(&self, is_passive: bool) -> TcpConfig {
        let settings = self.read();
        let text = |name: &str| settings.get(&format!("net.ipv4.{name}")).map(String::as_str);
        let is_on = |name: &str, default: bool| text(name).map_or(default, |value| value != "0");
        // The least, the initial and the largest size.
        let size = |name: &str, field: usize, default: usize| {
            text(name).and_then(|value| value.split_whitespace().nth(field)?.parse().ok()).unwrap_or(default)
        };
        let default = TcpConfig::default();
        let delay_max = if self.acks_at_once { Duration::ZERO } else { default.acks.delay_max };
        TcpConfig {
            mtu: self.mtu,
            acks: AckPolicy { delay_max, ..default.acks },
            congestion: Some(match text("tcp_congestion_control") {
                Some("reno") => Algorithm::NewReno,
                Some("bbr") => Algorithm::Bbr,
                _ => Algorithm::Cubic,
            }),
            timestamps: is_on("tcp_timestamps", true),
            sack: is_on("tcp_sack", true),
            window_scaling: is_on("tcp_window_scaling", true),
            // 2 accepts it and does not ask for it.
            ecn: text("tcp_ecn").is_some_and(|value| value == "1" || (value == "2" && is_passive)),
            receive_buffer: size("tcp_rmem", 2, 6 << 20),
            send_buffer: size("tcp_wmem", 2, 4 << 20),
            ..default
        }
    }
}
