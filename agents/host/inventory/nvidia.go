package inventory

import (
	"strconv"
	"strings"

	"millrace/agents/wire"
)

// smi is what nvidia-smi -q tells.
type smi struct {
	driver, cuda string
	gpus         []smiGPU
}

type smiGPU struct {
	wire.GPU
	reading Reading
	fabric  fabric
	heat    heat
}

type fabric struct{ state, status, cluster, clique string }

// heat is in degrees; newer drivers tell what is left until the limit, older ones the limits.
type heat struct{ current, slowdown, margin, slowMargin string }

// parseSMI reads the output of nvidia-smi -q. The GPUs come in the order of their indexes.
func parseSMI(text string) smi {
	var s smi
	lines(text, func(l line) {
		head, rest, _ := strings.Cut(l.path, "/")
		switch {
		case l.path == "Driver Version":
			s.driver = known(l.value)
		case l.path == "CUDA Version":
			s.cuda = known(l.value)
		case l.plain && rest == "" && strings.HasPrefix(head, "GPU ") && len(s.gpus) < maxGPUs:
			s.gpus = append(s.gpus, smiGPU{GPU: wire.GPU{Index: len(s.gpus), PCI: pci(strings.TrimPrefix(head, "GPU "))}})
		case len(s.gpus) > 0 && strings.HasPrefix(head, "GPU "):
			s.gpus[len(s.gpus)-1].take(rest, l.value)
		}
	})
	for i := range s.gpus {
		s.gpus[i].finish()
	}
	return s
}

// take keeps one line of a GPU.
func (g *smiGPU) take(path, value string) {
	if strings.HasPrefix(path, "ECC Errors/Volatile/") && strings.Contains(path, "Uncorrectable") {
		g.reading.Uncorrected += number(value)
		return
	}
	value = known(value)
	switch path {
	case "Product Name":
		g.Model = value
	case "Serial Number":
		g.Serial = value
	case "GPU UUID":
		g.UUID = value
	case "FB Memory Usage/Total":
		g.MemoryBytes = number(strings.TrimSuffix(value, " MiB")) * mebibyte
	case "GPU Recovery Action":
		g.reading.Recovery = value
	case "Remapped Rows/Pending":
		g.reading.RemapPending = value == "Yes"
	case "Remapped Rows/Remapping Failure Occurred":
		g.reading.RemapFailed = value == "Yes"
	case "Temperature/GPU Current Temp":
		g.heat.current = value
	case "Temperature/GPU Slowdown Temp":
		g.heat.slowdown = value
	case "Temperature/GPU T.Limit Temp":
		g.heat.margin = value
	case "Temperature/GPU Slowdown T.Limit Temp":
		g.heat.slowMargin = value
	case "Fabric/State":
		g.fabric.state = value
	case "Fabric/Status":
		g.fabric.status = value
	case "Fabric/CliqueId":
		g.fabric.clique = value
	case "Fabric/ClusterUUID":
		g.fabric.cluster = value
	}
}

func (g *smiGPU) finish() {
	g.Domain = g.fabric.domain()
	current, ok1 := degrees(g.heat.current)
	slow, ok2 := degrees(g.heat.slowdown)
	margin, ok3 := degrees(g.heat.margin)
	least, ok4 := degrees(g.heat.slowMargin)
	switch {
	case ok3 && ok4:
		g.reading.Margin, g.reading.MarginKnown = margin-least, true
	case ok1 && ok2:
		g.reading.Margin, g.reading.MarginKnown = slow-current, true
	}
}

// domain is the scale-up domain: cluster and clique of a fabric over hosts, "" for the host itself. A server with NVSwitch
// inside completes with a cluster of zeros. While a fabric is not completed, nothing is known: such a GPU in a plan for a
// rack would hang the whole group.
func (f fabric) domain() string {
	switch strings.ToLower(f.state) {
	case "", "not supported":
		return ""
	case "completed":
	default: // Not Started, In Progress
		return wire.DomainUnknown
	}
	if status := strings.ToLower(f.status); status != "" && status != "success" {
		return wire.DomainUnknown
	}
	if strings.Trim(f.cluster, "0-") == "" {
		return ""
	}
	if f.clique == "" {
		return wire.DomainUnknown
	}
	return f.cluster + "." + f.clique
}

// parseCaps reads the output of nvidia-smi --query-gpu=index,uuid,compute_cap --format=csv,noheader: arch by UUID.
func parseCaps(text string) (arch map[string]string, index map[string]int) {
	arch, index = map[string]string{}, map[string]int{}
	for row := range strings.Lines(text) {
		f := strings.Split(row, ",")
		if len(f) != 3 || len(arch) >= maxGPUs {
			continue
		}
		uuid := strings.TrimSpace(f[1])
		if n, err := strconv.Atoi(strings.TrimSpace(f[0])); err == nil && n >= 0 && uuid != "" {
			index[uuid] = n
		}
		major, minor, ok := strings.Cut(strings.TrimSpace(f[2]), ".")
		if a, err := strconv.ParseUint(major, 10, 8); ok && err == nil {
			if b, err := strconv.ParseUint(minor, 10, 8); err == nil {
				arch[uuid] = "sm" + strconv.FormatUint(a*10+b, 10)
			}
		}
	}
	return arch, index
}

// pci writes an address as the kernel does: 0000:3b:00.0.
func pci(text string) string {
	text = strings.ToLower(strings.TrimSpace(text))
	domain, rest, ok := strings.Cut(text, ":")
	if !ok || !strings.Contains(rest, ":") {
		return ""
	}
	if n := len(domain); n > 4 && strings.Trim(domain[:n-4], "0") == "" {
		domain = domain[n-4:]
	}
	return domain + ":" + rest
}

func number(text string) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n < 0 || n > 1<<40 {
		return 0
	}
	return n
}

func degrees(text string) (int, bool) {
	n, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(text, "C")))
	return n, err == nil && n > -1000 && n < 1000
}
