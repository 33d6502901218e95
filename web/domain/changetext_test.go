package domain

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"millrace/billing/credit"
	"millrace/billing/price"
	"millrace/internal/ids"
	"millrace/internal/usage"
	"millrace/tenants/audit"
)

func TestChangeText(t *testing.T) {
	ends := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	monthly := func(n int64) credit.Cap {
		return credit.Cap{ID: ids.New(), Scope: credit.KeyScope, ScopeID: ids.New(), Period: "month", Amount: nano(n)}
	}
	for _, x := range []struct {
		action        string
		before, after any
		want          string
	}{
		{"cap.set", nil, monthly(5e9), "cap per month $5.00"},
		{"cap.set", monthly(5e9), monthly(8e9), "cap per month $5.00 → $8.00"},
		{"cap.remove", monthly(5e9), nil, "cap per month of $5.00 removed"},
		{"credit.grant", nil, credit.Grant{Kind: credit.Promotional, Amount: 2e9, Reason: "sorry", ExpiresAt: &ends}, "$2.00 promotional, ends 1 Jan 2027 00:00 UTC: sorry"},
		{"credit_limit.set", 0, int64(3e9), "credit limit $0.00 → $3.00"},
		{"price.create", nil, price.Version{EffectiveAt: ends, Prices: usage.Prices{usage.Input: 500_000, usage.Output: 1_000_000}}, "input $0.50, output $1.00 per 1M, from 1 Jan 2027 00:00 UTC"},
		{"price.create", nil, price.Version{EffectiveAt: ends}, "free per 1M, from 1 Jan 2027 00:00 UTC"},
		{"member.set_role", "viewer", "admin", "viewer → admin"},
		{"member.remove", "viewer", nil, "viewer removed"},
		{"key.revoke", map[string]any{"name": "ci", "revoked_at": nil}, map[string]any{"name": "ci", "revoked_at": "2027-01-01T00:00:00Z"}, "revoked at 1 Jan 2027 00:00 UTC"},
		{"key.update", map[string]any{"limits": map[string]int{"rpm": 0}}, map[string]any{"limits": map[string]int{"rpm": 60}}, "limits rpm 60"},
		{"org.update", map[string]any{"credit_limit_nano": 1e9, "name": "a"}, map[string]any{"credit_limit_nano": 2e9, "name": "b"}, "credit limit $1.00 → $2.00, name a → b"},
		{"thing.make", nil, map[string]any{"a": 1, "b": 2, "c": 3, "d": 4, "e": 5, "f": 6, "g": 7}, "a 1, b 2, c 3, d 4, e 5, f 6, …"},
		{"session.start", nil, nil, ""},
	} {
		if got := changeText(entry(t, x.action, x.before, x.after)); got != x.want {
			t.Errorf("%s: %q, want %q", x.action, got, x.want)
		}
	}
}

func entry(t *testing.T, action string, before, after any) audit.Entry {
	t.Helper()
	encode := func(v any) json.RawMessage {
		if v == nil {
			return nil
		}
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	return audit.Entry{Action: action, Before: encode(before), After: encode(after)}
}

// Whatever lies in the log, a page can show it.
func FuzzChangeText(f *testing.F) {
	f.Add("cap.set", `{"Amount": 1}`, `{"Amount": "x"}`)
	f.Add("credit.grant", `null`, `{"ExpiresAt": "2027-01-01T00:00:00Z"}`)
	f.Add("key.update", `[1, {"a": [2]}]`, `{"a": {"b": {"c": "d"}}, "x_nano": 12345678901234567890}`)
	f.Add("price.create", ``, `{"Prices": [1, 2, 3]}`)
	f.Fuzz(func(t *testing.T, action, before, after string) {
		e := audit.Entry{Action: action, Before: json.RawMessage(before), After: json.RawMessage(after)}
		text := changeText(e)
		if utf8.ValidString(before) && utf8.ValidString(after) && utf8.ValidString(action) && !utf8.ValidString(text) {
			t.Errorf("%q is no text", text)
		}
		if n := strings.Count(text, ""); n > 2000+len(before)+len(after) {
			t.Errorf("%d characters", n)
		}
		_ = scopeIn(e)
	})
}
