//! Closing the channels of a complete stream.

use std::task::Poll;
use std::time::Duration;

use tcp_driver::Runtime;

use crate::TcpStream;

/// Time limit for the end of the channels. The stream is complete, so nothing is lost if they take
/// longer.
const END_WAIT: Duration = Duration::from_secs(5);

/// Waits until both sides have ended all channels, within the time limit: the process may end next,
/// and its stacks with it. Data that still arrive are duplicates.
pub(super) fn await_ends(streams: &[&TcpStream]) {
    let Some(first) = streams.first() else { return };
    let runtime = first.handle.runtime();
    let _all_ended = runtime.block_on(Some(runtime.deadline_after(END_WAIT)), |waker| {
        let mut have_all_ended = true;
        for stream in streams {
            while let Poll::Ready(read) = stream.handle.poll_read(usize::MAX, waker) {
                if !matches!(read, Ok(Some(_))) {
                    stream.finish();
                    break;
                }
            }
            have_all_ended &= stream.handle.poll_closed(waker).is_ready();
        }
        if have_all_ended { Poll::Ready(()) } else { Poll::Pending }
    });
}
