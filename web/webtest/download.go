package webtest

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/chromedp"
)

// Download runs steps that save a file, and gives its name and content once it is whole.
func (b *Browser) Download(steps ...chromedp.Action[chromedp.Void]) (name string, content []byte) {
	b.t.Helper()
	dir := b.t.TempDir()
	b.Do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, browser.SetDownloadBehavior, browser.SetDownloadBehaviorParams{Behavior: browser.SetDownloadBehaviorBehaviorAllow, DownloadPath: dir})
		return err
	}))
	b.Do(steps...)
	for deadline := time.Now().Add(stepTimeout); time.Now().Before(deadline); time.Sleep(arriveEvery) {
		files, err := os.ReadDir(dir)
		if err != nil {
			b.t.Fatal(err)
		}
		if len(files) != 1 || strings.HasSuffix(files[0].Name(), ".crdownload") || strings.HasPrefix(files[0].Name(), ".") {
			continue
		}
		if content, err = os.ReadFile(filepath.Join(dir, files[0].Name())); err != nil {
			b.t.Fatal(err)
		}
		if len(content) > 0 {
			return files[0].Name(), content
		}
	}
	b.t.Fatal("nothing was downloaded")
	return "", nil
}
