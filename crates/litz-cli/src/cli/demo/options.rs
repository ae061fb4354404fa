//! The arguments of `litz demo`.

use clap::Args;
use units::{ByteSize, Duration};

use crate::cli::heading;

#[derive(Args, Debug)]
pub(crate) struct DemoOptions {
    /// An emulated link, in place of the four default links; repeat for several links
    ///
    /// A link is a comma-separated list of settings; `litz emulate relay --help` lists them. Each
    /// link needs a constant rate. Delays are one-way.
    ///
    /// The default links are fibre (400 Mb/s, 5 ms), cable (200 Mb/s, 15 ms), wlan (100 Mb/s, 30 ms)
    /// and mobile (50 Mb/s, 60 ms), each with a queue of 50 ms. The demo measures first what this
    /// machine carries; if they need more than half of that, all four are slower.
    #[arg(long = "link", value_name = "LINK")]
    pub(crate) links: Vec<String>,

    /// Size of the file to send over all links together [default: what they carry in 10 s]
    #[arg(long, value_name = "SIZE")]
    pub(crate) size: Option<ByteSize>,

    /// Duration of the outage of the fastest link, which begins when 40 % of the file has been
    /// received
    #[arg(long, value_name = "TIME", default_value = "1s", conflicts_with = "no_cut")]
    pub(crate) cut_for: Duration,

    /// Run without an outage
    #[arg(long)]
    pub(crate) no_cut: bool,

    /// Seed of the file contents and of the faults on the links
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// Print the result as one JSON object
    #[arg(long, help_heading = heading::OUTPUT)]
    pub(crate) json: bool,
}
