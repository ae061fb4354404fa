//! The link layer of a host on Ethernet, sans-IO.
//!
//! | module | content |
//! |---|---|
//! | [`interface`] | [`Interface`]: frames in, IP packets out, and the reverse. Start here |
//! | [`neighbors`] | the Ethernet addresses of neighbours |
//! | [`routing`] | routes by the longest matching prefix |

pub mod interface;
pub mod neighbors;
pub mod routing;

pub use interface::{Frame, Interface, Outgoing};
pub use neighbors::NeighborCache;
pub use routing::{Prefix, Route, RoutingTable, TableFull};
