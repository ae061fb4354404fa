//! s2n-quic as a peer: see `../README.md` for the protocol and the arguments.

use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use ring::{digest, hmac};
use s2n_quic::client::Connect;
use s2n_quic::connection;
use s2n_quic::provider::endpoint_limits::{ConnectionAttempt, Limiter, Outcome};
use s2n_quic::provider::limits::Limits;
use s2n_quic::provider::{stateless_reset_token, tls};
use s2n_quic::stream::{BidirectionalStream, ReceiveStream};
use s2n_quic::{Client, Connection, Server};
use s2n_quic_core::stateless_reset::Token;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};

const ALPN: &str = "litz-interop";
const PERIOD: usize = 65_521;
const CHUNK: usize = 64 * 1024;

type Failed = Box<dyn Error + Send + Sync>;

static PATTERN: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let byte = |index: usize| ((index % PERIOD) as u32).wrapping_mul(2_654_435_761) >> 24;
    (0..PERIOD + CHUNK).map(|index| byte(index) as u8).collect()
});

async fn send_pattern(to: &mut (impl AsyncWrite + Unpin), len: u64) -> Result<(), Failed> {
    let mut offset = 0;
    while offset < len {
        let start = (offset % PERIOD as u64) as usize;
        let part = (len - offset).min(CHUNK as u64) as usize;
        to.write_all(&PATTERN[start..start + part]).await?;
        offset += part as u64;
    }
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Result<Vec<u8>, Failed> {
    let pair = |pair: &[u8]| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?);
    text.as_bytes().chunks(2).map(pair).collect()
}

fn limits() -> Result<Limits, Failed> {
    // A client counts the streams that it has not read yet, too.
    Ok(Limits::new().with_max_idle_timeout(Duration::from_secs(20))?.with_max_open_local_bidirectional_streams(1000)?)
}

// The server.

/// Reset tokens that a restarted server makes again.
struct Tokens(hmac::Key);

impl stateless_reset_token::Generator for Tokens {
    fn generate(&mut self, id: &[u8]) -> Token {
        let tag = hmac::sign(&self.0, id);
        let bytes: [u8; 16] = tag.as_ref()[..16].try_into().expect("a SHA-256 is longer");
        bytes.into()
    }
}

impl stateless_reset_token::Provider for Tokens {
    type Generator = Self;
    type Error = Infallible;

    fn start(self) -> Result<Self, Infallible> {
        Ok(self)
    }
}

/// Demands a proof of every address, or of none.
struct Retry(bool);

impl Limiter for Retry {
    fn on_connection_attempt(&mut self, _: &ConnectionAttempt) -> Outcome {
        if self.0 { Outcome::retry() } else { Outcome::allow() }
    }
}

#[derive(Default)]
struct Options {
    cert: PathBuf,
    key: PathBuf,
    port: u16,
    retry: bool,
    reset_key: Vec<u8>,
    server: Option<SocketAddr>,
    ca: PathBuf,
    steps: Vec<String>,
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Options, Failed> {
    let mut options = Options::default();
    while let Some(name) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{name} has no value"));
        match name.as_str() {
            "--cert" => options.cert = value()?.into(),
            "--key" => options.key = value()?.into(),
            "--port" => options.port = value()?.parse()?,
            "--retry" => options.retry = true,
            "--reset-key" => options.reset_key = unhex(&value()?)?,
            "--server" => options.server = Some(value()?.parse()?),
            "--ca" => options.ca = value()?.into(),
            _ if name.starts_with("--") => return Err(format!("there is no option {name}").into()),
            _ => options.steps.push(name),
        }
    }
    Ok(options)
}

async fn run_server(options: Options) -> Result<(), Failed> {
    let (cert, key): (&Path, &Path) = (&options.cert, &options.key);
    let tls = tls::default::Server::builder()
        .with_certificate(cert, key)?
        .with_application_protocols([ALPN].iter())?
        .build()?;
    let address = SocketAddr::from(([127, 0, 0, 1], options.port));
    let mut server = Server::builder()
        .with_tls(tls)?
        .with_io(address)?
        .with_limits(limits()?)?
        .with_endpoint_limits(Retry(options.retry))?
        .with_stateless_reset_token(Tokens(hmac::Key::new(hmac::HMAC_SHA256, &options.reset_key)))?
        .start()?;
    println!("{}", json!({ "event": "listening", "port": server.local_addr()?.port() }));
    tokio::spawn(async move {
        while let Some(connection) = server.accept().await {
            tokio::spawn(serve(connection));
        }
    });
    // It ends with its standard input.
    let mut rest = Vec::new();
    tokio::io::stdin().read_to_end(&mut rest).await?;
    Ok(())
}

async fn serve(mut connection: Connection) {
    while let Ok(Some(stream)) = connection.accept_bidirectional_stream().await {
        // A stream that fails is the client's loss: it reports it.
        tokio::spawn(async move { answer(stream).await.is_ok() });
    }
}

async fn answer(stream: BidirectionalStream) -> Result<(), Failed> {
    let (recv, mut send) = stream.split();
    let mut recv = BufReader::with_capacity(CHUNK, recv);
    let mut line = String::new();
    recv.read_line(&mut line).await?;
    match line.trim_end().split_once(' ') {
        Some(("GET", count)) => {
            // Dropped before its end, the stream would ask the client to stop sending.
            recv.read_to_end(&mut Vec::new()).await?;
            send_pattern(&mut send, count.parse()?).await?;
        }
        Some(("PUT", _)) => {
            let mut hash = digest::Context::new(&digest::SHA256);
            hash.update(recv.buffer());
            let (_, hash) = read(&mut recv.into_inner(), hash).await?;
            send.write_all(hex(hash.as_ref()).as_bytes()).await?;
        }
        _ => return Err(format!("a request {line:?}").into()),
    }
    Ok(send.finish()?)
}

