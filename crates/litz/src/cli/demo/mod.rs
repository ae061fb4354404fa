//! `litz demo`: a receiver and a sender on this machine, an emulated link between them, one sender killed half-way.

mod child;
mod report;

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use emulate::{Relay, RelayLink};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use netem::LinkConfig;
use serde_json::Value;
use units::{Duration, Rng};

use super::args::DemoOptions;
use super::exit;
use child::Child;
use report::{Attempt, Report};

/// The sender is killed when this share of the file has arrived.
const KILL_AT_PERCENT: u64 = 40;

/// Loopback carries more than the 1200 bytes that every path carries; this is what an Ethernet does, less tunnels.
const DATAGRAM_SIZE: usize = 1452;

/// IPv4 and UDP headers, which the link carries too.
const HEADER_BYTES: u64 = 28;

/// The queue holds what passes in this time, unless chosen otherwise.
const QUEUE_TIME: Duration = Duration::from_millis(50);

pub(crate) fn run(options: &DemoOptions) -> ExitCode {
    match Demo::prepare(options).and_then(|demo| demo.run()) {
        Ok(report) => {
            report.print(options.json);
            ExitCode::from(if report.verified { exit::DONE } else { exit::INCOMPLETE })
        }
        Err(message) => exit::fail(options.json, exit::FAILED, &message),
    }
}

struct Demo<'a> {
    options: &'a DemoOptions,
    folder: tempfile::TempDir,
    source: PathBuf,
    link: LinkConfig,
}

impl<'a> Demo<'a> {
    fn prepare(options: &'a DemoOptions) -> Result<Self, String> {
        if options.rate.is_zero() {
            return Err("the link needs a rate above zero".to_owned());
        }
        let link = LinkConfig {
            rate: Some(options.rate),
            delay: options.delay,
            loss: options.loss,
            queue_bytes: options
                .queue
                .map_or_else(|| options.rate.bytes_in(QUEUE_TIME).max(64 * 1024), |q| q.as_bytes()),
            overhead_bytes: HEADER_BYTES as _,
            ..LinkConfig::default()
        };
        link.validate().map_err(|error| error.to_string())?;
        let words =
            |error: io::Error| format!("cannot prepare the demo in {}: {error}", std::env::temp_dir().display());
        let folder = tempfile::Builder::new().prefix("litz-demo-").tempdir().map_err(words)?;
        let source = folder.path().join("source.bin");
        std::fs::create_dir(folder.path().join("received")).map_err(words)?;
        make_file(&source, options.size.as_bytes(), options.seed).map_err(words)?;
        Ok(Self { options, folder, source, link })
    }

    fn run(&self) -> Result<Report, String> {
        self.say(&format!(
            "litz demo: one encrypted connection over an emulated link\n\n  link   {}, {} each way, {:.2} % loss, queue {}\n  file   {} of random bytes\n",
            self.options.rate,
            self.options.delay,
            self.options.loss.as_f64() * 100.0,
            units::ByteSize::from_bytes(self.link.queue_bytes),
            self.options.size,
        ));
        let link = RelayLink {
            name: "demo".to_owned(),
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            // Known when it listens.
            server: None,
            forward: self.link.clone(),
            backward: self.link.clone(),
        };
        let relay = Relay::start(vec![link], self.options.seed)
            .map_err(|error| format!("cannot start the emulated link: {error}"))?;
        let received = self.folder.path().join("received");
        let mut receiver = Child::start(&[
            "recv".as_ref(),
            received.as_os_str(),
            "--json".as_ref(),
            "--listen=127.0.0.1:0".as_ref(),
            format!("--advertise={}", relay.local_addr(0)).as_ref(),
            format!("--state-dir={}", self.folder.path().join("receiver").display()).as_ref(),
        ])?;
        let listening = receiver.wait_for("listening")?;
        let port = listening["port"].as_u64().and_then(|port| u16::try_from(port).ok()).ok_or("no port")?;
        let ticket = listening["ticket"].as_str().ok_or("no ticket")?.to_owned();
        relay.set_server(0, SocketAddr::from((Ipv4Addr::LOCALHOST, port))).map_err(|error| error.to_string())?;

        let killed = self.attempt(&ticket, Some(KILL_AT_PERCENT))?;
        self.say(&format!("  ✂ the sender was killed (kill -9) at {} %; starting it again\n", killed.percent()));
        let resumed = self.attempt(&ticket, None)?;
        let status = receiver.wait()?;
        if status != 0 {
            return Err(format!("the receiver ended with status {status}"));
        }
        self.say("\n  comparing the files\n");
        let hash = hash_file(&self.source)?;
        let verified = hash == hash_file(&received.join("source.bin"))?;
        Ok(Report {
            link: self.link.clone(),
            bytes: self.options.size.as_bytes(),
            killed,
            resumed,
            stats: relay.stop().reports.remove(0),
            hash,
            verified,
        })
    }

