//! One machine: processors, memories, buses, interfaces.

use std::cell::{Cell, RefCell};

use sim::hardware::{
    Bus, BusConfig, Chooser, ConfigError, Dma, Home, Memory, MemoryConfig, Mux, Outlet, Processor, ProcessorConfig,
};
use sim::{Sim, Store, Watch};
use units::Rate;

use super::config::Config;
use super::network::Parcel;
use super::paper::Kind;

/// Parcels that wait for an interface at most. Windows bound them much lower; the bound is for the queue's own sake.
const OUTBOX_PARCELS: usize = 4096;

/// A machine.
pub(super) struct Machine {
    /// The application's processor.
    pub(super) application: Processor,
    pub(super) application_home: Home,
    /// Those that run the protocol.
    pub(super) processors: Vec<Processor>,
    pub(super) homes: Vec<Home>,
    /// Where an interface finds the words of each processor.
    pub(super) interface_homes: Vec<Home>,
    /// Engines that fetch what each interface sends, and that store what comes.
    pub(super) fetchers: Vec<Dma>,
    pub(super) storers: Vec<Dma>,
    pub(super) abus: Bus,
    /// The central network scheduler's device; `None` where each processor has a scheduler.
    pub(super) mux: Option<Mux>,
    choosers: RefCell<Vec<Chooser>>,
    /// Parcels for each interface.
    pub(super) outboxes: Vec<Store<Parcel>>,
    /// Parcels that each interface was given and has not sent.
    pub(super) pending: Vec<Cell<u64>>,
    /// Its station on every ring.
    pub(super) station: usize,
}

impl Machine {
    /// The machine `name` of `config` at `station`.
    pub(super) fn new(sim: &Sim, config: &Config, name: &str, station: usize) -> Result<Self, ConfigError> {
        let parts = Parts { sim, config, name };
        let abus = parts.bus("abus", config.abus_mbps)?;
        let watch = Watch::new(sim, &format!("{name} accesses"));
        let count = config.protocol_processors;
        let (application_home, homes, interface_homes) = if config.kind == Kind::TwoBus {
            let nbus = parts.bus("nbus", config.nbus_mbps)?;
            let local = |part: &str| Ok(Home { bus: None, memory: parts.memory(part)?, watch: Some(watch.clone()) });
            let homes: Vec<Home> =
                (0..count).map(|index| local(&format!("memory {index}"))).collect::<Result<_, ConfigError>>()?;
            let over_nbus = |home: &Home| Home { bus: Some(nbus.clone()), ..home.clone() };
            let interface_homes = homes.iter().map(over_nbus).collect();
            (local("application memory")?, homes, interface_homes)
        } else {
            let home = Home { bus: Some(abus.clone()), memory: parts.memory("memory")?, watch: Some(watch) };
            (home.clone(), vec![home.clone(); count], vec![home; count])
        };
        let processors = homes
            .iter()
            .enumerate()
            .map(|(index, home)| parts.processor(&format!("processor {index}"), home))
            .collect::<Result<_, _>>()?;
        let central = config.kind != Kind::TwoBus;
        let packet_time = Rate::from_mbps(config.ring_mbps).time_for(config.packet_bits / 8);
        let engines = |way: &str| -> Vec<Dma> {
            let engine = |index| Dma::new(sim, &format!("{name} dma {way} {index}"), config.choices.dma_setup);
            (0..config.interfaces).map(engine).collect()
        };
        let chooser = |index| Chooser::new(config.schedule, packet_time, index % config.interfaces);
        Ok(Self {
            application: parts.processor("application", &application_home)?,
            application_home,
            processors,
            homes,
            interface_homes,
            fetchers: engines("out"),
            storers: engines("in"),
            abus,
            mux: central.then(|| Mux::new(sim, &format!("{name} mux"), config.choices.mux_service)),
            choosers: RefCell::new((0..if central { 1 } else { count }).map(chooser).collect()),
            outboxes: (0..config.interfaces)
                .map(|index| Store::new(sim, &format!("{name} outbox {index}"), OUTBOX_PARCELS))
                .collect(),
            pending: vec![Cell::new(0); config.interfaces],
            station,
        })
    }
}

impl Machine {
    /// The interface for a parcel of `processor`: its own scheduler decides, or the central one.
    pub(super) fn choose(&self, processor: usize, outlets: &[Outlet]) -> usize {
        let mut choosers = self.choosers.borrow_mut();
        let chooser = processor % choosers.len();
        choosers[chooser].choose(outlets).expect("failures leave an interface")
    }
}

/// Makes parts of a machine.
struct Parts<'a> {
    sim: &'a Sim,
    config: &'a Config,
    name: &'a str,
}

impl Parts<'_> {
    fn memory(&self, part: &str) -> Result<Memory, ConfigError> {
        let config = MemoryConfig {
            word_ns: self.config.memory_ns,
            word_bits: self.config.choices.word_bits,
            burst_words: self.config.choices.burst_words,
            ports: 1,
        };
        Memory::new(self.sim, &format!("{} {part}", self.name), config)
    }

    fn bus(&self, part: &str, mbps: u64) -> Result<Bus, ConfigError> {
        let config = BusConfig {
            rate: Rate::from_mbps(mbps),
            width_bits: self.config.choices.word_bits,
            transactions: self.config.transactions,
            single_cycles: self.config.choices.single_cycles,
        };
        Bus::new(self.sim, &format!("{} {part}", self.name), config)
    }

    /// The paper: every instruction is in the cache, no data word is. Switching and interrupts are in the operations' costs unless the
    /// choices say otherwise.
    fn processor(&self, part: &str, home: &Home) -> Result<Processor, ConfigError> {
        let config = ProcessorConfig {
            mips: self.config.mips,
            instruction_hits: 1.0,
            data_hits: 0.0,
            context_switch_instructions: self.config.choices.switch_instructions,
            interrupt_instructions: self.config.choices.switch_instructions,
        };
        Processor::new(self.sim, &format!("{} {part}", self.name), config, home.clone())
    }
}
