package media

import (
	"io"
	"sync"
	"time"

	"millrace/internal/fault"
	"millrace/internal/ids"
)

// busyRetry is when to try again: images are held as long as their requests run.
const busyRetry = 2 * time.Second

// memory is what fetched images take, of all and of each organization.
type memory struct {
	mu   sync.Mutex
	all  int64
	orgs map[ids.ID]int64
}

// add counts more bytes, or says that there is no room for them. Fewer are always taken.
func (m *memory) add(org ids.ID, more int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case more <= 0:
	case m.all+more > MaxMemory:
		return fault.New(fault.Unavailable, "Too many images are being fetched just now. Try again, or send the image itself as a data: URL.").
			WithCode("images_busy").WithRetryAfter(busyRetry)
	case m.orgs[org]+more > MaxMemoryOrg:
		return fault.New(fault.Limited, "The images that are fetched for your organization's requests take as much memory as they may. Try again when some have ended, "+
			"or send the image itself as a data: URL.").WithCode("images_busy").WithRetryAfter(busyRetry)
	}
	m.all += more
	if m.orgs[org] += more; m.orgs[org] == 0 {
		delete(m.orgs, org)
	}
	return nil
}

// share is what one image takes of the memory. One goroutine.
type share struct {
	of    *memory
	org   ids.ID
	bytes int64
}

// take counts so many bytes of an image with their copies.
func (s *share) take(n int) error {
	more := int64(n) * copies
	if err := s.of.add(s.org, more); err != nil {
		return err
	}
	s.bytes += more
	return nil
}

// free gives everything back. Calling it again does nothing.
func (s *share) free() {
	_ = s.of.add(s.org, -s.bytes) // fewer are always taken
	s.bytes = 0
}

// read reads an image, and counts each part before there is memory for it.
func (s *share) read(body io.Reader) ([]byte, error) {
	var data []byte
	for {
		if len(data) == cap(data) {
			more := max(first, len(data))
			if err := s.take(more); err != nil {
				return nil, err
			}
			data = append(make([]byte, 0, len(data)+more), data...)
		}
		n, err := body.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		switch {
		case len(data) > MaxBytes:
			return nil, tooLarge()
		case err == io.EOF:
			return data, s.take(len(data) - cap(data))
		case err != nil:
			return nil, unreachable(err)
		}
	}
}
