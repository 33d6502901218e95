package fleet

import "fmt"

// freezeFrom is the fewest lost hosts that are a mass loss: below it a share says nothing.
const freezeFrom = 3

// frozen says why nothing may move; "" = it may. Hosts that an operator has cordoned do not count: he knows of them.
func (w *world) frozen() string {
	all, lost := 0, 0
	for _, h := range w.order {
		if h.Cordoned || h.SeenMs < 0 {
			continue
		}
		all++
		if h.lost {
			lost++
		}
	}
	if lost >= freezeFrom && lost*100 > all*int(w.settings.MaxLost) {
		return fmt.Sprintf("%d of %d hosts are not heard of, more than %d %%: nothing is moved until they are back, or cordoned, or the share is raised",
			lost, all, w.settings.MaxLost)
	}
	return ""
}

// awaited reports whether something of the unit is on a host that has not been heard of.
func (u *unit) awaited() bool {
	for _, g := range u.groups {
		for _, p := range g.parts {
			if p.Seen.Lost {
				return true
			}
		}
	}
	return false
}
