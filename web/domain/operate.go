package domain

import (
	"context"
	"net/url"
	"regexp"
	"strings"

	"millrace/billing/report"
	"millrace/internal/ids"
	"millrace/internal/usage"
	"millrace/web/admin"
)

const (
	exceptionsPerPage = 50
	mailsShown        = 100
)

// Exceptions is a page of both kinds; the cursor has the last of each.
func (b business) Exceptions(ctx context.Context, after string) (admin.ExceptionList, error) {
	by := operator(ctx)
	aside, over, _ := strings.Cut(after, ".")
	lastAside, lastOver := cursor(ids.Aside, aside), cursor(ids.Request, over)
	put, err := b.Report.Quarantine(ctx, by, lastAside, exceptionsPerPage)
	if err != nil {
		return admin.ExceptionList{}, err
	}
	overruns, err := b.Report.Overruns(ctx, by, b.Clock.Now().AddDate(0, 0, -overrunDays), lastOver, exceptionsPerPage)
	if err != nil {
		return admin.ExceptionList{}, err
	}
	a, err := b.Report.Attention(ctx, by, b.Clock.Now())
	out := admin.ExceptionList{Waiting: a.Quarantined}
	for _, x := range put {
		out.Quarantine = append(out.Quarantine, quarantinedOf(x))
		lastAside = x.ID
	}
	for _, x := range overruns {
		out.Overruns = append(out.Overruns, admin.Overrun{At: x.At, Request: x.Request, OrgName: x.OrgName, Amount: x.Amount, Reason: overrunReason(x)})
		lastOver = x.Request
	}
	if len(put) == exceptionsPerPage || len(overruns) == exceptionsPerPage {
		// A kind of which there is nothing yet starts over; it has nothing on the next page either, unless it just came.
		out.Next = ids.Format(ids.Aside, lastAside) + "." + ids.Format(ids.Request, lastOver)
	}
	return out, err
}

func quarantinedOf(x report.Quarantined) admin.Quarantined {
	return admin.Quarantined{ID: x.ID, At: x.At, Request: x.Event.ID, OrgName: x.OrgName, Model: x.Model, Reason: x.Reason}
}

// Quarantined is one event in quarantine, with the decision about it.
func (b business) Quarantined(ctx context.Context, id ids.ID) (admin.QuarantinedDetail, error) {
	x, err := b.Report.Quarantined(ctx, operator(ctx), id)
	if err != nil {
		return admin.QuarantinedDetail{}, err
	}
	e := x.Event
	out := admin.QuarantinedDetail{Quarantined: quarantinedOf(x), Org: x.Org, Key: x.Key, Ending: e.Ending, Status: e.Status, Usage: e.Usage,
		Reported: string(e.Raw), Logged: strings.ToValidUTF8(string(x.Logged), "\uFFFD")}
	if e.ID != ids.Nil {
		out.Started, out.Done = milli(e.StartedMS), milli(e.EndedMS)
	}
	if e.FirstTokenMS != 0 {
		out.First = milli(e.FirstTokenMS)
	}
	if d := x.Decided; d != nil {
		out.Decision, out.DecidedAt, out.Why = d.Decision, d.At, d.Why
		var called names
		called, err = b.names(ctx, []string{d.By})
		out.DecidedBy = called.of(d.By)
	}
	return out, err
}

// overrunReason says what is known of why a charge found no allotment.
func overrunReason(o report.Overrun) string {
	switch o.Ending {
	case usage.GatewayDied:
		return "its gateway died while it ran"
	case usage.CapReached:
		return "a cap or the balance was used up while it ran"
	}
	return "it arrived after its gateway's money was fenced, or cost more than was held"
}

var linkInMail = regexp.MustCompile(`https?://\S+`)

// Outbox shows what would have been mailed.
func (b business) Outbox(ctx context.Context) (admin.Outbox, error) {
	by := operator(ctx)
	mails, err := b.Tenants.Outbox(ctx, by, ids.Nil, mailsShown)
	if err != nil {
		return admin.Outbox{}, err
	}
	links := make([]string, len(mails))
	var tokens []string
	for i, m := range mails {
		links[i] = linkInMail.FindString(m.Body)
		if t := tokenOf(links[i]); t != "" {
			tokens = append(tokens, t)
		}
	}
	states, err := b.Tenants.LinkStates(ctx, by, tokens)
	out := admin.Outbox{Mails: b.Mails}
	now := b.Clock.Now()
	for i, m := range mails {
		token := tokenOf(links[i])
		x := admin.Message{At: m.CreatedAt, To: m.Recipient, Subject: m.Subject, News: token == "", Sent: m.SentAt != nil, Expires: states[token].Expires, Used: states[token].Used}
		if !x.News && !x.Used && x.Expires.After(now) {
			x.Link = links[i]
		}
		if m.Hidden {
			x.Subject += ": only its recipient sees what it says"
		}
		out.Items = append(out.Items, x)
	}
	return out, err
}

// tokenOf is the sign-in token in a link of LinkURL's; "" for other links.
func tokenOf(link string) string {
	u, err := url.Parse(link)
	if err != nil {
		return ""
	}
	return u.Query().Get("t")
}
