//! Statistics of components: counts, times and levels since the start of the run or the end of its
//! warm-up.

use units::{Duration, Instant};

/// Mean, variance and extremes of a sample (Welford's algorithm, which avoids cancellation).
#[derive(Clone, Debug, Default)]
pub struct Tally {
    count: u64,
    mean: f64,
    squares: f64,
    min: f64,
    max: f64,
}

impl Tally {
    /// Adds a value.
    pub fn add(&mut self, value: f64) {
        if self.count == 0 {
            (self.min, self.max) = (value, value);
        }
        self.count += 1;
        let delta = value - self.mean;
        self.mean += delta / self.count as f64;
        self.squares += delta * (value - self.mean);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Returns the number of values.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Returns the mean; 0 if there are no values.
    pub const fn mean(&self) -> f64 {
        self.mean
    }

    /// Returns the sample variance; 0 for fewer than two values.
    pub fn variance(&self) -> f64 {
        if self.count < 2 { 0.0 } else { self.squares / (self.count - 1) as f64 }
    }

    /// Returns the minimum; 0 if there are no values.
    pub const fn min(&self) -> f64 {
        self.min
    }

    /// Returns the maximum; 0 if there are no values.
    pub const fn max(&self) -> f64 {
        self.max
    }
}

/// An integer that changes over time, such as a queue length, with its exact integral.
#[derive(Clone, Debug, Default)]
pub struct Level {
    value: u64,
    changed: Instant,
    since: Instant,
    /// Value times nanoseconds.
    integral: u128,
    max: u64,
}

impl Level {
    /// Increments the value from now on.
    pub fn rise(&mut self, now: Instant) {
        self.set(now, self.value + 1);
    }

    /// Decrements the value from now on.
    ///
    /// # Panics
    /// Panics if the level is zero.
    pub fn fall(&mut self, now: Instant) {
        assert!(self.value > 0, "a level never falls below zero");
        self.set(now, self.value - 1);
    }

    /// Sets the value from now on.
    pub fn set(&mut self, now: Instant, value: u64) {
        self.integral = self.integral_at(now);
        self.changed = now;
        self.value = value;
        self.max = self.max.max(value);
    }

    /// Resets the statistics and keeps the present value.
    pub const fn reset(&mut self, now: Instant) {
        (self.integral, self.max, self.changed, self.since) = (0, self.value, now, now);
    }

    /// Returns the present value.
    pub const fn value(&self) -> u64 {
        self.value
    }

    /// Returns the maximum so far.
    pub const fn max(&self) -> u64 {
        self.max
    }

    /// Returns the integral in value times nanoseconds since the last reset.
    pub fn integral_at(&self, now: Instant) -> u128 {
        self.integral + u128::from(self.value) * u128::from(now.saturating_since(self.changed).as_nanos())
    }

    /// Returns the mean over time since the last reset; the present value if no time has passed.
    pub fn mean(&self, now: Instant) -> f64 {
        match now.saturating_since(self.since).as_nanos() {
            0 => self.value as f64,
            span => self.integral_at(now) as f64 / span as f64,
        }
    }
}

/// Statistics of a component from the end of the warm-up to the present.
#[derive(Clone, Debug, PartialEq)]
pub struct ComponentReport {
    /// The component's name, unique in its model.
    pub name: String,
    /// Number of servers or places; `None` if there is no limit.
    pub capacity: Option<u64>,
    /// Number of customers (jobs, packets, words) that departed.
    pub served: u64,
    /// Share of the capacity that was busy, 0 to 1.
    pub utilisation: f64,
    /// Mean number of customers present, including those in service.
    pub mean_number: f64,
    /// Maximum number of customers present.
    pub max_number: u64,
    /// Mean time from arrival to the start of service, over customers whose service started.
    pub mean_wait: Duration,
    /// Mean time from arrival to departure, over customers that departed.
    pub mean_sojourn: Duration,
}

/// Accounting of a queueing component: arrivals, starts of service, departures.
///
/// The number of customers present is integrated over time, and the times of departing customers
/// are summed one by one. [`Accounting::check`] compares the two. This is Little's law without its
/// limit: it holds exactly at every moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Accounting {
    present: Level,
    waits: Tally,
    sojourns: Tally,
    /// Total time, since the last reset, of customers that departed.
    left_ns: u128,
    /// Sum of the arrival times (or the time of the last reset, if later) of the customers present.
    arrivals_ns: i128,
    since: Instant,
}

