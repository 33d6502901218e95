package responses

import (
	"time"

	"millrace/internal/fault"
	"millrace/internal/ids"
)

// Places of one process, for runs and for streams that are given, each.
const (
	maxPlaces    = 1024
	maxPlacesOrg = 128 // of them, of one organization
)

// places are how many an organization has.
type places map[ids.ID]int

// take gives an organization a place more, or says why not. what names the places in words.
func (p places) take(org ids.ID, what string) error {
	all := 0
	for _, n := range p {
		all += n
	}
	switch {
	case p[org] >= maxPlacesOrg:
		return fault.New(fault.Limited, "Your organization has %d %s at this gateway, the most there may be. Try again when one has ended.", maxPlacesOrg, what).
			WithCode("background_limit_exceeded").WithRetryAfter(time.Second)
	case all >= maxPlaces:
		return fault.New(fault.Unavailable, "There are too many %s just now. Try again.", what).WithRetryAfter(time.Second)
	}
	p[org]++
	return nil
}

func (p places) give(org ids.ID) {
	if p[org]--; p[org] == 0 {
		delete(p, org)
	}
}
