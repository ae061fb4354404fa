//! A second protocol for the driver, which tests that the driver is generic. It resembles TCP and
//! differs from QUIC.
//!
//! Segments are routed by the addresses and ports of both ends, and several connections may share a
//! batch. A connection is accepted on the third segment, by a cookie that the endpoint checks. The
//! endpoint answers unknown segments with resets, at a bounded rate. There is one path, and in each
//! direction one byte stream with cumulative acknowledgements, a window and a retransmission timer.
//! A cipher above the stream runs after the serial step, on any processor, in order.
//!
//! | module | content |
//! |---|---|
//! | `wire`, `packets` | segments; batches, plans and jobs that open batches |
//! | `protocol` | the endpoint: tuples, cookies, resets |
//! | `connection`, `send`, `recv`, `detached` | a connection and its halves |
//! | `app`, `transfer` | cells and calls of applications; one that sends, reads and checks |
//! | `link`, `host` | a link in memory; a driver with the workers of a placement |
//! | `simulation`, `threads` | hosts in virtual time, and on threads |
//! | `reports` | reports of detached halves while the receive worker is busy |
//! | `faults` | bad input, floods, panics, the end of an endpoint |
//! | `sockets`, `workers` | parts of the driver in isolation: sockets, the workers as an offload |

mod app;
mod connection;
mod detached;
mod faults;
mod host;
mod link;
mod packets;
mod protocol;
mod recv;
mod reports;
mod send;
mod simulation;
mod sockets;
mod threads;
mod transfer;
mod wire;
mod workers;
