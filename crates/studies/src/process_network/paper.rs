//! The numbers of Ruetsche and Kaiserswerth 1992.

use serde::Deserialize;

/// Table 1.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Table1 {
    pub(super) segment_bytes: u64,
    pub(super) word_bytes: u64,
    pub(super) row: Vec<TimeRow>,
    pub(super) scenario_2: Scenario2,
}

/// The time of a process.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct TimeRow {
    pub(super) process: String,
    pub(super) us_per_segment: f64,
    #[serde(default)]
    pub(super) us_per_word: f64,
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Scenario2 {
    pub(super) percent_lower: f64,
}

/// Numbers in the text.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Figures {
    pub(super) segments_per_second: f64,
    pub(super) copy_overlap_gain: f64,
    pub(super) duplex_gain: f64,
    pub(super) copy_cost_ratio: f64,
    pub(super) workstation_copy_mbps: f64,
    pub(super) integrated_mbps: f64,
    pub(super) checksum_us_per_halfword: f64,
    pub(super) t9000_segments_per_second: f64,
    pub(super) t9000_factor: f64,
    pub(super) clnp_speedup_8: f64,
    pub(super) t425_link_mbps: f64,
    pub(super) t9000_link_mbps: f64,
}

/// The printed time of a process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrintedProcess {
    /// Microseconds per segment of 4096 bytes, without the time of its words.
    pub us_per_segment: f64,
    /// Microseconds for all words of a segment; zero for a process that does not touch them.
    pub us_of_words: f64,
}

/// Returns the printed time of this process, if Table 1 has it.
pub fn printed_process(process: &str) -> Option<PrintedProcess> {
    let table = Table1::load();
    let row = table.row.iter().find(|row| row.process == process)?;
    let us_of_words = row.us_per_word * table.words() as f64;
    Some(PrintedProcess { us_per_segment: row.us_per_segment, us_of_words })
}

/// Returns the printed gain of a processor for each side over one for both.
pub fn printed_duplex_gain() -> f64 {
    Figures::load().duplex_gain
}

/// A process and its task.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Role {
    pub(super) name: String,
    pub(super) side: String,
    pub(super) role: String,
}

#[derive(Deserialize)]
struct Roles {
    process: Vec<Role>,
}

impl Table1 {
    pub(super) fn load() -> Self {
        toml::from_str(include_str!("../../data/002-table-1.toml")).expect("the shipped data are well-formed")
    }

    /// Returns the row of `process`.
    ///
    /// # Panics
    /// Panics if there is none: the file is part of this crate.
    pub(super) fn of(&self, process: &str) -> &TimeRow {
        self.row.iter().find(|row| row.process == process).unwrap_or_else(|| panic!("Table 1 has no row {process}"))
    }

    /// Returns the number of words of 32 bits per segment.
    pub(super) const fn words(&self) -> u64 {
        self.segment_bytes / self.word_bytes
    }

    /// Returns the number of application bits per segment.
    pub(super) fn segment_bits(&self) -> f64 {
        self.segment_bytes as f64 * 8.0
    }
}

impl Figures {
    pub(super) fn load() -> Self {
        toml::from_str(include_str!("../../data/002-figures.toml")).expect("the shipped data are well-formed")
    }

    /// Returns the time of the software checksum per segment, in microseconds.
    pub(super) fn checksum_us(&self, table: &Table1) -> f64 {
        self.checksum_us_per_halfword * (table.segment_bytes / 2) as f64
    }
}

/// Returns the processes, receive side first.
pub(super) fn roles() -> Vec<Role> {
    let roles: Roles = toml::from_str(include_str!("../../data/002-processes.toml")).expect(
        "the shipped data are \
            well-formed",
    );
    roles.process
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_of_table_1_give_the_printed_duplex_factor() {
        let table = Table1::load();
        let sum = |processes: &[&str]| processes.iter().map(|process| table.of(process).us_per_segment).sum::<f64>();
        let receive = sum(&["tcp_recv", "ip_demux", "ip_intrsvc"]);
        let transmit = sum(&["tcp_snd_data", "ip_send", "driver_send"]);
        // A row with a wrong number would break this.
        assert!(((receive + transmit) / receive / Figures::load().duplex_gain - 1.0).abs() < 0.005);
    }

    #[test]
    fn every_process_of_the_table_has_a_role() {
        let roles = roles();
        for row in Table1::load().row {
            let name = match row.process.as_str() {
                "tcp_snd_data" => "xtask",
                "driver_send" => "ip_send",
                "poke" => "peek_poke",
                name => name,
            };
            assert!(roles.iter().any(|role| role.name == name), "{name}");
        }
    }
}
