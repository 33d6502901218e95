package domain

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"millrace/billing/credit"
	"millrace/billing/price"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
	"millrace/tenants/audit"
	"millrace/web/ui"
)

// Limits of a change in words.
const (
	maxParts    = 6
	maxPartText = 80 // characters of one value
)

// scopeIn is the id of what a cap is set on, for an entry about a cap; "" for others.
func scopeIn(e audit.Entry) string {
	if !strings.HasPrefix(e.Action, "cap.") {
		return ""
	}
	c, ok := read[credit.Cap](e.After)
	if !ok {
		if c, ok = read[credit.Cap](e.Before); !ok {
			return ""
		}
	}
	prefix := map[credit.Scope]string{credit.OrgScope: ids.Org, credit.ProjectScope: ids.Project, credit.KeyScope: ids.Key}[c.Scope]
	return ids.Format(prefix, c.ScopeID)
}

func read[T any](raw json.RawMessage) (v T, ok bool) {
	return v, len(raw) > 0 && !bytes.Equal(raw, []byte("null")) && json.Unmarshal(raw, &v) == nil
}

// changeText says an entry's change in a few words; the log itself keeps all of it.
func changeText(e audit.Entry) string {
	switch e.Action {
	case "cap.set", "cap.remove", "cap.raise":
		return capText(e)
	case "credit.grant":
		if g, ok := read[credit.Grant](e.After); ok {
			return grantText(g)
		}
	case "credit_limit.set":
		was, _ := read[money.Nano](e.Before)
		is, _ := read[money.Nano](e.After)
		return "credit limit " + ui.FormatMoney(was) + " → " + ui.FormatMoney(is)
	case "balance_alert.set":
		was, _ := read[money.Nano](e.Before)
		is, _ := read[money.Nano](e.After)
		return "low balance " + ui.FormatMoney(was) + " → " + ui.FormatMoney(is)
	case "price.create", "price.cancel":
		if v, ok := read[price.Version](e.After); ok {
			return priceText(v)
		}
	}
	return fieldsText(e.Before, e.After)
}

func capText(e audit.Entry) string {
	was, had := read[credit.Cap](e.Before)
	is, has := read[credit.Cap](e.After)
	what := "cap per " + string(is.Period) + " "
	if has && is.AlertOnly {
		what = "alert-only " + what
	}
	switch {
	case has && is.Raised > 0:
		return what + "raised to " + ui.FormatMoney(is.Raised) + " until " + is.RaisedUntil.UTC().Format("2 Jan 2006 15:04 UTC")
	case had && has:
		return what + ui.FormatMoney(was.Amount) + " → " + ui.FormatMoney(is.Amount)
	case has:
		return what + ui.FormatMoney(is.Amount)
	case had:
		return "cap per " + string(was.Period) + " of " + ui.FormatMoney(was.Amount) + " removed"
	}
	return ""
}

func grantText(g credit.Grant) string {
	text := ui.FormatMoney(g.Amount) + " " + string(g.Kind)
	if g.ExpiresAt != nil {
		text += ", ends " + g.ExpiresAt.UTC().Format("2 Jan 2006 15:04 UTC")
	}
	return text + ": " + shorten(g.Reason)
}

func priceText(v price.Version) string {
	var parts []string
	for c, p := range v.Prices {
		if p > 0 {
			parts = append(parts, usage.Class(c).String()+" "+ui.FormatPerMillion(p))
		}
	}
	if len(parts) == 0 {
		parts = []string{"free"}
	}
	return strings.Join(parts, ", ") + " per 1M, from " + v.EffectiveAt.UTC().Format("2 Jan 2006 15:04 UTC")
}

// silent are the fields that say nothing to a reader: the entry's own columns have them, or they follow from others.
var silent = map[string]bool{"id": true, "org_id": true, "user_id": true, "project_id": true, "created_by": true, "created_at": true, "prefix": true, "last4": true}

// fieldsText lists the fields that differ.
func fieldsText(before, after json.RawMessage) string {
	was, is := flat(before), flat(after)
	all := maps.Clone(was)
	maps.Copy(all, is)
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		a, b := was[name], is[name]
		if a == b || silent[name] {
			continue
		}
		label := strings.TrimSuffix(strings.ReplaceAll(name, "_", " "), " nano") // "" for a value that is no object
		switch {
		case a != "" && b != "":
			parts = append(parts, label+" "+a+" → "+b)
		case b != "":
			parts = append(parts, label+" "+b)
		default:
			parts = append(parts, label+" "+a+" removed")
		}
	}
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	if len(parts) > maxParts {
		parts = append(parts[:maxParts], "…")
	}
	return strings.Join(parts, ", ")
}

// flat gives the fields of a JSON value that say something, in small letters; the value itself has the name "".
func flat(raw json.RawMessage) map[string]string {
	out := map[string]string{}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if d.Decode(&v) == nil {
		flatten(out, "", v)
	}
	return out
}

func flatten(out map[string]string, name string, v any) {
	switch x := v.(type) {
	case map[string]any:
		for k, field := range x {
			path := strings.ToLower(k)
			if name != "" {
				path = name + " " + path
			}
			flatten(out, path, field)
		}
	case string:
		if t, err := time.Parse(time.RFC3339, x); err == nil && !t.IsZero() {
			x = t.UTC().Format("2 Jan 2006 15:04 UTC")
		}
		if x != "" && !strings.HasPrefix(x, "0001-01-01") {
			out[name] = shorten(x)
		}
	case json.Number:
		if n, err := x.Int64(); err == nil && strings.HasSuffix(name, "_nano") && n != 0 {
			out[name] = ui.FormatMoney(money.Nano(n))
		} else if x.String() != "0" {
			out[name] = shorten(x.String())
		}
	case bool:
		if x {
			out[name] = "yes"
		}
	case []any:
		if len(x) > 0 {
			out[name] = shorten(fmt.Sprint(x...))
		}
	}
}

func shorten(s string) string {
	r := []rune(s)
	if len(r) <= maxPartText {
		return s
	}
	return string(r[:maxPartText-1]) + "…"
}
