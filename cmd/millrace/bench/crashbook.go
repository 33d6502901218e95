package bench

import (
	"fmt"
	"net/http"
	"sync"

	"millrace/cmd/millrace/trial"
	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
)

// told is what one client was told: the side of the story that the books must agree with.
type told struct {
	ask    trial.Ask
	prompt int64 // tokens, as the simulated engine counts them
	got    trial.Answer
	// received is how much of a whole answer's body came, in bytes; booked, that the books know the request.
	received int64
	booked   bool
}

// book is what all clients were told since it was last compared with the ledger.
type book struct {
	mu      sync.Mutex
	by      map[ids.ID]*told
	noHead  int // answers of which not even the head came: their ids are not known
	unheard int // those of them whose client left: they may be billed all the same
	doubled []ids.ID
	refused map[string]int // what refusals said, over the whole run
}

func newBook() *book { return &book{by: make(map[ids.ID]*told), refused: make(map[string]int)} }

func (b *book) add(t *told) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch id := t.got.Request; {
	case id == ids.Nil:
		b.noHead++
		if t.got.Left {
			b.unheard++
		}
	case b.by[id] != nil:
		b.doubled = append(b.doubled, id)
	default:
		if t.got.Status != http.StatusOK {
			b.refused[fmt.Sprintf("%d %s", t.got.Status, t.got.Text)]++
		}
		t.received = int64(len(t.got.Text))
		t.got.Text, t.got.Header = nil, nil // not needed any more
		b.by[id] = t
	}
}

// tally counts answers by how they ended.
type tally struct {
	whole, broken, left, refused, noHead int
	died                                 int // streams that were closed from their last progress
	events                               int
	tokens                               int64
	charged                              money.Nano
}

func (t *tally) add(o tally) {
	t.whole, t.broken, t.left, t.refused, t.noHead = t.whole+o.whole, t.broken+o.broken, t.left+o.left, t.refused+o.refused, t.noHead+o.noHead
	t.died, t.events, t.tokens, t.charged = t.died+o.died, t.events+o.events, t.tokens+o.tokens, t.charged+o.charged
}

func (t tally) String() string {
	return fmt.Sprintf("%d answers whole, %d broken off by a kill, %d left by their client, %d refused, %d without a head; %d requests booked (%d by their last progress), %d tokens, %s USD",
		t.whole, t.broken, t.left, t.refused, t.noHead, t.events, t.died, t.tokens, t.charged)
}

// compare holds what was booked against what the clients were told, and empties the book.
func (b *book) compare(events []q.CrashEventsRow) (sum tally, wrong []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range b.doubled {
		wrong = append(wrong, fmt.Sprintf("request %s was given to two clients", id))
	}
	for i := range events {
		e := &events[i]
		sum.events++
		sum.tokens += e.Prompt + e.Generated
		sum.charged += money.Nano(e.ChargedNano)
		if e.Ending == string(usage.GatewayDied) {
			sum.died++
		}
		w := b.judge(e)
		if i > 0 && events[i-1].ID == e.ID {
			w = "it is booked twice"
		}
		if w != "" {
			wrong = append(wrong, fmt.Sprintf("request %s (%s): %s", e.ID, e.Ending, w))
		}
	}
	sum.noHead = b.noHead
	for id, t := range b.by {
		switch {
		case t.got.Status != http.StatusOK:
			sum.refused++
		case t.got.Whole:
			sum.whole++
			if !t.booked {
				wrong = append(wrong, fmt.Sprintf("request %s: its client has the whole answer, the books do not know it", id))
			}
		case t.got.Left:
			sum.left++
		default:
			sum.broken++
		}
	}
	b.by, b.noHead, b.unheard, b.doubled = make(map[ids.ID]*told), 0, 0, nil
	return sum, wrong
}

// judge says what is wrong with a booked request; "" = nothing.
func (b *book) judge(e *q.CrashEventsRow) string {
	if w := soundEvent(e); w != "" {
		return w
	}
	t := b.by[e.ID]
	if t != nil {
		t.booked = true
		return t.agrees(e)
	}
	if e.ChargedNano == 0 {
		return ""
	}
	// A client that closes may have been served at that very moment.
	if b.unheard--; e.Ending != string(usage.ClientLeft) && e.Ending != string(usage.Complete) || b.unheard < 0 {
		return fmt.Sprintf("charged %s USD, and no client has heard of it", money.Nano(e.ChargedNano))
	}
	return ""
}

// soundEvent checks an event by itself: it is charged what its tokens cost, by a ledger transaction, and nobody else bears
// any of it.
func soundEvent(e *q.CrashEventsRow) string {
	cost := money.Pico(e.CostPico).Nano()
	switch {
	case e.OverrunNano != 0:
		return fmt.Sprintf("%s USD of it are an overrun, though every kill was proven", money.Nano(e.OverrunNano))
	case money.Nano(e.ChargedNano) != cost:
		return fmt.Sprintf("charged %s USD, its tokens cost %s", money.Nano(e.ChargedNano), cost)
	case (e.ChargedNano > 0) != (e.TxnID != nil):
		return "charged without a ledger transaction, or not charged with one"
	}
	return ""
}

// endMark is what of a whole answer waits for the usage log: without it an answer is not whole, with all before it is
// delivered.
const endMark = int64(len("}\n"))

// agrees says what is wrong with how a request was booked; "" = nothing.
func (t *told) agrees(e *q.CrashEventsRow) string {
	got := &t.got
	switch {
	case got.Status != http.StatusOK:
		if e.ChargedNano > 0 {
			return fmt.Sprintf("refused with %d, and charged", got.Status)
		}
		return ""
	case got.Whole:
		return t.agreesWhole(e)
	case e.Prompt > t.prompt:
		return fmt.Sprintf("%d prompt tokens are billed, it has %d", e.Prompt, t.prompt)
	case got.Left && (t.ask.Leave == trial.Close || !t.ask.Stream):
		if e.Generated > int64(t.ask.MaxTokens) {
			return fmt.Sprintf("%d tokens are billed, %d were asked for", e.Generated, t.ask.MaxTokens)
		}
	case !t.ask.Stream:
		if e.Generated > 0 && t.received < got.Length-endMark {
			return fmt.Sprintf("%d tokens are billed, %d of %d bytes were delivered", e.Generated, t.received, got.Length)
		}
	case e.Generated > got.Tokens:
		return fmt.Sprintf("%d tokens are billed, %d were delivered", e.Generated, got.Tokens)
	case got.Left && got.Ended && e.Ending == string(usage.ClientLeft) && e.Generated != got.Tokens:
		return fmt.Sprintf("%d tokens are billed, %d were delivered before the client left", e.Generated, got.Tokens)
	}
	return ""
}

func (t *told) agreesWhole(e *q.CrashEventsRow) string {
	u := t.got.Usage
	switch {
	case u == nil:
		return "its whole answer has no usage"
	case e.Ending != string(usage.Complete):
		return "its client has the whole answer"
	case e.Prompt != u.Prompt || e.Generated != u.Completion || e.CachedTokens != u.Details.Cached:
		return fmt.Sprintf("booked %d prompt, %d cached, %d generated; its client was told %d, %d, %d", e.Prompt, e.CachedTokens, e.Generated,
			u.Prompt, u.Details.Cached, u.Completion)
	case t.ask.Stream && t.got.Tokens != u.Completion:
		return fmt.Sprintf("its client was told %d tokens and got %d", u.Completion, t.got.Tokens)
	}
	return ""
}
