package kvevent

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strings"
	"time"

	"millrace/internal/clock"
)

// ZeroMQ's transport, ZMTP 3.0 with the NULL mechanism (rfc.zeromq.org/spec/23), over one connection. It is spoken here
// instead of by a socket library because events hold prompts and must be bounded: frame sizes and counts, handshake and
// write times, queues, and the end of every goroutine.

// Limits of a connection.
const (
	handshakeTimeout = 5 * time.Second
	writeTimeout     = 10 * time.Second
	maxFrames        = 8
	maxCommandBytes  = 4 << 10
)

// Frame flags.
const (
	flagMore    = 1
	flagLong    = 2
	flagCommand = 4
)

// zconn is a connection after its handshake. One goroutine may read and another write.
type zconn struct {
	net.Conn
	r *bufio.Reader
}

// handshake greets, and exchanges READY commands. It owns c: on failure c is closed.
func handshake(c net.Conn, socketType string) (*zconn, error) {
	z := &zconn{Conn: c, r: bufio.NewReaderSize(c, 64<<10)}
	err := z.greet(socketType)
	if err == nil {
		err = c.SetDeadline(time.Time{})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("kvevent: handshake with %s: %w", c.RemoteAddr(), err), c.Close())
	}
	return z, nil
}

func (z *zconn) greet(socketType string) error {
	if err := z.SetDeadline(clock.System.Now().Add(handshakeTimeout)); err != nil {
		return err
	}
	greeting := make([]byte, 64)
	greeting[0], greeting[9], greeting[10] = 0xFF, 0x7F, 3
	copy(greeting[12:], "NULL")
	if _, err := z.Write(greeting); err != nil {
		return err
	}
	if _, err := io.ReadFull(z.r, greeting); err != nil {
		return err
	}
	if greeting[0] != 0xFF || greeting[9] != 0x7F || greeting[10] < 3 || !bytes.HasPrefix(greeting[12:32], []byte("NULL\x00")) {
		return errors.New("the peer does not speak ZMTP 3 without security")
	}
	ready := append([]byte("\x05READY\x0bSocket-Type"), 0, 0, 0, byte(len(socketType)))
	ready = append(ready, socketType...)
	ready = append(append(ready, "\x08Identity"...), 0, 0, 0, 0)
	if _, err := z.Write(append([]byte{flagCommand, byte(len(ready))}, ready...)); err != nil {
		return err
	}
	flags, body, err := z.frame(maxCommandBytes)
	if err != nil {
		return err
	}
	if flags&flagCommand == 0 || !bytes.HasPrefix(body, []byte("\x05READY")) {
		return errors.New("the peer is not ready")
	}
	return nil
}

// frame reads one frame of at most limit bytes.
func (z *zconn) frame(limit int) (flags byte, body []byte, err error) {
	var head [9]byte
	if _, err = io.ReadFull(z.r, head[:2]); err != nil {
		return 0, nil, err
	}
	flags = head[0]
	size := uint64(head[1])
	if flags&flagLong != 0 {
		if _, err = io.ReadFull(z.r, head[2:]); err != nil {
			return 0, nil, err
		}
		size = binary.BigEndian.Uint64(head[1:])
	}
	if size > uint64(limit) {
		return 0, nil, fmt.Errorf("kvevent: a frame of %d bytes", size)
	}
	body = make([]byte, size)
	_, err = io.ReadFull(z.r, body)
	return flags, body, err
}

// receive reads the next message's frames. Commands are answered (PING) or ignored.
func (z *zconn) receive() ([][]byte, error) {
	var frames [][]byte
	left := MaxMessageBytes
	for {
		flags, body, err := z.frame(left)
		if err != nil {
			return nil, err
		}
		if flags&flagCommand != 0 {
			if err := z.command(body); err != nil {
				return nil, err
			}
			continue
		}
		left -= len(body)
		if frames = append(frames, body); flags&flagMore == 0 {
			return frames, nil
		}
		if len(frames) == maxFrames {
			return nil, errors.New("kvevent: a message of too many frames")
		}
	}
}

// command answers a heartbeat: PING carries a time to live (2 bytes) and a context that PONG repeats. Only the reading
// side of a connection that is never written to otherwise, or a dialogue in turns, calls it, so writes do not mix.
func (z *zconn) command(body []byte) error {
	const ping = "\x04PING"
	if !bytes.HasPrefix(body, []byte(ping)) || len(body) < len(ping)+2 || len(body) > 128 {
		return nil
	}
	pong := append([]byte("\x04PONG"), body[len(ping)+2:]...)
	return z.write(append([]byte{flagCommand, byte(len(pong))}, pong...))
}

// send writes one message.
func (z *zconn) send(frames ...[]byte) error {
	var b []byte
	for i, f := range frames {
		var flags byte
		if i < len(frames)-1 {
			flags = flagMore
		}
		if len(f) > 255 {
			b = binary.BigEndian.AppendUint64(append(b, flags|flagLong), uint64(len(f)))
		} else {
			b = append(b, flags, byte(len(f)))
		}
		b = append(b, f...)
	}
	return z.write(b)
}

func (z *zconn) write(b []byte) error {
	if err := z.SetWriteDeadline(clock.System.Now().Add(writeTimeout)); err != nil {
		return err
	}
	_, err := z.Write(b)
	return err
}

// endpoint splits a ZeroMQ address, tcp://host:port or ipc://path. A host of * is loopback here: events hold prompts and
// never listen beyond it. wild tells whether it was *.
func endpoint(ep string) (network, address string, wild bool, err error) {
	scheme, rest, _ := strings.Cut(ep, "://")
	switch {
	case scheme == "ipc" && rest != "":
		return "unix", rest, true, nil
	case scheme == "tcp":
		host, port, err := net.SplitHostPort(rest)
		if err != nil {
			break
		}
		if host == "*" {
			return "tcp", net.JoinHostPort("127.0.0.1", port), true, nil
		}
		return "tcp", rest, false, nil
	}
	return "", "", false, fmt.Errorf("kvevent: %q is no endpoint: use tcp://host:port or ipc://path", ep)
}

// listen binds. A socket file that a killed process left is removed first, as ZeroMQ does.
func listen(network, address string) (net.Listener, error) {
	if network == "unix" {
		if err := os.Remove(address); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("kvevent: %w", err)
		}
	}
	ln, err := net.Listen(network, address)
	if err != nil {
		return nil, fmt.Errorf("kvevent: %w", err)
	}
	return ln, nil
}
