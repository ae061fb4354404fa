// quic-go as a peer: see ../README.md for the protocol and the arguments.
package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

const (
	alpn   = "litz-interop"
	period = 65521
	chunk  = 64 * 1024
)

var long = func() []byte {
	bytes := make([]byte, period+chunk)
	for i := range bytes {
		bytes[i] = byte(uint32(i%period) * 2654435761 >> 24)
	}
	return bytes
}()

func sendPattern(to io.Writer, length int64) error {
	for offset := int64(0); offset < length; {
		start := offset % period
		part := min(chunk, length-offset)
		if _, err := to.Write(long[start : start+part]); err != nil {
			return err
		}
		offset += part
	}
	return nil
}

type fields map[string]any

func say(event string, more fields) {
	line := fields{"event": event}
	for key, value := range more {
		line[key] = value
	}
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(text))
}

func config() *quic.Config {
	return &quic.Config{
		MaxIdleTimeout:                 20 * time.Second,
		InitialStreamReceiveWindow:     1 << 20,
		InitialConnectionReceiveWindow: 8 << 20,
		MaxStreamReceiveWindow:         32 << 20,
		MaxConnectionReceiveWindow:     64 << 20,
		MaxIncomingStreams:             1000,
		Allow0RTT:                      true,
		TokenStore:                     tokens,
		Versions:                       versions,
	}
}

// The versions in use; quic-go's own choice without the option.
var versions []quic.Version

func setVersions(text string) error {
	for word := range strings.SplitSeq(text, ",") {
		version, isKnown := map[string]quic.Version{"1": quic.Version1, "2": quic.Version2}[word]
		if !isKnown {
			return fmt.Errorf("there is no version %q", word)
		}
		versions = append(versions, version)
	}
	return nil
}

var tokens = quic.NewLRUTokenStore(1, 4)

func open() *net.UDPConn {
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	check(err)
	return conn
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// The server.

func runServer(arguments []string) {
	flags := flag.NewFlagSet("server", flag.ExitOnError)
	cert := flags.String("cert", "", "the certificate")
	key := flags.String("key", "", "its key")
	port := flags.Int("port", 0, "the port; 0 for any")
	retry := flags.Bool("retry", false, "demand a proof of the address")
	overHTTP3 := flags.Bool("http3", false, "serve HTTP/3")
	resetKey := flags.String("reset-key", "", "the key of stateless reset tokens, as hexadecimal digits")
	flags.Func("versions", "the versions of QUIC, the preferred one first", setVersions)
	check(flags.Parse(arguments))
	pair, err := tls.LoadX509KeyPair(*cert, *key)
	check(err)
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: *port})
	check(err)
	http3Only := *overHTTP3
	transport := &quic.Transport{Conn: conn, VerifySourceAddress: func(net.Addr) bool { return *retry }}
	if *resetKey != "" {
		secret, err := hex.DecodeString(*resetKey)
		check(err)
		transport.StatelessResetKey = (*quic.StatelessResetKey)(secret)
	}
	config, tlsConfig := config(), &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{alpn}}
	if http3Only {
		tlsConfig = http3.ConfigureTLSConfig(tlsConfig)
	}
	listener, err := transport.ListenEarly(tlsConfig, config)
	check(err)
	say("listening", fields{"port": conn.LocalAddr().(*net.UDPAddr).Port})
	go func() {
		if http3Only {
			server := http3.Server{Handler: http.HandlerFunc(answerHTTP)}
			fmt.Fprintln(os.Stderr, server.ServeListener(listener))
			return
		}
		for {
			connection, err := listener.Accept(context.Background())
			if err != nil {
				return
			}
			go serve(connection)
		}
	}()
	io.Copy(io.Discard, os.Stdin)
}

func serve(connection *quic.Conn) {
	for {
		stream, err := connection.AcceptStream(context.Background())
		if err != nil {
			return
		}
		go func() {
			if err := answer(stream); err != nil {
				stream.CancelWrite(1)
				stream.CancelRead(1)
			}
		}()
	}
}

func answer(stream *quic.Stream) error {
	reader := bufio.NewReaderSize(stream, chunk)
	line, err := reader.ReadString('\n')
	if err != nil {
		return err
	}
	words := strings.Fields(line)
	if len(words) != 2 {
		return fmt.Errorf("a request %q", line)
	}
	if words[0] == "PUT" {
		sum := sha256.New()
		if _, err := io.Copy(sum, reader); err != nil {
			return err
		}
		if _, err := io.WriteString(stream, hex.EncodeToString(sum.Sum(nil))); err != nil {
			return err
		}
		return stream.Close()
	}
	count, err := strconv.ParseInt(words[1], 10, 64)
	if err != nil {
		return err
	}
	if err := sendPattern(stream, count); err != nil {
		return err
	}
	return stream.Close()
}