impl Accounting {
    pub(crate) fn arrive(&mut self, now: Instant) {
        self.present.rise(now);
        self.arrivals_ns += i128::from(now.as_nanos());
    }

    pub(crate) fn begin(&mut self, wait: Duration) {
        self.waits.add(wait.as_nanos() as f64);
    }

    pub(crate) fn depart(&mut self, now: Instant, arrived: Instant) {
        self.present.fall(now);
        let counted_from = arrived.max(self.since);
        self.arrivals_ns -= i128::from(counted_from.as_nanos());
        self.left_ns += u128::from(now.saturating_since(counted_from).as_nanos());
        self.sojourns.add(now.saturating_since(arrived).as_nanos() as f64);
    }

    pub(crate) fn reset(&mut self, now: Instant) {
        self.present.reset(now);
        (self.waits, self.sojourns, self.left_ns, self.since) = (Tally::default(), Tally::default(), 0, now);
        self.arrivals_ns = i128::from(self.present.value()) * i128::from(now.as_nanos());
    }

    /// Computes the total time in the system in two ways, as the integral of the number present and
    /// customer by customer, and compares them.
    ///
    /// # Panics
    /// Panics if they differ by a nanosecond: the component then loses or duplicates customers.
    pub(crate) fn check(&self, name: &str, now: Instant) {
        let still_here = i128::from(self.present.value()) * i128::from(now.as_nanos()) - self.arrivals_ns;
        let integral = i128::try_from(self.present.integral_at(now)).expect("a run is shorter than 2^63 ns");
        let left = i128::try_from(self.left_ns).expect("a run is shorter than 2^63 ns");
        assert_eq!(integral, left + still_here, "{name} violates Little's law");
        assert!(
            self.present.value() > 0 || self.arrivals_ns == 0,
            "{name} violates Little's law: no customer is present, but arrivals are recorded"
        );
    }

    pub(crate) const fn present(&self) -> u64 {
        self.present.value()
    }

    /// Returns the report, given `busy_ns` nanoseconds of work in `capacity` servers.
    pub(crate) fn report(&self, name: &str, now: Instant, capacity: Option<u64>, busy_ns: u128) -> ComponentReport {
        self.check(name, now);
        let span_ns = u128::from(now.saturating_since(self.since).as_nanos()) * u128::from(capacity.unwrap_or(1));
        ComponentReport {
            name: name.to_owned(),
            capacity,
            served: self.sojourns.count(),
            utilisation: if span_ns == 0 { 0.0 } else { busy_ns as f64 / span_ns as f64 },
            mean_number: self.present.mean(now),
            max_number: self.present.max(),
            mean_wait: Duration::from_nanos(self.waits.mean().round() as u64),
            mean_sojourn: Duration::from_nanos(self.sojourns.mean().round() as u64),
        }
    }
}

/// A component with statistics. The kernel holds all components by name.
pub trait Observed {
    /// Ends the warm-up: resets the statistics.
    fn reset(&self, now: Instant);

    /// Returns the statistics since the last reset.
    fn report(&self, now: Instant) -> ComponentReport;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_has_the_moments_of_its_values() {
        let mut tally = Tally::default();
        for value in [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0] {
            tally.add(value);
        }
        assert_eq!((tally.count(), tally.mean(), tally.min(), tally.max()), (8, 5.0, 2.0, 9.0));
        assert!((tally.variance() - 32.0 / 7.0).abs() < 1e-12);
    }

    #[test]
    fn a_level_is_averaged_over_time() {
        let at = Instant::from_nanos;
        let mut level = Level::default();
        level.set(at(10), 4);
        level.fall(at(20));
        assert_eq!(level.integral_at(at(30)), 40 + 30);
        assert!((level.mean(at(30)) - 70.0 / 30.0).abs() < 1e-12);
        level.reset(at(30));
        assert_eq!((level.mean(at(40)), level.max()), (3.0, 3));
    }

    #[test]
    #[should_panic(expected = "violates Little's law")]
    fn a_departure_with_a_wrong_arrival_time_is_detected() {
        let mut accounting = Accounting::default();
        accounting.arrive(Instant::from_nanos(5));
        accounting.arrive(Instant::from_nanos(7));
        accounting.depart(Instant::from_nanos(9), Instant::from_nanos(6));
        accounting.depart(Instant::from_nanos(9), Instant::from_nanos(5));
        accounting.check("desk", Instant::from_nanos(9));
    }
}
