package ledger_test

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/ledger"
	"millrace/db"
	"millrace/db/dbtest"
	"millrace/internal/ids"
	"millrace/internal/money"
)

// idAt is a UUIDv7 of a moment.
func idAt(at time.Time) ids.ID {
	id := ids.New()
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(at.UnixMilli()))
	copy(id[:6], ms[2:])
	return id
}

func TestAStatementTiesOut(t *testing.T) {
	d := dbtest.New(t)
	org, other := newOrg(t, d), newOrg(t, d)
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	at := func(day, hour int) time.Time { return time.Date(2026, 3, day, hour, 0, 0, 0, berlin) }
	usage := func(when time.Time, amount money.Nano) {
		post(t, d, ledger.Txn{ID: idAt(when), Org: org, Kind: ledger.Usage,
			Entries: []ledger.Entry{ledger.Debit(ledger.PrepaidPaid, amount), ledger.Credit(ledger.Revenue, amount)}})
	}
	grant := granted(org, ledger.PrepaidPaid, 1000)
	grant.ID, grant.Memo = idAt(at(27, 12)), "wire transfer"
	post(t, d, grant)
	usage(at(27, 23), 1) // before the span, though on the same UTC day as its beginning
	usage(at(28, 0), 10) // the first instant
	usage(at(28, 23), 20)
	usage(at(29, 1), 100) // the night the clocks go forward
	usage(at(29, 23), 200)
	second := granted(org, ledger.PrepaidPromo, 5)
	second.ID = idAt(at(29, 12))
	post(t, d, second)
	usage(at(30, 0), 4000) // the end is not in it
	foreign := granted(other, ledger.PrepaidPaid, 77)
	foreign.ID = idAt(at(28, 5))
	post(t, d, foreign)

	var s *ledger.AccountStatement
	err = d.InTx(t.Context(), db.Org(org).Snapshot().ReadOnly(), func(tx pgx.Tx) (err error) {
		s, err = ledger.Statement(t.Context(), tx, org, at(28, 0), at(30, 0))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if s.Opening[ledger.PrepaidPaid] != -999 || s.Closing[ledger.PrepaidPaid] != -669 || s.Closing[ledger.PrepaidPromo] != -5 {
		t.Errorf("opening %v, closing %v", s.Opening, s.Closing)
	}
	if len(s.Lines) != 3 || s.Lines[0].Kind != ledger.Usage || s.Lines[1].Kind != ledger.Usage || s.Lines[2].ID != second.ID {
		t.Fatalf("lines %+v", s.Lines)
	}
	if day := s.Lines[1]; !day.At.Equal(at(29, 0)) || day.Entries[0] != ledger.Debit(ledger.PrepaidPaid, 300) {
		t.Errorf("the short day: %+v", day)
	}
	sums := s.Opening
	for _, line := range s.Lines {
		for _, e := range line.Entries {
			sums[e.Account] += e.Amount
		}
	}
	for account, n := range s.Closing {
		if sums[account] != n {
			t.Errorf("%s: opening and lines give %d, closing %d", account, sums[account], n)
		}
	}
	for _, span := range [][2]time.Time{{at(2, 0), at(2, 0)}, {at(3, 0), at(2, 0)}, {at(1, 0).Local(), at(2, 0)}, {at(1, 0), at(1, 0).AddDate(2, 0, 0)}} {
		if _, err := ledger.Statement(t.Context(), nil, org, span[0], span[1]); err == nil {
			t.Errorf("span %v is accepted", span)
		}
	}
}
