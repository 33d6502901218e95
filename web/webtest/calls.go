package webtest

import (
	"context"
	"strconv"
	"time"

	"millrace/internal/ids"
	"millrace/internal/usage"
	"millrace/web/console"
	"millrace/web/session"
)

// calls is how many requests the fixture has.
const calls = 120

// call invents the n-th newest request.
func (f *Fixture) call(n int) console.RequestDetail {
	m, k := f.models[noise("m", n)%2], f.keys[noise("k", n)%3]
	r := console.RequestDetail{Prices: m.Prices, Version: m.Version, Since: m.Since, KeyID: k.ID, Project: k.Project, Dialect: "chat", Entry: id(kindTxn, n), Unit: "llama-70b/1"}
	r.Request = console.Request{
		ID: id(kindRequest, n), At: ago(time.Duration(n*n)*time.Second + 12*time.Second), Model: m.Name, KeyName: k.Name, Status: 200, Ending: usage.Complete,
		Streamed: n%3 != 0, FirstTok: time.Duration(140+noise("f", n)) * time.Millisecond, Took: time.Duration(900+9*noise("t", n)) * time.Millisecond, Simulated: m.Simulated,
	}
	r.Usage[usage.Input], r.Usage[usage.Cached], r.Usage[usage.Output], r.Usage[usage.Requests] = 220+noise("i", n), 3*noise("c", n), 40+noise("o", n), 1
	if m.Name == "acme/deepseek-flash" {
		r.Usage[usage.Reasoning] = noise("r", n)
	}
	r.Attempts = []console.Attempt{{Unit: "llama-70b/1"}}
	switch n {
	case 3:
		r.Ending = usage.ClientLeft
	case 5:
		r.Ending, r.Estimated = usage.EngineFailed, true
		r.Attempts = []console.Attempt{{Unit: "llama-70b/2", Note: "no first token within 10 s"}, {Unit: "llama-70b/1"}}
	case 8:
		r.Ending, r.Status, r.Usage, r.FirstTok, r.Entry = usage.FailedUnbilled, 503, usage.Vector{}, 0, ids.Nil
	}
	cost, _ := r.Prices.Cost(r.Usage)
	r.Cost = cost.Nano()
	return r
}

// Requests is a page of calls; its cursor is the number of the first.
func (f *Fixture) Requests(_ context.Context, _ session.Viewer, q console.RequestQuery) (console.RequestList, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out console.RequestList
	if f.state == Fresh {
		return out, nil
	}
	from, _ := strconv.Atoi(q.After)
	for n := from; n < calls; n++ {
		r := f.call(n)
		if q.Model != "" && r.Model != q.Model || q.Key != ids.Nil && r.KeyID != q.Key || q.Failed && r.Ending == usage.Complete {
			continue
		}
		if len(out.Rows) == q.Limit {
			out.Next = strconv.Itoa(n)
			break
		}
		out.Rows = append(out.Rows, r.Request)
	}
	return out, nil
}

// Request is one call.
func (f *Fixture) Request(_ context.Context, _ session.Viewer, want ids.ID) (console.RequestDetail, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for n := 0; n < calls && f.state == Busy; n++ {
		if id(kindRequest, n) == want {
			return f.call(n), nil
		}
	}
	return console.RequestDetail{}, errGone
}
