package report_test

import (
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"millrace/billing/period"
	"millrace/billing/report"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
)

// zones with whole, half and quarter hours, with clocks that change at 2:00, at midnight, by half an hour, or never.
var zones = []string{"UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Asia/Kathmandu", "Australia/Adelaide", "Australia/Lord_Howe",
	"America/St_Johns", "America/Havana", "Africa/Cairo", "Pacific/Chatham", "Pacific/Kiritimati"}

func zone(t interface{ Fatal(...any) }, name string) *time.Location {
	z, err := period.Zone(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

// sums is n requests of one size.
func sums(n int64) report.Sums {
	s := report.Sums{Requests: n, Errors: n, Charged: money.Nano(n * 1_000_003), Overrun: money.Nano(n), Saved: money.Nano(n * 7), Streams: n,
		First: time.Duration(n) * 10 * time.Millisecond}
	s.Usage[usage.Input], s.Usage[usage.Cached], s.Usage[usage.Output], s.Usage[usage.Requests] = n*100, n*50, n*9, n
	return s
}

func total(cells []report.Cell) (sum report.Sums) {
	for _, c := range cells {
		sum = plus(sum, c.Sums)
	}
	return sum
}

func plus(a, b report.Sums) report.Sums {
	a.Requests, a.Errors, a.Charged, a.Overrun, a.Saved = a.Requests+b.Requests, a.Errors+b.Errors, a.Charged+b.Charged, a.Overrun+b.Overrun, a.Saved+b.Saved
	a.Streams, a.First, a.Decode = a.Streams+b.Streams, a.First+b.First, a.Decode+b.Decode
	for c, n := range b.Usage {
		a.Usage[c] += n
	}
	return a
}

// Around every change of the clock in 2026, in every zone: the hours of a span add up to its days, the days to the whole,
// and each day is exactly what lies between its two midnights.
func TestHoursDaysAndTheWholeAgree(t *testing.T) {
	w := newWorld(t)
	c := w.customer("Acme", 2, 1)
	model := w.model("m/one")
	var rows []row
	for _, start := range []time.Time{time.Date(2026, 3, 6, 0, 0, 0, 0, time.UTC), time.Date(2026, 3, 27, 0, 0, 0, 0, time.UTC),
		time.Date(2026, 4, 3, 0, 0, 0, 0, time.UTC), time.Date(2026, 4, 22, 0, 0, 0, 0, time.UTC), time.Date(2026, 10, 2, 0, 0, 0, 0, time.UTC),
		time.Date(2026, 10, 23, 0, 0, 0, 0, time.UTC)} {
		for range 400 { // ten days of 96 quarters of an hour, most of them without anything
			at := start.Add(time.Duration(rand.IntN(960)) * 15 * time.Minute)
			rows = append(rows, row{org: c.id, project: c.project, key: c.keys[rand.IntN(2)], model: model, at: at, Sums: sums(1 + rand.Int64N(20))})
		}
	}
	w.roll(rows...)
	changes := []time.Time{time.Date(2026, 3, 8, 0, 0, 0, 0, time.UTC), time.Date(2026, 3, 29, 0, 0, 0, 0, time.UTC), time.Date(2026, 4, 5, 0, 0, 0, 0, time.UTC),
		time.Date(2026, 4, 24, 0, 0, 0, 0, time.UTC), time.Date(2026, 10, 4, 0, 0, 0, 0, time.UTC), time.Date(2026, 10, 25, 0, 0, 0, 0, time.UTC)}
	rapid.Check(t, func(rt *rapid.T) {
		z := zone(rt, rapid.SampledFrom(zones).Draw(rt, "zone"))
		around := rapid.SampledFrom(changes).Draw(rt, "change").AddDate(0, 0, rapid.IntRange(-2, 2).Draw(rt, "days"))
		from := period.At(period.Day, z, around).Start
		to := from
		for range rapid.IntRange(1, 5).Draw(rt, "length") {
			to = period.At(period.Day, z, to).End
		}
		read := func(from, to time.Time, step string) []report.Cell {
			cells, err := w.Usage(t.Context(), c.member, report.Query{From: from, To: to, Zone: z, Step: step, Org: c.id})
			if err != nil {
				rt.Fatal(err)
			}
			return cells
		}
		whole, days, hours := read(from, to, report.StepTotal), read(from, to, report.StepDay), read(from, to, report.StepHour)
		if total(whole) != total(days) || total(days) != total(hours) {
			rt.Fatalf("%v to %v: the whole is %+v, the days %+v, the hours %+v", from, to, total(whole), total(days), total(hours))
		}
		want := map[time.Time]report.Sums{}
		for _, r := range rows {
			if !r.at.Before(from) && r.at.Before(to) {
				day := period.At(period.Day, z, r.at).Start
				want[day] = plus(want[day], r.Sums)
			}
		}
		if len(days) != len(want) {
			rt.Fatalf("%d days, want %d", len(days), len(want))
		}
		for _, d := range days {
			if want[d.Start] != d.Sums {
				rt.Fatalf("the day from %v is %+v, want %+v", d.Start, d.Sums, want[d.Start])
			}
			if day := total(read(d.Start, period.At(period.Day, z, d.Start).End, report.StepHour)); day != d.Sums {
				rt.Fatalf("the hours of the day from %v are %+v, the day is %+v", d.Start, day, d.Sums)
			}
		}
	})
}

func TestADayOfClockChangeHasAsManyHoursAsItHas(t *testing.T) {
	w := newWorld(t)
	c := w.customer("Acme", 1, 0)
	model := w.model("m/one")
	for _, x := range []struct {
		zone, day string
		hours     int
	}{{"Europe/Berlin", "2026-03-29", 23}, {"Europe/Berlin", "2026-10-25", 25}, {"Asia/Kolkata", "2026-10-25", 24}, {"Australia/Lord_Howe", "2026-04-05", 25}} {
		z := zone(t, x.zone)
		day, err := time.ParseInLocation(time.DateOnly, x.day, z)
		if err != nil {
			t.Fatal(err)
		}
		span := period.At(period.Day, z, day.Add(12*time.Hour))
		var rows []row
		quarters := 0
		for at := span.Start; at.Before(span.End); at = at.Add(15 * time.Minute) {
			rows = append(rows, row{org: c.id, project: c.project, key: c.keys[0], model: model, at: at, Sums: sums(1)})
			quarters++
		}
		w.exec("DELETE FROM usage_rollups")
		w.roll(rows...)
		cells, err := w.Usage(t.Context(), c.member, report.Query{From: span.Start, To: span.End, Zone: z, Step: report.StepHour, Org: c.id})
		if err != nil {
			t.Fatal(err)
		}
		if len(cells) != x.hours {
			t.Errorf("%s in %s has %d hours, want %d", x.day, x.zone, len(cells), x.hours)
		}
		if n := total(cells).Requests; n != int64(quarters) {
			t.Errorf("%s in %s has %d requests, want %d", x.day, x.zone, n, quarters)
		}
	}
}

func TestGroupsAndFilters(t *testing.T) {
	w := newWorld(t)
	c := w.customer("Acme", 2, 3)
	one, two := w.model("m/one"), w.model("m/two")
	at := now.Truncate(15 * time.Minute).Add(-time.Hour)
	add := func(key, model ids.ID, n int64) {
		w.roll(row{org: c.id, project: c.project, key: key, model: model, at: at, Sums: sums(n)})
	}
	add(c.keys[0], one, 1)
	add(c.keys[0], two, 2)
	add(c.keys[1], two, 4)
	add(c.played[0], one, 8)
	add(c.played[1], two, 16)
	base := report.Query{From: at.Add(-time.Hour), To: at.Add(time.Hour), Step: report.StepTotal, Org: c.id}
	for _, x := range []struct {
		name   string
		change func(q *report.Query)
		want   map[string]int64
	}{
		{"by nothing", func(*report.Query) {}, map[string]int64{"": 31}},
		{"by model", func(q *report.Query) { q.Group = report.ByModel }, map[string]int64{"m/one": 9, "m/two": 22}},
		{"the playground's keys are one", func(q *report.Query) { q.Group = report.ByKey }, map[string]int64{"key a": 3, "key b": 4, "Playground": 24}},
		{"by project", func(q *report.Query) { q.Group = report.ByProject }, map[string]int64{"main": 31}},
		{"one model", func(q *report.Query) { q.Group, q.Model = report.ByKey, two }, map[string]int64{"key a": 2, "key b": 4, "Playground": 16}},
		{"one key", func(q *report.Query) { q.Group, q.Key = report.ByModel, c.keys[0] }, map[string]int64{"m/one": 1, "m/two": 2}},
		{"the playground alone", func(q *report.Query) { q.Group, q.Key = report.ByModel, report.Playground }, map[string]int64{"m/one": 8, "m/two": 16}},
		{"one project", func(q *report.Query) { q.Project = c.project }, map[string]int64{"": 31}},
		{"another project", func(q *report.Query) { q.Project = ids.New() }, map[string]int64{}},
	} {
		t.Run(x.name, func(t *testing.T) {
			q := base
			x.change(&q)
			cells, err := w.Usage(t.Context(), c.member, q)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]int64{}
			for _, cell := range cells {
				got[cell.Label] += cell.Requests
				if cell.Sums != sums(cell.Requests) {
					t.Errorf("%s: %+v, want %+v", cell.Label, cell.Sums, sums(cell.Requests))
				}
			}
			if len(got) != len(x.want) {
				t.Errorf("groups %v, want %v", got, x.want)
			}
			for label, n := range x.want {
				if got[label] != n {
					t.Errorf("%q: %d requests, want %d", label, got[label], n)
				}
			}
		})
	}
}

func TestQueriesThatAreRefused(t *testing.T) {
	w := newWorld(t)
	c := w.customer("Acme", 1, 0)
	good := report.Query{From: now.Truncate(15 * time.Minute), To: now.Truncate(15 * time.Minute).Add(time.Hour), Step: report.StepDay, Org: c.id}
	for name, change := range map[string]func(q *report.Query){
		"no span":                 func(q *report.Query) { q.To = q.From },
		"backwards":               func(q *report.Query) { q.From, q.To = q.To, q.From },
		"not a quarter":           func(q *report.Query) { q.From = q.From.Add(-time.Minute) },
		"unknown step":            func(q *report.Query) { q.Step = "week" },
		"unknown group":           func(q *report.Query) { q.Group = "colour" },
		"too many steps":          func(q *report.Query) { q.Step, q.From = report.StepHour, q.From.AddDate(-3, 0, 0) },
		"keys of every customer":  func(q *report.Query) { q.Org, q.Group = ids.Nil, report.ByKey },
		"projects of all as well": func(q *report.Query) { q.Org, q.Group = ids.Nil, report.ByProject },
	} {
		q := good
		change(&q)
		if _, err := w.Usage(t.Context(), w.root, q); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: error %v, want Invalid", name, err)
		}
	}
	if _, err := w.Usage(t.Context(), c.member, good); err != nil {
		t.Errorf("a good query: %v", err)
	}
}

