package session

import "testing"

func TestNextNeverLeavesTheSite(t *testing.T) {
	for next, want := range map[string]string{
		"/usage?range=7d": "/usage?range=7d", "/": "/", "": "/", "usage": "/", "//evil.example": "/", "/\\evil.example": "/", "https://evil.example/": "/",
		"http:evil": "/", "javascript:alert(1)": "/", "/a\r\nSet-Cookie: x": "/", "/\t/evil.example": "/", "%2f%2fevil": "/",
	} {
		if got := localPath(next); got != want {
			t.Errorf("localPath(%q) = %q, want %q", next, got, want)
		}
	}
}
