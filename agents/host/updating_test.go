package host

import (
	"testing"
	"time"

	"millrace/agents/wire"
)

// Hosts that hear of an update together do not drain together; each has one moment, which asking again does not move, and
// another update has another.
func TestHostsFollowAChannelOneAfterAnother(t *testing.T) {
	const spread, hosts = time.Hour, 600
	start := time.Unix(0, 0)
	all, want := make([]updating, hosts), &wire.Update{SHA256: []byte("a")}
	begun := map[int]time.Duration{}
	for at := time.Duration(0); at <= spread; at += time.Minute {
		now := 0
		for i := range all {
			if _, before := begun[i]; !before && all[i].begin(want, start.Add(at), spread) {
				begun[i] = at
				now++
			}
		}
		if now > hosts/10 {
			t.Errorf("after %s %d hosts of %d began within a minute", at, now, hosts)
		}
	}
	if len(begun) != hosts {
		t.Errorf("%d hosts of %d followed", len(begun), hosts)
	}
	if all[0].begin(want, start.Add(2*spread), spread) {
		t.Error("one that is busy began again")
	}
	var alone updating
	if !alone.begin(want, start, 0) {
		t.Error("without a spread it is at once")
	}
}
