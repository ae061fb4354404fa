//! What is tried with each peer, and what must be seen.

use std::time::Duration;

use litz::{EcnState, TransportConfig, Version, Versions};
use serde_json::Value;

use super::relay::Faults;
use super::run::{Observed, Plan, Role};
use super::{hex, pattern_hash};

/// One row of the table.
pub struct Case {
    /// Its name on the command line and in the results.
    pub name: &'static str,
    /// Its title in the table.
    pub title: &'static str,
    /// How it is run; with the size of the long transfers in bytes.
    pub plan: fn(u64) -> Plan,
    /// Whether it showed what it should, apart from the right bytes: a remark, or what failed.
    pub show: fn(Role, &Observed) -> Result<String, String>,
}

/// A reset must be noticed long before the idle timeout of 20 seconds.
const RESET_WITHIN: Duration = Duration::from_secs(8);

/// The relay lets nothing longer pass in the case of discovery, in bytes of UDP payload.
const RELAY_DATAGRAM_MAX: usize = 1400;

/// The longest datagram that we try in that case: that of a link of 1500 bytes over IPv4.
const OUR_DATAGRAM_MAX: usize = 1472;

fn plan(steps: &[String]) -> Plan {
    Plan {
        steps: steps.to_vec(),
        retry: false,
        http3: false,
        early: false,
        faults: Some(Faults::default()),
        transport: TransportConfig::default().with_idle_timeout(units::Duration::from_secs(20)),
        timeout: Duration::from_secs(60),
    }
}

fn both_ways(bytes: u64) -> Vec<String> {
    vec![format!("get={bytes}"), format!("put={bytes}")]
}

fn short() -> Vec<String> {
    vec!["get=1000".to_owned()]
}

/// All cases, in the order of the table.
pub const CASES: &[Case] = &[
    Case { name: "handshake", title: "handshake", plan: |_| plan(&short()), show: nothing_more },
    Case {
        name: "transfer",
        title: "long transfer in each direction",
        plan: |bytes| Plan { faults: None, timeout: Duration::from_secs(240), ..plan(&both_ways(bytes)) },
        show: |_, observed| Ok(times(observed)),
    },
    Case { name: "streams", title: "1000 streams", plan: |_| plan(&["streams=1000".to_owned()]), show: nothing_more },
    Case { name: "loss-1", title: "1 % loss", plan: |bytes| lossy(bytes / 10, 10), show: something_was_lost },
    Case { name: "loss-5", title: "5 % loss", plan: |bytes| lossy(bytes / 20, 50), show: something_was_lost },
    Case { name: "retry", title: "Retry", plan: |_| Plan { retry: true, ..plan(&short()) }, show: was_retried },
    Case {
        name: "resumption",
        title: "resumption",
        plan: |_| plan(&["get=1000", "reconnect", "get=1000"].map(str::to_owned)),
        show: was_resumed,
    },
    Case {
        name: "early",
        title: "0-RTT",
        plan: |_| {
            let faults = Faults { holds_until_early: true, ..Faults::default() };
            let steps = ["get=1000", "early=1000"].map(str::to_owned);
            Plan { early: true, faults: Some(faults), ..plan(&steps) }
        },
        show: was_early,
    },
    Case {
        name: "key-update-ours",
        title: "key updates by Litz",
        plan: |bytes| {
            let mut plan = plan(&both_ways(bytes / 4));
            plan.transport.key_update_interval = 200;
            plan
        },
        show: |_, observed| keys_were_updated(observed),
    },
    Case {
        name: "key-update-theirs",
        title: "key updates by the peer",
        plan: key_updates,
        show: |_, observed| keys_were_updated(observed),
    },
    Case {
        name: "reset",
        title: "stateless reset after a restart",
        plan: |_| plan(&["get=1000", "pause", "get=1000"].map(str::to_owned)),
        show: was_reset,
    },
    Case { name: "migration", title: "migration", plan: |bytes| migrating(bytes / 10, false), show: has_moved },
    Case {
        name: "migration-dead",
        title: "migration, the old path dead",
        plan: |bytes| migrating(bytes / 10, true),
        show: has_moved,
    },
    Case { name: "rebinding", title: "NAT rebinding, twice", plan: |bytes| rebinding(bytes / 10), show: was_rebound },
    Case {
        name: "ecn",
        title: "ECN with CE marks",
        plan: |bytes| Plan {
            faults: Some(Faults { mark_every: Some(200), ..Faults::default() }),
            ..plan(&both_ways(bytes / 10))
        },
        show: marks_were_reported,
    },
    Case {
        name: "mtu",
        title: "DPLPMTUD",
        plan: |bytes| {
            let faults = Faults { datagram_max: Some(RELAY_DATAGRAM_MAX), ..Faults::default() };
            // The search takes some round trips.
            let mut plan = Plan { faults: Some(faults), ..plan(&both_ways(bytes / 2)) };
            plan.transport.datagram_size_max = OUR_DATAGRAM_MAX;
            plan
        },
        show: larger_ones_were_found,
    },
    Case {
        name: "http3",
        title: "HTTP/3",
        plan: |bytes| Plan { http3: true, ..plan(&both_ways(bytes / 10)) },
        show: |_, observed| Ok(times(observed)),
    },
    Case {
        name: "version-2",
        title: "QUIC version 2",
        plan: |bytes| in_versions(bytes, Versions::V2),
        show: |_, observed| version_2_was_used(observed, Version::V2),
    },
    Case {
        name: "upgrade",
        title: "from version 1 to 2",
        plan: |bytes| in_versions(bytes, Versions::PreferV2),
        show: |_, observed| version_2_was_used(observed, Version::V1),
    },
];

