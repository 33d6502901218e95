package inventory

import (
	"regexp"
	"strconv"
	"strings"

	"millrace/agents/wire"
)

// chip is one Ascend processor as npu-smi info -m lists it.
type chip struct {
	card, chip int // how npu-smi names it
	logic      int // how programs name it: its index
	name       string
}

// parseChips reads the output of npu-smi info -m. Chips without a logic id are the cards' own controllers.
//
//	NPU ID      Chip ID     Chip Logic ID     Chip Name
//	0           0           0                 Ascend 910B3
//	0           1           -                 Mcu
func parseChips(text string) []chip {
	var out []chip
	for row := range strings.Lines(text) {
		f := strings.Fields(row)
		if len(f) < 4 || len(out) == maxGPUs {
			continue
		}
		var n [3]int
		ok := true
		for i := range n {
			var err error
			n[i], err = strconv.Atoi(f[i])
			ok = ok && err == nil && n[i] >= 0
		}
		if ok {
			out = append(out, chip{n[0], n[1], n[2], strings.Join(f[3:], " ")})
		}
	}
	return out
}

var ascendName = regexp.MustCompile(`(?i)ascend\s*(\d+)([bc]?)`)

// ascendArch is the generation: Ascend 910B3 -> ascend910b, Ascend950PR -> ascend950.
func ascendArch(name string) string {
	m := ascendName.FindStringSubmatch(name)
	if m == nil {
		return ""
	}
	return "ascend" + m[1] + strings.ToLower(m[2])
}

// board is what npu-smi info -t board, -t memory and -t health say of one chip.
type board struct {
	driver, pci, serial string
	memory              int64
	health              string
}

// parseBoard reads any of them; keys differ between versions of the tool, so it looks for their words.
func parseBoard(text string) board {
	var b board
	lines(text, func(l line) {
		key, value := strings.ToLower(l.path[strings.LastIndexByte(l.path, '/')+1:]), known(l.value)
		switch {
		case value == "":
		case key == "software version":
			b.driver = value
		case key == "pcie bus info":
			b.pci = pci(value)
		case key == "serial number":
			b.serial = value
		case strings.HasPrefix(key, "hbm capacity"), strings.HasPrefix(key, "ddr capacity") && b.memory == 0:
			if n := number(value); n > 0 {
				b.memory = n * mebibyte
			}
		case key == "health", key == "health status":
			b.health = value
		}
	})
	return b
}

// gpu makes an accelerator of a chip.
func (c chip) gpu(b board) (wire.GPU, Reading) {
	g := wire.GPU{Index: c.logic, Model: c.name, Arch: ascendArch(c.name), MemoryBytes: b.memory, Serial: b.serial, PCI: b.pci}
	if b.pci != "" {
		g.UUID = "NPU-" + b.pci // the tool tells no id of its own
	}
	var r Reading
	if h := strings.ToLower(b.health); h == "alarm" || h == "critical" {
		r.Unwell = b.health
	}
	return g, r
}

// cannFiles are where the toolkit says its version; the first that exists counts.
var cannFiles = []string{
	"usr/local/Ascend/ascend-toolkit/latest/version.cfg",
	"usr/local/Ascend/cann/latest/version.cfg",
	"usr/local/Ascend/ascend-toolkit/latest/aarch64-linux/ascend_toolkit_install.info",
	"usr/local/Ascend/ascend-toolkit/latest/x86_64-linux/ascend_toolkit_install.info",
}

var versionLine = regexp.MustCompile(`(?im)^\s*(?:runtime_running_version|toolkit_running_version|version)\s*=\s*\[?(?:[A-Za-z_-]*:)?([0-9][0-9A-Za-z._-]*)`)

// parseCANN reads such a file: version=9.2.RC1, or [9.2.RC1:...] in version.cfg.
func parseCANN(text string) string {
	if m := versionLine.FindStringSubmatch(text); m != nil {
		return m[1]
	}
	return ""
}
