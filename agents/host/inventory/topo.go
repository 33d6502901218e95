package inventory

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// near says which network devices are how close to a GPU.
type near struct {
	nics []string // nearest first; devices' names as in "NIC Legend"
	numa int      // node; -1 = not told
}

// distance orders the words of nvidia-smi topo.
var distance = map[string]int{"PIX": 1, "PXB": 2, "PHB": 3, "NODE": 4}

// devices across the processors' own link are not near at all.
var (
	escape   = regexp.MustCompile("\x1b\\[[0-9;]*[A-Za-z]")
	topoCol  = regexp.MustCompile(`^(GPU|NIC)\d+$`)
	nicNamed = regexp.MustCompile(`^\s*(NIC\d+)\s*:\s*(\S+)\s*$`)
)

// parseTopo reads the output of nvidia-smi topo -m: by GPU index.
func parseTopo(text string) map[int]near {
	text = escape.ReplaceAllString(text, "")
	names := map[string]string{}
	for row := range strings.Lines(text) {
		if m := nicNamed.FindStringSubmatch(strings.TrimRight(row, "\r\n")); m != nil {
			names[m[1]] = m[2]
		}
	}
	var columns []string
	out := map[int]near{}
	for row := range strings.Lines(text) {
		f := strings.Fields(row)
		switch {
		case len(f) == 0 || !topoCol.MatchString(f[0]):
		case columns == nil:
			for _, c := range f {
				if topoCol.MatchString(c) {
					columns = append(columns, c)
				}
			}
		case len(f) > len(columns):
			if index, ok := numbered(f[0], "GPU"); ok && len(out) < maxGPUs {
				out[index] = nearOf(columns, f[1:], names)
			}
		}
	}
	return out
}

func nearOf(columns, cells []string, names map[string]string) near {
	type nic struct {
		name string
		far  int
	}
	var found []nic
	for i, c := range columns {
		if far, ok := distance[cells[i]]; ok && strings.HasPrefix(c, "NIC") && names[c] != "" {
			found = append(found, nic{names[c], far})
		}
	}
	slices.SortStableFunc(found, func(a, b nic) int { return a.far - b.far })
	n := near{numa: -1}
	for _, f := range found {
		n.nics = append(n.nics, f.name)
	}
	// Behind the matrix: CPU affinity, NUMA affinity, and in newer versions the GPU's own memory node.
	if rest := cells[len(columns):]; len(rest) > 1 {
		if node, err := strconv.Atoi(rest[1]); err == nil && node >= 0 {
			n.numa = node
		}
	}
	return n
}

func numbered(text, prefix string) (int, bool) {
	digits, ok := strings.CutPrefix(text, prefix)
	n, err := strconv.Atoi(digits)
	return n, ok && err == nil && n >= 0
}