// Over all customers, by every group; days that are over are read again only now and then, the running ones always.
func TestUsageOfAllCustomers(t *testing.T) {
	w := newWorld(t)
	a, b := w.customer("Acme", 1, 0), w.customer("Bluefin", 1, 0)
	one, two := w.model("m/one"), w.model("m/two")
	today := now.Truncate(24 * time.Hour)
	old, recent := today.AddDate(0, 0, -10).Add(7*time.Hour), today.Add(7*time.Hour)
	add := func(c customer, model ids.ID, at time.Time, n int64) {
		w.roll(row{org: c.id, project: c.project, key: c.keys[0], model: model, at: at, Sums: sums(n)})
	}
	add(a, one, old, 3)
	add(b, one, old, 6)
	add(b, two, recent, 12)
	read := func(group string, model ids.ID) map[string]int64 {
		t.Helper()
		cells, err := w.Usage(t.Context(), w.root, report.Query{From: today.AddDate(0, 0, -29), To: today.AddDate(0, 0, 1), Step: report.StepDay, Group: group, Model: model})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]int64{}
		for _, c := range cells {
			if c.Sums != sums(c.Requests) {
				t.Errorf("%+v, want %+v", c.Sums, sums(c.Requests))
			}
			got[c.Start.Format("01-02 ")+c.Label] = c.Requests
		}
		return got
	}
	expect := func(got map[string]int64, want map[string]int64) {
		t.Helper()
		if len(got) != len(want) {
			t.Errorf("got %v, want %v", got, want)
		}
		for k, n := range want {
			if got[k] != n {
				t.Errorf("%q: %d requests, want %d", k, got[k], n)
			}
		}
	}
	expect(read(report.ByNothing, ids.Nil), map[string]int64{"11-10 ": 9, "11-20 ": 12})
	expect(read(report.ByOrg, ids.Nil), map[string]int64{"11-10 Acme": 3, "11-10 Bluefin": 6, "11-20 Bluefin": 12})
	expect(read(report.ByModel, ids.Nil), map[string]int64{"11-10 m/one": 9, "11-20 m/two": 12})
	expect(read(report.ByOrg, one), map[string]int64{"11-10 Acme": 3, "11-10 Bluefin": 6})

	add(a, two, recent, 3)
	add(a, one, old.Add(time.Hour), 3) // late news of a day that is over
	expect(read(report.ByOrg, ids.Nil), map[string]int64{"11-10 Acme": 3, "11-10 Bluefin": 6, "11-20 Acme": 3, "11-20 Bluefin": 12})
	w.clock.Advance(6 * time.Minute)
	expect(read(report.ByOrg, ids.Nil), map[string]int64{"11-10 Acme": 6, "11-10 Bluefin": 6, "11-20 Acme": 3, "11-20 Bluefin": 12})

	rows, err := w.Revenue(t.Context(), w.root, today.AddDate(0, 0, -19), today.AddDate(0, 0, 11))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]money.Nano{}
	for _, r := range rows {
		got[r.OrgName+" "+r.Model] = r.Charged
	}
	for k, n := range map[string]int64{"Acme m/one": 6, "Acme m/two": 3, "Bluefin m/one": 6, "Bluefin m/two": 12} {
		if got[k] != sums(n).Charged {
			t.Errorf("revenue of %s is %s, want %s", k, got[k], sums(n).Charged)
		}
	}
	if len(rows) != 4 || rows[0].OrgName != "Acme" || rows[3].OrgName != "Bluefin" {
		t.Errorf("revenue %v, want four lines by customer", got)
	}
}

