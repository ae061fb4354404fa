//! `--path`, `--paths`, `--bind` and `--device`: which paths a sender uses.

use std::net::SocketAddr;

use clap::Args;
use litz::Interface;
use litz::paths::{Choice, ChooseError, PathSpec, Request, choose};

use super::heading;

#[derive(Args, Debug, Clone, Default)]
pub(crate) struct PathOptions {
    /// Use this path; repeat for several paths [default: over each link of this host that reaches
    /// the far host, at most 8]
    ///
    /// PATH is LOCAL or LOCAL-REMOTE, each with an optional :PORT. LOCAL is a network interface or
    /// an address of this host. REMOTE is an address of the far host; by default one of the
    /// ticket's addresses is chosen. An IPv6 address with a port is written in brackets. Append
    /// ",backup" for a path that is used only while no other path works.
    ///
    /// Examples: eth0; wlan0,backup; 192.0.2.1:5000; eth1-192.0.2.9:4433;
    /// [2001:db8::1]:5000-2001:db8::9.
    ///
    /// Each --path makes one path, and no other paths are used. If the socket of one cannot be
    /// opened at the start, the command fails. The speed of a path is measured.
    #[arg(long = "path", value_name = "PATH", help_heading = heading::PATHS)]
    pub(crate) paths: Vec<PathSpec>,

    /// Number of paths: fewer than the useful ones, or more, from other address pairs and then from
    /// other ports [default: the useful paths, at most 8]
    #[arg(long = "paths", value_name = "N", value_parser = clap::value_parser!(u8).range(1..=litz::paths::PATHS_MAX as i64), help_heading = heading::PATHS)]
    pub(crate) limit: Option<u8>,

    /// A device that is never a path: that of a tunnel, whose packets would go into the tunnel again.
    #[arg(skip)]
    pub(crate) without_device: Option<String>,

    /// The mark of the packets on all paths.
    #[arg(skip)]
    pub(crate) mark: Option<u32>,
}

/// A single path, named by this host's end.
#[derive(Args, Debug, Clone, Default)]
pub(crate) struct SinglePathOptions {
    /// Use only this local address, on a single path
    #[arg(short, long, value_name = "ADDRESS", conflicts_with_all = ["paths", "limit"], help_heading = heading::PATHS)]
    pub(crate) bind: Option<SocketAddr>,

    /// Use only this network device, on a single path
    #[arg(long, value_name = "NAME", conflicts_with_all = ["paths", "limit"], help_heading = heading::PATHS)]
    pub(crate) device: Option<String>,
}

impl SinglePathOptions {
    pub(crate) const fn is_given(&self) -> bool {
        self.bind.is_some() || self.device.is_some()
    }
}

impl PathOptions {
    /// Chooses paths to these addresses of the receiver, from the current interfaces and routes.
    ///
    /// # Errors
    /// [`ChooseError`], whose text is for the user.
    pub(crate) fn choose(&self, remotes: &[SocketAddr]) -> Result<Choice, ChooseError> {
        let interfaces = net::interfaces().map_err(|error| ChooseError::NoTable(error.to_string()))?;
        let interfaces = self.usable(interfaces);
        let request = Request::new(&interfaces, remotes).with_paths(&self.paths);
        choose(&request.with_limit(self.limit.map(usize::from)), &mut |local, device, remote| {
            net::reachable(local, device, self.mark, remote)
        })
    }

    /// These interfaces without the one that is never a path.
    pub(crate) fn usable(&self, mut interfaces: Vec<Interface>) -> Vec<Interface> {
        interfaces.retain(|interface| Some(&interface.name) != self.without_device.as_ref());
        interfaces
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser, Debug)]
    struct Command {
        #[command(flatten)]
        options: PathOptions,
    }

    fn parse(arguments: &[&str]) -> Result<PathOptions, String> {
        let all = ["command"].iter().chain(arguments);
        Command::try_parse_from(all).map(|command| command.options).map_err(|error| error.to_string())
    }

    #[test]
    fn path_and_paths_are_separate_options() {
        let options = parse(&["--path", "eth0", "--paths=3", "--path=wlan0,backup"]).unwrap();
        let texts: Vec<String> = options.paths.iter().map(ToString::to_string).collect();
        assert_eq!((texts, options.limit), (vec!["eth0".to_owned(), "wlan0,backup".to_owned()], Some(3)));
        assert_eq!(parse(&[]).unwrap().limit, None);
    }

    #[test]
    fn errors_name_the_argument() {
        for (argument, words) in [
            ("--path=192.0.2.300", "no address"),
            ("--path=eth0,fast", "backup"),
            ("--paths=0", "1..=32"),
            ("--paths=33", "1..=32"),
        ] {
            let error = parse(&[argument]).unwrap_err();
            assert!(error.contains(words) && error.contains("--path"), "{argument}: {error}");
        }
    }
}
