package usage

import (
	"bytes"
	"encoding/json"
	"testing"

	"millrace/internal/ids"
	"millrace/internal/money"
	"pgregory.net/rapid"
)

func drawID(t *rapid.T) (id ids.ID) {
	copy(id[:], rapid.SliceOfN(rapid.Byte(), len(id), len(id)).Draw(t, "id"))
	return id
}

// drawText has what needs escaping, and what is no UTF-8.
func drawText(t *rapid.T, label string) string {
	return rapid.OneOf(rapid.StringMatching(`[a-z_ ]{0,12}`), rapid.String(), rapid.SampledFrom([]string{"a\"b\\c<>&\u2028\u2029é\x7f", "\xff\xfe"})).Draw(t, label)
}

func drawEvent(t *rapid.T) Event {
	number := func(label string) int64 { return rapid.OneOf(rapid.Just(int64(0)), rapid.Int64()).Draw(t, label) }
	e := Event{ID: drawID(t), Progress: number("progress"), Org: drawID(t), Project: drawID(t), Key: drawID(t), Model: drawID(t),
		PriceVersion: drawID(t), Epoch: drawID(t), OrgBudget: drawID(t), Doubt: drawText(t, "doubt"), Charge: money.Nano(number("charge")), Ending: Ending(drawText(t, "ending")),
		Estimated: rapid.Bool().Draw(t, "estimated"), Streamed: rapid.Bool().Draw(t, "streamed"), Service: Service(drawText(t, "service")), Dialect: drawText(t, "dialect"),
		Status: int(number("status")), StartedMS: number("started"), FirstTokenMS: number("first"), EndedMS: number("ended")}
	if n := rapid.IntRange(-1, 3).Draw(t, "budgets"); n >= 0 {
		e.Budgets = make([]ids.ID, n)
	}
	for i := range e.Budgets {
		e.Budgets[i] = drawID(t)
	}
	for range rapid.IntRange(0, 3).Draw(t, "attempts") {
		a := Attempt{ID: drawID(t), Unit: drawID(t), Note: drawText(t, "note")}
		if a.Leg = rapid.SampledFrom([]Leg{"", LegPrefill, LegDecode, LegReplay}).Draw(t, "leg"); a.Leg != "" {
			a.Prompt, a.Generated = rapid.Int64Range(0, 1e6).Draw(t, "prompt"), rapid.Int64Range(0, 1e6).Draw(t, "generated")
		}
		e.Attempts = append(e.Attempts, a)
	}
	for c := range e.Usage {
		e.Usage[c] = number("count")
	}
	e.Raw = json.RawMessage(rapid.OneOf(rapid.SampledFrom([]string{"", `{"prompt_tokens":100,"completion_tokens":2}`, "{\n \"a\" : [1, 2.50, \"<b> \u2028\"] }",
		"null", " ", "{", "{}x", "\"\xff\""}), rapid.String()).Draw(t, "raw"))
	return e
}

func TestAppendJSONIsWhatEncodingJSONWrites(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := drawEvent(t)
		if len(e.Raw) == 0 {
			e.Raw = nil
		}
		want, wantErr := json.Marshal(&e)
		got, err := e.AppendJSON([]byte("before"))
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("%q: %v, encoding/json: %v", e.Raw, err, wantErr)
		}
		if !bytes.Equal(got, append([]byte("before"), want...)) {
			t.Fatalf("%s\nencoding/json: %s", got, want)
		}
	})
}

func BenchmarkAppendJSON(b *testing.B) {
	e := Event{ID: ids.New(), Org: ids.New(), Budgets: []ids.ID{ids.New(), ids.New()}, Attempts: []Attempt{{ID: ids.New()}}, Ending: Complete, Dialect: "chat",
		Raw: json.RawMessage(`{"prompt_tokens":16,"total_tokens":24,"completion_tokens":8,"prompt_tokens_details":{"cached_tokens":0}}`), StartedMS: 1764500000000}
	b.Run("append", func(b *testing.B) {
		var buf []byte
		for b.Loop() {
			buf, _ = e.AppendJSON(buf[:0])
		}
	})
	b.Run("marshal", func(b *testing.B) {
		for b.Loop() {
			_, _ = json.Marshal(&e)
		}
	})
}
