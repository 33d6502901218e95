package kvevent

import (
	"context"
	"encoding/binary"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-zeromq/zmq4"

	"millrace/internal/clock"
)

const patience = 20 * time.Second // a test that waits longer has failed

// follower collects what a subscriber says.
type follower struct {
	t       *testing.T
	updates chan Update
	held    map[uint64]bool
	epoch   uint64
	resets  int
}

func follow(t *testing.T, cfg SubscriberConfig) (*follower, *Subscriber) {
	t.Helper()
	s, err := NewSubscriber(cfg)
	if err != nil {
		t.Fatal(err)
	}
	f := &follower{t: t, updates: make(chan Update, 1000), held: map[uint64]bool{}}
	run(t, func(ctx context.Context) { _ = s.Run(ctx, func(u Update) { f.updates <- u }) })
	return f, s
}

// run starts f and waits for its end when the test ends, or when stop is called.
func run(t *testing.T, f func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { f(ctx) })
	stop = func() { cancel(); wg.Wait() }
	t.Cleanup(stop)
	return stop
}

// until reads updates until the chain is held, then checks that nothing else is.
func (f *follower) until(what string, chain []uint64) {
	f.t.Helper()
	deadline := time.After(patience)
	for {
		if all(f.held, chain) && len(f.held) == len(chain) {
			return
		}
		select {
		case u := <-f.updates:
			f.take(u)
		case <-deadline:
			f.t.Fatalf("%s: %d blocks held, %d wanted", what, len(f.held), len(chain))
		}
	}
}

func (f *follower) take(u Update) {
	if u.Reset {
		f.resets++
		f.held = map[uint64]bool{}
	}
	if u.Reset != (u.Epoch != f.epoch) {
		f.t.Errorf("epoch %d after %d, reset %v", u.Epoch, f.epoch, u.Reset)
	}
	f.epoch = u.Epoch
	for _, b := range u.Blocks {
		switch b.Op {
		case Store:
			f.held[b.Hash] = true
		case Remove:
			delete(f.held, b.Hash)
		case Clear:
			f.held = map[uint64]bool{}
		}
	}
}

func all(held map[uint64]bool, chain []uint64) bool {
	return !slices.ContainsFunc(chain, func(h uint64) bool { return !held[h] })
}

func publisher(t *testing.T, cfg PublisherConfig) (p *Publisher, stop func()) {
	t.Helper()
	p, err := NewPublisher(cfg, clock.System)
	if err != nil {
		t.Fatal(err)
	}
	return p, run(t, func(ctx context.Context) { _ = p.Run(ctx) })
}

var story = tokens(16*10, 1) // ten blocks
var chain = ChainHashes("s", story, 16)

// block publishes block n of the story.
func (p *Publisher) block(t *testing.T, n int) {
	t.Helper()
	if err := p.Publish([]Event{*stored(n, ints(n+1, 1), story[16*n:16*n+16], "s")}); err != nil {
		t.Fatal(err)
	}
}

// lost publishes block n while nobody hears it: it is in the replay buffer only.
func (p *Publisher) lost(t *testing.T, n int) {
	t.Helper()
	p.mu.Lock()
	peers := p.peers
	p.peers = nil
	p.mu.Unlock()
	p.block(t, n)
	p.mu.Lock()
	p.peers = peers
	p.mu.Unlock()
}

func TestEventsReachASubscriberThatBinds(t *testing.T) {
	for _, shape := range []Shape{Tagged, Positional} {
		f, s := follow(t, SubscriberConfig{Endpoint: "tcp://127.0.0.1:0", Bind: true, Topic: "kv"})
		p, stop := publisher(t, PublisherConfig{Endpoint: s.Endpoint(), Topic: "kv-events", Shape: shape})
		waitForPeer(t, p)
		p.block(t, 0)
		p.block(t, 1)
		f.until("live", chain[:2])
		if err := p.Publish([]Event{{Kind: Removed, Hashes: ints(2, 1), Medium: "GPU", Group: -1}}); err != nil {
			t.Fatal(err)
		}
		f.until("removed", chain[:1])
		stop()
	}
}

// waitForPeer waits until the publisher has a subscription: what is published before is lost, by design.
func waitForPeer(t *testing.T, p *Publisher) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		p.mu.Lock()
		n := len(p.peers)
		p.mu.Unlock()
		if n > 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("no subscription")
		}
	}
}

