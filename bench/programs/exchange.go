// A server that sends back what it gets, and a client that compares: exchange serve PORT, or exchange HOST PORT FILE.
package main

import (
	"bytes"
	"io"
	"log"
	"net"
	"os"
)

func serve(port string) error {
	listener, err := net.Listen("tcp", ":"+port)
	if err != nil {
		return err
	}
	for {
		connection, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer connection.Close()
			if _, err := io.Copy(connection, connection); err != nil {
				log.Print(err)
			}
		}()
	}
}

func exchange(host, port, file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	connection, err := net.Dial("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return err
	}
	sent := make(chan error, 1)
	go func() {
		_, err := connection.Write(data)
		if err == nil {
			err = connection.(*net.TCPConn).CloseWrite()
		}
		sent <- err
	}()
	answer, err := io.ReadAll(connection)
	if err != nil {
		return err
	}
	if err := <-sent; err != nil {
		return err
	}
	if !bytes.Equal(answer, data) {
		log.Fatalf("%d bytes came back, and not those of %d", len(answer), len(data))
	}
	return nil
}

func main() {
	var err error
	if os.Args[1] == "serve" {
		err = serve(os.Args[2])
	} else {
		err = exchange(os.Args[1], os.Args[2], os.Args[3])
	}
	if err != nil {
		log.Fatal(err)
	}
}