    /// Runs a sender, to the end or until it is killed.
    fn attempt(&self, ticket: &str, kill_at_percent: Option<u64>) -> Result<Attempt, String> {
        let bar = self.bar();
        let mut sender = Child::start(&[
            "send".as_ref(),
            self.source.as_os_str(),
            ticket.as_ref(),
            "--json".as_ref(),
            // However many processors there are, most of what has arrived at the kill is complete parts, which count.
            "--parallel=2".as_ref(),
            format!("--datagram-size={DATAGRAM_SIZE}").as_ref(),
            format!("--state-dir={}", self.folder.path().join("sender").display()).as_ref(),
        ])?;
        let mut attempt = Attempt::new(self.options.size.as_bytes());
        while let Some(event) = sender.next_event()? {
            attempt.note(&event, sender.elapsed());
            bar.set_position(attempt.bytes_done);
            if event["event"] == "error" {
                return Err(event["message"].as_str().unwrap_or("the sender failed").to_owned());
            }
            if kill_at_percent.is_some_and(|percent| attempt.percent() >= percent) {
                sender.kill()?;
                break;
            }
        }
        if kill_at_percent.is_none() {
            let status = sender.wait()?;
            if status != 0 {
                return Err(format!("the sender ended with status {status}"));
            }
        }
        bar.abandon();
        if !bar.is_hidden() {
            // The bar stays, and the cursor behind it.
            self.say("");
        }
        Ok(attempt)
    }

    fn bar(&self) -> ProgressBar {
        if self.options.json || !io::stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let bar = ProgressBar::with_draw_target(Some(self.options.size.as_bytes()), ProgressDrawTarget::stderr());
        let style = "  sending [{bar:40}] {percent:>3} %  {decimal_bytes} of {decimal_total_bytes}  {eta} left";
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style.progress_chars("━╸─"));
        }
        bar
    }

    #[expect(clippy::print_stderr, reason = "this is where the command speaks")]
    fn say(&self, text: &str) {
        if !self.options.json {
            eprintln!("{text}");
        }
    }
}

/// Bytes that no compression or deduplication could shorten, from a seed.
fn make_file(path: &Path, size_bytes: u64, seed: u64) -> io::Result<()> {
    let mut rng = Rng::from_seed(seed).split("file");
    let mut out = BufWriter::new(File::create(path)?);
    let mut block = vec![0; 1 << 20];
    let mut left = size_bytes;
    while left > 0 {
        let len = left.min(block.len() as u64) as usize;
        rng.fill(&mut block[..len]);
        out.write_all(&block[..len])?;
        left -= len as u64;
    }
    out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

fn hash_file(path: &Path) -> Result<String, String> {
    let words = |error: io::Error| format!("cannot read {}: {error}", path.display());
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(File::open(path).map_err(words)?).map_err(words)?;
    Ok(hasher.finalize().to_hex().to_string())
}

/// The number under `key`, zero if there is none.
fn number(event: &Value, key: &str) -> u64 {
    event[key].as_u64().unwrap_or(0)
}
