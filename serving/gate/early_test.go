package gate_test

import (
	"net/http/httptest"
	"testing"

	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/serving/gate"
	"millrace/serving/gate/gatetest"
	"millrace/serving/protocol"
	"millrace/tenants/limits"
)

// Who is over a limit or can pay for nothing is refused before it is known what is asked for.
func TestEarly(t *testing.T) {
	for _, tt := range []struct {
		name     string
		rpm, tpm int64
		again    bool // there may be a second one
	}{
		{"no limits", 0, 0, true},
		{"a request a minute", 1, 0, false},
		{"a token a minute", 0, 1, true}, // it was reserved, not used
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := gatetest.New(t, gatetest.Options{Direct: true})
			s.Caller.RPM, s.Caller.TPM = tt.rpm, tt.tpm
			e, err := s.Gate.Early(t.Context(), &s.Caller, gatetest.ModelName)
			if err != nil {
				t.Fatal(err)
			}
			e.End()
			if e, err = s.Gate.Early(t.Context(), &s.Caller, gatetest.ModelName); (err == nil) != tt.again || err != nil && !fault.Is(err, fault.Limited) {
				t.Fatalf("a second one: %v", err)
			}
			e.End()
		})
	}
	poor := gatetest.New(t, gatetest.Options{Direct: true})
	poor.Budgets.Cap = 0
	if _, err := poor.Gate.Early(t.Context(), &poor.Caller, gatetest.ModelName); !fault.Is(err, fault.OutOfCredit) {
		t.Errorf("without credit: %v", err)
	}
	if _, err := poor.Gate.Early(t.Context(), &poor.Caller, "nobody/knows"); !fault.Is(err, fault.NotFound) {
		t.Errorf("an unknown model: %v", err)
	}
}

// What was taken early is what the request takes: once, with its tokens; a request that does not fit then counts all the same.
func TestAdmittedEarly(t *testing.T) {
	s := gatetest.New(t, gatetest.Options{Direct: true}, gatetest.NewEngine(t, gatetest.Stream(good)))
	ask := func() error {
		e, err := s.Gate.Early(t.Context(), &s.Caller, gatetest.ModelName)
		if err != nil {
			return err
		}
		chat, err := protocol.DecodeChat([]byte(request(`,"max_tokens":900`)))
		if err != nil {
			t.Fatal(err)
		}
		ticket, err := s.Gate.Admit(t.Context(), gate.Request{ID: ids.New(), Caller: s.Caller, Chat: chat, Dialect: &gatetest.Dialect, Early: e})
		if err != nil {
			return err
		}
		return ticket.Serve(t.Context(), httptest.NewRecorder())
	}
	s.Caller.RPM, s.Caller.Concurrency = 2, 1
	for i := range 2 {
		if err := ask(); err != nil {
			t.Fatal(i, err)
		}
	}
	if err := ask(); !fault.Is(err, fault.Limited) {
		t.Fatalf("a third one in the minute: %v", err)
	}
	s.Caller.Key, s.Caller.RPM, s.Caller.TPM = ids.New(), 2, 1000
	held, err := s.Gate.Limits.Take(s.Caller.Key, limits.Limits{RPM: s.Caller.RPM, TPM: s.Caller.TPM}, 500)
	if err != nil {
		t.Fatal(err)
	}
	held.Done(500)
	if err := ask(); !fault.Is(err, fault.Limited) {
		t.Fatalf("more tokens than are left: %v", err)
	}
	s.Caller.TPM = 0
	if err := ask(); !fault.Is(err, fault.Limited) {
		t.Fatalf("what was refused once everything was read did not count: %v", err)
	}
}