fn lossy(bytes: u64, loss_per_mille: u32) -> Plan {
    Plan {
        faults: Some(Faults { loss_per_mille, ..Faults::default() }),
        timeout: Duration::from_secs(120),
        ..plan(&both_ways(bytes))
    }
}

fn in_versions(bytes: u64, versions: Versions) -> Plan {
    let mut plan = plan(&both_ways(bytes / 10));
    plan.transport.versions = versions;
    plan
}

fn migrating(bytes: u64, old_paths_die: bool) -> Plan {
    let steps = [format!("migrate={bytes}"), format!("put={bytes}")];
    let mut plan = Plan { faults: Some(Faults { old_paths_die, ..Faults::default() }), ..plan(&steps) };
    // A server of Litz with one path forbids migration.
    plan.transport.max_paths = 2;
    plan
}

/// The first one in the middle of the download, the other one in that of the upload.
fn rebinding(bytes: u64) -> Plan {
    let rebind_at = vec![bytes / 2, bytes + bytes / 2];
    Plan { faults: Some(Faults { rebind_at, ..Faults::default() }), ..plan(&both_ways(bytes)) }
}

/// A client of the peer updates on request, its servers when they want.
fn key_updates(bytes: u64) -> Plan {
    let mut steps = both_ways(bytes / 10);
    steps.insert(1, "key-update".to_owned());
    plan(&steps)
}

impl Case {
    /// The case with this name.
    pub fn find(name: &str) -> Option<&'static Self> {
        CASES.iter().find(|case| case.name == name)
    }

    /// Whether the client got the right bytes in every step, and saw the end only where it is meant.
    pub fn check(&self, role: Role, plan: &Plan, observed: &Observed) -> Result<String, String> {
        let text = |line: &Value| line["event"].as_str().unwrap_or_default().to_owned();
        let is_reset = self.name == "reset";
        if let Some(line) = observed.lines.iter().find(|line| text(line) == "unsupported") {
            return Err(format!("the peer has no step {}", line["text"]));
        }
        if let Some(line) = observed.lines.iter().find(|line| text(line) == "closed").filter(|_| !is_reset) {
            return Err(format!("the connection was closed: {line}"));
        }
        let mut results = observed.lines.iter().filter(|line| line["sha256"].is_string());
        let requests = plan.steps.iter().filter_map(|step| step.split_once('='));
        for (name, count) in requests.take(if is_reset { 1 } else { usize::MAX }) {
            let count: u64 = count.parse().expect("a number in a plan");
            // The answer to an early request is reported as any other one.
            let event = if name == "early" { "get" } else { name };
            let line = results.next().ok_or_else(|| format!("no result of {name}; events: {:?}", observed.lines))?;
            let (len, hash) = expected(name, count);
            if text(line) != event || line["bytes"] != len || line["sha256"] != hash {
                return Err(format!("wrong bytes: {line}, expected {len} with {hash}"));
            }
        }
        (self.show)(role, observed)
    }
}

/// The bytes and the hash that a step must report.
fn expected(step: &str, count: u64) -> (u64, String) {
    if step == "streams" {
        let one = pattern_hash(1000);
        let all: Vec<u8> = std::iter::repeat_n(one.as_ref(), count as usize).flatten().copied().collect();
        let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &all);
        return (1000 * count, hex(hash.as_ref()));
    }
    (count, hex(pattern_hash(count).as_ref()))
}

fn nothing_more(_: Role, _: &Observed) -> Result<String, String> {
    Ok(String::new())
}

/// The seconds of each transfer, as the client has measured them.
fn times(observed: &Observed) -> String {
    let of = |line: &Value| Some(format!("{} {:.2} s", line["event"].as_str()?, line["seconds"].as_f64()?));
    observed.lines.iter().filter_map(of).collect::<Vec<_>>().join(", ")
}

/// `remark` if the condition holds, otherwise it is what is wrong.
fn verdict(holds: bool, remark: String) -> Result<String, String> {
    if holds { Ok(remark) } else { Err(remark) }
}

