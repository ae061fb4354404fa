//! What the answers to several calls need: waiting as the kernel does, and addresses in the memory of the
//! caller.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use intercept::{Thread, sockaddr};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How often a call that waits looks for a signal.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(100);

/// Writes an address at `place`, as far as the length at `len_place` says that there is space, and its length.
pub(super) fn write_address(caller: &Thread, place: u64, len_place: u64, address: SocketAddr) -> std::io::Result<()> {
    let mut len = [0; 4];
    caller.read(len_place, &mut len)?;
    let bytes = sockaddr::emit(address);
    let space = bytes.len().min(u32::from_ne_bytes(len) as usize);
    caller.write(place, &bytes[..space])?;
    caller.write(len_place, &(bytes.len() as u32).to_ne_bytes())
}

/// Waits for a connection or a packet, and not longer than until signals are looked for.
pub(super) async fn wait_until_ready<S: AsFd + Send + 'static>(socket: S) -> S {
    wait_for(socket, PollFlags::IN).await
}

/// The same for other events. The runtime cannot wait: it takes no sockets that block.
pub(super) async fn wait_for<S: AsFd + Send + 'static>(socket: S, events: PollFlags) -> S {
    let wait = move || {
        poll_events(&socket, events, SIGNAL_INTERVAL);
        socket
    };
    tokio::task::spawn_blocking(wait).await.expect("it does not panic")
}

/// Whether a call would return at once, or does in this time.
pub(super) fn poll_for(socket: &impl AsFd, time: Duration) -> bool {
    poll_events(socket, PollFlags::IN, time)
}

fn poll_events(socket: &impl AsFd, events: PollFlags, time: Duration) -> bool {
    let mut ready = [PollFd::new(socket, events)];
    let time = Timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() };
    poll(&mut ready, Some(&time)).is_ok_and(|count| count > 0)
}
