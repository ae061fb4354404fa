//! A machine: processors, memories, buses, interfaces.

use std::cell::{Cell, RefCell};

use sim::hardware::{
    AttachedMemory, Bus, BusConfig, Chooser, ConfigError, Dma, Memory, MemoryConfig, Mux, Outlet, Processor,
    ProcessorConfig,
};
use sim::{Sim, Stopwatch, Store};
use units::Rate;

use super::config::Config;
use super::packet::OutgoingPacket;
use super::paper::Kind;

/// Queue limit of an interface in packets. Windows set a much lower limit.
const OUTBOX_PACKETS: usize = 4096;

/// A machine.
pub(super) struct Machine {
    /// The processor of the application.
    pub(super) application: Processor,
    pub(super) application_memory: AttachedMemory,
    /// The processors of the protocol.
    pub(super) processors: Vec<Processor>,
    pub(super) memories: Vec<AttachedMemory>,
    /// The memory of each processor as accessed by the interfaces.
    pub(super) interface_memories: Vec<AttachedMemory>,
    /// The DMA engines of each interface: those that fetch outgoing frames and those that store
    /// incoming ones.
    pub(super) fetchers: Vec<Dma>,
    pub(super) storers: Vec<Dma>,
    pub(super) abus: Bus,
    /// The device of the central network scheduler; `None` if each processor has a scheduler.
    pub(super) mux: Option<Mux>,
    choosers: RefCell<Vec<Chooser>>,
    /// Packets for each interface.
    pub(super) outboxes: Vec<Store<OutgoingPacket>>,
    /// Packets that each interface was given and has not sent.
    pub(super) pending: Vec<Cell<u64>>,
    /// Its station on every ring.
    pub(super) station: usize,
}

impl Machine {
    /// Creates the machine `name` of `config` at `station`.
    pub(super) fn new(sim: &Sim, config: &Config, name: &str, station: usize) -> Result<Self, ConfigError> {
        let parts = Parts { sim, config, name };
        let abus = parts.bus("abus", config.abus_mbps)?;
        let stopwatch = Stopwatch::new(sim, &format!("{name} accesses"));
        let count = config.protocol_processors;
        let (application_memory, memories, interface_memories) = if config.kind == Kind::TwoBus {
            let nbus = parts.bus("nbus", config.nbus_mbps)?;
            let local = |part: &str| {
                Ok(AttachedMemory { bus: None, memory: parts.memory(part)?, stopwatch: Some(stopwatch.clone()) })
            };
            let memories: Vec<AttachedMemory> =
                (0..count).map(|index| local(&format!("memory {index}"))).collect::<Result<_, ConfigError>>()?;
            let over_nbus = |memory: &AttachedMemory| AttachedMemory { bus: Some(nbus.clone()), ..memory.clone() };
            let interface_memories = memories.iter().map(over_nbus).collect();
            (local("application memory")?, memories, interface_memories)
        } else {
            let memory =
                AttachedMemory { bus: Some(abus.clone()), memory: parts.memory("memory")?, stopwatch: Some(stopwatch) };
            (memory.clone(), vec![memory.clone(); count], vec![memory; count])
        };
        let processors = memories
            .iter()
            .enumerate()
            .map(|(index, memory)| parts.processor(&format!("processor {index}"), memory))
            .collect::<Result<_, _>>()?;
        let central = config.kind != Kind::TwoBus;
        let packet_time = Rate::from_mbps(config.ring_mbps).time_for(config.packet_bits / 8);
        let engines = |direction: &str| -> Vec<Dma> {
            let engine = |index| Dma::new(sim, &format!("{name} dma {direction} {index}"), config.choices.dma_setup);
            (0..config.interfaces).map(engine).collect()
        };
        let chooser = |index| Chooser::new(config.schedule, packet_time, index % config.interfaces);
        Ok(Self {
            application: parts.processor("application", &application_memory)?,
            application_memory,
            processors,
            memories,
            interface_memories,
            fetchers: engines("out"),
            storers: engines("in"),
            abus,
            mux: central.then(|| Mux::new(sim, &format!("{name} mux"), config.choices.mux_service)),
            choosers: RefCell::new((0..if central { 1 } else { count }).map(chooser).collect()),
            outboxes: (0..config.interfaces)
                .map(|index| Store::new(sim, &format!("{name} outbox {index}"), OUTBOX_PACKETS))
                .collect(),
            pending: vec![Cell::new(0); config.interfaces],
            station,
        })
    }
}

impl Machine {
    /// Selects the interface for a packet of `processor`, by its own scheduler or the central one.
    pub(super) fn choose(&self, processor: usize, outlets: &[Outlet]) -> usize {
        let mut choosers = self.choosers.borrow_mut();
        let chooser = processor % choosers.len();
        choosers[chooser].choose(outlets).expect("at least one interface works")
    }
}

/// Builds parts of a machine.
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

    /// Creates a processor; as in the report, every instruction is in the cache and no data word
    /// is. Context switches and interrupts are included in the operations' costs unless the choices
    /// say otherwise.
    fn processor(&self, part: &str, memory: &AttachedMemory) -> Result<Processor, ConfigError> {
        let config = ProcessorConfig {
            mips: self.config.mips,
            instruction_hits: 1.0,
            data_hits: 0.0,
            context_switch_instructions: self.config.choices.switch_instructions,
            interrupt_instructions: self.config.choices.switch_instructions,
        };
        Processor::new(self.sim, &format!("{} {part}", self.name), config, memory.clone())
    }
}
