//! quiche as a peer: see `../README.md` for the protocol and the arguments.

mod endpoint;
mod stream;

use std::io::Read;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use quiche::PathEvent;
use ring::digest;
use serde_json::json;

use endpoint::{Endpoint, Failed, config};
use stream::{Stream, hex};

/// How long an event loop waits at most before it looks for an end.
const TICK: Duration = Duration::from_millis(50);

/// A migration takes this long at most; it needs a round trip on loopback.
const MOVE_TIMEOUT: Duration = Duration::from_secs(5);

/// As BoringSSL numbers it (`ssl_early_data_accepted`).
const EARLY_DATA_ACCEPTED: u32 = 2;

#[derive(Default)]
struct Options {
    cert: String,
    key: String,
    port: u16,
    retry: bool,
    server: Option<SocketAddr>,
    ca: String,
    steps: Vec<String>,
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Options, Failed> {
    let mut options = Options::default();
    while let Some(name) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{name} has no value"));
        match name.as_str() {
            "--cert" => options.cert = value()?,
            "--key" => options.key = value()?,
            "--port" => options.port = value()?.parse()?,
            "--retry" => options.retry = true,
            // quiche leaves resets to its application, and this one sends none.
            "--reset-key" => drop(value()?),
            "--server" => options.server = Some(value()?.parse()?),
            "--ca" => options.ca = value()?,
            _ if name.starts_with("--") => return Err(format!("there is no option {name}").into()),
            _ => options.steps.push(name),
        }
    }
    Ok(options)
}

static HAS_ENDED: AtomicBool = AtomicBool::new(false);

fn run_server(options: &Options) -> Result<(), Failed> {
    let mut config = config()?;
    config.load_cert_chain_from_pem_file(&options.cert)?;
    config.load_priv_key_from_pem_file(&options.key)?;
    let mut endpoint = Endpoint::new(config, options.port, true, options.retry)?;
    println!("{}", json!({ "event": "listening", "port": endpoint.sockets[0].local_addr()?.port() }));
    std::thread::spawn(|| {
        // Whatever ends standard input ends the program.
        let _read = std::io::stdin().read_to_end(&mut Vec::new());
        HAS_ENDED.store(true, Ordering::Relaxed);
    });
    while !HAS_ENDED.load(Ordering::Relaxed) {
        endpoint.turn(TICK)?;
    }
    Ok(())
}

struct Client {
    endpoint: Endpoint,
    server: SocketAddr,
    session: Option<Vec<u8>>,
    next_stream: u64,
}

impl Client {
    /// Runs until `is_done`, or the connection ends.
    fn until(&mut self, mut is_done: impl FnMut(&mut Endpoint) -> bool) -> Result<(), Failed> {
        while !is_done(&mut self.endpoint) {
            self.endpoint.turn(TICK)?;
            if self.endpoint.peers[0].quic.is_closed() {
                return Err("the connection is closed".into());
            }
        }
        Ok(())
    }

    fn connect(&mut self) -> Result<(), Failed> {
        self.endpoint.connect(self.server, self.session.as_deref())?;
        self.next_stream = 0;
        self.connected(false)
    }

    /// Waits for the end of the handshake; `early`: it has sent 0-RTT data.
    fn connected(&mut self, early: bool) -> Result<(), Failed> {
        self.until(|endpoint| endpoint.peers[0].quic.is_established())?;
        let quic = &self.endpoint.peers[0].quic;
        let early = early && quic.early_data_reason() == EARLY_DATA_ACCEPTED;
        println!("{}", json!({ "event": "connected", "resumed": quic.is_resumed(), "early": early, "version": 1 }));
        Ok(())
    }

    /// Closes, keeping the session.
    fn forget(&mut self) -> Result<(), Failed> {
        self.until(|endpoint| endpoint.peers[0].quic.session().is_some())?;
        self.session = self.endpoint.peers[0].quic.session().map(<[u8]>::to_vec);
        self.close()
    }

    /// Connects again with a request as 0-RTT data.
    fn early(&mut self, count: u64) -> Result<(u64, String), Failed> {
        self.forget()?;
        self.endpoint.connect(self.server, self.session.as_deref())?;
        self.next_stream = 0;
        // The first packet makes the keys.
        self.until(|endpoint| endpoint.peers[0].quic.is_in_early_data())?;
        let id = self.request(format!("GET {count}\n"), 0)?;
        self.connected(true)?;
        let stream = self.answer(id)?;
        Ok((stream.received, hex(stream.digest().as_ref())))
    }

    /// Opens a stream as soon as the server allows one.
    fn request(&mut self, line: String, upload: u64) -> Result<u64, Failed> {
        self.until(|endpoint| endpoint.peers[0].quic.peer_streams_left_bidi() > 0)?;
        let id = self.next_stream;
        self.next_stream += 4;
        let peer = &mut self.endpoint.peers[0];
        let mut stream = Stream::request(line, upload);
        // It is opened with its first bytes.
        stream.send(id, &mut peer.quic)?;
        peer.streams.insert(id, stream);
        Ok(id)
    }

