package domain

import (
	"context"
	"strings"
	"time"

	"millrace/billing/report"
	"millrace/internal/ids"
	"millrace/internal/usage"
	"millrace/serving/engine"
	"millrace/web/console"
	"millrace/web/session"
)

// Requests is a page of the organization's requests, newest first.
func (c customer) Requests(ctx context.Context, who session.Viewer, in console.RequestQuery) (console.RequestList, error) {
	by := member(who)
	f := report.Filter{Before: cursor(ids.Request, in.After), Key: in.Key, Failed: in.Failed, Limit: min(in.Limit, report.MaxRows-1) + 1}
	if in.Model != "" {
		m, ok := c.Catalogue.Model(in.Model)
		if !ok {
			return console.RequestList{}, nil
		}
		f.Model = m.ID
	}
	list, err := c.Report.Requests(ctx, by, who.Org, f)
	if err != nil {
		return console.RequestList{}, err
	}
	var out console.RequestList
	if len(list) == f.Limit {
		list = list[:f.Limit-1]
		out.Next = ids.Format(ids.Request, list[len(list)-1].Event.ID)
	}
	var served []ids.ID
	for _, r := range list {
		if n := len(r.Event.Attempts); n > 0 {
			served = append(served, r.Event.Attempts[n-1].Unit)
		}
	}
	units, err := c.Report.Units(ctx, by, who.Org, served)
	out.Rows = make([]console.Request, len(list))
	for i, r := range list {
		out.Rows[i] = requestOf(r, units)
	}
	return out, err
}

func requestOf(r report.Request, units map[ids.ID]report.Unit) console.Request {
	e := r.Event
	out := console.Request{ID: e.ID, At: milli(e.StartedMS), Model: r.Model, KeyName: r.Key, Status: e.Status, Ending: e.Ending, Streamed: e.Streamed,
		Usage: e.Usage, Cost: r.Charged, Took: time.Duration(e.EndedMS-e.StartedMS) * time.Millisecond}
	if e.FirstTokenMS != 0 {
		out.FirstTok = time.Duration(e.FirstTokenMS-e.StartedMS) * time.Millisecond
	}
	if n := len(e.Attempts); n > 0 {
		out.Simulated = simulated(engine.Family(units[e.Attempts[n-1].Unit].Engine))
	}
	return out
}

func milli(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// Request explains one call.
func (c customer) Request(ctx context.Context, who session.Viewer, id ids.ID) (console.RequestDetail, error) {
	by := member(who)
	r, v, err := c.Report.Request(ctx, by, who.Org, id)
	if err != nil {
		return console.RequestDetail{}, err
	}
	var tried []ids.ID
	for _, a := range r.Event.Attempts {
		tried = append(tried, a.Unit)
	}
	units, err := c.Report.Units(ctx, by, who.Org, tried)
	out := console.RequestDetail{Request: requestOf(r, units), KeyID: r.Event.Key, Project: r.Project, Dialect: r.Event.Dialect, Service: r.Event.Service, Prices: v.PricesOf(&r.Event),
		Version: v.ID, Since: v.EffectiveAt, Estimated: r.Event.Estimated, Entry: r.Txn, Quarantine: r.PutAside}
	for _, a := range r.Event.Attempts {
		out.Attempts = append(out.Attempts, attemptOf(a, units))
	}
	if n := len(out.Attempts); n > 0 {
		out.Unit = out.Attempts[n-1].Unit
	}
	return out, err
}

func attemptOf(a usage.Attempt, units map[ids.ID]report.Unit) console.Attempt {
	name, _, _ := strings.Cut(units[a.Unit].Name, "~") // a unit that is gone keeps its name before its id
	note := a.Note
	if note == "" {
		note = legNotes[a.Leg]
	}
	return console.Attempt{Unit: name, Note: note}
}

// legNotes say what an engine did of a request that several served.
var legNotes = map[usage.Leg]string{usage.LegEncode: "encoded an image", usage.LegPrefill: "computed the prompt"}

// simulated reports whether an engine of this family is a simulator.
func simulated(f engine.Family) bool { return f == engine.Sim }
