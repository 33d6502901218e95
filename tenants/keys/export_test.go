package keys

// MaxHidden is how many hidden keys of an organization may be alive.
const MaxHidden = maxHidden

// WithoutRefresh stops an Authenticator from noticing changes by itself, so that a test sees what notices alone do. Call
// it before Run.
func (a *Authenticator) WithoutRefresh() { a.refreshEvery = 1 << 62 }

// Bare is a principal without its key's hash, as a Record has it.
func Bare(p Principal) Principal {
	p.hash = Hash{}
	return p
}
