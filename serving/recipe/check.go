package recipe

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"millrace/internal/fault"
	"millrace/serving/engine"
)

// Limits of single members.
const (
	maxContext   = 16 << 20 // tokens
	maxFlags     = 200
	maxText      = 4096 // bytes
	maxGolden    = 64
	maxDraft     = 32
	maxSlots     = 1 << 16
	maxHostCache = 16 << 10 // GiB
)

var (
	nameForm    = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,99}$`)
	versionForm = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z.+_-]{0,63}$`)
	envForm     = regexp.MustCompile(`^[A-Z_][A-Z0-9_]{0,99}$`)
	archForm    = regexp.MustCompile(`^[a-z][a-z0-9_]{1,31}$`)
)

// wrong collects the first thing that is wrong.
type wrong struct{ err error }

// when notes a fault of a member, unless there is one already.
func (w *wrong) when(bad bool, member, text string, args ...any) {
	if bad && w.err == nil {
		w.err = fault.New(fault.Invalid, "%s: %s", member, fmt.Sprintf(text, args...)).WithCode(badRecipe).WithParam(member)
	}
}

// Check looks whether the recipe says what makes sense. Its error names the member.
func (r *Recipe) Check() error {
	var w wrong
	w.when(!nameForm.MatchString(r.Name), "name", "give at most 100 lower-case letters, digits, dots and dashes.")
	w.when(len(r.Description) > maxText, "description", "give at most %d bytes.", maxText)
	driver, err := engine.Lookup(engine.Family(r.Engine))
	w.when(err != nil, "engine", "known engines: %v.", engine.Families())
	w.when(err == nil && !driver.Caps().Supervised, "engine", "%s can be attached, not started.", r.Engine)
	w.when(!versionForm.MatchString(r.Version), "version", "say the engine's version, such as 0.33.0.")
	w.when(r.Model.Name == "" || len(r.Model.Name) > maxText, "model.name", "say under which name the engine serves the model.")
	w.when(len(r.Model.Path) > maxText || r.Model.Path == "" && r.Engine != string(engine.Sim), "model.path", "say where the weights are.")
	w.when(r.Model.Context < 1 || r.Model.Context > maxContext, "model.context", "give 1 to %d tokens.", maxContext)
	r.checkHardware(&w)
	r.checkPools(&w)
	r.checkTransfer(&w)
	if s := r.Speculative; s != nil {
		w.when(s.Method == "", "speculative.method", "name the method.")
		w.when(s.Draft < 1 || s.Draft > maxDraft, "speculative.draft", "give 1 to %d tokens.", maxDraft)
		w.when(s.Acceptance < 0 || s.Acceptance > 1, "speculative.acceptance", "is a share from 0 to 1.")
	}
	if c := r.Cost; c != nil {
		w.when(min(c.A0, c.A1, c.B0, c.B1, c.B2, c.Error) < 0, "cost", "times and the error are not negative.")
		w.when(c.From == "", "cost.from", "say where it was measured, or that it is an estimate.")
	}
	r.checkStorable(&w)
	r.checkCommands(&w)
	w.when(len(r.Golden) > maxGolden, "golden", "give at most %d prompts.", maxGolden)
	for i, g := range r.Golden {
		w.when(g.Prompt == "" || g.Tokens < 1, fmt.Sprintf("golden[%d]", i), "give a prompt and how many tokens of its answer count.")
	}
	return w.err
}

// checkStorable refuses what YAML can say and JSON or the database cannot: .nan and .inf, and NUL in a text.
func (r *Recipe) checkStorable(w *wrong) {
	text, err := json.Marshal(r)
	w.when(err != nil, "numbers", "are finite: .nan and .inf are none.")
	// Without the escaped backslashes, what is left of this form is a NUL.
	w.when(bytes.Contains(bytes.ReplaceAll(text, []byte(`\\`), nil), []byte(`\u0000`)), "texts", "have no NUL.")
}

// checkCommands renders every pool on a host that is large enough: what the engine has no way to do is found out here.
func (r *Recipe) checkCommands(w *wrong) {
	if w.err != nil {
		return
	}
	driver, err := engine.Lookup(engine.Family(r.Engine))
	if err != nil {
		return // said above
	}
	for i := range r.Pools {
		p := &r.Pools[i]
		host := Fabric{Address: "192.0.2.1", Ports: 1}
		spec, err := r.Render(p.Role, Place{Unit: "u", GPUs: make([]int, p.GPUs), Host: host, First: host})
		if err == nil {
			spec.Port, spec.KVPort, spec.DataDir, spec.Executable, spec.Agent = 1, 2, "/", "engine", "agent"
			_, err = driver.Command(spec)
		}
		w.when(err != nil, fmt.Sprintf("pools[%d]", i), "%s cannot run it: %v.", r.Engine, err)
	}
}

func (r *Recipe) checkHardware(w *wrong) {
	simulated := r.Engine == string(engine.Sim)
	w.when(len(r.Hardware) == 0 && !simulated, "hardware", "say on what it was tested.")
	for i, f := range r.Hardware {
		at := fmt.Sprintf("hardware[%d]", i)
		w.when(len(f.Arch) == 0, at+".arch", "name the architectures, such as sm100.")
		for _, a := range f.Arch {
			w.when(!archForm.MatchString(a), at+".arch", "%q is no architecture: write it as sm90, sm100 or ascend950.", a)
		}
		w.when(f.MemoryGiB < 0, at+".memory_gib", "is not negative.")
		for tool, v := range f.Toolchain {
			w.when(!versionForm.MatchString(v), at+".toolchain."+tool, "give the least version, such as 13.0.")
		}
	}
}