    fn answer(&mut self, id: u64) -> Result<Stream, Failed> {
        self.until(|endpoint| endpoint.peers[0].streams.get(&id).is_none_or(|stream| stream.is_finished))?;
        self.endpoint.peers[0].streams.remove(&id).ok_or_else(|| "the stream was reset".into())
    }

    fn migrate(&mut self) -> Result<(), Failed> {
        self.until(|endpoint| endpoint.peers[0].quic.available_dcids() > 0)?;
        let (local, server) = (self.endpoint.open(0)?, self.server);
        self.endpoint.peers[0].quic.probe_path(local, server)?;
        let begun = Instant::now();
        let mut is_valid = false;
        self.until(|endpoint| {
            while let Some(event) = endpoint.peers[0].quic.path_event_next() {
                is_valid |= event == PathEvent::Validated(local, server);
            }
            is_valid || begun.elapsed() > MOVE_TIMEOUT
        })?;
        if !is_valid {
            return Err("the new path did not answer".into());
        }
        self.endpoint.peers[0].quic.migrate(local, server)?;
        Ok(())
    }

    fn get(&mut self, count: u64, move_at: Option<u64>) -> Result<(u64, String), Failed> {
        self.endpoint.peers[0].limit = move_at.unwrap_or(u64::MAX);
        let id = self.request(format!("GET {count}\n"), 0)?;
        if let Some(at) = move_at {
            self.until(|endpoint| endpoint.peers[0].streams.get(&id).is_none_or(|stream| stream.received >= at))?;
            self.migrate()?;
            self.endpoint.peers[0].limit = u64::MAX;
        }
        let stream = self.answer(id)?;
        Ok((stream.received, hex(stream.digest().as_ref())))
    }

    fn step(&mut self, name: &str, count: u64) -> Result<(), Failed> {
        let begun = Instant::now();
        let (bytes, hash) = match name {
            "get" => self.get(count, None)?,
            "migrate" => self.get(count, Some(count / 4))?,
            "put" => {
                let id = self.request(format!("PUT {count}\n"), count)?;
                (count, String::from_utf8(self.answer(id)?.kept)?)
            }
            "streams" => {
                let ids =
                    (0..count).map(|_| self.request("GET 1000\n".to_owned(), 0)).collect::<Result<Vec<_>, _>>()?;
                let (mut total, mut hash) = (0, digest::Context::new(&digest::SHA256));
                for id in ids {
                    let stream = self.answer(id)?;
                    total += stream.received;
                    hash.update(stream.digest().as_ref());
                }
                (total, hex(hash.finish().as_ref()))
            }
            "early" => self.early(count)?,
            "pause" => {
                println!("{}", json!({ "event": "paused" }));
                std::io::stdin().read_line(&mut String::new())?;
                return Ok(());
            }
            "reconnect" => {
                self.forget()?;
                return self.connect();
            }
            _ => {
                println!("{}", json!({ "event": "unsupported", "text": name }));
                return Ok(());
            }
        };
        let seconds = begun.elapsed().as_secs_f64();
        let name = if name == "early" { "get" } else { name };
        println!("{}", json!({ "event": name, "bytes": bytes, "sha256": hash, "seconds": seconds }));
        Ok(())
    }

    fn close(&mut self) -> Result<(), Failed> {
        self.endpoint.peers[0].quic.close(true, 0, b"done")?;
        self.endpoint.turn(Duration::ZERO)
    }

    fn steps(&mut self, steps: &[String]) -> Result<(), Failed> {
        self.connect()?;
        for step in steps {
            let (name, count) = step.split_once('=').unwrap_or((step, "0"));
            self.step(name, count.parse()?)?;
        }
        self.close()
    }
}

fn run_client(options: &Options) -> Result<(), Failed> {
    let mut config = config()?;
    config.load_verify_locations_from_file(&options.ca)?;
    config.verify_peer(true);
    let endpoint = Endpoint::new(config, 0, false, false)?;
    let server = options.server.ok_or("--server is missing")?;
    let mut client = Client { endpoint, server, session: None, next_stream: 0 };
    if let Err(error) = client.steps(&options.steps) {
        let quic = &client.endpoint.peers[0].quic;
        // quiche ends a connection that was reset without a word.
        let is_silent = quic.peer_error().is_none() && quic.local_error().is_none() && !quic.is_timed_out();
        let kind = if quic.is_closed() && is_silent { "reset" } else { "other" };
        let text = format!("{error}: peer {:?}, local {:?}", quic.peer_error(), quic.local_error());
        println!("{}", json!({ "event": "closed", "kind": kind, "text": text }));
    }
    Ok(())
}

fn main() -> Result<(), Failed> {
    let mut arguments = std::env::args().skip(1);
    let role = arguments.next().ok_or("usage: server|client ...")?;
    let options = parse(arguments)?;
    match role.as_str() {
        "server" => run_server(&options),
        "client" => run_client(&options),
        _ => Err(format!("there is no role {role}").into()),
    }
}
