//! Tests of the public interface. Tests that count allocations or the work of all threads are
//! separate programs, in the files that are not modules of this one.

mod adverse;
mod documents;
mod examples;
mod garbage;
mod library;
mod library_async;
mod library_early;
mod library_links;
mod library_sockets;
mod listening;
mod shaped_line;
mod tcp_calls;
mod tcp_ethernet;
mod tcp_flood;
mod tcp_host;
mod tcp_layers;
mod tcp_listener;
mod tcp_lock_step;
mod tcp_packets;
mod tcp_replicated;
mod tcp_soak;
mod tcp_stack;
mod world;
