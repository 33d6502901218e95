package rate

import "testing"

func TestTheDatabaseOfASession(t *testing.T) {
	for title, want := range map[string]string{
		"postgres: millrace shop [local] idle\x00":                        "shop",
		"postgres: shop millrace 127.0.0.1(51234) UPDATE waiting":         "millrace",
		"postgres: 18/main: millrace shop 127.0.0.1(51234) idle":          "shop",
		"postgres: checkpointer ":                                         "",
		"postgres: millrace shop_2 [local] idle in transaction (aborted)": "shop_2",
	} {
		if got := databaseOf(title); got != want {
			t.Errorf("%q: %q, want %q", title, got, want)
		}
	}
}
