package download_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"millrace/internal/download"
)

func serve(t *testing.T, write func(w io.Writer) (map[string]string, error)) (*http.Response, []byte, error) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		err := download.Send(w, download.Answer{Name: "usage.csv", MediaType: "text/csv", Trailers: []string{"Export-Rows"}, Write: write})
		if err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
		}
	}))
	t.Cleanup(s.Close)
	r, err := http.Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	return r, b, err
}

func TestAWholeFileHasTrailers(t *testing.T) {
	long := bytes.Repeat([]byte("0123456789"), 100_000)
	r, b, err := serve(t, func(w io.Writer) (map[string]string, error) {
		_, err := w.Write(long)
		return map[string]string{"Export-Rows": "7"}, err
	})
	if err != nil || !bytes.Equal(b, long) || r.Trailer.Get("Export-Rows") != "7" || r.Header.Get("Content-Disposition") != `attachment; filename="usage.csv"` {
		t.Fatalf("%d bytes, %v, trailer %v, header %v", len(b), err, r.Trailer, r.Header)
	}
}

func TestWhatFailsAtOnceIsAnError(t *testing.T) {
	r, b, err := serve(t, func(io.Writer) (map[string]string, error) { return nil, errors.New("no such range") })
	if err != nil || r.StatusCode != http.StatusConflict || string(b) != "no such range\n" {
		t.Fatalf("%d %q %v", r.StatusCode, b, err)
	}
}

func TestHalfAFileDoesNotLookWhole(t *testing.T) {
	_, b, err := serve(t, func(w io.Writer) (map[string]string, error) {
		_, _ = w.Write(bytes.Repeat([]byte("x"), 100_000))
		return nil, errors.New("the database is gone")
	})
	if err == nil {
		t.Fatalf("%d bytes look like a whole file", len(b))
	}
}
