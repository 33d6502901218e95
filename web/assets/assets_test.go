package assets

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"strings"
	"testing"
)

// Budgets in bytes.
const (
	ownScripts   = 10 << 10 // all of our own modules, as served before compression
	allScripts   = 90 << 10 // with htmx, compressed
	styleZipped  = 20 << 10
	minifiedName = "htmx.min.js"
)

func get(t *testing.T, url string, header ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, url, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	ServeHTTP(w, r)
	return w.Result()
}

func TestFilesAreCachedForEverUnderTheirHash(t *testing.T) {
	resp := get(t, URL("console.css"))
	if resp.StatusCode != 200 || resp.Header.Get("Cache-Control") != immutable || resp.Header.Get("Content-Type") != "text/css; charset=utf-8" {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
	old := get(t, strings.Replace(URL("console.css"), Hash(), "0123456789ab", 1))
	if old.StatusCode != 200 || old.Header.Get("Cache-Control") != "no-cache" {
		t.Errorf("under an old hash: %d %v", old.StatusCode, old.Header)
	}
	for _, url := range []string{Prefix + Hash() + "/nothing.js", Prefix + Hash() + "/../assets.go", Prefix, Prefix + Hash()} {
		if resp := get(t, url); resp.StatusCode != 404 {
			t.Errorf("%s: %d", url, resp.StatusCode)
		}
	}
}

func TestCompressedAnswersAreTheSameFile(t *testing.T) {
	plain, err := io.ReadAll(get(t, URL(minifiedName)).Body)
	if err != nil {
		t.Fatal(err)
	}
	resp := get(t, URL(minifiedName), "Accept-Encoding", "br, gzip")
	if resp.Header.Get("Content-Encoding") != "gzip" || resp.Header.Get("Vary") != "Accept-Encoding" {
		t.Fatalf("headers %v", resp.Header)
	}
	z, err := gzip.NewReader(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	unzipped, err := io.ReadAll(z)
	if err != nil || string(unzipped) != string(plain) {
		t.Errorf("unzipped file differs (%v)", err)
	}
	if font := get(t, URL("inter-latin.woff2"), "Accept-Encoding", "gzip"); font.Header.Get("Content-Encoding") != "" {
		t.Error("a font is compressed already")
	}
}

func TestBudgets(t *testing.T) {
	var own, all int
	for name, f := range load().files {
		if path.Ext(name) != ".js" {
			continue
		}
		size := len(f.body)
		if f.zipped != nil {
			size = len(f.zipped)
		}
		all += size
		if name != minifiedName {
			own += len(f.body)
		}
	}
	if own > ownScripts || all > allScripts {
		t.Errorf("own scripts %d of %d bytes, all compressed %d of %d", own, ownScripts, all, allScripts)
	}
	if css := len(load().files["console.css"].zipped); css > styleZipped {
		t.Errorf("style is %d bytes compressed, budget %d", css, styleZipped)
	}
}

// Everything a script imports or a style loads is embedded: no request leaves the site and none fails.
func TestReferencesResolve(t *testing.T) {
	for name, f := range load().files {
		var refs [][]string
		switch path.Ext(name) {
		case ".js":
			refs = regexp.MustCompile(`(?m)^import .*"\./([^"]+)"`).FindAllStringSubmatch(string(f.body), -1)
		case ".css":
			refs = regexp.MustCompile(`url\("([^"]+)"\)`).FindAllStringSubmatch(string(f.body), -1)
		}
		for _, r := range refs {
			if _, ok := load().files[r[1]]; !ok {
				t.Errorf("%s refers to %s, which is not embedded", name, r[1])
			}
		}
	}
}
