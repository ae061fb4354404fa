// Times a bulk transfer by ns-3's TCP over one link. `run` compares the simulator with it.
//
//   bulk BUFFER_BYTES SIMULATED_SECONDS
//
// Two hosts; 1 Gb/s, 10 ms in each direction, a queue of 30 ms; segments of 1448 bytes (MTU 1500),
// CUBIC, and the defaults of ns-3 (SACK and window scaling). Prints one line: received data packets,
// real time and processor time of the run in seconds, goodput in Mb/s.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

using namespace ns3;

static uint64_t g_dataPackets = 0;

static void Arrived(Ptr<const Packet> packet) {
    // Pure acknowledgements have no payload: 2 bytes of PPP, 20 of IP, at most 60 of TCP.
    if (packet->GetSize() > 200) {
        ++g_dataPackets;
    }
}

int main(int argc, char** argv) {
    if (argc != 3) {
        std::fprintf(stderr, "usage: bulk BUFFER_BYTES SIMULATED_SECONDS\n");
        return 2;
    }
    const uint32_t buffer = std::strtoul(argv[1], nullptr, 10);
    const double seconds = std::strtod(argv[2], nullptr);
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(TcpCubic::GetTypeId()));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(1448));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(buffer));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(buffer));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));

    NodeContainer nodes;
    nodes.Create(2);
    PointToPointHelper link;
    link.SetDeviceAttribute("DataRate", StringValue("1Gbps"));
    link.SetChannelAttribute("Delay", StringValue("10ms"));
    // 30 ms at 1 Gb/s.
    link.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize", StringValue("2500p"));
    NetDeviceContainer devices = link.Install(nodes);
    InternetStackHelper().Install(nodes);
    Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.0");
    Ipv4InterfaceContainer interfaces = addresses.Assign(devices);
    // The queueing discipline above the device would be a second queue; there is one in the other simulator.
    TrafficControlHelper().Uninstall(devices);

    BulkSendHelper source("ns3::TcpSocketFactory", InetSocketAddress(interfaces.GetAddress(1), 9));
    source.SetAttribute("MaxBytes", UintegerValue(0));
    source.SetAttribute("SendSize", UintegerValue(65536));
    source.Install(nodes.Get(0)).Start(Seconds(0));
    PacketSinkHelper sink("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), 9));
    ApplicationContainer sinks = sink.Install(nodes.Get(1));
    sinks.Start(Seconds(0));
    devices.Get(1)->TraceConnectWithoutContext("MacRx", MakeCallback(&Arrived));

    Simulator::Stop(Seconds(seconds));
    const auto begun = std::chrono::steady_clock::now();
    const std::clock_t worked = std::clock();
    Simulator::Run();
    const double cpu = double(std::clock() - worked) / CLOCKS_PER_SEC;
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
    const uint64_t bytes = DynamicCast<PacketSink>(sinks.Get(0))->GetTotalRx();
    std::printf("%llu %.3f %.3f %.1f\n", static_cast<unsigned long long>(g_dataPackets), took.count(), cpu,
                bytes * 8 / seconds / 1e6);
    Simulator::Destroy();
    return 0;
}
