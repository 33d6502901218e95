package kvevent

import (
	"slices"
	"testing"
)

const polled = `[
 {"event_id":7,"data":{"type":"created","num_blocks_per_cache_level":[10,0]},"window_size":128,"attention_dp_rank":null},
 {"event_id":8,"data":{"type":"stored","parent_hash":null,"blocks":[
   {"type":"stored_block","block_hash":11,"tokens":[{"type":"unique_token","token_id":1,"token_extra_id":0},{"token_id":2,"token_extra_id":0}],"cache_level":0,"priority":35,"mm_keys":[]},
   {"type":"stored_block","block_hash":-12,"tokens":[{"token_id":3,"token_extra_id":0},{"token_id":4,"token_extra_id":0}],"cache_level":0,"priority":35},
   {"type":"stored_block","block_hash":14,"tokens":[{"token_id":7},{"token_id":8}],"cache_level":1},
   {"type":"stored_block","block_hash":13,"tokens":[{"token_id":5,"token_extra_id":0}],"cache_level":0,"priority":35}]},"window_size":128},
 {"event_id":9,"data":{"type":"stored","parent_hash":null,"blocks":[{"block_hash":"0d","tokens":[{"token_id":9},{"token_id":9}],"cache_level":0}]},"window_size":64},
 {"event_id":10,"data":{"type":"updated","block_hash":-12,"cache_level":{"type":"diff","new_value":1,"old_value":0}},"window_size":128},
 {"event_id":11,"data":{"type":"removed","block_hashes":[-12,99]},"window_size":128},
 {"event_id":12,"data":{"type":"news"},"window_size":128}]`

// Polled events become the same blocks as streamed ones; blocks that are not full, smaller windows and news are passed over.
func TestPolledEvents(t *testing.T) {
	p, err := DecodePolled([]byte(polled), 2)
	if err != nil || p.First != 7 || p.Last != 12 {
		t.Fatalf("%+v, %v", p, err)
	}
	var m Mapper
	var got []Block
	for i := range p.Events {
		got = m.Apply(got, &p.Events[i])
	}
	h := ChainHashes("", []uint32{1, 2, 3, 4, 7, 8}, 2)
	want := []Block{{Op: Clear}, {Store, GPU, h[0], Root("", "")}, {Store, GPU, h[1], h[0]}, {Store, CPU, h[2], h[1]},
		{Store, CPU, h[1], h[0]}, {Remove, GPU, h[1], 0}, {Remove, CPU, h[1], 0}}
	if !slices.Equal(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
}

func TestPolledEventsOfMediaAreApart(t *testing.T) {
	read := func(block string) uint64 {
		p, err := DecodePolled([]byte(`[{"event_id":0,"data":{"type":"stored","parent_hash":null,"blocks":[`+block+`]},"window_size":9}]`), 1)
		if err != nil {
			t.Fatal(err)
		}
		return new(Mapper).Apply(nil, &p.Events[0])[0].Hash
	}
	plain := read(`{"block_hash":"0a","tokens":[{"token_id":1}]}`)
	if plain == read(`{"block_hash":"0a","tokens":[{"token_id":1,"token_extra_id":4}]}`) || plain == read(`{"block_hash":"0a","tokens":[{"token_id":1}],"mm_keys":[{"hash":"x"}]}`) {
		t.Error("an image's block has the hash of text")
	}
	for _, bad := range []string{`{}`, `[{"data":{"type":"stored","blocks":[{"block_hash":"zz"}]}}]`, `[`, `[{"data":{"type":"removed","block_hashes":[true]}}]`} {
		if _, err := DecodePolled([]byte(bad), 1); err == nil {
			t.Errorf("%s is read", bad)
		}
	}
	if p, err := DecodePolled([]byte(`[]`), 1); err != nil || p.First != -1 || p.Events != nil {
		t.Errorf("%+v, %v", p, err)
	}
}

// SGLang tells the salt by its name and writes hashes signed: the blocks are those that a router looks up.
func TestNamedEvents(t *testing.T) {
	events := []Event{
		{Kind: Stored, Hashes: []Hash{{Int: 1 << 63}}, Tokens: []uint32{1, 2}, BlockSize: 2, Medium: "GPU", Extra: [][]Key{{{Text: "salt"}}}, Group: 0},
		{Kind: Stored, Hashes: []Hash{{Int: 5}}, Parent: &Hash{Int: 1 << 63}, Tokens: []uint32{3, 4}, BlockSize: 2, Medium: "CPU_PINNED", Group: 0},
		{Kind: Removed, Hashes: []Hash{{Int: 5}}, Medium: "CPU_PINNED", Group: 0},
		{Kind: Cleared},
	}
	payload, err := Encode(Batch{Events: events}, Named)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Decode(payload)
	if err != nil || len(b.Events) != 4 || b.Events[0].Salt() != "salt" || b.Events[0].Group != -1 {
		t.Fatalf("%+v, %v", b, err)
	}
	var m Mapper
	var got []Block
	for i := range b.Events {
		got = m.Apply(got, &b.Events[i])
	}
	h := ChainHashes("salt", []uint32{1, 2, 3, 4}, 2)
	want := []Block{{Store, GPU, h[0], Root("salt", "")}, {Store, CPU, h[1], h[0]}, {Remove, CPU, h[1], 0}, {Op: Clear}}
	if !slices.Equal(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
}

func FuzzDecodePolled(f *testing.F) {
	f.Add([]byte(polled))
	f.Fuzz(func(t *testing.T, answer []byte) {
		p, err := DecodePolled(answer, 2)
		if err != nil {
			return
		}
		var m Mapper
		for i := range p.Events {
			m.Apply(nil, &p.Events[i])
		}
	})
}