// The client.

type client struct {
	server     *net.UDPAddr
	tls        *tls.Config
	transport  *quic.Transport
	connection *quic.Conn
}

// A session that can be waited for.
type sessions struct {
	tls.ClientSessionCache
	got chan struct{}
}

func (cache sessions) Put(key string, state *tls.ClientSessionState) {
	cache.ClientSessionCache.Put(key, state)
	select {
	case cache.got <- struct{}{}:
	default:
	}
}

var cache = sessions{tls.NewLRUClientSessionCache(4), make(chan struct{}, 1)}

func (c *client) connect(early int64) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c.transport = &quic.Transport{Conn: open()}
	dial := c.transport.Dial
	if early > 0 {
		dial = c.transport.DialEarly
	}
	connection, err := dial(ctx, c.server, c.tls, config())
	if err != nil {
		return err
	}
	c.connection = connection
	started := time.Now()
	var stream *quic.Stream
	if early > 0 {
		if stream, err = c.request(fmt.Sprintf("GET %d\n", early)); err != nil {
			return err
		}
		<-connection.HandshakeComplete()
	}
	state := connection.ConnectionState()
	version := map[quic.Version]int{quic.Version1: 1, quic.Version2: 2}[state.Version]
	say("connected", fields{"resumed": state.TLS.DidResume, "early": state.Used0RTT, "version": version})
	if stream != nil {
		return c.answered("get", stream, sha256.New(), 0, started)
	}
	return nil
}

func (c *client) request(line string) (*quic.Stream, error) {
	stream, err := c.connection.OpenStreamSync(context.Background())
	if err != nil {
		return nil, err
	}
	if _, err := io.WriteString(stream, line); err != nil {
		return nil, err
	}
	return stream, stream.Close()
}

func (c *client) answered(event string, stream *quic.Stream, sum hash.Hash, before int64, started time.Time) error {
	count, err := io.Copy(sum, stream)
	if err != nil {
		return err
	}
	result(event, before+count, sum.Sum(nil), started)
	return nil
}

func result(event string, bytes int64, sum []byte, started time.Time) {
	digest := hex.EncodeToString(sum)
	say(event, fields{"bytes": bytes, "sha256": digest, "seconds": time.Since(started).Seconds()})
}

func (c *client) get(event string, count int64) error {
	started, sum := time.Now(), sha256.New()
	stream, err := c.request(fmt.Sprintf("GET %d\n", count))
	if err != nil {
		return err
	}
	before := int64(0)
	if event == "migrate" {
		if before, err = io.CopyN(sum, stream, count/4); err != nil {
			return err
		}
		if err := c.migrate(); err != nil {
			return err
		}
	}
	return c.answered(event, stream, sum, before, started)
}

func (c *client) migrate() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	path, err := c.connection.AddPath(&quic.Transport{Conn: open()})
	if err != nil {
		return err
	}
	if err := path.Probe(ctx); err != nil {
		return fmt.Errorf("the probe of the new path: %w", err)
	}
	return path.Switch()
}

func (c *client) put(count int64) error {
	started := time.Now()
	stream, err := c.connection.OpenStreamSync(context.Background())
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(stream, "PUT %d\n", count); err != nil {
		return err
	}
	if err := sendPattern(stream, count); err != nil {
		return err
	}
	if err := stream.Close(); err != nil {
		return err
	}
	digest, err := io.ReadAll(io.LimitReader(stream, 100))
	if err != nil {
		return err
	}
	say("put", fields{"bytes": count, "sha256": string(digest), "seconds": time.Since(started).Seconds()})
	return nil
}

func (c *client) streams(count int64) error {
	started, total, sum := time.Now(), int64(0), sha256.New()
	streams := make([]*quic.Stream, count)
	for i := range streams {
		stream, err := c.request("GET 1000\n")
		if err != nil {
			return err
		}
		streams[i] = stream
	}
	for _, stream := range streams {
		one := sha256.New()
		bytes, err := io.Copy(one, stream)
		if err != nil {
			return err
		}
		total += bytes
		sum.Write(one.Sum(nil))
	}
	result("streams", total, sum.Sum(nil), started)
	return nil
}

