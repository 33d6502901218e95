package kvevent

import (
	"bytes"
	_ "embed"
	"encoding/hex"
	"reflect"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
	"pgregory.net/rapid"
)

//go:embed testdata/kv-events.hex
var captured string

// capturedFrames are the messages that a real vLLM 0.32 published.
func capturedFrames(t testing.TB) (all [][][]byte) {
	t.Helper()
	for line := range strings.Lines(captured) {
		var frames [][]byte
		for _, f := range strings.Fields(line) {
			b, err := hex.DecodeString(f)
			if err != nil {
				t.Fatal(err)
			}
			frames = append(frames, b)
		}
		all = append(all, frames)
	}
	return all
}

func TestCapturedEventsDecodeAndEncodeToTheSameBytes(t *testing.T) {
	for i, frames := range capturedFrames(t) {
		m, err := parseFrames(frames)
		if err != nil || m.seq != int64(i) || string(frames[0]) != "kv-events" {
			t.Fatalf("message %d: %d %v", i, m.seq, err)
		}
		b, err := Decode(m.payload)
		if err != nil || len(b.Events) != 1 || b.Rank != 0 || b.Time < 1.79e9 {
			t.Fatalf("message %d: %+v, %v", i, b, err)
		}
		e := b.Events[0]
		if e.Kind != Stored || e.BlockSize != 32 || len(e.Tokens) != 32*len(e.Hashes) || e.Medium != "GPU" || e.Group != 0 || e.Spec != "full_attention" {
			t.Errorf("message %d: %+v", i, e)
		}
		out, err := Encode(b, Tagged)
		if err != nil || !bytes.Equal(out, m.payload) {
			t.Errorf("message %d was encoded differently: %v\n%x\n%x", i, err, out, m.payload)
		}
	}
}

func anyEvent() *rapid.Generator[Event] {
	hash := rapid.Custom(func(t *rapid.T) Hash {
		if rapid.Bool().Draw(t, "bytes") {
			return Hash{Raw: string(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "raw"))}
		}
		return Hash{Int: rapid.Uint64().Draw(t, "int")}
	})
	name := rapid.SampledFrom([]string{"", "a", "GPU"})
	key := rapid.Custom(func(t *rapid.T) Key {
		if rapid.Bool().Draw(t, "text") {
			return Key{Text: name.Draw(t, "k")}
		}
		raw, err := msgpack.Marshal([]any{name.Draw(t, "mm"), rapid.Int16().Draw(t, "offset")})
		if err != nil {
			t.Fatal(err)
		}
		return Key{Raw: raw}
	})
	return rapid.Custom(func(t *rapid.T) Event {
		e := Event{Kind: Kind(rapid.IntRange(1, 3).Draw(t, "kind")), Group: -1}
		if e.Kind == Cleared {
			return e
		}
		e.Hashes = rapid.SliceOfN(hash, 1, 4).Draw(t, "hashes")
		e.Medium = name.Draw(t, "medium")
		if rapid.Bool().Draw(t, "grouped") {
			e.Group = rapid.IntRange(0, 5).Draw(t, "group")
		}
		if e.Kind == Removed {
			return e
		}
		e.BlockSize = rapid.IntRange(1, 4).Draw(t, "size")
		e.Tokens = rapid.SliceOfN(rapid.Uint32(), e.BlockSize*len(e.Hashes), e.BlockSize*len(e.Hashes)).Draw(t, "tokens")
		if rapid.Bool().Draw(t, "child") {
			p := hash.Draw(t, "parent")
			e.Parent = &p
		}
		if e.LoRA = name.Draw(t, "lora"); e.Group >= 0 {
			e.Spec = name.Draw(t, "spec")
		}
		if rapid.Bool().Draw(t, "extra") {
			for range e.Hashes {
				var keys []Key
				if rapid.Bool().Draw(t, "keys") {
					keys = rapid.SliceOfN(key, 1, 3).Draw(t, "list")
				}
				e.Extra = append(e.Extra, keys)
			}
		}
		return e
	})
}

