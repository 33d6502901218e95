package bench

import (
	"net/http"
	"strings"
	"testing"

	"millrace/cmd/millrace/trial"
	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/internal/usage"
)

// story is a request as its client and the books tell it; the changes of a case make it a lie.
type story struct {
	told  told
	event q.CrashEventsRow
}

func wholeStory() *story {
	txn := ids.New()
	s := &story{told: told{ask: trial.Ask{Stream: true, MaxTokens: 40}, prompt: 30}}
	s.told.got = trial.Answer{Request: ids.New(), Status: http.StatusOK, Whole: true, Ended: true, Tokens: 40, Usage: &trial.Usage{Prompt: 30, Completion: 40}}
	s.told.got.Usage.Details.Cached = 16
	s.event = q.CrashEventsRow{ID: s.told.got.Request, Ending: string(usage.Complete), Streamed: true, TxnID: &txn, Prompt: 30, CachedTokens: 16, Generated: 40,
		CostPico: 70_500, ChargedNano: 70}
	return s
}

func brokenStory() *story {
	s := wholeStory()
	s.told.got.Whole, s.told.got.Ended, s.told.got.Usage, s.told.got.Tokens = false, false, nil, 25
	s.event.Ending, s.event.Generated = string(usage.GatewayDied), 20
	return s
}

func leftStory() *story {
	s := brokenStory()
	s.told.ask.Leave, s.told.got.Left, s.told.got.Ended = trial.HalfClose, true, true
	s.event.Ending, s.event.Generated = string(usage.ClientLeft), 25
	return s
}

func cutBody() *story {
	s := brokenStory()
	s.told.ask.Stream, s.told.got.Tokens, s.told.got.Length, s.told.received = false, 0, 500, 498
	s.event.Ending, s.event.Streamed, s.event.Generated = string(usage.Complete), false, 40
	return s
}

func TestTrueStoriesAgree(t *testing.T) {
	for name, s := range map[string]*story{"whole": wholeStory(), "broken": brokenStory(), "left": leftStory(), "all but the last bytes": cutBody()} {
		b := newBook()
		b.by[s.told.got.Request] = &s.told
		if sum, wrong := b.compare([]q.CrashEventsRow{s.event}); len(wrong) > 0 || sum.events != 1 {
			t.Errorf("%s: %v, %+v", name, wrong, sum)
		}
	}
}

func TestLiesAreFound(t *testing.T) {
	for _, c := range []struct {
		says string
		of   func() *story
		lie  func(s *story)
	}{
		{"booked 30 prompt", wholeStory, func(s *story) { s.event.Generated = 41 }},
		{"booked 30 prompt", wholeStory, func(s *story) { s.event.CachedTokens = 0 }},
		{"booked 29 prompt", wholeStory, func(s *story) { s.event.Prompt = 29 }},
		{"has the whole answer", wholeStory, func(s *story) { s.event.Ending = string(usage.GatewayDied) }},
		{"told 40 tokens and got 39", wholeStory, func(s *story) { s.told.got.Tokens = 39 }},
		{"its tokens cost", wholeStory, func(s *story) { s.event.ChargedNano = 71 }},
		{"without a ledger transaction", wholeStory, func(s *story) { s.event.TxnID = nil }},
		{"overrun", wholeStory, func(s *story) { s.event.OverrunNano = 1 }},
		{"refused with 402", wholeStory, func(s *story) { s.told.got.Status = http.StatusPaymentRequired }},
		{"the books do not know it", wholeStory, func(s *story) {
			s.event.ID, s.event.ChargedNano, s.event.CostPico, s.event.TxnID = ids.New(), 0, 0, nil
		}},
		{"no client has heard", wholeStory, func(s *story) { s.event.ID = ids.New() }},
		{"26 tokens are billed, 25 were delivered", brokenStory, func(s *story) { s.event.Generated = 26 }},
		{"31 prompt tokens", brokenStory, func(s *story) { s.event.Prompt = 31 }},
		{"24 tokens are billed, 25 were delivered before", leftStory, func(s *story) { s.event.Generated = 24 }},
		{"497 of 500 bytes", cutBody, func(s *story) { s.told.received = 497 }},
		{"41 tokens are billed, 40 were asked for", cutBody, func(s *story) { s.told.got.Left, s.event.Generated = true, 41 }},
	} {
		s := c.of()
		c.lie(s)
		b := newBook()
		b.by[s.told.got.Request] = &s.told
		if _, wrong := b.compare([]q.CrashEventsRow{s.event}); !strings.Contains(strings.Join(wrong, "; "), c.says) {
			t.Errorf("want %q, got %v", c.says, wrong)
		}
	}
	s := wholeStory()
	b := newBook()
	b.by[s.told.got.Request] = &s.told
	if _, wrong := b.compare([]q.CrashEventsRow{s.event, s.event}); len(wrong) != 1 || !strings.Contains(wrong[0], "twice") {
		t.Errorf("booked twice: %v", wrong)
	}
}
