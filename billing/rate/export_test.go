package rate

// OnStep lets a test fail the rater at a step of its transactions.
func OnStep(r *Rater, fn func(step string) error) { r.at = fn }
