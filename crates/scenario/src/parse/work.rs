//! Parses `[[workload]]`.

use units::Duration;

use super::names::read_name;
use super::reader::Table;
use crate::content::HEADER_BYTES;
use crate::model::{Arrivals, COUNT_MAX, Part, SIZE_MAX, Times, Work};

/// Default bytes of a chunk.
const CHUNK_BYTES: u64 = 1 << 20;
/// Default number of concurrent streams of a file.
const PARALLEL: u64 = 8;
/// Maximum of either.
const CHUNK_BYTES_MAX: u64 = 1 << 26;
const PARALLEL_MAX: u64 = 256;
/// Maximum length of a message, in bytes.
const MESSAGE_BYTES_MAX: u64 = 1 << 26;

pub(super) fn read(table: &Table<'_, '_>) -> Option<Part> {
    #[derive(Clone, Copy)]
    enum Kind {
        File,
        Stream,
        Messages,
        Requests,
    }
    let keywords = [
        (Kind::File, "file"),
        (Kind::Stream, "stream"),
        (Kind::Messages, "messages"),
        (Kind::Requests, "request-response"),
    ];
    let kind = table.required("kind", table.keyword("kind", &keywords));
    let name = if table.has("name") {
        read_name(table, "name")
    } else {
        // The default name is the kind.
        table.text("kind").map(str::to_owned)
    };
    let start = table.duration("start").unwrap_or(Duration::ZERO);
    let priority = table.signed("priority", 1_000_000).unwrap_or(0);
    let Some(kind) = kind else {
        table.finish_unknown_kind(&["size", "chunk", "parallel", "request", "response", "every", "count", "arrivals"]);
        return None;
    };
    let work = match kind {
        Kind::File => Some(Work::File {
            size: table.size("size", HEADER_BYTES..SIZE_MAX + 1),
            chunk: table.size("chunk", 4096..CHUNK_BYTES_MAX + 1).unwrap_or(CHUNK_BYTES),
            parallel: table.integer("parallel", 1..PARALLEL_MAX + 1).unwrap_or(PARALLEL) as usize,
        }),
        Kind::Stream => Some(Work::Stream { size: table.size("size", HEADER_BYTES..SIZE_MAX + 1) }),
        Kind::Messages => {
            let (size, times) = (read_message(table, "size"), read_times(table));
            size.zip(times).map(|(size, times)| Work::Messages { size, times })
        }
        Kind::Requests => {
            let (request, response) = (read_message(table, "request"), read_message(table, "response"));
            let times = read_times(table);
            request.zip(response).zip(times).map(|((request, response), times)| Work::RequestResponse {
                request,
                response,
                times,
            })
        }
    };
    table.finish();
    let work = work?;
    // Every chunk begins with its header.
    if let Work::File { size: Some(size), chunk, .. } = work
        && (1..HEADER_BYTES).contains(&(size % chunk))
    {
        table.add_problem("size", format!("leaves a last chunk of less than {HEADER_BYTES} bytes"));
    }
    Some(Part { name: name?, work, start, priority, line: table.line })
}

fn read_message(table: &Table<'_, '_>, key: &'static str) -> Option<u64> {
    table.required(key, table.size(key, HEADER_BYTES..MESSAGE_BYTES_MAX + 1))
}

fn read_times(table: &Table<'_, '_>) -> Option<Times> {
    let every = table.required("every", table.duration_above_zero("every"));
    let count = table.required("count", table.integer("count", 1..COUNT_MAX + 1));
    let keywords = [(Arrivals::Even, "even"), (Arrivals::Poisson, "poisson")];
    let arrivals = table.keyword("arrivals", &keywords).unwrap_or(Arrivals::Even);
    Some(Times { every: every?, count: count?, arrivals })
}
