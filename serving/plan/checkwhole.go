package plan

import "millrace/internal/ids"

// counts checks that every demand is met or refused, and that what ends has an heir.
func (k *checker) counts(units map[ids.ID]*Unit, demands []Demand) {
	models := map[ids.ID]bool{}
	for i := range demands {
		d := &demands[i]
		models[d.Model] = models[d.Model] || d.Units > 0
		n := 0
		for _, u := range units {
			if u.Model == d.Model && u.Release == d.Release && u.Ends == "" {
				n++
			}
		}
		unmet := 0
		for _, u := range k.plan.Unmet {
			if u.Model == d.Model && u.Release == d.Release {
				unmet += u.Units
			}
		}
		if n > d.Units || n+unmet < d.Units {
			k.fail("%s wants %d units, has %d, and %d are refused", d.Name, d.Units, n, unmet)
		}
	}
	for _, u := range k.plan.Units {
		if u.Ends != "" && (units[u.Heir] == nil || u.Heir == u.ID || units[u.Heir].Model != u.Model) {
			k.fail("unit %s ends, and its heir is not there", u.ID)
		}
		if !models[u.Model] {
			k.fail("unit %s stays, and nothing asks for its model", u.ID)
		}
	}
}

// spares checks the domains that got something new.
func (k *checker) spares() {
	for name, d := range k.domains {
		limit := d.size - k.o.Spares
		if k.o.Spares > 0 && d.size >= max(k.o.SparesFrom, 1) && d.added && !d.repaired && d.used > max(0, limit) {
			k.fail("domain %q has %d of %d GPUs in use and keeps no %d spares", name, d.used, d.size, k.o.Spares)
		}
	}
}
