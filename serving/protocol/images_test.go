package protocol

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"millrace/internal/fault"
)

func pictures(urls ...string) string {
	parts := make([]string, len(urls))
	for i, u := range urls {
		parts[i] = fmt.Sprintf(`{"type":"image_url","image_url":{"detail":"low","url":%q}}`, u)
	}
	return `{"model":"m","messages":[{"role":"user","content":"http://a/"},{"role":"user","content":[{"type":"text","text":"https://b/"},` + strings.Join(parts, ", ") + `]}],"user":"u"}`
}

func TestImagesAreFetchedForTheEngine(t *testing.T) {
	q, err := DecodeChat([]byte(pictures("https://x/1", "data:image/png;base64,AA", "HTTP://x/2")))
	if err != nil || q.RemoteImages != 2 {
		t.Fatalf("%+v, %v", q, err)
	}
	err = q.FetchImages(t.Context(), func(_ context.Context, url string) ([]byte, error) {
		return []byte("data:image/png;base64," + url[len(url)-1:]), nil
	})
	want := strings.Replace(pictures("data:image/png;base64,1", "data:image/png;base64,AA", "data:image/png;base64,2"), `,"user":"u"`, "", 1)
	if err != nil || string(q.Body) != want || q.RemoteImages != 0 {
		t.Errorf("%v\n%s\nwant\n%s", err, q.Body, want)
	}
}

func TestImagesThatCannotBeHad(t *testing.T) {
	q, err := DecodeChat([]byte(pictures("https://x/1", "https://x/2", "https://x/3")))
	if err != nil {
		t.Fatal(err)
	}
	before := string(q.Body)
	err = q.FetchImages(t.Context(), func(ctx context.Context, url string) ([]byte, error) {
		if strings.HasSuffix(url, "2") {
			return nil, fault.New(fault.Invalid, "No image.")
		}
		<-ctx.Done() // the others are given up
		return nil, errors.New("gone")
	})
	if f := fault.Of(err); f.Message != "No image." || f.Param != "messages[1].content[2].image_url.url" || string(q.Body) != before {
		t.Errorf("%v", err)
	}
	large := []byte("data:image/png;base64," + strings.Repeat("A", 12<<20))
	if err := q.FetchImages(t.Context(), func(context.Context, string) ([]byte, error) { return large, nil }); !fault.Is(err, fault.TooLarge) {
		t.Errorf("three large images: %v", err)
	}
	many := make([]string, maxRemoteImages+1)
	for i := range many {
		many[i] = "https://x/1"
	}
	if _, err := DecodeChat([]byte(pictures(many...))); !fault.Is(err, fault.Invalid) {
		t.Errorf("many: %v", err)
	}
}

// What does not fit is not fetched to the last image: each of them needs memory.
func TestImagesThatDoNotFitAreGivenUp(t *testing.T) {
	many := make([]string, maxRemoteImages)
	for i := range many {
		many[i] = "https://x/1"
	}
	q, err := DecodeChat([]byte(pictures(many...)))
	if err != nil {
		t.Fatal(err)
	}
	large := []byte("data:image/png;base64," + strings.Repeat("A", 12<<20))
	var asked atomic.Int64
	err = q.FetchImages(t.Context(), func(context.Context, string) ([]byte, error) {
		asked.Add(1)
		return large, nil
	})
	if most := int64(3 + imagesAtOnce); !fault.Is(err, fault.TooLarge) || asked.Load() > most {
		t.Errorf("%v; %d images were fetched, at most %d", err, asked.Load(), most)
	}
}
