package plan

// reach tells which hosts have links of some speed to each other: a bit for each pair.
type reach struct {
	row  int // words
	bits []uint64
}

// reachAt finds the links that are fast enough. Where both ways were measured the slower counts; a host reaches itself.
func (f *fleet) reachAt(gbps float64) *reach {
	if r := f.reaches[gbps]; r != nil {
		return r
	}
	r := &reach{row: (len(f.hosts) + 63) / 64}
	r.bits = make([]uint64, r.row*len(f.hosts))
	for i := range f.hosts {
		r.set(i, i)
		for peer, g := range f.hosts[i].Links {
			j, ok := f.byID[peer]
			if !ok || g < gbps {
				continue
			}
			if back, measured := f.hosts[j].Links[f.hosts[i].ID]; measured && back < gbps {
				continue
			}
			r.set(i, j)
			r.set(j, i)
		}
	}
	if f.reaches == nil {
		f.reaches = map[float64]*reach{}
	}
	f.reaches[gbps] = r
	return r
}

func (r *reach) set(i, j int) { r.bits[i*r.row+j/64] |= 1 << (j % 64) }

func (r *reach) has(i, j int) bool { return r.bits[i*r.row+j/64]>>(j%64)&1 == 1 }
