package gate_test

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"millrace/internal/fault"
	"millrace/internal/usage"
	"millrace/serving/gate"
	"millrace/serving/gate/gatetest"
	"millrace/tenants/keys"
)

// doorman lets in until the key is revoked; then says so, or cannot tell.
type doorman struct {
	why   atomic.Pointer[fault.Fault]
	asked chan struct{}
}

func (d *doorman) Standing(context.Context, *keys.Principal) error {
	select {
	case d.asked <- struct{}{}:
	default:
	}
	if f := d.why.Load(); f != nil {
		return f
	}
	return nil
}

// What a revoked key has begun ends, and what was delivered is paid; while the database is away the answer goes on.
func TestARevokedKeysAnswerEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		members string
		why     *fault.Fault
		ending  usage.Ending
		status  int
		text    string
	}{
		"streamed":        {streamed, fault.New(fault.Unauthenticated, "This API key was revoked.").WithCode("api_key_revoked"), usage.ClientLeft, 200, "api_key_revoked"},
		"whole":           {"", fault.New(fault.Forbidden, "Suspended."), usage.FailedUnbilled, 403, "Suspended."},
		"nobody can tell": {streamed, fault.New(fault.Unavailable, "The database is away."), usage.Complete, 200, "[DONE]"},
	} {
		t.Run(name, func(t *testing.T) {
			d := &doorman{asked: make(chan struct{}, 1)}
			e := gatetest.NewEngine(t, func(c net.Conn, _ int) bool {
				gatetest.Send(c, gatetest.StreamHead, gatetest.Chunk(role()+says("one", 1)))
				<-d.asked // still good
				d.why.Store(tt.why)
				rest := strings.TrimPrefix(good, role()+says("one", 1))
				gatetest.Send(c, gatetest.Chunk(says(" two", 2)))
				<-d.asked
				gatetest.Send(c, gatetest.Chunk(strings.TrimPrefix(rest, says(" two", 2))), "0\r\n\r\n")
				return true
			})
			s := gatetest.New(t, gatetest.Options{Standing: d, Times: gate.Times{Standing: time.Nanosecond, Quiet: 20 * time.Millisecond}}, e)
			answer, body, err := post(t, s, request(tt.members))
			if err != nil || answer.StatusCode != tt.status || !strings.Contains(string(body), tt.text) {
				t.Fatalf("%d %s %v", answer.StatusCode, body, err)
			}
			ev := s.Event(t)
			if ev.Ending != tt.ending || (tt.ending == usage.ClientLeft) != (ev.Usage.Generated() > 0 && ev.Usage.Generated() < 5) && tt.ending != usage.Complete {
				t.Errorf("%+v", ev)
			}
		})
	}
}
