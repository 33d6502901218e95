package hook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/internal/outbound"
	"millrace/tenants"
)

// Times of the worker.
const (
	turnEvery  = time.Second
	claimFor   = time.Minute // longer than a request takes
	perTurn    = 32          // sent at once
	keepLog    = 30 * 24 * time.Hour
	sweepEvery = time.Hour
	maxProblem = 300      // bytes
	maxAnswer  = 64 << 10 // bytes that are read of an answer, so that its connection can be used again
)

// pauses are the waits after each failed attempt. Behind the last one a delivery has failed.
var pauses = []time.Duration{10 * time.Second, time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour}

// Run sends what is queued until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	tick := time.NewTicker(turnEvery)
	defer tick.Stop()
	var swept time.Time
	for ctx.Err() == nil {
		n, err := s.Turn(ctx)
		if err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "hook: deliveries wait for the next turn", "cause", err)
		}
		if now := s.now(); now.Sub(swept) >= sweepEvery {
			swept = now
			if err := s.sweep(ctx, now); err != nil && ctx.Err() == nil {
				slog.WarnContext(ctx, "hook: old deliveries stay for now", "cause", err)
			}
		}
		if n == perTurn {
			continue
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	return ctx.Err()
}

// Turn sends what is due now, and gives how many deliveries it tried.
func (s *Service) Turn(ctx context.Context) (int, error) {
	now := s.now()
	var due []q.ClaimDeliveriesRow
	err := s.db.InTx(ctx, db.System(), func(tx pgx.Tx) (err error) {
		due, err = q.New(tx).ClaimDeliveries(ctx, q.ClaimDeliveriesParams{Until: now.Add(claimFor), Now: now, MaxRows: perTurn})
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("hook: what is due: %w", err)
	}
	errs := make([]error, len(due))
	var wg sync.WaitGroup
	for i, d := range due {
		wg.Go(func() { errs[i] = s.deliver(ctx, d) })
	}
	wg.Wait()
	return len(due), errors.Join(errs...)
}

// deliver tries once and notes how it went.
func (s *Service) deliver(ctx context.Context, d q.ClaimDeliveriesRow) error {
	status, failure := s.post(ctx, d)
	if ctx.Err() != nil {
		return ctx.Err() // we are stopping: the claim ends by itself, and the attempt is made again
	}
	now := s.now()
	done := q.DeliveryDoneParams{OrgID: d.OrgID, ID: d.ID, State: "delivered", Status: status, NextAt: now}
	if failure != nil {
		done.Problem = clip(failure.Error())
		done.State = "failed"
		if n := int(d.Attempts); n <= len(pauses) {
			done.State, done.NextAt = "waiting", now.Add(pauses[n-1])
		}
	}
	err := s.db.InTx(ctx, db.System(), func(tx pgx.Tx) error { return q.New(tx).DeliveryDone(ctx, done) })
	if err != nil {
		return fmt.Errorf("hook: note a delivery: %w", err)
	}
	return nil
}

// post sends a delivery. Its errors are for the customer to read.
func (s *Service) post(ctx context.Context, d q.ClaimDeliveriesRow) (status *int32, err error) {
	secret, err := s.master.Open(d.Secret, sealContext(d.WebhookID))
	if err != nil {
		return nil, errors.New("the secret cannot be read: make the webhook anew")
	}
	ctx, cancel := context.WithTimeout(ctx, outbound.Timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, d.Url, strings.NewReader(d.Body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "Millrace-Webhooks/1")
	r.Header.Set(EventHeader, ids.Format(EventPrefix, d.EventID))
	r.Header.Set(SignatureHeader, Sign(string(secret), s.now(), []byte(d.Body)))
	answer, err := s.client.Do(r)
	if err != nil {
		return nil, outbound.Plain(err)
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, maxAnswer))
	code := int32(answer.StatusCode)
	switch {
	case code >= 200 && code <= 299:
		return &code, nil
	case code >= 300 && code <= 399:
		return &code, errors.New("it redirects: give the final address")
	}
	return &code, errors.New("it answered " + strconv.Itoa(answer.StatusCode))
}

func clip(text string) string {
	if len(text) > maxProblem {
		text = text[:maxProblem]
	}
	return strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", ""), "")
}

func (s *Service) sweep(ctx context.Context, now time.Time) error {
	return s.db.InTx(ctx, db.System(), func(tx pgx.Tx) error { return q.New(tx).DeleteOldDeliveries(ctx, now.Add(-keepLog)) })
}

// Delivery is a line of the log.
type Delivery struct {
	ID       ids.ID
	Hook     ids.ID
	URL      string
	Event    ids.ID
	Kind     string
	State    string // waiting, delivered, failed
	Attempts int
	Status   int    // of the last answer; 0 = there was none
	Problem  string // of the last attempt; "" = none
	At       time.Time
	NextAt   time.Time // of the next attempt, while it waits
}

// Deliveries lists the newest deliveries of an organization.
func (s *Service) Deliveries(ctx context.Context, by tenants.Actor, org ids.ID) (list []Delivery, err error) {
	if err := by.Require(tenants.CapsManage, org); err != nil {
		return nil, err
	}
	err = s.db.InTx(ctx, db.Org(org).ReadOnly(), func(tx pgx.Tx) error {
		rows, err := q.New(tx).Deliveries(ctx, q.DeliveriesParams{OrgID: org, MaxRows: maxListed})
		list = make([]Delivery, len(rows))
		for i, r := range rows {
			list[i] = Delivery{ID: r.ID, Hook: r.WebhookID, URL: r.Url, Event: r.EventID, Kind: r.Kind, State: r.State, Attempts: int(r.Attempts),
				Problem: r.Problem, At: r.CreatedAt, NextAt: r.NextAt}
			if r.Status != nil {
				list[i].Status = int(*r.Status)
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("hook: deliveries: %w", err)
	}
	return list, nil
}
