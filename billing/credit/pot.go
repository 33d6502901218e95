package credit

import (
	"time"

	"millrace/billing/period"
	"millrace/internal/ids"
	"millrace/internal/money"
)

// Scope says whose spending a budget bounds.
type Scope string

// The scopes of a request, the narrowest last.
const (
	OrgScope     Scope = "org"
	ProjectScope Scope = "project"
	KeyScope     Scope = "key"
)

const (
	kindBalance = "balance"
	kindCap     = "cap"
)

// budgetKey is what makes a budget unique in its organization.
type budgetKey struct {
	kind    string
	scope   Scope
	scopeID ids.ID
	period  period.Kind
	start   int64 // unix seconds
}

// pot is an allotment as this process sees it. Its wallet's mutex guards it.
type pot struct {
	budget ids.ID
	key    budgetKey
	span   period.Span
	cap    money.Nano // as last read: for messages, and to notice that it fell

	allotted, returned money.Nano // as the row says
	returning          money.Nano // set aside for a return under way, or one whose outcome is unknown
	held, charged      money.Nano // open holds; everything ever charged here
	known              bool       // charged is complete: this memory has seen the row from its beginning
	unsure             bool       // a commit was not answered: the row may differ and must be read under its lock

	headroom, others money.Nano // at the last look: what the budget had left (< 0: its cap fell), and what other epochs had of it
	refusedAbove     money.Nano // a refusal just proved that no more than this can be had anywhere
	refusedUntil     time.Time  // until when that is believed
	stretching       bool       // an extension waits for this pot: new admissions stand back

	lastUse time.Time
	raised  time.Time  // when it was last raised
	raise   money.Nano // by how much
	peak    money.Nano // highest sum of open holds lately
	rate    money.Nano // charged per second, smoothed
	window  money.Nano // charged since windowStart
	began   time.Time  // of the window
}

// free is what a hold may take.
func (p *pot) free() money.Nano {
	return p.allotted - p.returned - p.returning - p.held - p.charged
}

// over reports that the budget's cap fell below what was taken of it: what becomes free goes back first, and the budget is asked
// for every nano.
func (p *pot) over() bool { return p.headroom < 0 }

// spendable is what a hold may take without asking.
func (p *pot) spendable() money.Nano {
	if p.over() {
		return 0
	}
	return p.free()
}

func (p *pot) take(n money.Nano, now time.Time) {
	p.held += n
	p.peak = max(p.peak, p.held)
	p.lastUse = now
}

func (p *pot) settle(held, charge money.Nano, now time.Time) {
	p.held -= held
	p.charged += charge
	p.window += charge
	p.lastUse = now
}

// adopt takes over a row that was read or written under its lock. raised is what this transaction added to allotted.
// ok=false: the row has less than this process was promised, so the database is an older copy.
func (p *pot) adopt(allotted, returned, raised money.Nano) (ok bool) {
	if !p.known {
		// Money that was allotted before this memory began may be charged already; only the new part is surely free.
		p.charged = allotted - raised - returned
		p.known = true
	} else if allotted < p.allotted+raised {
		return false
	}
	p.allotted, p.returned, p.returning, p.unsure = allotted, returned, 0, false
	return true
}

// Sizes of an allotment.
const (
	demandWindow = time.Second
	// nearCap divides what is left of a budget: an allotment beyond the exact need takes at most this part of it, so that
	// allotments shrink towards the cap and several gateways can work near it.
	nearCap = 8
	// tooMuch is how many times its spare a pot may keep.
	tooMuch = 4
)

// roll closes the window of demand, once a second or so.
func (p *pot) roll(now time.Time) {
	elapsed := now.Sub(p.began)
	if elapsed < demandWindow {
		return
	}
	perSecond := min(p.window, maxAmount) * 1000 / money.Nano(elapsed.Milliseconds())
	p.rate = (p.rate + perSecond) / 2
	p.peak = max(p.held, p.peak/2)
	p.window, p.began = 0, now
}

// spare is what the pot should have beyond the open holds: some seconds of spending, and room for as much again as half
// of what is held at once.
func (p *pot) spare(horizon time.Duration) money.Nano {
	return max(min(p.rate, maxAmount)*money.Nano(horizon/time.Second), p.peak/2)
}

// ahead is by how much more than is lacking the pot should be raised. Until its rate is known, raises that follow each
// other quickly double.
func (p *pot) ahead(now time.Time, horizon time.Duration) money.Nano {
	p.roll(now)
	ahead := p.spare(horizon)
	if now.Sub(p.raised) < demandWindow {
		ahead = max(ahead, 2*p.raise)
	}
	return min(ahead, maxRaised)
}