func (c *client) step(name string, count int64, input *bufio.Reader) error {
	switch name {
	case "get", "migrate":
		return c.get(name, count)
	case "put":
		return c.put(count)
	case "streams":
		return c.streams(count)
	case "key-update":
		// quic-go updates its keys after 100 packets, and then after each 100,000.
		say("key-update", nil)
		return nil
	case "pause":
		say("paused", nil)
		_, err := input.ReadString('\n')
		return err
	case "reconnect", "early":
		select {
		case <-cache.got:
		case <-time.After(5 * time.Second):
			return errors.New("the server sent no session ticket")
		}
		if err := c.connection.CloseWithError(0, "done"); err != nil {
			return err
		}
		return c.connect(count)
	}
	say("unsupported", fields{"text": name})
	return nil
}

func runClient(arguments []string) {
	flags := flag.NewFlagSet("client", flag.ExitOnError)
	server := flags.String("server", "", "the server's address")
	ca := flags.String("ca", "", "its certificate")
	overHTTP3 := flags.Bool("http3", false, "use HTTP/3")
	flags.Func("versions", "the versions of QUIC, the preferred one first", setVersions)
	check(flags.Parse(arguments))
	address, err := net.ResolveUDPAddr("udp4", *server)
	check(err)
	pem, err := os.ReadFile(*ca)
	check(err)
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		check(errors.New("no certificate in " + *ca))
	}
	c := &client{server: address, tls: &tls.Config{
		RootCAs: roots, ServerName: "localhost", NextProtos: []string{alpn}, ClientSessionCache: cache,
	}}
	run := c.run
	if *overHTTP3 {
		run = c.runHTTP
	}
	if err := run(flags.Args()); err != nil {
		kind := "other"
		var reset *quic.StatelessResetError
		if errors.As(err, &reset) {
			kind = "reset"
		}
		say("closed", fields{"kind": kind, "text": err.Error()})
	}
}

func (c *client) run(steps []string) error {
	if err := c.connect(0); err != nil {
		return err
	}
	input := bufio.NewReader(os.Stdin)
	for _, step := range steps {
		name, text, _ := strings.Cut(step, "=")
		count := int64(0)
		if text != "" {
			number, err := strconv.ParseInt(text, 10, 64)
			check(err)
			count = number
		}
		if err := c.step(name, count, input); err != nil {
			return err
		}
	}
	if err := c.connection.CloseWithError(0, "done"); err != nil {
		return err
	}
	return c.transport.Close()
}

// HTTP/3: GET /N and PUT /N.

func answerHTTP(writer http.ResponseWriter, request *http.Request) {
	if request.Method == http.MethodPut {
		sum := sha256.New()
		if _, err := io.Copy(sum, request.Body); err != nil {
			panic(http.ErrAbortHandler)
		}
		io.WriteString(writer, hex.EncodeToString(sum.Sum(nil)))
		return
	}
	count, err := strconv.ParseInt(strings.TrimPrefix(request.URL.Path, "/"), 10, 64)
	if err != nil {
		http.Error(writer, err.Error(), http.StatusBadRequest)
		return
	}
	if err := sendPattern(writer, count); err != nil {
		panic(http.ErrAbortHandler)
	}
}

func (c *client) runHTTP(steps []string) error {
	transport := &http3.Transport{
		TLSClientConfig: &tls.Config{RootCAs: c.tls.RootCAs, ServerName: "localhost"},
		QUICConfig:      config(),
	}
	defer transport.Close()
	client := &http.Client{Transport: transport, Timeout: 60 * time.Second}
	for _, step := range steps {
		name, text, _ := strings.Cut(step, "=")
		count, err := strconv.ParseInt(text, 10, 64)
		check(err)
		started, body, method := time.Now(), io.Reader(nil), http.MethodGet
		if name == "put" {
			reader, writer := io.Pipe()
			go func() { writer.CloseWithError(sendPattern(writer, count)) }()
			body, method = reader, http.MethodPut
		}
		request, err := http.NewRequest(method, fmt.Sprintf("https://%s/%d", c.server, count), body)
		check(err)
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		sum, answer := sha256.New(), &strings.Builder{}
		var to io.Writer = sum
		if name == "put" {
			to = answer
		}
		bytes, err := io.Copy(to, response.Body)
		if err != nil {
			return err
		}
		if name == "put" {
			say("put", fields{"bytes": count, "sha256": answer.String(), "seconds": time.Since(started).Seconds()})
		} else {
			result("get", bytes, sum.Sum(nil), started)
		}
	}
	return nil
}

func main() {
	if len(os.Args) < 2 {
		check(errors.New("usage: quic-go server|client ..."))
	}
	switch os.Args[1] {
	case "server":
		runServer(os.Args[2:])
	case "client":
		runClient(os.Args[2:])
	default:
		check(fmt.Errorf("there is no role %s", os.Args[1]))
	}
}
