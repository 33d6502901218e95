package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"millrace/agents/wire"
	"millrace/serving/recipe"
)

// reason is why a host cannot be used, told so that equal ones can be counted: what is wanted, and what it is instead.
type reason struct{ want, is string }

// refuses tells why a host's slot must get nothing of a demand at all; nil = it may.
func (d *Demand) refuses(h *Host) *reason {
	switch {
	case h.Lost:
		return &reason{"", "lost: not heard of"}
	case h.Cordoned:
		return &reason{"", "cordoned"}
	case h.Leaving:
		return &reason{"", "leaving: drained, or soon in maintenance"}
	}
	return d.unfit(h)
}

// unfit tells why a host could not carry a demand even when it is well.
func (d *Demand) unfit(h *Host) *reason {
	if kind := cmp.Or(h.Kind, Reserved); len(d.Kinds) > 0 && !slices.Contains(d.Kinds, kind) {
		return &reason{"allows " + list(d.Kinds) + " capacity", words(kind)}
	}
	if len(d.Regions) > 0 && !slices.Contains(d.Regions, h.Region) {
		return &reason{"is for " + list(d.Regions), "in " + cmp.Or(h.Region, "no region")}
	}
	floors := d.Recipe.Hardware
	if len(floors) == 0 {
		return nil
	}
	var first *reason
	for i := range floors {
		is := below(&floors[i], h)
		if is == "" {
			return nil
		}
		if first == nil {
			first = &reason{"needs " + floorText(floors), is}
		}
	}
	return first
}

// below tells what of a host is less than a floor; "" = nothing.
func below(f *recipe.Floor, h *Host) string {
	if len(h.GPUs) == 0 {
		return "without a GPU"
	}
	var is []string
	arch, memory := "", int64(0)
	for i := range h.GPUs {
		g := &h.GPUs[i]
		if i == 0 {
			arch, memory = g.Arch, g.MemoryBytes
		}
		memory = min(memory, g.MemoryBytes)
		if g.Arch != arch {
			arch = "" // several kinds in one machine: nobody has tested that
		}
	}
	if len(f.Arch) > 0 && !slices.ContainsFunc(f.Arch, func(a string) bool { return strings.EqualFold(a, arch) }) {
		is = append(is, cmp.Or(strings.ToUpper(arch), "an unknown architecture"))
	}
	if gib := memory >> 30; gib < int64(f.MemoryGiB) {
		is = append(is, fmt.Sprintf("%d GiB a GPU", gib))
	}
	for _, tool := range slices.Sorted(maps.Keys(f.Toolchain)) {
		if have := h.Toolchain[tool]; !atLeast(have, f.Toolchain[tool]) {
			is = append(is, strings.TrimSpace(cmp.Or(tools[tool], tool)+" "+cmp.Or(have, "unknown")))
		}
	}
	if len(is) == 0 {
		return ""
	}
	return "has " + strings.Join(is, ", ")
}

var tools = map[string]string{wire.ToolNVIDIA: "NVIDIA driver", wire.ToolCUDA: "CUDA", wire.ToolAscend: "Ascend driver", wire.ToolCANN: "CANN", wire.ToolKernel: "kernel"}

// floorText says what a recipe needs: "SM100 or SM103, 170 GiB a GPU, CUDA 13.0".
func floorText(floors []recipe.Floor) string {
	var each []string
	for i := range floors {
		f := &floors[i]
		parts := []string{}
		if len(f.Arch) > 0 {
			up := make([]string, len(f.Arch))
			for j, a := range f.Arch {
				up[j] = strings.ToUpper(a)
			}
			parts = append(parts, list(up))
		}
		if f.MemoryGiB > 0 {
			parts = append(parts, fmt.Sprintf("%d GiB a GPU", f.MemoryGiB))
		}
		for _, tool := range slices.Sorted(maps.Keys(f.Toolchain)) {
			parts = append(parts, cmp.Or(tools[tool], tool)+" "+f.Toolchain[tool])
		}
		each = append(each, strings.Join(parts, " with "))
	}
	return strings.Join(each, "; or ")
}

// list joins words: "a, b or c".
func list(of []string) string {
	w := make([]string, len(of))
	for i := range of {
		w[i] = words(of[i])
	}
	if len(w) < 2 {
		return strings.Join(w, "")
	}
	return strings.Join(w[:len(w)-1], ", ") + " or " + w[len(w)-1]
}

func words(kind string) string {
	if kind == OnDemand {
		return "on-demand"
	}
	return kind
}
