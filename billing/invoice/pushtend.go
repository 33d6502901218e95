package invoice

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
)

// Pauses of tending.
const (
	maxSteps     = 20               // of one invoice in one turn
	firstPause   = 30 * time.Second // after a failure; doubles
	longestPause = 6 * time.Hour
	replayPause  = 5 * time.Minute // at least, before a step is tried in new words: what was asked may still be done
	watchEvery   = 6 * time.Hour   // what waits for money, should no event come
	noteAgain    = 24 * time.Hour  // a credit note that was refused
	retryEvery   = time.Hour       // a declined card, should there be another one
)

// Tend brings one invoice on: books what is seen, then takes one step at the payment provider after the other, with a look
// before each, until nothing is left to do for now.
func (c *Collector) Tend(ctx context.Context, org, id ids.ID) error {
	if !c.On() {
		return errNoTill
	}
	moved := 0
	for range maxSteps {
		again, err := c.tendOnce(ctx, org, id)
		if errors.Is(err, errMoved) && moved < looks {
			moved++
			continue
		}
		if err != nil || !again {
			return err
		}
	}
	return nil
}

// tendOnce takes one step; again = look for the next one.
func (c *Collector) tendOnce(ctx context.Context, org, id ids.ID) (again bool, err error) {
	v, err := c.look(ctx, org, id)
	if err != nil && v.push.Ref != nil {
		return false, c.failed(ctx, v, step{}, err)
	}
	if err != nil {
		return false, err
	}
	if v.seen != nil {
		if err := c.settleSeen(ctx, v); err != nil {
			return false, err
		}
		if v, err = c.reread(ctx, v); err != nil {
			return false, err
		}
	}
	now := c.s.now()
	st := next(v, now)
	if st.do == create || st.do == charge || st.do == wait && v.seen != nil && v.seen.Charge && State(v.inv.State) == Open {
		if v.customer, v.method, err = c.c.Customers.InvoiceCustomer(ctx, org); err != nil {
			return false, c.failed(ctx, v, st, err)
		}
		st = next(v, now)
	}
	after, err := c.take(ctx, v, st)
	switch {
	case err != nil:
		return false, c.failed(ctx, v, st, err)
	case st.do == note:
		return true, nil
	case st.do == wait:
		after.Problem, after.Failures = st.problem, 0
		after.State, after.SeenVersion = string(st.state), v.inv.Version
		after.NextAt = c.nextLook(after, v.notes, now)
	}
	err = c.s.system(ctx, func(tx pgx.Tx, _ *q.Queries) error { return c.keep(ctx, tx, v.push, after) })
	return st.do != wait && PushState(after.State) != PushStopped, err
}

// settleSeen books what a look saw.
func (c *Collector) settleSeen(ctx context.Context, v view) error {
	return c.s.system(ctx, func(tx pgx.Tx, _ *q.Queries) error {
		_, err := c.book(ctx, tx, v.push, *v.seen)
		return err
	})
}

// reread reads the books anew behind a settlement; what was seen stays.
func (c *Collector) reread(ctx context.Context, v view) (view, error) {
	err := c.s.system(ctx, func(_ pgx.Tx, r *q.Queries) (err error) {
		if v.inv, err = r.Invoice(ctx, q.InvoiceParams{OrgID: v.inv.OrgID, ID: v.inv.ID}); err != nil {
			return err
		}
		if v.push, err = r.InvoicePush(ctx, q.InvoicePushParams{OrgID: v.inv.OrgID, InvoiceID: v.inv.ID}); err != nil {
			return err
		}
		v.notes, err = r.CreditNotes(ctx, q.CreditNotesParams{OrgID: v.inv.OrgID, InvoiceID: v.inv.ID})
		return err
	})
	return v, wrapped("look", err)
}

// nextLook says when the worker looks again by itself; nil = never.
func (c *Collector) nextLook(p q.InvoicePush, notes []q.CreditNote, now time.Time) *time.Time {
	at := now.Add(watchEvery)
	switch {
	case PushState(p.State) == PushDone:
		return nil
	case p.Charge && p.FailedAt != nil:
		at = now.Add(retryEvery)
	}
	for i := range notes {
		if n := &notes[i]; toSend(n) && n.TillAgainAt != nil && n.TillAgainAt.Before(at) {
			at = *n.TillAgainAt
		}
	}
	return &at
}

// noteTimeout bounds the noting of a failure, which comes after the step's own time.
const noteTimeout = 10 * time.Second

// failed notes that a step brought nothing, and when it is tried again. Whether it happened all the same is looked up then,
// never inferred from the error. The same words are used again unless they can only get the same answer.
func (c *Collector) failed(ctx context.Context, v view, st step, failure error) error {
	late := errors.Is(context.Cause(ctx), context.DeadlineExceeded)
	if errors.Is(failure, errMoved) || ctx.Err() != nil && !late {
		return failure
	}
	if late { // this customer's time is over: others wait
		failure = fault.New(fault.Unavailable, "The payment provider did not answer in time.").WithCause(failure)
	}
	after, f := v.push, fault.Of(failure)
	pause := longestPause
	if n := after.Failures; n < 10 {
		pause = min(firstPause<<n, longestPause)
	}
	switch {
	case st.do == lower && (f.Code == CodeReplayed || f.Code == CodeRefused):
		after.LowerAttempt++
		pause = max(pause, replayPause)
	case f.Code == CodeReplayed:
		after.Attempt++
		pause = max(pause, replayPause)
	case f.Kind == fault.Limited, f.Code == CodeRefused:
		after.Attempt++
	}
	after.Failures++
	after.Problem = fmt.Sprintf("%s (%s)", f.Message, st.do)
	if v.seen != nil && v.seen.Problem != "" {
		after.Problem += ": " + v.seen.Problem
	}
	at := c.s.now().Add(pause)
	after.NextAt = &at
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTimeout)
	defer cancel()
	err := c.s.system(ctx, func(tx pgx.Tx, _ *q.Queries) error { return c.keep(ctx, tx, v.push, after) })
	if errors.Is(err, errMoved) {
		err = nil
	}
	return errors.Join(failure, err)
}

// String is the deed for people who look after it.
func (d deed) String() string {
	return map[deed]string{wait: "looking", create: "making the draft", fill: "adding lines and finalising", drop: "deleting the draft", send: "sending it", charge: "charging the card",
		lower: "lowering it by what came or was credited here", end: "closing it", note: "sending money back"}[d]
}
