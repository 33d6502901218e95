package media_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/serving/media"
)

// org asks for images.
var org = ids.New()

var png = append([]byte("\x89PNG\x0d\x0a\x1a\x0a"), make([]byte, 100)...)

func TestFetch(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/a.png", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(png) })
	mux.HandleFunc("/lies.png", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "image/png")
		_, _ = w.Write([]byte("<html>inside</html>"))
	})
	mux.HandleFunc("/moved", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/a.png", http.StatusFound) })
	mux.HandleFunc("/round", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/round", http.StatusFound) })
	mux.HandleFunc("/file", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
	})
	mux.HandleFunc("/large", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(png)
		for range media.MaxBytes >> 20 {
			_, _ = w.Write(make([]byte, 1<<20))
		}
	})
	mux.HandleFunc("/broken", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		_, _ = w.Write(png)
	})
	s := httptest.NewServer(mux)
	defer s.Close()
	want := "data:image/png;base64," + base64.StdEncoding.EncodeToString(png)
	f := media.NewFetcher(true)
	for _, path := range []string{"/a.png", "/moved"} {
		got, free, err := f.Fetch(t.Context(), org, s.URL+path)
		if err != nil || string(got) != want {
			t.Fatalf("%s: %.60s, %v", path, got, err)
		}
		free()
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		name string
		ctx  context.Context
		url  string
	}{
		{"no image", t.Context(), s.URL + "/lies.png"}, {"round and round", t.Context(), s.URL + "/round"}, {"leads to a file", t.Context(), s.URL + "/file"},
		{"too large", t.Context(), s.URL + "/large"}, {"cut off", t.Context(), s.URL + "/broken"}, {"not there", t.Context(), s.URL + "/none"},
		{"a file", t.Context(), "file:///etc/passwd"}, {"a user", t.Context(), strings.Replace(s.URL, "http://", "http://a:b@", 1) + "/a.png"},
		{"nothing", t.Context(), ""}, {"the client has gone", gone, s.URL + "/a.png"},
	} {
		got, _, err := f.Fetch(tt.ctx, org, tt.url)
		if !fault.Is(err, fault.Invalid) || got != nil {
			t.Errorf("%s: %.60s, %v", tt.name, got, err)
		} else if text := fault.Of(err).Message; strings.Contains(text, "127.0.0.1") || strings.Contains(text, "inside") {
			t.Errorf("%s: %s", tt.name, text)
		}
	}
	if got, _, err := media.NewFetcher(false).Fetch(t.Context(), org, s.URL+"/a.png"); !fault.Is(err, fault.Invalid) || bytes.Contains(got, png) || !strings.Contains(err.Error(), "private") {
		t.Errorf("a private address: %s, %v", got, err)
	}
}

// What the images of all requests hold has a limit, and so has an organization's part of it; what is given back can be held again, once.
func TestMemoryHasALimit(t *testing.T) {
	large := append(bytes.Clone(png), make([]byte, media.MaxBytes-len(png))...)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/lies" {
			_, _ = w.Write(make([]byte, media.MaxBytes))
			return
		}
		_, _ = w.Write(large)
	}))
	defer s.Close()
	f := media.NewFetcher(true)
	var frees []func()
	fill := func(org ids.ID) (n int, err error) {
		for ; n < 100; n++ { // nothing that it gives is kept by this test: only what it counts
			_, free, err := f.Fetch(t.Context(), org, s.URL)
			if err != nil {
				return n, err
			}
			frees = append(frees, free)
		}
		return n, nil
	}
	n, err := fill(org)
	if said := fault.Of(err); n == 0 || !fault.Is(err, fault.Limited) || said.Code != "images_busy" || said.RetryAfter == 0 {
		t.Fatalf("one organization after %d: %v", n, err)
	}
	if second, err := fill(ids.New()); second != n || !fault.Is(err, fault.Limited) {
		t.Fatalf("another one after %d: %v", second, err)
	}
	third, err := fill(ids.New())
	if said := fault.Of(err); third >= n || !fault.Is(err, fault.Unavailable) || said.Code != "images_busy" || said.RetryAfter == 0 {
		t.Fatalf("all of them, after %d: %v", third, err)
	}
	for range 2 {
		frees[0]()
	}
	frees = frees[1:]
	if again, err := fill(org); again != 1 || err == nil {
		t.Fatalf("after one was given back there was room for %d: %v", again, err)
	}
	for _, free := range frees {
		free()
	}
	for range 2 { // what fails leaves nothing counted
		if _, _, err := f.Fetch(t.Context(), org, s.URL+"/lies"); !fault.Is(err, fault.Invalid) {
			t.Fatal(err)
		}
	}
	frees = nil
	if again, _ := fill(org); again != n {
		t.Fatalf("there was room for %d, then for %d", n, again)
	}
}
