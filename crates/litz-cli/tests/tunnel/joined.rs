//! Segments of TCP that do not fit into the datagrams of a path cross the tunnel one by one, and reach the device in
//! super-packets.

use super::{SERVER, World};

/// Bytes of the file, and the payload of a segment at most: packets have 1400 bytes.
const FILE_BYTES: u64 = 20_000_000;
const SEGMENT_BYTES_MAX: u64 = 1360;

impl World {
    /// Packets that the client took from the tunnel, and how many times it wrote to its device.
    fn taken(&self) -> [u64; 2] {
        let packets = self.status()["peers"][0]["out"]["packets"].as_u64().expect("a number");
        let file = "/sys/class/net/litz0/statistics/rx_packets";
        let output = Self::in_namespace(&self.client, "cat", &[file]).output().expect("cat");
        let text = String::from_utf8(output.stdout).expect("text");
        [packets, text.trim().parse().expect("a number")]
    }
}

#[test]
fn segments_that_do_not_fit_into_datagrams_reach_the_device_in_super_packets() {
    let Some(world) = World::new("joined", 1, &["cat", "curl", "python3", "ss"]) else { return };
    let file = world.place.file("file", FILE_BYTES as usize, 1);
    let folder = file.parent().expect("below the folder").display().to_string();
    let _web = world.start("python3", &["-m", "http.server", "8000", "--bind", "::", "--directory", &folder]);
    world.await_port(8000);
    for link_mtu in [1400, 1280] {
        world.set_link_mtu(link_mtu, 1);
        let (client, server) = world.tunnel();
        for host in [SERVER[0].to_owned(), format!("[{}]", SERVER[1])] {
            let to = world.path("received");
            let before = world.taken();
            world.succeed("curl", &["-sSf", "-o", &to.display().to_string(), &format!("http://{host}:8000/file")]);
            let after = world.taken();
            assert!(std::fs::read(&to).expect("a file") == std::fs::read(&file).expect("a file"), "{host}");
            let [packets, writes] = [0, 1].map(|index| after[index] - before[index]);
            assert!(packets >= FILE_BYTES / SEGMENT_BYTES_MAX, "{packets} packets: each segment came by itself");
            assert!(2 * writes <= packets, "{packets} packets were written in {writes} parts, MTU {link_mtu}, {host}");
        }
        assert_eq!(world.status()["counters"]["refused"], 0, "the kernel takes what was joined");
        let (_, received) = World::end(client, server);
        assert_eq!(received["out"]["malformed"], 0, "{received}");
    }
}
