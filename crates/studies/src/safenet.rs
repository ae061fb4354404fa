//! Document 003: user, transport and MAC level of a message system over FDDI.
//!
//! | module | what |
//! |---|---|
//! | `paper` | the printed lines and asymptotes |
//! | `costs` | what each level takes, solved from some of them |
//! | `pipeline` | hosts, boards and the ring between them |
//! | `rate` | the user's limit: so many bytes at once, refilled at a rate |
//! | `measure` | ping-pong, streams, lines through points |
//! | `assumptions` | what is not given, and what it matters |
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

/// The studies of this document.
pub(crate) fn studies() -> Vec<Box<dyn Study>> {
    vec![Box::new(levels::Levels), Box::new(limit::Limit), Box::new(multicast::Multicast)]
}
