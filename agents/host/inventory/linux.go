package inventory

import (
	"bufio"
	"fmt"
	"io/fs"
	"net"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"millrace/agents/wire"
)

// What the kernel tells is read below a root, so that tests give one of their own.

const (
	maxNICs  = 128
	maxDisks = 32
	kibibyte = 1 << 10
	// diskSteps is how exactly free space is told: a number that moves with every byte would be news with every byte.
	diskSteps = 100
)

// text reads a small file, "" when there is none.
func text(root fs.FS, name string) string {
	b, err := fs.ReadFile(root, name)
	if err != nil || len(b) > maxFile {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func memory(root fs.FS) int64 {
	for lines := bufio.NewScanner(strings.NewReader(text(root, "proc/meminfo"))); lines.Scan(); {
		var kib int64
		if _, err := fmt.Sscanf(lines.Text(), "MemTotal: %d kB", &kib); err == nil {
			return kib * kibibyte
		}
	}
	return 0
}

var nodeName = regexp.MustCompile(`^node\d+$`)

func numaNodes(root fs.FS) int {
	entries, _ := fs.ReadDir(root, "sys/devices/system/node")
	n := 0
	for _, e := range entries {
		if nodeName.MatchString(e.Name()) {
			n++
		}
	}
	return n
}

// nics lists the network interfaces that are hardware, or bonds of it, and RDMA devices without an interface.
func nics(root fs.FS, address func(name string) string) []wire.NIC {
	var out []wire.NIC
	met := map[string]bool{}
	entries, _ := fs.ReadDir(root, "sys/class/net")
	for _, e := range entries {
		dir := path.Join("sys/class/net", e.Name())
		_, physical := fs.Stat(root, path.Join(dir, "device"))
		_, bond := fs.Stat(root, path.Join(dir, "bonding"))
		if physical != nil && bond != nil || len(out) == maxNICs {
			continue
		}
		n := wire.NIC{Name: e.Name(), Up: text(root, path.Join(dir, "operstate")) == "up", NUMA: node(root, path.Join(dir, "device/numa_node"))}
		if mbits, err := strconv.Atoi(text(root, path.Join(dir, "speed"))); err == nil && mbits > 0 {
			n.Gbps = mbits / 1000
		}
		if rdma, _ := fs.ReadDir(root, path.Join(dir, "device/infiniband")); len(rdma) > 0 {
			n.RDMA = rdma[0].Name()
			met[n.RDMA] = true
			if rate := rdmaRate(root, n.RDMA); n.Gbps == 0 {
				n.Gbps = rate
			}
		}
		if address != nil {
			n.Address = address(n.Name)
		}
		out = append(out, n)
	}
	entries, _ = fs.ReadDir(root, "sys/class/infiniband")
	for _, e := range entries {
		if met[e.Name()] || len(out) == maxNICs {
			continue
		}
		dir := path.Join("sys/class/infiniband", e.Name())
		out = append(out, wire.NIC{Name: e.Name(), RDMA: e.Name(), Gbps: rdmaRate(root, e.Name()), NUMA: node(root, path.Join(dir, "device/numa_node")),
			Up: strings.Contains(text(root, path.Join(dir, "ports/1/state")), "ACTIVE")})
	}
	slices.SortFunc(out, func(a, b wire.NIC) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// rdmaRate reads "400 Gb/sec (4X NDR)".
func rdmaRate(root fs.FS, device string) int {
	first, _, _ := strings.Cut(text(root, path.Join("sys/class/infiniband", device, "ports/1/rate")), " ")
	gbits, err := strconv.ParseFloat(first, 64)
	if err != nil || gbits < 0 || gbits > 1e6 {
		return 0
	}
	return int(gbits)
}

func node(root fs.FS, name string) int {
	n, err := strconv.Atoi(text(root, name))
	if err != nil || n < 0 { // -1 = the firmware does not say
		return 0
	}
	return n
}

// interfaceAddress is an interface's first address that is not of the link alone.
func interfaceAddress(name string) string {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return ""
	}
	all, err := i.Addrs()
	if err != nil {
		return ""
	}
	for _, a := range all {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.IsGlobalUnicast() {
			return ip.IP.String()
		}
	}
	return ""
}

// disks lists the file systems on block devices, each device once, by the shortest path, and the one that has own.
func disks(root fs.FS, own string, space func(path string) (total, free int64)) []wire.Disk {
	paths := map[string]string{}
	for row := range strings.Lines(text(root, "proc/mounts")) {
		f := strings.Fields(row)
		if len(f) < 3 || !strings.HasPrefix(f[0], "/dev/") || strings.HasPrefix(f[0], "/dev/loop") || f[2] == "squashfs" || f[2] == "vfat" {
			continue
		}
		if old, ok := paths[f[0]]; !ok || len(f[1]) < len(old) {
			paths[f[0]] = f[1]
		}
	}
	all := []string{}
	for _, p := range paths {
		all = append(all, p)
	}
	slices.Sort(all)
	if own != "" && !slices.Contains(all, own) {
		all = append([]string{own}, all...)
	}
	var out []wire.Disk
	for _, p := range all {
		if total, free := space(p); total > 0 && len(out) < maxDisks {
			step := max(total/diskSteps, 1)
			out = append(out, wire.Disk{Path: p, Bytes: total, FreeBytes: free / step * step})
		}
	}
	return out
}

func diskSpace(path string) (total, free int64) {
	var s unix.Statfs_t
	if unix.Statfs(path, &s) != nil {
		return 0, 0
	}
	return int64(s.Blocks) * s.Bsize, int64(s.Bavail) * s.Bsize
}
