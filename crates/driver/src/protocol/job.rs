//! [`Job`]: work on data that the serial part of a connection has absorbed.

/// Work on data that the serial part of a connection has absorbed. Shares no state with the
/// connection.
///
/// The peer may have an acknowledgement of the data, so a job must not be lost. If a worker fails,
/// the driver runs its jobs again.
pub trait Job {
    /// The result.
    type Output: Default;

    /// Returns the work of running it, in bytes that a fast cipher decrypts in the same time. The
    /// driver uses it to decide whether another processor is worthwhile.
    fn work_bytes(&self) -> usize;

    /// Runs the job. Deterministic: the same job gives the same output on any processor, regardless
    /// of the previous content of `out`.
    fn run(&self, out: &mut Self::Output);
}

/// Job type of protocols without jobs.
#[derive(Debug, Clone, Copy)]
pub enum NoJobs {}

impl Job for NoJobs {
    type Output = ();

    fn work_bytes(&self) -> usize {
        match *self {}
    }

    fn run(&self, _out: &mut ()) {
        match *self {}
    }
}
