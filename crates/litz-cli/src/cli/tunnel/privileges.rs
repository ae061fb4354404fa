//! Privileges that a tunnel gives up before it meets the network: all but those for devices, routes, marks
//! and small ports.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_ambient_set, remove_capability_from_bounding_set,
    set_capabilities, set_no_new_privs,
};

/// For the device, its routes and marks; for sockets that are bound to a device; for a port below 1024.
const KEPT: CapabilitySet =
    CapabilitySet::NET_ADMIN.union(CapabilitySet::NET_RAW).union(CapabilitySet::NET_BIND_SERVICE);

/// Refuses to begin what needs a network device without the privilege for that. `otherwise` says what else
/// the user can do.
///
/// # Errors
/// A message for the user.
pub(super) fn require_those_for_a_device(otherwise: &str) -> Result<(), String> {
    let held = capabilities(None).map_err(|error| format!("cannot read the privileges of this command: {error}"))?;
    if held.effective.contains(CapabilitySet::NET_ADMIN) {
        return Ok(());
    }
    Err(format!("the tunnel's network device needs root, or CAP_NET_ADMIN{otherwise}"))
}

/// Whether programs that this command runs have CAP_NET_ADMIN: those of root, and those of a
/// command that has the capability in its ambient set, which a file with capabilities does not give
/// (capabilities(7)).
pub(super) fn programs_have_net_admin() -> bool {
    rustix::process::geteuid().is_root()
        || capability_is_in_ambient_set(CapabilitySet::NET_ADMIN).is_ok_and(|is_in_it| is_in_it)
}

/// Gives up all other privileges of this thread, and of the threads and programs that it starts from now on.
/// So it is called before other threads are started. `state` is the folder that the command writes: if it
/// belongs to another user, the privilege to do so is kept.
///
/// # Errors
/// A message for the user.
pub(super) fn keep_those_for_the_network(state: &Path) -> Result<(), String> {
    let owner = std::fs::metadata(state).map_or(0, |metadata| metadata.uid());
    let is_foreign = owner != rustix::process::geteuid().as_raw();
    let kept = if is_foreign { KEPT | CapabilitySet::DAC_OVERRIDE } else { KEPT };
    give_up_all_but(kept).map_err(|error| format!("cannot give up privileges: {error}"))
}

fn give_up_all_but(kept: CapabilitySet) -> io::Result<()> {
    set_no_new_privs(true)?;
    let CapabilitySets { effective, permitted, inheritable } = capabilities(None)?;
    // A program that root starts, such as `ip`, gets what this set has. Only a process with this privilege may
    // change it; others start programs without more privileges than their own.
    if effective.contains(CapabilitySet::SETPCAP) {
        for other in CapabilitySet::all().difference(kept).iter() {
            match remove_capability_from_bounding_set(other) {
                // An older kernel does not have it.
                Ok(()) | Err(rustix::io::Errno::INVAL) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    let sets =
        CapabilitySets { effective: effective & kept, permitted: permitted & kept, inheritable: inheritable & kept };
    Ok(set_capabilities(None, sets)?)
}
