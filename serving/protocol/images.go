package protocol

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"

	"millrace/internal/fault"
	"millrace/serving/engine/scan"
)

// Limits of the images of one request that are fetched for it.
const (
	maxRemoteImages = 16
	imagesAtOnce    = 4
)

// imageURL checks the url of an image: the image itself as a data: URL, or an address to fetch it from (FetchImages).
func (r *chatReader) imageURL(v []byte) error {
	const name = "image_url.url"
	if v == nil || !isObject(v) {
		return wantType("image_url", "an object with a url")
	}
	url := urlOf(v)
	switch {
	case url == nil:
		return wantType(name, "a string, given once")
	case isData(url):
		return nil
	case !isRemote(url):
		return invalid(name, "An image's url must be a data: URL that holds the image, or an http or https URL.").WithCode("invalid_image_url")
	}
	if r.req.RemoteImages++; r.req.RemoteImages > maxRemoteImages {
		return invalid(name, "At most %d images of a request are fetched. Send further ones as data: URLs.", maxRemoteImages)
	}
	return nil
}

// urlOf gives the JSON string of an image's url; nil when there is none, or more than one: readers differ in which counts.
func urlOf(image []byte) (url []byte) {
	m := scan.Object(image)
	for m.Next() {
		if string(m.Key) != "url" {
			continue
		}
		if url != nil || !isString(m.Value) {
			return nil
		}
		url = m.Value
	}
	return url
}

func isData(url []byte) bool { return bytes.HasPrefix(url, []byte(`"data:`)) }

func isRemote(url []byte) bool {
	plain := bytes.ToLower([]byte(text(url)))
	return bytes.HasPrefix(plain, []byte("http://")) || bytes.HasPrefix(plain, []byte("https://"))
}

// FetchImages puts the images themselves in the place of their addresses, in the body for engines. fetch gives an image as
// a data: URL; its faults get the place of the image.
func (q *ChatRequest) FetchImages(ctx context.Context, fetch func(ctx context.Context, url string) ([]byte, error)) error {
	if q.RemoteImages == 0 {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	urls := remoteURLs(q.Body)
	edits := make([]edit, len(urls))
	size := atomic.Int64{}
	size.Store(int64(len(q.Body)))
	var failed error
	var once sync.Once
	var tasks sync.WaitGroup
	places := make(chan struct{}, imagesAtOnce)
	for i, url := range urls {
		places <- struct{}{} // what is fetched needs memory until it is known to fit
		if ctx.Err() != nil {
			break
		}
		tasks.Go(func() {
			defer func() { <-places }()
			image, err := fetch(ctx, text(url))
			if err == nil && size.Add(int64(len(image))) > MaxBodyBytes {
				err = fault.New(fault.TooLarge, "The request is larger than %d MiB with its images.", MaxBodyBytes>>20)
			}
			if err != nil {
				once.Do(func() { failed = err })
				cancel()
				return
			}
			from := offset(q.Body, url)
			edits[i] = edit{from, from + len(url), `"` + string(image) + `"`}
		})
	}
	tasks.Wait()
	if failed == nil {
		failed = ctx.Err() // the client has gone
	}
	if failed != nil {
		return within("messages", failed)
	}
	q.Body, q.RemoteImages = rewrite(q.Body, nil, edits), 0
	return nil
}

// remoteURLs are the addresses of images in a checked body, in their order.
func remoteURLs(body []byte) (urls [][]byte) {
	each := func(list []byte, member string, do func([]byte)) {
		for e := scan.Array(list); e.Next(); {
			for m := scan.Object(e.Value); m.Next(); {
				if string(m.Key) == member {
					do(m.Value)
				}
			}
		}
	}
	for m := scan.Object(body); m.Next(); {
		if string(m.Key) != "messages" {
			continue
		}
		each(m.Value, "content", func(content []byte) {
			if !isArray(content) {
				return
			}
			each(content, "image_url", func(image []byte) {
				if isObject(image) {
					if url := urlOf(image); url != nil && !isData(url) && isRemote(url) {
						urls = append(urls, url)
					}
				}
			})
		})
	}
	return urls
}
