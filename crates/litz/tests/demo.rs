//! The demo, small: what people see first must work.

use std::process::Command;

use serde_json::Value;

#[test]
fn the_demo_kills_resumes_and_verifies() {
    let output = Command::new(env!("CARGO_BIN_EXE_litz"))
        .args(["demo", "--json", "--size=60MB", "--rate=200Mb/s", "--delay=2ms", "--loss=0.1"])
        .output()
        .expect("the command starts");
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(report["verified"], true);
    assert!(report["killed_at_percent"].as_u64() >= Some(40), "{report}");
    assert!(report["bytes_resumed"].as_u64() > Some(0), "{report}");
    assert!(report["link_lost"].as_u64() > Some(0), "{report}");
    assert!(report["handshake_us"].as_u64() >= Some(4000), "one round trip is 4 ms: {report}");
}