func TestALateSubscriberLearnsByReplay(t *testing.T) {
	for _, old := range []bool{false, true} {
		p, _ := publisher(t, PublisherConfig{Endpoint: "tcp://*:0", Replay: "tcp://127.0.0.1:0", NoTopic: old})
		for n := range 5 {
			p.block(t, n)
		}
		events, replay := p.Endpoints()
		f, _ := follow(t, SubscriberConfig{Endpoint: events, Replay: replay, Epoch: 0})
		f.until("replayed", chain[:5])
		waitForPeer(t, p)
		p.block(t, 5)
		f.until("live after replay", chain[:6])
		if f.resets != 0 {
			t.Errorf("%d resets", f.resets)
		}
	}
}

func TestAGapIsFilledByReplay(t *testing.T) {
	p, _ := publisher(t, PublisherConfig{Endpoint: "ipc://" + filepath.Join(t.TempDir(), "kv"), Replay: "tcp://127.0.0.1:0"})
	events, replay := p.Endpoints()
	f, _ := follow(t, SubscriberConfig{Endpoint: events, Replay: replay})
	waitForPeer(t, p)
	p.block(t, 0)
	f.until("first", chain[:1])
	p.lost(t, 1)
	p.lost(t, 2)
	p.block(t, 3)
	f.until("after the gap", chain[:4])
	if f.resets != 0 {
		t.Errorf("%d resets", f.resets)
	}
}

func TestAGapThatCannotBeFilledResets(t *testing.T) {
	p, _ := publisher(t, PublisherConfig{Endpoint: "tcp://*:0", Replay: "tcp://127.0.0.1:0", BufferSteps: 2})
	events, replay := p.Endpoints()
	f, _ := follow(t, SubscriberConfig{Endpoint: events, Replay: replay})
	waitForPeer(t, p)
	p.block(t, 0)
	p.block(t, 1)
	f.until("first", chain[:2])
	for n := 2; n < 6; n++ {
		p.lost(t, n)
	}
	// The next is stored at the chain's start, so its parent is known; blocks 2 to 5 are lost for good.
	if err := p.Publish([]Event{*stored(0, ints(50, 1), tokens(16, 9), "")}); err != nil {
		t.Fatal(err)
	}
	f.until("after the reset", ChainHashes("", tokens(16, 9), 16))
	if f.resets != 1 || f.epoch != 1 {
		t.Errorf("%d resets, epoch %d", f.resets, f.epoch)
	}
}

func TestARestartedEngineIsNotTakenForTheOldOne(t *testing.T) {
	f, s := follow(t, SubscriberConfig{Endpoint: "tcp://127.0.0.1:0", Bind: true, Replay: "tcp://127.0.0.1:" + freePort(t)})
	start := func() (*Publisher, func()) {
		return publisher(t, PublisherConfig{Endpoint: s.Endpoint(), Replay: s.cfg.Replay})
	}
	p, stop := start()
	waitForPeer(t, p)
	for n := range 3 {
		p.block(t, n)
	}
	f.until("first life", chain[:3])
	stop()
	p, _ = start()
	// The new process has published as many messages as the old one, with other content, before it connects.
	other := tokens(16*4, 77)
	for n := range 4 {
		if err := p.Publish([]Event{*stored(n, ints(n+1, 1), other[16*n:16*n+16], "s")}); err != nil {
			t.Fatal(err)
		}
	}
	f.until("second life", ChainHashes("s", other, 16))
	if f.resets != 1 {
		t.Errorf("%d resets", f.resets)
	}
}

func TestALostConnectionToTheSameEngineKeepsWhatIsKnown(t *testing.T) {
	p, _ := publisher(t, PublisherConfig{Endpoint: "tcp://*:0", Replay: "tcp://127.0.0.1:0"})
	events, replay := p.Endpoints()
	proxy := newProxy(t, events)
	f, _ := follow(t, SubscriberConfig{Endpoint: proxy.endpoint(), Replay: replay})
	waitForPeer(t, p)
	p.block(t, 0)
	f.until("before", chain[:1])
	proxy.cut()
	p.block(t, 1) // nobody, or a dying connection, hears it
	p.block(t, 2)
	f.until("after", chain[:3])
	if f.resets != 0 {
		t.Errorf("%d resets", f.resets)
	}
}

