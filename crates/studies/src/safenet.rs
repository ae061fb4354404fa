//! The SAFENET evaluation, University of Virginia: user, transport and MAC level of a message
//! system over FDDI.
//!
//! | module | contents |
//! |---|---|
//! | `paper` | the printed lines and asymptotes |
//! | `costs` | the costs of each level, solved from some of the printed numbers |
//! | `pipeline` | hosts, boards and the ring between them |
//! | `rate` | the user's rate limit: a burst that is refilled at a rate |
//! | `measure` | ping-pong, streams, line fits |
//! | `assumptions` | parameters that the paper does not give, and their effect |
//! | `levels`, `limit`, `multicast` | the studies |

mod assumptions;
mod costs;
mod levels;
mod limit;
mod measure;
mod multicast;
mod paper;
mod pipeline;
mod rate;

#[cfg(test)]
mod tests;

use crate::study::Study;

/// Returns the studies of this paper.
pub(crate) fn studies() -> Vec<Box<dyn Study>> {
    vec![Box::new(levels::Levels), Box::new(limit::Limit), Box::new(multicast::Multicast)]
}
