package bench

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestRunCountsWholeAnswersOnly(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/stream":
			for i := range 5 {
				fmt.Fprintf(w, "data: %d\n\n", i)
				w.(http.Flusher).Flush()
			}
		case "/cut":
			fmt.Fprint(w, "data: 1\n\n")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		case "/refused":
			w.WriteHeader(402)
		default:
			fmt.Fprint(w, "whole")
		}
	}))
	defer srv.Close()
	for path, good := range map[string]bool{"/stream": true, "/whole": true, "/cut": false, "/refused": false} {
		res, err := Run(t.Context(), Load{Address: strings.TrimPrefix(srv.URL, "http://"), Connections: 2, Duration: 100 * time.Millisecond, Rate: 200,
			Request: []byte("GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n")})
		if err != nil {
			t.Fatal(err)
		}
		if good && (res.Errors != 0 || res.Requests == 0 || res.P50 <= 0 || res.FirstP50 > res.P50) || !good && (res.Requests != 0 || res.Errors == 0) {
			t.Errorf("%s: %+v", path, res)
		}
	}
	if pooled := Pool([]Result{{Seconds: 1, samples: []sample{{3, 1}, {1, 1}}}, {Seconds: 2, Errors: 1, samples: []sample{{2, 2}}}}); pooled.Requests != 3 || pooled.Errors != 1 || pooled.PerSecond != 1 || pooled.P50 != 2 || pooled.P99 != 3 {
		t.Errorf("pooled: %+v", pooled)
	}
	if _, err := Run(t.Context(), Load{Address: "192.0.2.1:80", Connections: 1, Duration: time.Second}); err == nil {
		t.Error("loads an address that is not this machine")
	}
}
