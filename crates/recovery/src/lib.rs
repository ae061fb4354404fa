//! RTT, loss detection, congestion control and pacing, for any transport.
#![forbid(unsafe_code)]
