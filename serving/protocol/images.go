package protocol

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"

	"millrace/internal/fault"
	"millrace/serving/engine/scan"
	"millrace/serving/protocol/field"
)

// Limits of the images of one request that are fetched for it.
const (
	maxRemoteImages = 16
	imagesAtOnce    = 4
)

// imageMembers are an image's.
var imageMembers = []string{"url", "detail"}

// image checks a part's image.
func (r *chatReader) image(v []byte) error {
	const name = "image_url"
	if !field.IsObject(v) {
		return field.WantType(name, "an object with a url")
	}
	var f [2]found
	if err := r.object("messages[].content[].image_url.", v, imageMembers, f[:]); err != nil {
		return field.Within(name, err)
	}
	if !field.IsString(f[0].value) {
		return field.WantType(name+".url", "a string")
	}
	remote, err := CheckImage(f[0].value)
	if remote {
		if r.req.RemoteImages++; r.req.RemoteImages > maxRemoteImages {
			err = tooManyImages()
		}
	}
	return field.Within(name+".url", err)
}

// CheckImage checks the url of an image, a JSON string: the image itself as a data: URL, or an address to fetch it from
// (FetchImages). Its fault names no member.
func CheckImage(url []byte) (remote bool, err error) {
	switch {
	case isData(url):
		return false, nil
	case isRemote(url):
		return true, nil
	}
	return false, invalid("", "An image's url must be a data: URL that holds the image, or an http or https URL.").WithCode("invalid_image_url")
}

func tooManyImages() *fault.Fault {
	return invalid("", "At most %d images of a request are fetched. Send further ones as data: URLs.", maxRemoteImages)
}

func isData(url []byte) bool { return bytes.HasPrefix(url, []byte(`"data:`)) }

func isRemote(url []byte) bool {
	plain := bytes.ToLower([]byte(field.Text(url)))
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
	images := remoteImages(q.Body)
	edits := make([]edit, len(images))
	size := atomic.Int64{}
	size.Store(int64(len(q.Body)))
	var failed error
	var once sync.Once
	var tasks sync.WaitGroup
	places := make(chan struct{}, imagesAtOnce)
	for i, img := range images {
		places <- struct{}{} // what is fetched needs memory until it is known to fit
		if ctx.Err() != nil {
			break
		}
		tasks.Go(func() {
			defer func() { <-places }()
			image, err := fetch(ctx, field.Text(img.url))
			if err == nil && size.Add(int64(len(image))) > MaxBodyBytes {
				err = fault.New(fault.TooLarge, "The request is larger than %d MiB with its images.", MaxBodyBytes>>20)
			}
			if err != nil {
				once.Do(func() { failed = field.Within(q.imagePlace(&img), err) })
				cancel()
				return
			}
			from := offset(q.Body, img.url)
			edits[i] = edit{from, from + len(img.url), `"` + string(image) + `"`}
		})
	}
	tasks.Wait()
	if failed == nil {
		failed = ctx.Err() // the client has gone
	}
	if failed != nil {
		return failed
	}
	q.Body, q.RemoteImages = rewrite(q.Body, nil, edits), 0
	return nil
}

// remoteImage is an image by its address, a JSON string, and where it stands.
type remoteImage struct {
	message, part int
	url           []byte
}

func (q *ChatRequest) imagePlace(i *remoteImage) string {
	if q.ImagePlace != nil {
		return q.ImagePlace(i.message, i.part)
	}
	return field.At("messages", i.message) + "." + field.At("content", i.part) + ".image_url.url"
}

// remoteImages are the images of a checked body that are to be fetched, in their order.
func remoteImages(body []byte) (list []remoteImage) {
	messages := scan.Array(field.Member(body, "messages"))
	for i := 0; messages.Next(); i++ {
		parts := scan.Array(field.Member(messages.Value, "content"))
		for k := 0; parts.Next(); k++ {
			if url := field.Member(field.Member(parts.Value, "image_url"), "url"); url != nil && !isData(url) && isRemote(url) {
				list = append(list, remoteImage{i, k, url})
			}
		}
	}
	return list
}