// Days that are over are kept for a while: what comes late is seen a little later, and reading again changes nothing.
func TestClosedDaysOfACustomer(t *testing.T) {
	w := newWorld(t)
	c := w.customer("Acme", 1, 2)
	model := w.model("m/one")
	today := now.Truncate(24 * time.Hour)
	add := func(key ids.ID, at time.Time, n int64) {
		w.roll(row{org: c.id, project: c.project, key: key, model: model, at: at, Sums: sums(n)})
	}
	read := func() map[string]int64 {
		t.Helper()
		cells, err := w.Usage(t.Context(), c.member, report.Query{From: today.AddDate(0, 0, -3), To: today.AddDate(0, 0, 1), Step: report.StepDay, Group: report.ByKey, Org: c.id})
		if err != nil {
			t.Fatal(err)
		}
		spend, err := w.Spend(t.Context(), c.member, c.id, today.AddDate(0, 0, -3), time.UTC)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]int64{"spend": int64(spend.Total / sums(1).Charged)}
		for _, x := range cells {
			if x.Sums != sums(x.Requests) {
				t.Errorf("%+v, want %+v", x.Sums, sums(x.Requests))
			}
			got[x.Start.Format("02 ")+x.Label] = x.Requests
		}
		return got
	}
	expect := func(want map[string]int64) {
		t.Helper()
		for range 3 { // the second time it is kept, the third time it must still be what it was
			if got := read(); !maps.Equal(got, want) {
				t.Fatalf("got %v, want %v", got, want)
			}
		}
	}
	yesterday := today.Add(-5 * time.Hour)
	add(c.keys[0], yesterday, 1)
	add(c.played[0], yesterday, 2)
	add(c.played[1], yesterday, 4)
	add(c.keys[0], today, 8)
	expect(map[string]int64{"19 key a": 1, "19 Playground": 6, "20 key a": 8, "spend": 15})
	add(c.keys[0], yesterday, 16)
	add(c.keys[0], today, 32)
	expect(map[string]int64{"19 key a": 1, "19 Playground": 6, "20 key a": 40, "spend": 47})
	w.clock.Advance(5 * time.Minute)
	expect(map[string]int64{"19 key a": 17, "19 Playground": 6, "20 key a": 40, "spend": 63})
}