/// Reads until the end.
async fn read(recv: &mut ReceiveStream, mut hash: digest::Context) -> Result<(u64, digest::Digest), Failed> {
    let mut total = 0;
    while let Some(chunk) = recv.receive().await? {
        total += chunk.len() as u64;
        hash.update(&chunk);
    }
    Ok((total, hash.finish()))
}

// The client.

struct TestClient {
    client: Client,
    server: SocketAddr,
    connection: Option<Connection>,
}

impl TestClient {
    async fn connect(&mut self) -> Result<(), Failed> {
        let connection = self.client.connect(Connect::new(self.server).with_server_name("localhost")).await?;
        self.connection = Some(connection);
        println!("{}", json!({ "event": "connected", "resumed": false, "early": false, "version": 1 }));
        Ok(())
    }

    async fn request(&mut self, line: String) -> Result<ReceiveStream, Failed> {
        let connection = self.connection.as_mut().expect("it connects first");
        let (recv, mut send) = connection.open_bidirectional_stream().await?.split();
        send.write_all(line.as_bytes()).await?;
        send.finish()?;
        Ok(recv)
    }

    async fn step(&mut self, name: &str, count: u64) -> Result<(), Failed> {
        let begun = Instant::now();
        let new_hash = || digest::Context::new(&digest::SHA256);
        let (bytes, hash) = match name {
            "get" => {
                let mut recv = self.request(format!("GET {count}\n")).await?;
                let (bytes, hash) = read(&mut recv, new_hash()).await?;
                (bytes, hex(hash.as_ref()))
            }
            "put" => {
                let connection = self.connection.as_mut().expect("it connects first");
                let (mut recv, mut send) = connection.open_bidirectional_stream().await?.split();
                send.write_all(format!("PUT {count}\n").as_bytes()).await?;
                send_pattern(&mut send, count).await?;
                send.finish()?;
                let mut answer = String::new();
                recv.read_to_string(&mut answer).await?;
                (count, answer)
            }
            "streams" => {
                let (mut total, mut hash, mut streams) = (0, new_hash(), Vec::new());
                for _ in 0..count {
                    streams.push(self.request("GET 1000\n".to_owned()).await?);
                }
                for mut recv in streams {
                    let (bytes, one) = read(&mut recv, new_hash()).await?;
                    total += bytes;
                    hash.update(one.as_ref());
                }
                (total, hex(hash.finish().as_ref()))
            }
            "pause" => {
                println!("{}", json!({ "event": "paused" }));
                let mut line = String::new();
                BufReader::new(tokio::io::stdin()).read_line(&mut line).await?;
                return Ok(());
            }
            _ => {
                println!("{}", json!({ "event": "unsupported", "text": name }));
                return Ok(());
            }
        };
        let seconds = begun.elapsed().as_secs_f64();
        println!("{}", json!({ "event": name, "bytes": bytes, "sha256": hash, "seconds": seconds }));
        Ok(())
    }

    async fn steps(&mut self, steps: &[String]) -> Result<(), Failed> {
        self.connect().await?;
        for step in steps {
            let (name, count) = step.split_once('=').unwrap_or((step, "0"));
            self.step(name, count.parse()?).await?;
        }
        self.connection = None;
        Ok(self.client.wait_idle().await?)
    }
}

/// Whether a stateless reset is at the bottom of it.
fn is_reset(error: &(dyn Error + 'static)) -> bool {
    use s2n_quic::stream::Error as StreamError;
    let of_connection = error.downcast_ref::<connection::Error>();
    let of_stream = error.downcast_ref::<StreamError>().and_then(|error| match error {
        StreamError::ConnectionError { error, .. } => Some(error),
        _ => None,
    });
    let inner = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    matches!(of_connection.or(of_stream), Some(connection::Error::StatelessReset { .. }))
        || inner.is_some_and(|inner| is_reset(inner))
}

async fn run_client(options: Options) -> Result<(), Failed> {
    let ca: &Path = &options.ca;
    let tls =
        tls::default::Client::builder().with_certificate(ca)?.with_application_protocols([ALPN].iter())?.build()?;
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let client = Client::builder().with_tls(tls)?.with_io(address)?.with_limits(limits()?)?.start()?;
    let server = options.server.ok_or("--server is missing")?;
    let mut client = TestClient { client, server, connection: None };
    if let Err(error) = client.steps(&options.steps).await {
        let kind = if is_reset(&*error) { "reset" } else { "other" };
        println!("{}", json!({ "event": "closed", "kind": kind, "text": error.to_string() }));
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Failed> {
    let mut arguments = std::env::args().skip(1);
    let role = arguments.next().ok_or("usage: server|client ...")?;
    let options = parse(arguments)?;
    let outcome = match role.as_str() {
        "server" => run_server(options).await,
        "client" => run_client(options).await,
        _ => Err(format!("there is no role {role}").into()),
    };
    // A thread of the runtime may still wait for a line on standard input.
    std::process::exit(i32::from(outcome.inspect_err(|error| eprintln!("{error}")).is_err()))
}
