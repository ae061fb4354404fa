//! Runs in virtual time, by subject. `memory.rs` and `live` are binaries of their own: the first
//! replaces the allocator, the second needs the engine.

mod determinism;
mod machines;
mod memory_and_sim;
mod recorded;
mod shared_buffer;
mod shipped;
mod shipped_files;
