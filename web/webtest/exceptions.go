package webtest

import (
	"context"
	"time"

	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/usage"
	"millrace/web/admin"
	"millrace/web/session"
)

// asides are the events in quarantine: one that the gateway did not believe, one of a model that is gone, garbage, and one
// that was decided about.
func asides() []admin.QuarantinedDetail {
	at := func(n int, age time.Duration) admin.QuarantinedDetail {
		return admin.QuarantinedDetail{Quarantined: admin.Quarantined{ID: id(kindAside, n), At: ago(age), Request: id(kindRequest, 300+n), OrgName: "Bluefin Search", Model: "acme/llama-70b"},
			Org: id(kindOrg, 2), Key: "search-prod", Started: ago(age + 4*time.Second), First: ago(age + 3*time.Second), Done: ago(age + time.Second), Ending: usage.Complete, Status: 200}
	}
	miscounted, gone, garbage, decided := at(0, 5*time.Hour), at(1, days(1)), at(2, days(2)), at(3, days(3))
	miscounted.Reason = "the engine's count cannot be right: 4194305 tokens were generated, at most 4096 were asked for"
	miscounted.Usage, miscounted.Reported = usage.Impossible, `{"prompt_tokens":812,"completion_tokens":4194305,"total_tokens":4195117}`
	miscounted.Logged = `{"id":"01a1f92e-8d20-77ff-929b-0deb89e46bfb","usage":[-1,0,0,0,0,0,0,1],"raw":` + miscounted.Reported + `,"charge":0,"ending":"complete"}`
	gone.Reason, gone.Model = "its model does not exist", ""
	gone.Usage = usage.Vector{usage.Input: 1204, usage.Cached: 8192, usage.Output: 377, usage.Requests: 1}
	gone.Logged = `{"id":"01a1f92e-8d20-77ff-929b-0deb89e46bfc","usage":[1204,8192,0,377,0,0,0,1],"charge":880000,"ending":"complete"}`
	garbage = admin.QuarantinedDetail{Quarantined: admin.Quarantined{ID: garbage.ID, At: garbage.At, Reason: "not an event: invalid character 'g' looking for beginning of value"}, Logged: "garbage"}
	decided.Reason, decided.Usage, decided.Logged = gone.Reason, gone.Usage, gone.Logged
	decided.Decision, decided.DecidedBy, decided.Why, decided.DecidedAt = "dismissed", "ops@millrace.example", "The model was a test.", ago(days(2))
	return []admin.QuarantinedDetail{miscounted, gone, garbage, decided}
}

func (b business) Exceptions(context.Context, string) (admin.ExceptionList, error) {
	if b.f.state == Fresh {
		return admin.ExceptionList{}, nil
	}
	out := admin.ExceptionList{
		Overruns: []admin.Overrun{
			{At: ago(days(3)), Request: id(kindRequest, 301), OrgName: "Acme Robotics", Amount: usd("0.002904"), Reason: "arrived after the gateway's fence"},
			{At: ago(days(9)), Request: id(kindRequest, 302), OrgName: "Bluefin Search", Amount: usd("0.000314"), Reason: "hold could not be extended in time"},
		},
	}
	for _, x := range asides() {
		if x.Decision == "" {
			out.Quarantine = append(out.Quarantine, x.Quarantined)
		}
	}
	out.Waiting = int64(len(out.Quarantine))
	return out, nil
}

func (b business) Quarantined(_ context.Context, want ids.ID) (admin.QuarantinedDetail, error) {
	for _, x := range asides() {
		if x.ID == want {
			return x, nil
		}
	}
	return admin.QuarantinedDetail{}, errGone
}

// BookQuarantined books all but what nobody believes.
func (b business) BookQuarantined(ctx context.Context, _ session.Viewer, want ids.ID) error {
	x, err := b.Quarantined(ctx, want)
	if err == nil && x.Usage == usage.Impossible {
		err = fault.New(fault.Conflict, "It still cannot be booked: %s.", x.Reason)
	}
	return err
}

func (b business) DismissQuarantined(ctx context.Context, _ session.Viewer, want ids.ID, _ string) error {
	_, err := b.Quarantined(ctx, want)
	return err
}
