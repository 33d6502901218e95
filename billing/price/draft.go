package price

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
)

// Limits of a draft.
const (
	maxNoteBytes = 1000
	// nowTolerance is how far in the past "now" may lie when it arrives here: a form's time is already old.
	nowTolerance = time.Minute
	// maxAhead catches a mistyped year.
	maxAhead = 2 * 366 * 24 * time.Hour
	// maxPrice keeps the dearest event (every class at its highest count) inside money.MaxPico.
	maxPrice money.Pico = 100_000_000_000 // pico-USD per token: 100,000 USD per million tokens
	maxFee   money.Pico = 1_000_000_000_000_000
)

// Draft asks for a version.
type Draft struct {
	Model       ids.ID
	Book        string    // "" = Standard
	EffectiveAt time.Time // zero = now
	// Prices names every class, those that cost nothing too: pico-USD per token, for usage.Requests per request. A class
	// that was forgotten must not be free by accident.
	Prices map[usage.Class]money.Pico
	Terms  Terms
	Note   string
	// Confirm is the model's name, typed by a person who has read the doubts about these prices. See Doubts.
	Confirm string
}

// Every gives the draft's form of a complete price list.
func Every(p usage.Prices) map[usage.Class]money.Pico {
	m := make(map[usage.Class]money.Pico, len(p))
	for c, pico := range p {
		m[usage.Class(c)] = pico
	}
	return m
}

var bookName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)

func badBook() error {
	return fault.New(fault.Invalid, "A price book's name has up to 64 small letters, digits, dots, dashes and underscores.").WithParam("book")
}

// version checks the draft by itself, without its predecessors.
func (d Draft) version(now time.Time) (Version, error) {
	v := Version{ID: ids.New(), Model: d.Model, Book: d.Book, EffectiveAt: d.EffectiveAt.UTC(), Note: strings.TrimSpace(d.Note), CreatedAt: now}
	if v.Book == "" {
		v.Book = Standard
	}
	if !bookName.MatchString(v.Book) {
		return v, badBook()
	}
	if len(v.Note) > maxNoteBytes {
		return v, fault.New(fault.Invalid, "The note may have at most %d bytes.", maxNoteBytes).WithParam("note")
	}
	switch {
	case d.EffectiveAt.IsZero(), d.EffectiveAt.Before(now) && now.Sub(d.EffectiveAt) <= nowTolerance:
		v.EffectiveAt = now
	case d.EffectiveAt.Before(now):
		return v, fault.New(fault.Invalid, "A price cannot begin in the past: what was charged stays. Leave effective_at out for now, or give credit instead.").WithParam("effective_at")
	case d.EffectiveAt.Sub(now) > maxAhead:
		return v, fault.New(fault.Invalid, "A price can begin at most two years ahead.").WithParam("effective_at")
	}
	v.EffectiveAt = v.EffectiveAt.Truncate(time.Millisecond) // events tell their start in milliseconds: both sides must agree
	for c := range v.Prices {
		class := usage.Class(c)
		p, given := d.Prices[class]
		if !given {
			return v, fault.New(fault.Invalid, "The price of %s is missing. Give 0 for what costs nothing.", class).WithParam(class.String())
		}
		if limit := highest(class); p < 0 || p > limit {
			return v, fault.New(fault.Invalid, "The price of %s must lie between 0 and %s.", class, text(class, limit)).WithParam(class.String())
		}
		v.Prices[c] = p
	}
	if len(d.Prices) > len(v.Prices) {
		return v, fault.New(fault.Invalid, "There are prices for classes that do not exist.")
	}
	v.Terms = d.Terms
	return v, v.Terms.check(v.Prices)
}

func highest(c usage.Class) money.Pico {
	if c == usage.Requests {
		return maxFee
	}
	return maxPrice
}

// text writes a price as people read it.
func text(c usage.Class, p money.Pico) string {
	if c == usage.Requests {
		return fmt.Sprintf("%s USD per request", p.CeilNano())
	}
	return p.PerMillion() + " USD per 1M tokens"
}
