package secret

import (
	"hash/crc32"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestNewIsPlausibleForItsKindOnly(t *testing.T) {
	kinds := []string{APIKey, ControlToken, LoginLink, Session}
	seen := map[string]bool{}
	for _, kind := range kinds {
		for range 200 {
			s := New(kind)
			if seen[s] {
				t.Fatalf("%s was made twice", s)
			}
			seen[s] = true
			for _, other := range kinds {
				if got, want := Plausible(other, s), other == kind; got != want {
					t.Fatalf("Plausible(%q, %q) = %v, want %v", other, s, got, want)
				}
			}
		}
	}
}

func TestEveryDigitIsUsed(t *testing.T) {
	counts := map[byte]int{}
	const made = 2000
	for range made {
		for _, c := range []byte(strings.TrimPrefix(New(APIKey), APIKey)[:randomChars]) {
			counts[c]++
		}
	}
	mean := made * randomChars / len(digits)
	for _, c := range []byte(digits) {
		// 1387 expected with a deviation near 37: a quarter off is no chance.
		if n := counts[c]; n < mean*3/4 || n > mean*5/4 {
			t.Errorf("digit %c appeared %d times, expected near %d", c, n, mean)
		}
	}
}

// One changed digit always changes CRC-32, so no typo of one character passes.
func TestOneChangedCharacterIsRefused(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := []byte(New(APIKey))
		i := rapid.IntRange(0, len(s)-1).Draw(t, "position")
		c := rapid.Byte().Filter(func(b byte) bool { return b != s[i] }).Draw(t, "byte")
		s[i] = c
		if Plausible(APIKey, string(s)) {
			t.Fatalf("%q passed", s)
		}
	})
}

func TestPlausibleRefuses(t *testing.T) {
	for _, s := range []string{"", APIKey, "sk-abc", "mr_live_short", New(APIKey) + "x", New(APIKey)[1:], " " + New(APIKey)} {
		if Plausible(APIKey, s) {
			t.Errorf("%q passed", s)
		}
	}
}

func TestShownHidesTheSecret(t *testing.T) {
	s := New(APIKey)
	start, last := Shown(APIKey, s)
	if !strings.HasPrefix(s, start) || !strings.HasSuffix(s, last) || len(start) != 12 || len(last) != 4 {
		t.Fatalf("Shown(%q) = %q, %q", s, start, last)
	}
}

func TestChecksumIsCRC32(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		body := rapid.String().Draw(t, "body")
		want := crc32.ChecksumIEEE([]byte(body))
		var got uint32
		for _, c := range checksum(nil, body) {
			got = got*62 + uint32(strings.IndexByte(digits, c))
		}
		if got != want {
			t.Fatalf("checksum(%q) = %d, want %d", body, got, want)
		}
	})
}

func TestPlausibleDoesNotAllocate(t *testing.T) {
	s := New(APIKey)
	if n := testing.AllocsPerRun(100, func() { _ = Plausible(APIKey, s) }); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func FuzzPlausible(f *testing.F) {
	f.Add(New(APIKey))
	f.Add("mr_live_\xff")
	f.Fuzz(func(t *testing.T, s string) {
		if Plausible(APIKey, s) && len(s) != len(APIKey)+randomChars+checkChars {
			t.Fatalf("%q has the wrong length", s)
		}
	})
}
