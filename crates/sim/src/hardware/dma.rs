//! DMA engines, which move words between a memory and a device or between memories without a
//! processor.

use units::Duration;

use super::bus::Bus;
use super::memory::Memory;
use super::processor::AttachedMemory;
use crate::kernel::Sim;
use crate::observe::ComponentReport;
use crate::resource::Resource;

/// An engine that performs one transfer at a time. Cheap to clone: all clones are the same engine.
#[derive(Clone)]
pub struct Dma {
    sim: Sim,
    unit: Resource,
    setup: Duration,
}

impl Dma {
    /// Creates an engine called `name` that takes `setup` before each transfer.
    ///
    /// # Panics
    /// Panics if the model already has a component of this name.
    pub fn new(sim: &Sim, name: &str, setup: Duration) -> Self {
        Self { sim: sim.clone(), unit: Resource::new(sim, name), setup }
    }

    /// Moves `words` words between `memory` and the device.
    pub async fn transfer(&self, memory: &AttachedMemory, words: u64) {
        let _held = self.unit.acquire().await;
        self.sim.sleep(self.setup).await;
        memory.access(words).await;
    }

    /// Copies `words` words from one memory to another over `bus`.
    pub async fn copy(&self, bus: &Bus, from: &Memory, to: &Memory, words: u64) {
        let _held = self.unit.acquire().await;
        self.sim.sleep(self.setup).await;
        bus.copy(from, to, words).await;
    }

    /// Returns the statistics since the end of the warm-up.
    pub fn report(&self) -> ComponentReport {
        self.unit.report()
    }
}

#[cfg(test)]
mod tests {
    use units::Rate;

    use super::*;
    use crate::Simulation;
    use crate::hardware::{BusConfig, MemoryConfig, Transactions};

    #[test]
    fn transfers_are_sequential_and_a_copy_is_as_slow_as_its_slowest_part() {
        let mut simulation = Simulation::new(1, 0);
        let sim = simulation.sim();
        let memory = |name, word_ns| {
            Memory::new(&sim, name, MemoryConfig { word_ns, word_bits: 32, burst_words: 100, ports: 1 }).unwrap()
        };
        let (slow, fast) = (memory("slow", 80), memory("fast", 20));
        let config = BusConfig {
            rate: Rate::from_mbps(800),
            width_bits: 32,
            transactions: Transactions::Held,
            single_cycles: 1,
        };
        let bus = Bus::new(&sim, "bus", config).unwrap();
        let dma = Dma::new(&sim, "dma", Duration::from_nanos(500));
        let (first, memory) =
            (dma.clone(), AttachedMemory { bus: Some(bus.clone()), memory: fast.clone(), stopwatch: None });
        simulation.spawn(async move { first.copy(&bus, &slow, &fast, 100).await });
        simulation.spawn(async move { dma.transfer(&memory, 100).await });
        simulation.run();
        // 500 and 100 words of 80 ns; then 500 and 100 words of 40 ns, limited by the bus.
        assert_eq!(sim.now().as_nanos(), 8_500 + 4_500);
    }
}
