//! Modelled hardware. Its parameters are checked when it is built: what cannot be is an error that names the key.
//!
//! | module | what |
//! |---|---|
//! | [`fddi`] | rings with the timed-token rules, an idle rotation costs nothing |
//! | [`mesh`] | processors joined by a linear array, a mesh or a crossbar |

mod config_error;
pub mod fddi;
pub mod mesh;

pub use config_error::ConfigError;
pub use mesh::{Forwarding, Mesh, MeshConfig, Topology};
