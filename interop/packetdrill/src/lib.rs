//! Our TCP behind the shared-object interface of packetdrill (`--so_filename`). packetdrill calls
//! functions that look like system calls, injects packets, and reads those that the stack sends; time
//! is virtual, so a script of a minute takes no time.
//!
//! | module | content |
//! |---|---|
//! | `interface` | the functions that packetdrill calls: the only unsafe code |
//! | `shared` | one host for two threads of packetdrill: calls that block, and the clock |
//! | `host` | sockets, connections and the packets between them and packetdrill |
//! | `socket` | what a descriptor stands for |
//! | `options` | socket options |
//! | `settings` | the system's settings that a script has changed |

mod host;
mod interface;
mod options;
mod settings;
mod shared;
mod socket;