func TestBothShapesCarryEveryEvent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := Batch{Time: 1.5, Events: rapid.SliceOfN(anyEvent(), 1, 4).Draw(t, "events"), Rank: rapid.IntRange(-1, 9).Draw(t, "rank")}
		for _, shape := range []Shape{Tagged, Positional} {
			payload, err := Encode(b, shape)
			if err != nil {
				t.Fatal(err)
			}
			got, err := Decode(payload)
			if err != nil || !reflect.DeepEqual(got, b) {
				t.Fatalf("shape %d: %v\n%+v\n%+v", shape, err, got, b)
			}
		}
	})
}

func TestUnknownAndMissingFieldsAreFine(t *testing.T) {
	for name, v := range map[string]any{
		"newer":  []any{1.0, []any{map[string]any{"type": "BlockStored", "block_hashes": []any{uint64(1 << 63)}, "locality": "LOCAL", "future": map[string]any{"x": []any{1, nil}}, "token_ids": []any{5}, "block_size": 1}}},
		"unsaid": []any{1, []any{map[string]any{"block_hashes": []any{int64(-1)}, "type": "BlockStored", "token_ids": []any{5}, "block_size": 1}}, nil, "more"},
		"older":  []any{1.0, []any{[]any{"BlockStored", []any{9}, nil, []any{5}, 1}}},
	} {
		payload, err := msgpack.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		b, err := Decode(payload)
		if err != nil || len(b.Events) != 1 || b.Events[0].Kind != Stored || len(b.Events[0].Hashes) != 1 || b.Rank != -1 {
			t.Errorf("%s: %+v, %v", name, b, err)
		}
	}
	other, err := msgpack.Marshal([]any{1.0, []any{map[string]any{"type": "BlockFrozen", "block_hashes": "x"}, []any{"Unheard", 1}}})
	if err != nil {
		t.Fatal(err)
	}
	if b, err := Decode(other); err == nil && len(b.Events) != 0 {
		t.Errorf("%+v", b)
	}
}

func TestMalformedBatchesAreErrors(t *testing.T) {
	deep := append([]byte{0x92, 0xcb, 0, 0, 0, 0, 0, 0, 0, 0, 0x91, 0x81, 0xa1, 'x'}, bytes.Repeat([]byte{0x91}, 1<<20)...)
	for name, payload := range map[string][]byte{
		"empty": {}, "nil": {0xc0}, "a map": {0x80}, "no events": {0x91, 0x01}, "a huge list": {0x92, 0x01, 0xdd, 0xff, 0xff, 0xff, 0xff},
		"a huge string": {0x92, 0x01, 0x91, 0x81, 0xdb, 0xff, 0xff, 0xff, 0xff}, "nested without end": deep,
	} {
		if b, err := Decode(payload); err == nil {
			t.Errorf("%s: %+v", name, b)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, frames := range capturedFrames(f) {
		f.Add(frames[2])
		if b, err := Decode(frames[2]); err == nil {
			if older, err := Encode(b, Positional); err == nil {
				f.Add(older)
			}
		}
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		b, err := Decode(payload)
		if err != nil {
			return
		}
		var m Mapper
		for i := range b.Events {
			m.Apply(nil, &b.Events[i])
		}
		out, err := Encode(b, Tagged)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Decode(out)
		if err != nil || len(again.Events) != len(b.Events) {
			t.Fatalf("what was decoded does not survive: %v", err)
		}
	})
}

func FuzzParseFrames(f *testing.F) {
	f.Add([]byte("t"), []byte{0, 0, 0, 0, 0, 0, 0, 1}, []byte("p"), true)
	f.Fuzz(func(t *testing.T, a, b, c []byte, four bool) {
		frames := [][]byte{a, b, c}
		if four {
			frames = append([][]byte{{}}, frames...)
		}
		if m, err := parseFrames(frames); err == nil && (m.seq < endOfReplay || len(b) != 8) {
			t.Fatalf("%v", m)
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	payload := capturedFrames(b)[0][2]
	b.SetBytes(int64(len(payload)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Decode(payload); err != nil {
			b.Fatal(err)
		}
	}
}