// So are hours that are over; those that may still get something are read anew, and so is a part of an hour.
func TestClosedHoursOfAllCustomers(t *testing.T) {
	w := newWorld(t)
	c := w.customer("Acme", 1, 0)
	model := w.model("m/one")
	hour := now.Truncate(time.Hour)
	old, young := hour.Add(-4*time.Hour), hour.Add(-2*time.Hour)
	add := func(at time.Time, n int64) {
		w.roll(row{org: c.id, project: c.project, key: c.keys[0], model: model, at: at, Sums: sums(n)})
	}
	expect := func(part time.Duration, want map[time.Time]int64) {
		t.Helper()
		got := map[time.Time]int64{}
		cells, err := w.Usage(t.Context(), w.root, report.Query{From: old.Add(part), To: hour, Step: report.StepHour})
		for _, x := range cells {
			got[x.Start] = x.Requests
		}
		if err != nil || !maps.Equal(got, want) {
			t.Fatalf("got %v, %v, want %v", got, err, want)
		}
	}
	add(old.Add(30*time.Minute), 1)
	add(young, 2)
	expect(0, map[time.Time]int64{old: 1, young: 2})
	add(old.Add(30*time.Minute), 4)
	add(young, 8)
	expect(0, map[time.Time]int64{old: 1, young: 10})
	part := 15 * time.Minute
	expect(part, map[time.Time]int64{old.Add(part): 5, young.Add(part - time.Hour): 10})
	w.clock.Advance(5 * time.Minute)
	expect(0, map[time.Time]int64{old: 5, young: 10})
}

