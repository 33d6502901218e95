package credit_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/credit"
	"millrace/db"
	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/seal"
	"millrace/tenants"
)

// tokenOf makes a control token and gives the actor that its bearer is.
func (h *house) tokenOf(t *testing.T, by tenants.Actor, name string) tenants.Actor {
	t.Helper()
	master, err := seal.Parse(seal.Generate())
	if err != nil {
		t.Fatal(err)
	}
	people := tenants.New(h.db, master, clock.System, h.bus, func(s string) string { return s })
	bearer, err := people.CreateControlToken(t.Context(), by, name)
	if err != nil {
		t.Fatal(err)
	}
	token, err := people.AuthenticateControl(t.Context(), bearer)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// What a control token asks for, the person asks for who made it, or who made the token that made it.
func TestAPersonAndHisTokensAreOneOperator(t *testing.T) {
	h := open(t)
	h.tokenOf(t, tenants.System(), "another's")
	own := h.tokenOf(t, ann, "ann's")
	for what, token := range map[string]tenants.Actor{"his token": own, "his token's token": h.tokenOf(t, own, "child")} {
		t.Run(what, func(t *testing.T) {
			p := h.org(t, 0)
			large, err := h.desk.Ask(t.Context(), token, gift(p.Org, 5000*usd))
			if err != nil || large.State != credit.Waiting {
				t.Fatalf("%+v, %v", large, err)
			}
			if _, err := h.desk.Approve(t.Context(), ann, large.ID); fault.Of(err).Code != "second_operator_needed" {
				t.Errorf("who made the token approved what it asked for: %v", err)
			}
			for _, by := range []tenants.Actor{ann, bob} {
				if list, err := h.desk.Requests(t.Context(), by); err != nil || len(list) == 0 || list[0].Own != (by == ann) {
					t.Errorf("%+v, %v", list, err)
				}
			}
			if r, err := h.desk.Approve(t.Context(), bob, large.ID); err != nil || r.State != credit.Done {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}

// The sums of 24 hours are a person's, whether he acts or a token of his.
func TestAPersonsAndHisTokensSumsCountTogether(t *testing.T) {
	h := open(t)
	own, foreign := h.tokenOf(t, ann, "ann's"), h.tokenOf(t, bob, "bob's")
	for _, c := range []struct {
		what          string
		first, second tenants.Actor
		want          string
	}{
		{"a token after its maker", ann, own, credit.Waiting},
		{"its maker after a token", own, ann, credit.Waiting},
		{"another person after a token", own, bob, credit.Done},
		{"another's token after a person", ann, foreign, credit.Done},
	} {
		for _, way := range []string{"asked", "granted"} {
			p := h.org(t, 0)
			if way == "asked" {
				if r, err := h.desk.Ask(t.Context(), c.first, gift(p.Org, 600*usd)); err != nil || r.State != credit.Done {
					t.Fatalf("%+v, %v", r, err)
				}
			} else if _, _, err := h.desk.Grant(t.Context(), c.first, credit.GrantInput{Org: p.Org, Kind: credit.Paid, Amount: 600 * usd, Reason: "r", IdempotencyKey: "k"}); err != nil {
				t.Fatal(err)
			}
			if r, err := h.desk.Ask(t.Context(), c.second, gift(p.Org, 600*usd)); err != nil || r.State != c.want {
				t.Errorf("%s, %s: %+v, %v", c.what, way, r, err)
			}
		}
	}
}

// A decision waits for the organization's approvals before it holds any row: who holds them may lock rows.
func TestADecisionLocksApprovalsFirst(t *testing.T) {
	h := open(t)
	p := h.org(t, 0)
	large, err := h.desk.Ask(t.Context(), ann, credit.Ask{Org: p.Org, Kind: credit.LimitRequest, Limit: 5000 * usd, Reason: "r", IdempotencyKey: ids.New().String()})
	if err != nil || large.State != credit.Waiting {
		t.Fatalf("%+v, %v", large, err)
	}
	decided := make(chan error, 1)
	err = h.db.InTx(t.Context(), db.System(), func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), "select pg_advisory_xact_lock(hashtextextended('approvals of ' || $1::uuid::text, 0))", p.Org); err != nil {
			return err
		}
		go func() { _, err := h.desk.Approve(context.WithoutCancel(t.Context()), bob, large.ID); decided <- err }()
		for waits := false; !waits; {
			select {
			case err := <-decided:
				decided <- err
				t.Errorf("decided beside the lock: %v", err)
				return nil
			case <-time.After(time.Millisecond):
			}
			if err := tx.QueryRow(t.Context(), "select exists (select from pg_locks where locktype = 'advisory' and not granted and database = (select oid from pg_database where datname = current_database()))").Scan(&waits); err != nil {
				return err
			}
		}
		_, err := tx.Exec(t.Context(), "select from orgs, credit_requests r where orgs.org_id = $1 and r.id = $2 for no key update nowait", p.Org, large.ID)
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if err := <-decided; err != nil {
		t.Error(err)
	}
}
