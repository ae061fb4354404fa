//! `[[workload]]`.

use units::Duration;

use super::read_name;
use super::reader::Table;
use crate::content::HEADER_BYTES;
use crate::model::{Arrivals, COUNT_MAX, Part, SIZE_MAX, Times, Work};

/// Bytes of a chunk, if the file does not say.
const CHUNK_BYTES: u64 = 1 << 20;
/// Streams of a file at a time, if the file does not say.
const PARALLEL: u64 = 8;
/// The most of either.
const CHUNK_BYTES_MAX: u64 = 1 << 26;
const PARALLEL_MAX: u64 = 256;
/// The longest message, in bytes.
const MESSAGE_BYTES_MAX: u64 = 1 << 26;

pub(super) fn read(table: &Table<'_, '_>) -> Option<Part> {
    #[derive(Clone, Copy)]
    enum Kind {
        File,
        Stream,
        Messages,
        Requests,
    }
    let words = [
        (Kind::File, "file"),
        (Kind::Stream, "stream"),
        (Kind::Messages, "messages"),
        (Kind::Requests, "request-response"),
    ];
    let kind = table.required("kind", table.word("kind", &words));
    let name = if table.has("name") {
        read_name(table, "name")
    } else {
        // One part needs no name.
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
        table.complain("size", format!("leaves a last chunk of less than {HEADER_BYTES} bytes"));
    }
    Some(Part { name: name?, work, start, priority, line: table.line })
}

fn read_message(table: &Table<'_, '_>, key: &'static str) -> Option<u64> {
    table.required(key, table.size(key, HEADER_BYTES..MESSAGE_BYTES_MAX + 1))
}

fn read_times(table: &Table<'_, '_>) -> Option<Times> {
    let every = table.required("every", table.duration_above_zero("every"));
    let count = table.required("count", table.integer("count", 1..COUNT_MAX + 1));
    let words = [(Arrivals::Even, "even"), (Arrivals::Poisson, "poisson")];
    let arrivals = table.word("arrivals", &words).unwrap_or(Arrivals::Even);
    Some(Times { every: every?, count: count?, arrivals })
}