func (r *Recipe) checkPools(w *wrong) {
	w.when(len(r.Pools) == 0 || len(r.Pools) > MaxPools, "pools", "give 1 to %d pools.", MaxPools)
	var roles []string
	for i := range r.Pools {
		p := &r.Pools[i]
		w.when(slices.Contains(roles, p.Role), fmt.Sprintf("pools[%d].role", i), "there is one pool a role.")
		roles = append(roles, p.Role)
		p.check(w, fmt.Sprintf("pools[%d]", i), r.Engine == string(engine.Sim))
	}
	slices.Sort(roles)
	switch said := strings.Join(roles, " "); said {
	case Whole, Decode + " " + Prefill, Decode + " " + Encoder + " " + Prefill, Encoder + " " + Whole:
	default:
		w.when(w.err == nil, "pools", "are one whole pool, or prefill and decode, with or without an encoder; not %s.", said)
	}
}

func (p *Pool) check(w *wrong, at string, simulated bool) {
	w.when(!slices.Contains([]string{Whole, Prefill, Decode, Encoder}, p.Role), at+".role", "is whole, prefill, decode or encoder.")
	w.when(p.Replicas < 0 || p.Replicas > MaxReplicas, at+".replicas", "give 1 to %d.", MaxReplicas)
	least := 1
	if simulated {
		least = 0 // runs on any machine
	}
	w.when(p.GPUs < least || p.GPUs > MaxGPUs, at+".gpus", "give %d to %d.", least, MaxGPUs)
	w.when(p.Domain != 0 && p.Domain < p.GPUs, at+".domain", "a replica of %d GPUs does not fit a domain of %d.", p.GPUs, p.Domain)
	q := p.Parallel
	w.when(min(q.Tensor, q.Pipeline, q.Data, q.Expert) < 0, at+".parallel", "sizes are not negative.")
	ranks := max(q.Tensor, 1) * max(q.Pipeline, 1) * max(q.Data, 1)
	w.when(!simulated && ranks != p.GPUs, at+".parallel", "tensor x pipeline x data is %d, and the replica has %d GPUs.", ranks, p.GPUs)
	w.when(q.Expert > max(p.GPUs, 1) || q.Expert > 0 && max(p.GPUs, 1)%q.Expert != 0, at+".parallel.expert", "is a divisor of the replica's %d GPUs.", p.GPUs)
	last := max(q.Expert, 1)
	for _, n := range p.ExpertTo {
		w.when(n < 1 || n >= last, at+".expert_to", "lists smaller EP sizes, the largest first.")
		last = n
	}
	w.when(min(p.Slots, p.Queue) < 0 || max(p.Slots, p.Queue) > maxSlots, at+".slots", "slots and queue are at most %d.", maxSlots)
	w.when(p.Elastic < 0 || p.Elastic > MaxGPUs || p.Elastic > 0 && p.Elastic < q.Data, at+".elastic", "is at least the pool's data parallelism, and at most %d.", MaxGPUs)
	w.when(p.HostCacheGiB < 0 || p.HostCacheGiB > maxHostCache, at+".host_cache_gib", "give at most %d GiB.", maxHostCache)
	w.when(len(p.Flags) > maxFlags || len(p.Env) > maxFlags, at+".flags", "give at most %d flags and as many variables.", maxFlags)
	for _, f := range p.Flags {
		w.when(len(f) > maxText || strings.ContainsRune(f, 0), at+".flags", "a flag has at most %d bytes and no NUL.", maxText)
	}
	for k, v := range p.Env {
		w.when(!envForm.MatchString(k) || len(v) > maxText || strings.ContainsRune(v, 0), at+".env", "%q is no variable that can be set.", k)
	}
}

// transfers are the modes by which engines hand a cache over, by family.
var transfers = map[engine.Family]map[string][]string{
	engine.VLLM:   {"nixl": {"pull", "push"}, "mooncake": {"push"}},
	engine.SGLang: {"mooncake": {"push"}, "nixl": {"push"}, "ascend": {"push"}},
	engine.TRTLLM: {"ucx": {"context_first", "generation_first"}, "nixl": {"context_first", "generation_first"}, "mpi": {"context_first", "generation_first"}},
	engine.Sim:    {"nixl": {"pull", "push"}, "mooncake": {"push"}, "ucx": {"context_first", "generation_first"}},
}

func (r *Recipe) checkTransfer(w *wrong) {
	_, split := r.Pool(Prefill)
	t := r.Transfer
	if t == nil {
		w.when(split, "transfer", "say how prefill hands its cache to decode.")
		return
	}
	w.when(!split, "transfer", "there is no prefill pool that could hand anything over.")
	known := transfers[engine.Family(r.Engine)]
	modes, ok := known[t.Backend]
	w.when(!ok, "transfer.backend", "%s knows %v.", r.Engine, sortedKeys(known))
	w.when(ok && t.Mode != "" && !slices.Contains(modes, t.Mode), "transfer.mode", "%s over %s knows %v.", r.Engine, t.Backend, modes)
	w.when(t.MinGbps < 0 || t.MaxPrompt < 0, "transfer", "numbers are not negative.")
}

func sortedKeys(m map[string][]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
