//! Jobs on absorbed data, run by the driver or by the crypto pool.

use std::sync::Arc;

use super::Driver;
use crate::activity::Activity;
use crate::env::Env;
use crate::in_flight::ConnectionRef;
use crate::offload::{Direction, JobOutput, Offload, PathFlow};
use crate::protocol::{Connection, ConnectionKey, Job, Protocol};

/// Limit of jobs of one connection that are begun in one visit.
const JOBS_PER_VISIT: usize = 16;

/// Limit of the [work](Job::work_bytes) of one connection that the driver does itself in one visit,
/// about 250 µs. The job that exceeds it is the last.
const WORK_PER_VISIT: usize = 1 << 20;

type JobOf<E> = <<E as Env>::Protocol as Protocol>::Job;

impl<E: Env> Driver<E> {
    /// Begins the jobs of a connection. The last is offloaded only if it is long, so that a lone short
    /// job stays on the driver.
    pub(super) fn run_jobs(&mut self, key: ConnectionKey) {
        let mut next = self.poll_job(key);
        let (mut begun, mut own_work) = (0, 0);
        while let Some(job) = next {
            begun += 1;
            let may_begin_more = begun < JOBS_PER_VISIT && own_work < WORK_PER_VISIT;
            next = if may_begin_more { self.poll_job(key) } else { None };
            own_work += self.begin_job(key, job, next.is_none());
        }
        if begun >= JOBS_PER_VISIT || own_work >= WORK_PER_VISIT {
            // There may be more jobs.
            self.schedule(key);
        }
    }

    fn poll_job(&mut self, key: ConnectionKey) -> Option<JobOf<E>> {
        self.entries.get_mut(key.0)?.connection.poll_job()
    }

    /// Runs a job: on another processor if that is worthwhile and one has space, otherwise on this
    /// one. Returns the work done here.
    fn begin_job(&mut self, key: ConnectionKey, job: JobOf<E>, is_last: bool) -> usize {
        let work = job.work_bytes();
        if self.offload.opens() {
            // Finished work makes space.
            self.take_finished(Some(key));
        }
        let Some(entry) = self.entries.get_mut(key.0) else { return 0 };
        if !self.offload.opens() {
            let mut output = self.offload.spare_output();
            job.run(&mut output);
            entry.connection.finish_job(self.env.now(), &job, &mut output);
            self.offload.keep_output(output);
            self.env.lap(Activity::OpenAbsorb);
            return work;
        }
        let flow = PathFlow { key, path: 0, direction: Direction::Up };
        let connection = ConnectionRef { key, cell: Arc::clone(&entry.cell) };
        let job = match self.offload.run(self.env.now(), flow, &connection, Arc::new(job), is_last) {
            Ok(()) => {
                self.env.lap(Activity::Route);
                return 0;
            }
            Err(refused) => refused,
        };
        let mut output = self.offload.spare_output();
        job.run(&mut output);
        let now = self.env.now();
        if let Err((job, mut output)) = self.offload.queue_run(now, flow, &connection, job, output) {
            entry.connection.finish_job(now, &job, &mut output);
            self.offload.keep_output(output);
        }
        self.env.lap(Activity::OpenAbsorb);
        work
    }

    /// Finishes a job that is next in its flow. A job without an output was lost with its worker
    /// and runs here. If it panics again, its connection ends.
    pub(super) fn finish_job(
        &mut self,
        connection: &ConnectionRef<E::Protocol>,
        job: &JobOf<E>,
        output: Option<JobOutput<E::Protocol>>,
    ) {
        let key = connection.key;
        if self.entry_of(connection).is_some() {
            let visited = self.visited.replace(key);
            let mut output = output.unwrap_or_else(|| {
                let mut output = self.offload.spare_output();
                job.run(&mut output);
                output
            });
            let now = self.env.now();
            if let Some(entry) = self.entry_of(connection) {
                entry.connection.finish_job(now, job, &mut output);
            }
            self.visited = visited;
            self.offload.keep_output(output);
        }
        self.env.lap(Activity::OpenAbsorb);
        self.schedule(key);
    }
}
