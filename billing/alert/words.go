package alert

import (
	"fmt"

	"millrace/billing/credit"
	"millrace/billing/hook"
	"millrace/billing/period"
	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/internal/money"
)

var prefixes = map[credit.Scope]string{credit.OrgScope: ids.Org, credit.ProjectScope: ids.Project, credit.KeyScope: ids.Key}

// capEvent is an alert as webhooks get it. Its id is the alert's: telling it again would be the same event.
func capEvent(r q.UntoldAlertsRow) hook.Event {
	return hook.Event{ID: r.ID, Org: r.OrgID, Kind: KindCap, At: r.CreatedAt.UTC(), Data: map[string]any{
		"scope": r.Scope, "scope_id": ids.Format(prefixes[credit.Scope(r.Scope)], r.ScopeID), "scope_name": r.ScopeName,
		"period": r.Period, "period_start": r.PeriodStart.UTC(), "percent": r.Percent, "hard": r.Hard,
		"cap_usd": money.Nano(r.CapNano).String(), "spent_usd": money.Nano(r.SettledNano).String()}}
}

// capMail says an alert to people.
func capMail(r q.UntoldAlertsRow) (subject, body string) {
	what := "your organization " + r.OrgName
	switch credit.Scope(r.Scope) {
	case credit.ProjectScope:
		what = "the project " + r.ScopeName
	case credit.KeyScope:
		what = "the API key " + r.ScopeName
	}
	limit := map[period.Kind]string{period.Day: "daily", period.Week: "weekly", period.Month: "monthly", period.Total: "total"}[period.Kind(r.Period)]
	spent, allowed := money.Nano(r.SettledNano), money.Nano(r.CapNano)
	subject = fmt.Sprintf("%d %% of the %s cap of %s is used", r.Percent, limit, what)
	body = fmt.Sprintf("%s has used %s of its %s cap of %s.", capital(what), usd(spent), limit, usd(allowed))
	switch {
	case !r.Hard:
		body += " This cap only alerts: requests go on."
	case r.Percent >= 100:
		body += " Requests are refused with 402 until the cap is raised" + until(r) + "."
	default:
		body += " At 100 % requests are refused with 402" + until(r) + "."
	}
	return subject, body
}

// until says when a cap's period ends, in the organization's zone.
func until(r q.UntoldAlertsRow) string {
	zone, err := period.Zone(r.TimeZone)
	if err != nil {
		return ""
	}
	end := period.At(period.Kind(r.Period), zone, r.CreatedAt).End
	if end.IsZero() {
		return ""
	}
	return fmt.Sprintf(", or until it resets on %s (%s)", end.In(zone).Format("2 January 2006 at 15:04"), r.TimeZone)
}

func capital(s string) string {
	if s == "" || s[0] < 'a' || s[0] > 'z' {
		return s
	}
	return string(s[0]-'a'+'A') + s[1:]
}

// usd rounds towards zero to cents for reading; below a cent it shows all there is.
func usd(n money.Nano) string {
	const cent = money.NanoPerUSD / 100
	if n > -cent && n < cent {
		return "$" + n.String()
	}
	c := n / cent
	sign := ""
	if c < 0 {
		sign, c = "−", -c
	}
	return fmt.Sprintf("%s$%d.%02d", sign, c/100, c%100)
}
