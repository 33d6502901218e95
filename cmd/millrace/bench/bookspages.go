package bench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"millrace/cmd/millrace/trial"
	"millrace/internal/ids"
	"millrace/tenants"
)

const (
	operator  = "operator@demo.example"
	pageLimit = time.Minute
	leftPoll  = 50 * time.Millisecond
	firstRows = 4 << 10 // bytes of an export's archive: more than its first page of rows
)

// page is one that is measured.
type page struct {
	client *http.Client
	who    string
	path   string
	export bool
}

// pages measures what people open, each page in turn, so that no page finds only its own rows in memory.
func (c *BooksCmd) pages(ctx context.Context, k *trial.Cluster, last time.Time, progress io.Writer) ([]BooksPage, error) {
	if _, err := k.Server.Tenants.EnsureOperator(ctx, tenants.System(), operator); err != nil {
		return nil, err
	}
	customer, err := signIn(ctx, k, trial.ShopOwner)
	if err != nil {
		return nil, err
	}
	staff, err := signIn(ctx, k, operator)
	if err != nil {
		return nil, err
	}
	var list []page
	month, day := last.Format("2006-01"), last.Format(time.DateOnly)
	for _, path := range []string{"/", "/keys", "/usage?range=30d", "/usage?range=30d&group=key", "/usage?range=today", "/requests", "/requests?ended=failed",
		"/billing", "/billing/statement?month=" + month, "/limits"} {
		list = append(list, page{client: customer, who: "customer", path: path})
	}
	org := ids.Format(ids.Org, k.Shop.Org)
	for _, path := range []string{"/admin", "/admin/customers", "/admin/customers/" + org, "/admin/revenue", "/admin/revenue?range=30d&group=customer", "/admin/margin", "/admin/exceptions"} {
		list = append(list, page{client: staff, who: "operator", path: path})
	}
	for _, format := range []string{"csv", "jsonl"} {
		list = append(list, page{client: customer, who: "customer", path: "/usage/export/file?kind=usage&from=" + day + "&to=" + day + "&as=" + format, export: true},
			page{client: staff, who: "operator", path: "/admin/revenue/export/file?kind=revenue&from=" + day + "&to=" + day + "&as=" + format, export: true})
	}
	if err := c.awaitQuiet(ctx, progress); err != nil {
		return nil, err
	}
	took := make([][]time.Duration, len(list))
	for n := range c.Samples {
		fmt.Fprintf(progress, "pages, %d of %d\n", n+1, c.Samples)
		for i, p := range list {
			d, err := p.fetch(ctx, k.Server.PublicURL())
			if err != nil {
				return nil, err
			}
			took[i] = append(took[i], d)
		}
	}
	out := make([]BooksPage, len(list))
	for i, p := range list {
		slices.Sort(took[i])
		at := func(q float64) float64 { return float64(took[i][int(q*float64(len(took[i])-1))].Microseconds()) / 1000 }
		out[i] = BooksPage{Who: p.who, Path: strings.ReplaceAll(p.path, org, "org_…"), P50: at(0.5), P95: at(0.95), Max: at(1)}
	}
	return out, nil
}

func signIn(ctx context.Context, k *trial.Cluster, email string) (*http.Client, error) {
	link, err := k.Server.Tenants.CreateLink(ctx, tenants.System(), email, tenants.MaxLinkTTL)
	if err != nil {
		return nil, err
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Jar: jar, Timeout: pageLimit}
	u, err := url.Parse(link.URL)
	if err != nil {
		return nil, err
	}
	form := u.Query() // the link's page has a button that sends it: what only looks at a link does not use it up
	u.RawQuery = ""
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if len(jar.Cookies(u)) == 0 {
		return nil, fmt.Errorf("%s cannot sign in: %s", email, resp.Status)
	}
	return client, nil
}

func (p page) fetch(ctx context.Context, base string) (time.Duration, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+p.path, nil)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	resp, err := p.client.Do(req)
	for err == nil && p.export && resp.StatusCode == http.StatusTooManyRequests { // the export before, which was left, is not noticed yet
		resp.Body.Close()
		time.Sleep(leftPoll)
		began = time.Now()
		resp, err = p.client.Do(req)
	}
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || resp.Request.URL.Path != req.URL.Path {
		return 0, fmt.Errorf("%s: %s at %s", p.path, resp.Status, resp.Request.URL.Path)
	}
	body := io.Reader(resp.Body)
	if p.export {
		body = io.LimitReader(body, firstRows)
	}
	n, err := io.Copy(io.Discard, body)
	if err == nil && n == 0 {
		err = fmt.Errorf("%s: nothing came", p.path)
	}
	return time.Since(began), err
}

// Print writes the report for people.
func (r *BooksReport) Print(w io.Writer) error {
	fmt.Fprintf(w, "%s\n%d requests of %d customers on %d days, %.1f GB, made in %v\n\nrater over so many requests, events/s, CPU an event in microseconds\n", r.Machine.line(r.At),
		r.Requests, r.Customers, r.Days, float64(r.Bytes)/1e9, r.Filled.Round(time.Second))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, x := range r.Raters {
		fmt.Fprintf(t, "%d\t%d\t%.1f\t\n", x.Requests, x.PerSecond, x.CPU)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nmilliseconds a page (exports: to the first 4 KB of their archive)\n")
	t = tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\t\tp50\tp95\tmax")
	for _, p := range r.Pages {
		fmt.Fprintf(t, "%s\t%s\t%.0f\t%.0f\t%.0f\n", p.Who, p.Path, p.P50, p.P95, p.Max)
	}
	return t.Flush()
}
