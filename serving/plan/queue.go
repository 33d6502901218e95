package plan

// queue is choices of which the cheapest comes first (a binary heap): mostly few of many are looked at.
type queue []choice

func newQueue(all []choice) queue {
	q := queue(all)
	for i := len(q)/2 - 1; i >= 0; i-- {
		q.sink(i)
	}
	return q
}

// pop takes the cheapest out.
func (q *queue) pop() choice {
	h := *q
	top := h[0]
	h[0] = h[len(h)-1]
	*q = h[:len(h)-1]
	q.sink(0)
	return top
}

func (q queue) sink(i int) {
	for {
		least := i
		for _, c := range [2]int{2*i + 1, 2*i + 2} {
			if c < len(q) && q[c].compare(&q[least]) < 0 {
				least = c
			}
		}
		if least == i {
			return
		}
		q[i], q[least] = q[least], q[i]
		i = least
	}
}