fn something_was_lost(_: Role, observed: &Observed) -> Result<String, String> {
    let (up, down) = (observed.seen.up.dropped, observed.seen.down.dropped);
    verdict(up > 0 && down > 0, format!("lost {up} up, {down} down; {}", times(observed)))
}

fn was_retried(_: Role, observed: &Observed) -> Result<String, String> {
    verdict(observed.seen.retries > 0, format!("{} Retry packets", observed.seen.retries))
}

fn was_resumed(_: Role, observed: &Observed) -> Result<String, String> {
    let connected = observed.lines.iter().filter(|line| line["event"] == "connected");
    let resumed: Vec<bool> = connected.map(|line| line["resumed"] == true).collect();
    let ours: Vec<bool> = observed.stats.iter().map(|stats| stats.session.is_resumed).collect();
    let expected = [false, true];
    verdict(resumed == expected && ours == expected, format!("resumed: {resumed:?} for the client, {ours:?} for Litz"))
}

fn was_early(_: Role, observed: &Observed) -> Result<String, String> {
    let connected = observed.lines.iter().filter(|line| line["event"] == "connected");
    let early: Vec<bool> = connected.map(|line| line["early"] == true).collect();
    let packets = observed.seen.early;
    verdict(early == [false, true] && packets > 0, format!("taken: {early:?}; {packets} datagrams with 0-RTT"))
}

/// A connection that the client began with `first`, and that went on in version 2.
fn version_2_was_used(observed: &Observed, first: Version) -> Result<String, String> {
    let connected = observed.lines.iter().filter(|line| line["event"] == "connected");
    let theirs: Vec<&Value> = connected.map(|line| &line["version"]).collect();
    let ours: Vec<Version> = observed.stats.iter().map(|stats| stats.session.version).collect();
    let (began, answered) = (observed.seen.began_in, &observed.seen.versions);
    let is_used = theirs == [&Value::from(2)]
        && ours == [Version::V2]
        && began == Some(first.number())
        && answered.contains(&Version::V2.number());
    verdict(is_used, format!("the client began in {began:x?}, the server answered in {answered:x?}; then {ours:?}"))
}

/// Each update by one side makes the other one use further keys, too (RFC 9001, section 6.2).
fn keys_were_updated(observed: &Observed) -> Result<String, String> {
    let updates: u64 = observed.stats.iter().map(|stats| stats.send.key_updates).sum();
    verdict(updates > 0, format!("Litz has used {updates} further keys"))
}

fn was_reset(_: Role, observed: &Observed) -> Result<String, String> {
    let closed = observed.lines.iter().find(|line| line["event"] == "closed");
    let closed = closed.ok_or("the client did not notice the restart")?;
    let after = observed.after_pause.ok_or("no server was restarted")?;
    let is_reset = closed["kind"] == "reset" && after < RESET_WITHIN;
    verdict(is_reset, format!("{} after {:.2} s", closed["text"], after.as_secs_f64()))
}

fn has_moved(_: Role, observed: &Observed) -> Result<String, String> {
    let flows = &observed.seen.flows;
    // The upload alone is more than that on the new path.
    let is_used = flows.len() == 2 && flows.iter().all(|bytes| *bytes > 100_000);
    verdict(is_used, format!("bytes by address of the client: {flows:?}"))
}

fn was_rebound(_: Role, observed: &Observed) -> Result<String, String> {
    let rebindings = observed.seen.rebindings;
    verdict(rebindings == 2, format!("{rebindings} rebindings; {}", times(observed)))
}

fn marks_were_reported(role: Role, observed: &Observed) -> Result<String, String> {
    let stats = observed.stats.last().ok_or("no statistics")?;
    let path = &stats.paths[0];
    let (ours, theirs) = match role {
        Role::Client => (&observed.seen.up, &observed.seen.down),
        Role::Server => (&observed.seen.down, &observed.seen.up),
    };
    let is_ours_right = path.ecn == EcnState::Capable && path.packets_marked > 0;
    let remark = format!(
        "our marks: {}, {} of {} CE reported; the peer marked {} of {} datagrams, the last {} not",
        path.ecn.name(),
        path.packets_marked,
        ours.marked,
        theirs.ecn_capable,
        theirs.datagrams,
        theirs.since_ecn
    );
    verdict(is_ours_right, remark)
}

fn larger_ones_were_found(role: Role, observed: &Observed) -> Result<String, String> {
    let (ours, theirs) = match role {
        Role::Client => (&observed.seen.up, &observed.seen.down),
        Role::Server => (&observed.seen.down, &observed.seen.up),
    };
    let size = observed.stats.last().ok_or("no statistics")?.datagram_size;
    let is_found = size > RELAY_DATAGRAM_MAX - 30 && size <= RELAY_DATAGRAM_MAX && ours.longest == size;
    verdict(is_found, format!("Litz found {size} bytes, the peer sent up to {}", theirs.longest))
}
