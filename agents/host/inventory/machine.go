package inventory

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"time"

	"millrace/agents/wire"
)

// Run executes a command and gives what it wrote. An error that is exec.ErrNotFound says that the machine has no such tool.
type Run func(ctx context.Context, name string, args ...string) (string, error)

// Machine is the machine that this process runs on.
type Machine struct {
	run  Run
	root fs.FS
	data string // a folder whose disk counts

	slow  Found // of the last thorough look: what the tools told
	gpued bool  // some look has seen accelerators
}

// NewMachine looks at this machine. data is a folder whose disk is told in any case.
func NewMachine(data string) *Machine { return &Machine{run: Exec, root: os.DirFS("/"), data: data} }

// Exec runs a command of this machine within commandLimit.
func Exec(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("%s: %w", name, err)
	}
	return string(out[:min(len(out), maxOutput)]), nil
}

// Look implements Source.
func (m *Machine) Look(ctx context.Context, thorough bool) (Found, error) {
	f := Found{Inventory: wire.Inventory{CPUs: runtime.NumCPU(), MemoryBytes: memory(m.root), NUMANodes: numaNodes(m.root),
		NICs: nics(m.root, interfaceAddress), Disks: disks(m.root, m.data, diskSpace)}}
	f.Hostname, _ = os.Hostname() // "" is shown as such
	var err error
	if thorough {
		err = m.accelerators(ctx)
	}
	f.GPUs, f.Readings, f.Toolchain = append([]wire.GPU(nil), m.slow.GPUs...), m.slow.Readings, m.slow.Toolchain
	for i := range f.GPUs {
		f.GPUs[i].NICs = interfaces(f.GPUs[i].NICs, f.NICs)
	}
	return f, err
}

// interfaces names RDMA devices, which is what the tools know, by their network interfaces.
func interfaces(devices []string, nics []wire.NIC) (names []string) {
	for _, d := range devices {
		name := d
		for _, n := range nics {
			if n.RDMA == d {
				name = n.Name
			}
		}
		names = append(names, name)
	}
	return names
}

// accelerators asks the tools. A machine without them has none; tools that fail keep what was last seen.
func (m *Machine) accelerators(ctx context.Context) error {
	now := Found{Readings: map[int]Reading{}, Inventory: wire.Inventory{Toolchain: map[string]string{}}}
	now.set(wire.ToolKernel, text(m.root, "proc/sys/kernel/osrelease"))
	for _, name := range cannFiles {
		if v := parseCANN(text(m.root, name)); v != "" {
			now.set(wire.ToolCANN, v)
			break
		}
	}
	err := m.nvidia(ctx, &now)
	if errors.Is(err, exec.ErrNotFound) {
		err = m.ascend(ctx, &now)
	}
	if errors.Is(err, exec.ErrNotFound) {
		if m.gpued {
			return err // the tool was there: something is being installed
		}
		err = nil
	}
	if err != nil {
		if m.slow.Toolchain == nil {
			m.slow.Toolchain = now.Toolchain
		}
		return err
	}
	m.slow, m.gpued = now, m.gpued || len(now.GPUs) > 0
	return nil
}

func (f *Found) set(tool, version string) {
	if version != "" {
		f.Toolchain[tool] = version
	}
}

func (m *Machine) nvidia(ctx context.Context, into *Found) error {
	var q, caps, topo string
	var failed, failedToo error
	var asking sync.WaitGroup // each takes a second or two
	asking.Go(func() { q, failed = m.run(ctx, "nvidia-smi", "-q") })
	asking.Go(func() {
		caps, failedToo = m.run(ctx, "nvidia-smi", "--query-gpu=index,uuid,compute_cap", "--format=csv,noheader")
	})
	asking.Go(func() { topo, _ = m.run(ctx, "nvidia-smi", "topo", "-m") }) // not everywhere: then nothing is known of what is near
	asking.Wait()
	if err := errors.Join(failed, failedToo); err != nil {
		return err
	}
	s, nearby := parseSMI(q), parseTopo(topo)
	arch, index := parseCaps(caps)
	into.set(wire.ToolNVIDIA, s.driver)
	into.set(wire.ToolCUDA, s.cuda)
	for _, g := range s.gpus {
		if i, ok := index[g.UUID]; ok {
			g.Index = i
		}
		g.Arch = arch[g.UUID]
		g.NUMA = node(m.root, "sys/bus/pci/devices/"+g.PCI+"/numa_node")
		if n, ok := nearby[g.Index]; ok {
			g.NICs = n.nics
			if n.numa >= 0 {
				g.NUMA = n.numa
			}
		}
		into.GPUs = append(into.GPUs, g.GPU)
		into.Readings[g.Index] = g.reading
	}
	return nil
}

func (m *Machine) ascend(ctx context.Context, into *Found) error {
	list, err := m.run(ctx, "npu-smi", "info", "-m")
	if err != nil {
		return err
	}
	for _, c := range parseChips(list) {
		var all string
		for _, kind := range [...]string{"board", "memory", "health"} {
			said, err := m.run(ctx, "npu-smi", "info", "-t", kind, "-i", strconv.Itoa(c.card), "-c", strconv.Itoa(c.chip))
			if err != nil { // older tools know some kinds by card only
				said, _ = m.run(ctx, "npu-smi", "info", "-t", kind, "-i", strconv.Itoa(c.card))
			}
			all += said + "\n"
		}
		b := parseBoard(all)
		into.set(wire.ToolAscend, b.driver)
		g, reading := c.gpu(b)
		g.NUMA = node(m.root, "sys/bus/pci/devices/"+g.PCI+"/numa_node")
		into.GPUs = append(into.GPUs, g)
		into.Readings[g.Index] = reading
	}
	return nil
}
