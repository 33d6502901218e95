package usagelog_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"millrace/billing/usagelog"
	"millrace/internal/ids"
	"millrace/internal/usage"
)

// variants are events with every field in use, and with every optional one left out.
func variants() []*usage.Event {
	plain, full, odd := event(orgOf(1)), event(orgOf(2)), event(orgOf(3))
	plain.Raw, plain.Attempts, plain.Streamed = nil, nil, false
	full.Progress, full.Estimated, full.FirstTokenMS = 7, true, 1764500001000
	full.Attempts = append(full.Attempts, usage.Attempt{ID: ids.New(), Unit: ids.New(), Note: "engine refused"})
	full.Raw, full.Doubt = json.RawMessage(`{"a":[{"b":"}\"]"}],"c":{}}`), "usage count -5 is impossible"
	odd.Attempts[0].Note, odd.Dialect = "naïve \"quote\"\n<&>", ""
	odd.Budgets, odd.Usage[usage.Input], odd.Charge = nil, -5, -1
	return []*usage.Event{event(orgOf(0)), plain, full, odd}
}

func TestDecodeReadsWhatAppendWrites(t *testing.T) {
	for _, want := range variants() {
		line, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got usage.Event
		if err := usagelog.Decode(line, &got); err != nil || !reflect.DeepEqual(&got, want) {
			t.Errorf("%s\nis read as %+v, %v", line, got, err)
		}
	}
}

func FuzzDecodeAgreesWithJSON(f *testing.F) {
	for _, e := range variants() {
		line, err := json.Marshal(e)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(line)
		f.Add(bytes.ToUpper(line))
		f.Add(append(line, '}'))
		f.Add(bytes.Replace(line, []byte(`"usage":[`), []byte(`"usage":[0`), 1))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var got, want usage.Event
		gotErr, wantErr := usagelog.Decode(line, &got), json.Unmarshal(line, &want)
		if (gotErr == nil) != (wantErr == nil) || wantErr == nil && !reflect.DeepEqual(got, want) {
			t.Fatalf("%q\nis %+v, %v\nnot %+v, %v", line, got, gotErr, want, wantErr)
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	line, err := json.Marshal(event(orgOf(1)))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		var e usage.Event
		if err := usagelog.Decode(line, &e); err != nil {
			b.Fatal(err)
		}
	}
}
