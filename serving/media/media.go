// Package media fetches images that requests name by URL, so that no engine fetches anything: an engine would do it from
// inside the operator's network. It owns the limits of that and the check of what comes; it does not own where images
// stand in a request (serving/protocol).
//
// Invariants: only public addresses are reached, decided for the very address that is dialled, at every redirect; what is
// no image by its own bytes is refused; nothing is kept; what all requests of a process hold of images has a limit.
package media

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"time"

	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/outbound"
)

// Limits of one image.
const (
	MaxBytes     = 20 << 20
	fetchTimeout = 10 * time.Second
	maxRedirects = 3
	maxURLBytes  = 8 << 10
)

// Limits of memory: a small request can make much of it ours.
const (
	MaxMemory    = 1 << 30   // bytes that the images of all requests take at once
	MaxMemoryOrg = 512 << 20 // of them, of one organization: they are held as long as its requests run
	copies       = 4         // of an image: as it came, as text, in the request and in the request for the engine
	first        = 64 << 10  // bytes of an image that are counted before the first is read; twice as many each time after that
)

// Fetcher fetches images. It is safe for concurrent use.
type Fetcher struct {
	client *http.Client
	memory memory
}

// NewFetcher makes a fetcher. loopback lets it reach this machine too: for development only.
func NewFetcher(loopback bool) *Fetcher {
	c := outbound.NewClient(loopback)
	c.CheckRedirect = func(r *http.Request, via []*http.Request) error {
		if len(via) > maxRedirects {
			return http.ErrUseLastResponse
		}
		return checkURL(r.URL)
	}
	return &Fetcher{client: c, memory: memory{orgs: map[ids.ID]int64{}}}
}

var errURL = errors.New("media: no http or https address")

func checkURL(u *url.URL) error {
	if (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" || u.User != nil {
		return errURL
	}
	return nil
}

// kinds are the images that engines read.
var kinds = map[string]bool{"image/png": true, "image/jpeg": true, "image/gif": true, "image/webp": true}

// Fetch gives an image for a request of an organization as a data: URL, whose memory is counted until free is called. What is
// wrong with it is a fault of kind Invalid that says nothing of what answered; when too much is held already it is Unavailable,
// or Limited where that is the organization's own.
func (f *Fetcher) Fetch(ctx context.Context, org ids.ID, address string) (image []byte, free func(), err error) {
	s := share{of: &f.memory, org: org}
	image, err = f.fetch(ctx, address, &s)
	if err != nil {
		s.free()
		return nil, nil, err
	}
	return image, s.free, nil
}

func (f *Fetcher) fetch(ctx context.Context, address string, s *share) ([]byte, error) {
	u, err := url.Parse(address)
	if err != nil || len(address) > maxURLBytes || checkURL(u) != nil {
		return nil, refused("An image's address must be an http or https URL, or hold the image itself as a data: URL.", nil)
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, refused("An image's address cannot be read.", err)
	}
	r.Header.Set("User-Agent", "Millrace")
	r.Header.Set("Accept", "image/*")
	answer, err := f.client.Do(r)
	if err != nil {
		return nil, unreachable(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, refused("An image could not be fetched: its server did not give it.", nil)
	}
	if answer.ContentLength > MaxBytes {
		return nil, tooLarge()
	}
	data, err := s.read(answer.Body)
	if err != nil {
		return nil, err
	}
	kind := http.DetectContentType(data)
	if !kinds[kind] {
		return nil, refused("What stands at an image's address is no PNG, JPEG, GIF or WebP image.", nil)
	}
	out := append(make([]byte, 0, len(kind)+16+base64.StdEncoding.EncodedLen(len(data))), "data:"...)
	out = append(append(out, kind...), ";base64,"...)
	return base64.StdEncoding.AppendEncode(out, data), nil
}

func refused(words string, cause error) error {
	return fault.New(fault.Invalid, "%s", words).WithCode("invalid_image_url").WithCause(cause)
}

func tooLarge() error {
	return fault.New(fault.Invalid, "An image is larger than %d MiB.", MaxBytes>>20).WithCode("image_too_large")
}

func unreachable(err error) error {
	if errors.Is(err, outbound.ErrPrivate) || errors.Is(err, errURL) {
		return refused("An image's address is private, local or reserved: only public ones are fetched.", err)
	}
	return refused("An image could not be fetched in time from its address.", err)
}
