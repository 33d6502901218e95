package ui

// RackView is a group of hosts that stand together: a rack, a region, or one scale-up domain.
type RackView struct {
	Name, Note string
	Hosts      []HostView
}

// HostView is one line of a rack.
type HostView struct {
	Href, Name string
	State      string // a word: serving, draining, gone
	Tone       Tone
	GPUs       []GPUView // none for a host without accelerators
	Note       string    // instead of GPUs, for example "CPU only"
}

// GPUView is one square.
type GPUView struct {
	State GPUState
	Title string // what it does, on hover: "GPU 3: prefill for llama-70b/2"
}

// GPUState is what a GPU is doing.
type GPUState string

// The states. Each has a letter and a fill of its own.
const (
	GPUFree     GPUState = "free"
	GPUUnit     GPUState = "u" // serves an aggregated unit
	GPUPrefill  GPUState = "p"
	GPUDecode   GPUState = "d"
	GPUEncoder  GPUState = "e"
	GPUStarting GPUState = "s" // taken, and not serving yet
	GPUDraining GPUState = "drain"
	GPUFailed   GPUState = "x"
)

// letter is the shape that says the state without colour.
func (s GPUState) letter() string {
	switch s {
	case GPUUnit:
		return "U"
	case GPUPrefill:
		return "P"
	case GPUDecode:
		return "D"
	case GPUEncoder:
		return "E"
	case GPUStarting:
		return "S"
	case GPUDraining:
		return "~"
	case GPUFailed:
		return "!"
	}
	return ""
}

// Word is how a GPU's state reads.
func (s GPUState) Word() string {
	switch s {
	case GPUUnit:
		return "serving"
	case GPUPrefill:
		return "prefill"
	case GPUDecode:
		return "decode"
	case GPUEncoder:
		return "encoder"
	case GPUStarting:
		return "starting"
	case GPUDraining:
		return "draining"
	case GPUFailed:
		return "failed"
	}
	return "free"
}

var gpuStates = []GPUState{GPUUnit, GPUPrefill, GPUDecode, GPUEncoder, GPUStarting, GPUDraining, GPUFailed, GPUFree}

// usedStates are the states that occur, in a fixed order: the legend explains only what is seen.
func usedStates(racks []RackView) []GPUState {
	seen := map[GPUState]bool{}
	for _, r := range racks {
		for _, h := range r.Hosts {
			for _, g := range h.GPUs {
				seen[g.State] = true
			}
		}
	}
	var out []GPUState
	for _, s := range gpuStates {
		if seen[s] {
			out = append(out, s)
		}
	}
	return out
}

// summary says a host's GPUs in words for screen readers.
func (h HostView) summary() string {
	counts := map[GPUState]int64{}
	for _, g := range h.GPUs {
		counts[g.State]++
	}
	text := ""
	for _, s := range gpuStates {
		if n := counts[s]; n > 0 {
			if text != "" {
				text += ", "
			}
			text += FormatCount(n) + " " + s.Word()
		}
	}
	return text
}