// Where there are more customers than a report has room for, those that paid least are added up; a list of some has theirs.
func TestAReportOfManyCustomers(t *testing.T) {
	w := newWorld(t)
	const customers, days = 800, 30
	w.exec(`INSERT INTO orgs (org_id, name) SELECT ('00000000-0000-4000-8000-' || lpad(n::text, 12, '0'))::uuid, 'Customer ' || n FROM generate_series(1, $1::int) n`, customers)
	first := now.Truncate(24*time.Hour).AddDate(0, 0, -days)
	w.exec(`INSERT INTO usage_rollups SELECT o.org_id, $1::timestamptz + d * interval '1 day', o.org_id, o.org_id, o.org_id, 1, 0, 10, 0, 0, 5, 0, 0, 0, substr(o.org_id::text, 25)::bigint, 0, 0, 0, 0, 0
		FROM orgs o, generate_series(0, $2::int - 1) d WHERE o.name LIKE 'Customer %'`, first, days)
	in := report.Query{From: first, To: first.AddDate(0, 0, days), Step: report.StepDay, Group: report.ByOrg}
	cells, err := w.Usage(t.Context(), w.root, in)
	if err != nil || len(cells) > report.MaxCells || len(cells) < report.MaxCells/2 {
		t.Fatalf("%d cells, %v", len(cells), err)
	}
	var charged money.Nano
	var requests, others int64
	for _, c := range cells {
		charged, requests = charged+c.Charged, requests+c.Requests
		if c.Group == ids.Nil {
			others++
			if c.Label != report.Others || c.Charged >= 800*100 {
				t.Errorf("%+v", c)
			}
		} else if c.Charged < 100 {
			t.Errorf("%s is told apart: it paid %d", c.Label, c.Charged)
		}
	}
	if charged != days*customers*(customers+1)/2 || requests != days*customers || others != days {
		t.Errorf("%d charged, %d requests, %d of others", charged, requests, others)
	}
	in.Orgs = []ids.ID{cells[len(cells)-1].Group, {0, 0, 0, 0, 0, 0, 0x40, 0, 0x80, 0, 0, 0, 0, 0, 0, 1}}
	if some, err := w.Usage(t.Context(), w.root, in); err != nil || len(some) != 2*days {
		t.Errorf("%d cells of two, %v", len(some), err)
	}
}
