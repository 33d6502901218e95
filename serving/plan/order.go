package plan

import (
	"cmp"
	"hash"
	"hash/fnv"
	"strings"
)

func newHash() hash.Hash64 { return fnv.New64a() }

// mix spreads a number over 64 bits (splitmix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// natural compares texts with their numbers as numbers: h9 before h10, 12.8 before 12.10, 13 before 13.0.
func natural(a, b string) int {
	for a != "" && b != "" {
		da, db := digits(a), digits(b)
		if da > 0 && db > 0 {
			x, y := strings.TrimLeft(a[:da], "0"), strings.TrimLeft(b[:db], "0")
			if c := cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(x, y)); c != 0 {
				return c
			}
			a, b = a[da:], b[db:]
			continue
		}
		if a[0] != b[0] {
			return cmp.Compare(a[0], b[0])
		}
		a, b = a[1:], b[1:]
	}
	return cmp.Compare(len(a), len(b))
}

// digits is how many digits a text begins with.
func digits(s string) int {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}

// atLeast tells whether a version is another or newer: "13" is as good as "13.0". An unknown version is not.
func atLeast(have, want string) bool {
	if have == "" {
		return false
	}
	trim := func(v string) string {
		v = strings.TrimPrefix(v, "v")
		for strings.HasSuffix(v, ".0") {
			v = strings.TrimSuffix(v, ".0")
		}
		return v
	}
	return natural(trim(have), trim(want)) >= 0
}
