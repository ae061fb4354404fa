//! Link models: rate, delay, loss, reordering, duplication, corruption, queue.
#![forbid(unsafe_code)]
