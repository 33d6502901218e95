package media

import (
	"io"
	"time"

	"millrace/internal/fault"
)

// busyRetry is when to try again: images are held as long as their requests run.
const busyRetry = 2 * time.Second

// share is what one image takes of the memory. One goroutine.
type share struct {
	of    *Fetcher
	bytes int64
}

// take counts so many bytes of an image with their copies, or says that there is no room for them. Fewer are always taken.
func (s *share) take(n int) error {
	more := int64(n) * copies
	if s.of.memory.Add(more) > MaxMemory && more > 0 {
		s.of.memory.Add(-more)
		return fault.New(fault.Unavailable, "Too many images are being fetched just now. Try again, or send the image itself as a data: URL.").
			WithCode("images_busy").WithRetryAfter(busyRetry)
	}
	s.bytes += more
	return nil
}

// free gives everything back. Calling it again does nothing.
func (s *share) free() {
	s.of.memory.Add(-s.bytes)
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