func TestWithoutReplayAGapResetsAndGoesOn(t *testing.T) {
	p, _ := publisher(t, PublisherConfig{Endpoint: "tcp://*:0"})
	events, _ := p.Endpoints()
	f, _ := follow(t, SubscriberConfig{Endpoint: events, Epoch: 0})
	waitForPeer(t, p)
	p.block(t, 0)
	f.until("first", chain[:1])
	p.lost(t, 1)
	if err := p.Publish([]Event{*stored(0, ints(50, 1), tokens(16, 9), "")}); err != nil {
		t.Fatal(err)
	}
	f.until("after the gap", ChainHashes("", tokens(16, 9), 16))
	if f.resets != 1 {
		t.Errorf("%d resets", f.resets)
	}
}

// An independent implementation of ZeroMQ publishes what a real vLLM sent.
func TestAForeignPublisherIsUnderstood(t *testing.T) {
	frames := capturedFrames(t)
	f, s := follow(t, SubscriberConfig{Endpoint: "tcp://127.0.0.1:0", Bind: true})
	pub := zmq4.NewPub(t.Context())
	defer pub.Close()
	if err := pub.Dial(s.Endpoint()); err != nil {
		t.Fatal(err)
	}
	b, err := Decode(frames[0][2])
	if err != nil {
		t.Fatal(err)
	}
	want := ChainHashes("", b.Events[0].Tokens, 32)
	deadline := time.After(patience)
	for seq := uint64(0); ; seq++ { // until the subscription has arrived, messages are lost: repeat
		if err := pub.Send(zmq4.NewMsgFrom(frames[0][0], binary.BigEndian.AppendUint64(nil, seq), frames[0][2])); err != nil {
			t.Fatal(err)
		}
		select {
		case u := <-f.updates:
			f.take(u)
			if !all(f.held, want) || u.BlockSize != 32 {
				t.Errorf("%d of %d blocks", len(f.held), len(want))
			}
			return
		case <-deadline:
			t.Fatal("nothing arrived")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func TestAForeignSubscriberIsServed(t *testing.T) {
	p, _ := publisher(t, PublisherConfig{Endpoint: "tcp://*:0", Replay: "tcp://127.0.0.1:0", Topic: "kv-events"})
	events, replay := p.Endpoints()
	sub := zmq4.NewSub(t.Context())
	defer sub.Close()
	if err := sub.SetOption(zmq4.OptionSubscribe, "kv"); err != nil {
		t.Fatal(err)
	}
	if err := sub.Dial(events); err != nil {
		t.Fatal(err)
	}
	waitForPeer(t, p)
	p.block(t, 0)
	msg, err := sub.Recv()
	if err != nil || len(msg.Frames) != 3 || string(msg.Frames[0]) != "kv-events" {
		t.Fatalf("%q, %v", msg.Frames, err)
	}
	dealer := zmq4.NewDealer(t.Context())
	defer dealer.Close()
	if err := dealer.Dial(replay); err != nil {
		t.Fatal(err)
	}
	if err := dealer.Send(zmq4.NewMsgFrom(replayRequest(0)...)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int64{0, endOfReplay} {
		msg, err := dealer.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if m, err := parseFrames(msg.Frames); err != nil || m.seq != want {
			t.Errorf("%d, %v; want %d", m.seq, err, want)
		}
	}
}

func TestHostilePeersAreCutOff(t *testing.T) {
	for name, bytes := range map[string][]byte{
		"http": []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n" + string(make([]byte, 64))),
		"a frame of 2^60 bytes": append(append([]byte{0xFF, 0, 0, 0, 0, 0, 0, 0, 0, 0x7F, 3, 0, 'N', 'U', 'L', 'L'}, make([]byte, 48)...),
			6, 0x10, 0, 0, 0, 0, 0, 0, 0),
	} {
		_, s := follow(t, SubscriberConfig{Endpoint: "tcp://127.0.0.1:0", Bind: true})
		c, err := net.Dial("tcp", s.Endpoint()[len("tcp://"):])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(bytes); err != nil {
			t.Fatal(err)
		}
		if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 1024)
		for err == nil {
			_, err = c.Read(buf)
		}
		if ne, ok := err.(net.Error); ok && ne.Timeout() {
			t.Errorf("%s: the connection is still open", name)
		}
		_ = c.Close()
	}
}

func TestEndpoints(t *testing.T) {
	for _, ep := range []string{"", "tcp://", "tcp://host", "udp://a:1", "ipc://", "127.0.0.1:5"} {
		if _, err := NewSubscriber(SubscriberConfig{Endpoint: ep, Bind: true}); err == nil {
			t.Errorf("%q is an endpoint", ep)
		}
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, port, err := net.SplitHostPort(ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}
