package host

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"millrace/agents/wire"
)

const (
	smiTimeout = 10 * time.Second
	mebibyte   = 1 << 20
	kibibyte   = 1 << 10
	maxGPUs    = 256
)

// inventory is what this machine is, or is said to be.
type inventory struct {
	wire.Inventory

	simulated bool
}

// inventory detects the machine, or reads it from the file, which then counts as simulated.
func (a *agent) inventory(ctx context.Context) inventory {
	inv := inventory{Inventory: wire.Inventory{CPUs: runtime.NumCPU(), MemoryBytes: memory()}}
	inv.Hostname, _ = os.Hostname() // "" is shown as such
	if a.cfg.Inventory == "" {
		inv.GPUs = nvidia(ctx)
		return inv
	}
	text, err := os.ReadFile(a.cfg.Inventory)
	if err == nil {
		err = json.Unmarshal(text, &inv.Inventory)
	}
	if err != nil {
		a.log.Error("the inventory file cannot be used", "file", a.cfg.Inventory, "error", err)
	}
	inv.simulated = true
	return inv
}

func memory() int64 {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var kib int64
		if _, err := fmt.Sscanf(lines.Text(), "MemTotal: %d kB", &kib); err == nil {
			return kib * kibibyte
		}
	}
	return 0
}

// nvidia asks nvidia-smi, when there is one.
func nvidia(ctx context.Context) []wire.GPU {
	ctx, cancel := context.WithTimeout(ctx, smiTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "nvidia-smi", "--query-gpu=index,name,memory.total", "--format=csv,noheader,nounits")
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return nil
	}
	return parseSMI(string(out))
}

// parseSMI reads lines such as "0, NVIDIA H200, 143771" (MiB). Lines it does not understand are left out.
func parseSMI(out string) []wire.GPU {
	var gpus []wire.GPU
	for line := range strings.Lines(out) {
		f := strings.Split(line, ",")
		if len(f) != 3 || len(gpus) == maxGPUs {
			continue
		}
		index, err := strconv.Atoi(strings.TrimSpace(f[0]))
		if err != nil {
			continue
		}
		mib, _ := strconv.ParseInt(strings.TrimSpace(f[2]), 10, 64) // 0 = unknown: unified memory says "[N/A]"
		gpus = append(gpus, wire.GPU{Index: index, Model: strings.TrimSpace(f[1]), MemoryBytes: mib * mebibyte})
	}
	return gpus
}
