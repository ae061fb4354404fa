//! The routes of this host, changed with the program `ip` (iproute2).

use std::process::Command;

use tunnel::Prefix;

/// Sends packets for `network` over the device `device`. The kernel removes the route with the device.
///
/// # Errors
/// A message for the user.
pub(super) fn add_route(network: &Prefix, device: &str) -> Result<(), String> {
    let family = if network.address().is_ipv4() { "-4" } else { "-6" };
    run(&[family, "route", "replace", &network.to_string(), "dev", device])
}

fn run(arguments: &[&str]) -> Result<(), String> {
    let shown = || format!("ip {}", arguments.join(" "));
    let output = Command::new("ip").args(arguments).output();
    let output = output.map_err(|error| format!("cannot run `{}`: {error} (install iproute2)", shown()))?;
    if output.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&output.stderr);
    Err(format!("`{}` failed: {}", shown(), why.trim()))
}
