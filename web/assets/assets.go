// Package assets holds the console's static files: style, scripts, fonts and the vendored htmx, embedded in the binary.
//
// It owns their URLs and cache headers. All files share one folder named by a hash of the whole set
// (/assets/3f9a…/console.css), so relative imports between scripts and fonts work and every URL may be cached for ever.
// A page of an older process that asks under an older hash is answered with today's file, uncached: a rolling upgrade
// never leaves a page without its style.
package assets

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"sync"
)

//go:embed static
var embedded embed.FS

// Prefix is the path under which Handler must be mounted.
const Prefix = "/assets/"

const (
	hashLen     = 12                                    // hex characters of the set's hash in a URL
	immutable   = "public, max-age=31536000, immutable" // one year, the longest caches honour
	notWorthZip = 1 << 10                               // bytes; below it a compressed answer saves no packet
)

type file struct {
	body, zipped []byte // zipped is nil where compression does not pay
	contentType  string
}

type set struct {
	hash  string
	files map[string]file
}

var load = sync.OnceValue(func() set {
	s := set{files: map[string]file{}}
	sum := sha256.New()
	err := fs.WalkDir(embedded, "static", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		body, err := embedded.ReadFile(name)
		if err != nil {
			return err
		}
		sum.Write([]byte(name))
		sum.Write(body)
		s.files[strings.TrimPrefix(name, "static/")] = prepare(name, body)
		return nil
	})
	if err != nil {
		panic("assets: embedded files are unreadable: " + err.Error())
	}
	s.hash = hex.EncodeToString(sum.Sum(nil))[:hashLen]
	return s
})

func prepare(name string, body []byte) file {
	f := file{body: body, contentType: contentType(name)}
	if len(body) < notWorthZip || path.Ext(name) == ".woff2" {
		return f
	}
	var buf bytes.Buffer
	w, err := gzip.NewWriterLevel(&buf, gzip.BestCompression)
	if err != nil {
		panic(err) // the level is a constant
	}
	_, _ = w.Write(body) // a bytes.Buffer never fails
	_ = w.Close()
	f.zipped = buf.Bytes()
	return f
}

// contentType does not ask the machine's MIME table, which differs between machines.
func contentType(name string) string {
	switch path.Ext(name) {
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	case ".woff2":
		return "font/woff2"
	case ".txt":
		return "text/plain; charset=utf-8"
	}
	return mime.TypeByExtension(path.Ext(name))
}

// URL is the path of a file by its plain name ("console.css"). It panics for a file that is not embedded: names are
// constants of our own pages.
func URL(name string) string {
	s := load()
	if _, ok := s.files[name]; !ok {
		panic("assets: no file " + name)
	}
	return Prefix + s.hash + "/" + name
}

// Hash names the embedded set; it changes when any file changes.
func Hash() string { return load().hash }

// ServeHTTP answers GET and HEAD under Prefix.
func ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s := load()
	hash, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, Prefix), "/")
	f, ok := s.files[name]
	if !ok || (r.Method != http.MethodGet && r.Method != http.MethodHead) {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	h.Set("Content-Type", f.contentType)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", immutable)
	if hash != s.hash {
		h.Set("Cache-Control", "no-cache")
	}
	body := f.body
	if f.zipped != nil {
		h.Set("Vary", "Accept-Encoding")
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			h.Set("Content-Encoding", "gzip")
			body = f.zipped
		}
	}
	if r.Method == http.MethodGet {
		_, _ = w.Write(body) // the client left; nothing to tell it
	}
}
