//! Journals and qlog files of tunnels.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{SERVER, World};

fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the command has made the folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.filter(|path| path.extension().is_some_and(|found| found == extension)).collect()
}

#[test]
fn both_ends_of_a_tunnel_record_their_connections() {
    let Some(world) = World::new("recording", 2, &["iperf3", "ss"]) else { return };
    let folder = |name: &str| world.path(name).display().to_string();
    let [server_journals, client_journals, client_qlog] = ["server-journals", "client-journals", "qlog"].map(folder);
    let trace = folder("trace");
    let (mut server, ticket) = world.serve(&["--journal", &server_journals]);
    let options = ["--journal", &client_journals, "--qlog", &client_qlog, "--trace-scheduler", &trace];
    let mut client = world.litz(&world.client, &[&["up", &ticket], &options[..]].concat());
    client.wait_for("up");
    server.wait_for("client");
    // With one path there is no choice to trace.
    world.await_paths(2);
    let _report = world.iperf(&["-c", SERVER[0], "-n", "2M"]);
    let (sent, _) = World::end(client, server);
    assert!(sent["in"]["bytes"].as_u64() > Some(500_000), "{sent}");

    for journals in [&server_journals, &client_journals] {
        let found = files(Path::new(journals), "journal");
        let [journal] = &found[..] else { panic!("one connection: {found:?}") };
        let output = Command::new(env!("CARGO_BIN_EXE_litz")).arg("replay").arg(journal).output().expect("it starts");
        assert!(output.status.success(), "{output:?}");
    }
    let qlog = files(Path::new(&client_qlog), "sqlog");
    let [qlog] = &qlog[..] else { panic!("one connection: {qlog:?}") };
    assert!(fs::read_to_string(qlog).expect("text").contains("\"frame_type\":\"datagram\""));
    assert!(fs::metadata(world.path("trace")).expect("a file").len() > 0);
}
