package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	readyTimeout = 30 * time.Second // recovery of a long log included
	maxPayload   = 8 << 20
)

// EmbeddedConfig says how to run the server inside this process.
type EmbeddedConfig struct {
	Dir        string       // the log's folder
	Listen     string       // "" = this process only; else a loopback address such as 127.0.0.1:0
	Token      string       // required when it listens
	SyncAlways bool         // an acknowledgement means: on disk
	MaxStore   int64        // bytes; 0 = what the disk has
	Log        *slog.Logger // the server's warnings and errors; nil drops them
}

// Server is a NATS server in this process.
type Server struct {
	ns     *server.Server
	token  string
	config server.JetStreamConfig // to open the stores with

	repairing sync.Mutex // guards what follows
	repaired  time.Time
	stopped   bool
}

// StartEmbedded starts the server and waits until it accepts connections.
func StartEmbedded(ctx context.Context, c EmbeddedConfig) (*Server, error) {
	o := &server.Options{ServerName: "millrace", JetStream: true, StoreDir: c.Dir, SyncAlways: c.SyncAlways, NoSigs: true, NoLog: c.Log == nil,
		DontListen: c.Listen == "", MaxPayload: maxPayload, JetStreamMaxStore: c.MaxStore, Authorization: c.Token}
	if c.Listen != "" {
		host, port, err := net.SplitHostPort(c.Listen)
		n, perr := strconv.Atoi(port)
		if err != nil || perr != nil || c.Token == "" || !net.ParseIP(host).IsLoopback() {
			return nil, errors.New("bus: an embedded server listens on a loopback address, with a token")
		}
		o.Host, o.Port = host, n
		if n == 0 {
			o.Port = server.RANDOM_PORT
		}
	}
	ns, err := server.NewServer(o)
	if err != nil {
		return nil, fmt.Errorf("bus: %w", err)
	}
	if c.Log != nil {
		ns.SetLoggerV2(serverLog{c.Log}, false, false, false)
	}
	ns.Start()
	ready := make(chan bool, 1)
	go func() { ready <- ns.ReadyForConnections(readyTimeout) }()
	select {
	case ok := <-ready:
		if ok && ns.JetStreamEnabled() {
			config := *ns.JetStreamConfig()
			config.StoreDir = c.Dir
			return &Server{ns: ns, token: c.Token, config: config}, nil
		}
		err = errors.New("bus: the embedded server did not start; is its folder writable and does the disk have room?")
	case <-ctx.Done():
		err = ctx.Err()
	}
	ns.Shutdown()
	ns.WaitForShutdown()
	return nil, err
}

// URL is where other processes on this machine connect; "" when it does not listen.
func (s *Server) URL() string {
	if a := s.ns.Addr(); a != nil {
		return "nats://" + a.String()
	}
	return ""
}

// Stop writes out and closes the log and waits for it.
func (s *Server) Stop() {
	s.repairing.Lock()
	s.stopped = true
	s.repairing.Unlock()
	s.ns.Shutdown()
	s.ns.WaitForShutdown()
}

// serverLog passes on what an operator must see; notices of every start and stop are left out.
type serverLog struct{ log *slog.Logger }

func (l serverLog) Warnf(format string, v ...any)  { l.log.Warn("nats: " + fmt.Sprintf(format, v...)) }
func (l serverLog) Errorf(format string, v ...any) { l.log.Error("nats: " + fmt.Sprintf(format, v...)) }
func (l serverLog) Fatalf(format string, v ...any) { l.log.Error("nats: " + fmt.Sprintf(format, v...)) }
func (serverLog) Noticef(string, ...any)           {}
func (serverLog) Debugf(string, ...any)            {}
func (serverLog) Tracef(string, ...any)            {}
