use proptest::prelude::*;

use super::*;

fn ms(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

#[test]
fn a_trace_is_parsed_and_repeats_at_its_end() {
    let trace = Trace::parse("0\n2\n2\r\n10\n").unwrap();
    assert_eq!(trace, Trace::from_millis([0, 2, 2, 10]).unwrap());
    assert_eq!((trace.period(), trace.opportunities()), (Duration::from_millis(10), 4));
    // 6000 bytes in 10 ms.
    assert_eq!(trace.mean_rate(), Rate::from_bps(4_800_000));
    let times: Vec<Instant> = (0..9).map(|number| trace.time_of(number)).collect();
    assert_eq!(times, [0, 2, 2, 10, 10, 12, 12, 20, 20].map(ms));
}

#[test]
fn errors_name_the_line_and_the_permitted_values() {
    let cases = [
        ("", TraceError::Empty, "one opportunity in milliseconds per line"),
        ("1\n\n2\n", TraceError::InvalidTime { line: 2 }, "line 2 of the trace: expected one whole number"),
        ("1\n2\n3.5\n", TraceError::InvalidTime { line: 3 }, "line 3"),
        ("-1\n", TraceError::InvalidTime { line: 1 }, "line 1"),
        ("1 2\n", TraceError::InvalidTime { line: 1 }, "line 1"),
        ("4294967296\n", TraceError::InvalidTime { line: 1 }, "below 2^32"),
        ("5\n7\n6\n", TraceError::OutOfOrder { line: 3 }, "line 3 of the trace: a time must not be before"),
        ("0\n0\n", TraceError::ZeroPeriod { line: 2 }, "line 2 of the trace: the last time must be above zero"),
    ];
    for (text, error, words) in cases {
        assert_eq!(Trace::parse(text), Err(error), "{text:?}");
        assert!(error.to_string().contains(words), "{error}");
    }
    assert_eq!("7".parse::<Trace>().unwrap().period(), Duration::from_millis(7));
    let too_long = core::iter::repeat_n(1, OPPORTUNITIES_MAX + 1);
    assert_eq!(Trace::from_millis(too_long), Err(TraceError::TooLong));
}

proptest! {
    #[test]
    fn text_never_panics(text in "[0-9 \n\r.x-]{0,60}") {
        let _ = Trace::parse(&text);
    }

    #[test]
    fn first_at_or_after_matches_a_linear_search(
        mut offsets in prop::collection::vec(0..50_u32, 1..20),
        nanos in 0..400_000_000_u64,
    ) {
        offsets.sort_unstable();
        offsets.push(offsets[offsets.len() - 1].max(1));
        let trace = Trace::from_millis(offsets).unwrap();
        let at = Instant::from_nanos(nanos);
        let counted = (0..).find(|&number| trace.time_of(number) >= at).unwrap();
        prop_assert_eq!(trace.first_at_or_after(at), counted);
    }

    #[test]
    fn time_of_saturates_without_overflow(mut offsets in prop::collection::vec(any::<u32>(), 1..9), number: u64) {
        offsets.sort_unstable();
        if let Ok(trace) = Trace::from_millis(offsets) {
            let _ = trace.time_of(number);
            prop_assert!(trace.time_of(trace.first_at_or_after(Instant::FAR_FUTURE)) >= ms(u64::MAX / NANOS_PER_MS));
        }
    }
}
