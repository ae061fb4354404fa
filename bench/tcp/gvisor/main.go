// gVisor's netstack on a TUN device with offload in both directions, with the protocol of the other
// stacks of this comparison: the first byte of a connection says what to do.
package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/exec"
	"unsafe"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

const (
	device    = "t0"
	mtu       = 1500
	port      = 5001
	nic       = 1
	headerLen = 10
	// As our stack's buffers become.
	bufferMax = 4 << 20
	chunk     = 256 << 10
)

// tun is a link endpoint that passes super-packets both ways.
type tun struct {
	fd         int
	dispatcher stack.NetworkDispatcher
}

func (t *tun) MTU() uint32                            { return mtu }
func (t *tun) SetMTU(uint32)                          {}
func (t *tun) MaxHeaderLength() uint16                { return 0 }
func (t *tun) LinkAddress() tcpip.LinkAddress         { return "" }
func (t *tun) SetLinkAddress(tcpip.LinkAddress)       {}
func (t *tun) Attach(d stack.NetworkDispatcher)       { t.dispatcher = d; go t.read() }
func (t *tun) IsAttached() bool                       { return t.dispatcher != nil }
func (t *tun) Wait()                                  {}
func (t *tun) ARPHardwareType() header.ARPHardwareType { return header.ARPHardwareNone }
func (t *tun) AddHeader(*stack.PacketBuffer)          {}
func (t *tun) ParseHeader(*stack.PacketBuffer) bool   { return true }
func (t *tun) Close()                                 {}
func (t *tun) SetOnCloseAction(func())                {}
func (t *tun) GSOMaxSize() uint32                     { return 65000 }
func (t *tun) SupportedGSO() stack.SupportedGSO       { return stack.HostGSOSupported }
func (t *tun) Capabilities() stack.LinkEndpointCapabilities {
	// Super-packets have a partial checksum all the same; that of acknowledgements is computed.
	return stack.CapabilityRXChecksumOffload
}

func (t *tun) read() {
	for {
		view := buffer.NewViewSize(headerLen + 65535)
		n, err := unix.Read(t.fd, view.AsSlice())
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			log.Fatal("read: ", err)
		}
		view.CapLength(n)
		view.TrimFront(headerLen)
		packet := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithView(view)})
		packet.RXChecksumValidated = true
		t.dispatcher.DeliverNetworkPacket(ipv4.ProtocolNumber, packet)
		packet.DecRef()
	}
}

func (t *tun) WritePackets(packets stack.PacketBufferList) (int, tcpip.Error) {
	count := 0
	for _, packet := range packets.AsSlice() {
		var head [headerLen]byte
		put := func(at int, value uint16) { *(*uint16)(unsafe.Pointer(&head[at])) = value }
		gso := packet.GSOOptions
		if gso.Type != stack.GSONone {
			put(2, uint16(packet.HeaderSize()))
			if gso.NeedsCsum {
				head[0] = unix.VIRTIO_NET_HDR_F_NEEDS_CSUM
				put(6, gso.L3HdrLen)
				put(8, gso.CsumOffset)
			}
			if packet.Data().Size() > int(gso.MSS) {
				head[1] = unix.VIRTIO_NET_HDR_GSO_TCPV4
				put(4, gso.MSS)
			}
		}
		parts := append([][]byte{head[:]}, packet.AsSlices()...)
		if _, err := unix.Writev(t.fd, parts); err != nil {
			log.Fatal("write: ", err)
		}
		count++
	}
	return count, nil
}

func open() int {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR, 0)
	check(err)
	request, err := unix.NewIfreq(device)
	check(err)
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	check(unix.IoctlIfreq(fd, unix.TUNSETIFF, request))
	check(unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, unix.TUN_F_CSUM|unix.TUN_F_TSO4|unix.TUN_F_TSO6))
	for _, arguments := range [][]string{
		{"addr", "add", "10.66.0.1/24", "dev", device},
		{"link", "set", device, "mtu", fmt.Sprint(mtu), "up"},
	} {
		command := exec.Command("ip", arguments...)
		command.Stderr = os.Stderr
		check(command.Run())
	}
	return fd
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func set(s *stack.Stack, option tcpip.SettableTransportProtocolOption) {
	if err := s.SetTransportProtocolOption(tcp.ProtocolNumber, option); err != nil {
		log.Fatal(err)
	}
}

func main() {
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol},
	})
	sack, control := tcpip.TCPSACKEnabled(true), tcpip.CongestionControlOption("cubic")
	set(s, &sack)
	set(s, &control)
	set(s, &tcpip.TCPReceiveBufferSizeRangeOption{Min: 4096, Default: bufferMax, Max: bufferMax})
	set(s, &tcpip.TCPSendBufferSizeRangeOption{Min: 4096, Default: bufferMax, Max: bufferMax})
	if err := s.CreateNIC(nic, &tun{fd: open()}); err != nil {
		log.Fatal(err)
	}
	address := tcpip.AddrFrom4([4]byte{10, 66, 0, 2})
	protocol := tcpip.ProtocolAddress{
		Protocol:          ipv4.ProtocolNumber,
		AddressWithPrefix: tcpip.AddressWithPrefix{Address: address, PrefixLen: 24},
	}
	if err := s.AddProtocolAddress(nic, protocol, stack.AddressProperties{}); err != nil {
		log.Fatal(err)
	}
	s.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: nic}})
	listener, err := gonet.ListenTCP(s, tcpip.FullAddress{Addr: address, Port: port}, ipv4.ProtocolNumber)
	check(err)
	fmt.Println("ready")
	for {
		connection, err := listener.Accept()
		check(err)
		serve(connection)
	}
}

// The peer ends a connection as it likes, so errors end it.
func serve(connection net.Conn) {
	defer connection.Close()
	memory := make([]byte, chunk)
	if _, err := io.ReadFull(connection, memory[:1]); err != nil {
		return
	}
	switch memory[0] {
	case 't':
		for {
			if _, err := connection.Read(memory); err != nil {
				return
			}
		}
	case 'g':
		for {
			if _, err := connection.Write(memory); err != nil {
				return
			}
		}
	}
}
