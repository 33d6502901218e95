package gate_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"millrace/internal/usage"
	"millrace/serving/gate"
	"millrace/serving/gate/gatetest"
	"millrace/serving/protocol"
)

// An engine that thinks for long between two chunks, or stops in the middle of one, loses nothing: the client is told that
// its stream still runs, and the answer goes on.
func TestAQuietStreamIsKeptAlive(t *testing.T) {
	rest := strings.TrimPrefix(good, role()+says("one", 1))
	for name, cut := range map[string]int{"between two chunks": 0, "within one": 40} {
		t.Run(name, func(t *testing.T) {
			kept := make(chan struct{})
			e := gatetest.NewEngine(t, func(c net.Conn, _ int) bool {
				gatetest.Send(c, gatetest.StreamHead, gatetest.Chunk(role()+says("one", 1)+rest[:cut]))
				<-kept
				gatetest.Send(c, gatetest.Chunk(rest[cut:]), "0\r\n\r\n")
				return true
			})
			s := gatetest.New(t, gatetest.Options{Times: gate.Times{Quiet: 20 * time.Millisecond}}, e)
			answer, err := http.Post(s.URL, "application/json", strings.NewReader(request(streamed)))
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			in, body := bufio.NewReader(answer.Body), ""
			for comments := 0; ; {
				line, err := in.ReadString('\n')
				body += line
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				if line+"\n" == protocol.Comment {
					if comments++; comments == 3 {
						close(kept)
					}
				}
			}
			if a := mustStream(t, []byte(body), false); a.Choices[0].Content != goodText || a.Error != nil {
				t.Errorf("%s", body)
			}
			if ev := s.Event(t); ev.Ending != usage.Complete || ev.Usage.Generated() != 5 {
				t.Errorf("%+v", ev)
			}
		})
	}
}
