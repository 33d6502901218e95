package gate_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/serving/gate"
	"millrace/serving/gate/gatetest"
)

// gallery has one image.
type gallery struct {
	asked int
	held  atomic.Int32
}

func (g *gallery) Fetch(_ context.Context, _ ids.ID, url string) ([]byte, func(), error) {
	if g.asked++; url != "https://example.com/a.png" {
		return nil, nil, fault.New(fault.Invalid, "No image.")
	}
	g.held.Add(1)
	return []byte("data:image/png;base64,AAAA"), func() { g.held.Add(-1) }, nil
}

func TestImagesReachEnginesAsData(t *testing.T) {
	body := func(url string) string {
		return `{"model":"acme/test","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"` + url + `"}}]}]}`
	}
	for _, tt := range []struct {
		name, url string
		images    gate.Images
		cap       money.Nano
		status    int
		asked     int
	}{
		{"fetched", "https://example.com/a.png", &gallery{}, 0, 200, 1},
		{"not there", "https://example.com/b.png", &gallery{}, 0, 400, 1},
		{"none are fetched here", "https://example.com/a.png", nil, 0, 400, 0},
		{"who cannot pay makes us fetch nothing", "https://example.com/a.png", &gallery{}, 1, 402, 0},
		{"data", "data:image/png;base64,AAAA", &gallery{}, 0, 200, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := gatetest.NewEngine(t, gatetest.Stream(good))
			s := gatetest.New(t, gatetest.Options{Images: tt.images, Cap: tt.cap}, e)
			answer, text, err := post(t, s, body(tt.url))
			if err != nil || answer.StatusCode != tt.status {
				t.Fatalf("%v %s %v", answer.StatusCode, text, err)
			}
			if g, ok := tt.images.(*gallery); ok && g.asked != tt.asked {
				t.Errorf("asked %d times", g.asked)
			}
			if tt.status != 200 {
				if e.Requests() != 0 || len(s.Log.Events()) != 0 {
					t.Error("something reached an engine or the log")
				}
				return
			}
			s.Event(t)
			if g, ok := tt.images.(*gallery); ok && g.held.Load() != 0 {
				t.Error("what has ended holds images")
			}
			if _, sent := e.Last(); !strings.Contains(sent, `"url":"data:image/png;base64,AAAA"`) || strings.Contains(sent, "example.com") {
				t.Errorf("the engine got %s", sent)
			}
		})
	}
}
