package inventory

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"millrace/agents/wire"
)

func capture(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// tools answers as the captured tools did; a nil entry is a tool that fails, a missing one is not installed.
func tools(answers map[string]string) Run {
	return func(_ context.Context, name string, args ...string) (string, error) {
		key := strings.Join(append([]string{name}, args...), " ")
		for prefix, said := range answers {
			if strings.HasPrefix(key, prefix) {
				if said == "FAIL" {
					return "", os.ErrDeadlineExceeded
				}
				return said, nil
			}
		}
		return "", exec.ErrNotFound
	}
}

func look(t *testing.T, m *Machine) Found {
	t.Helper()
	f, err := m.Look(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

const gb200Domain = "3c8b7a52-5f1e-4c1b-9d53-0a6e41f0b7c9.32766"

func TestARackTrayTellsItsFabric(t *testing.T) {
	m := &Machine{root: fstest.MapFS{"proc/sys/kernel/osrelease": {Data: []byte("6.8.0-1040-nvidia-64k\n")}}, run: tools(map[string]string{
		"nvidia-smi -q": capture(t, "smi-gb200.txt"),
		"nvidia-smi --query-gpu=index,uuid,compute_cap": "0, GPU-7a1d0c4e-0000-4000-8000-000000000000, 10.0\n1, GPU-7a1d0c4e-0000-4000-8000-000000000001, 10.0\n" +
			"2, GPU-7a1d0c4e-0000-4000-8000-000000000002, 10.0\n3, GPU-7a1d0c4e-0000-4000-8000-000000000003, 10.0\n",
		"nvidia-smi topo": "FAIL",
	})}
	f := look(t, m)
	if len(f.GPUs) != 4 {
		t.Fatalf("%d GPUs", len(f.GPUs))
	}
	want := wire.GPU{Index: 3, UUID: "GPU-7a1d0c4e-0000-4000-8000-000000000003", Model: "NVIDIA GB200", Arch: "sm100", MemoryBytes: 189471 << 20,
		Domain: gb200Domain, Serial: "1654624000103", PCI: "0019:01:00.0"}
	if !reflect.DeepEqual(f.GPUs[3], want) {
		t.Errorf("got  %+v\nwant %+v", f.GPUs[3], want)
	}
	if r := f.Readings[3]; r != (Reading{Margin: 50, MarginKnown: true}) {
		t.Errorf("%+v", r)
	}
	tool := map[string]string{wire.ToolNVIDIA: "580.95.05", wire.ToolCUDA: "13.0", wire.ToolKernel: "6.8.0-1040-nvidia-64k"}
	if !reflect.DeepEqual(f.Toolchain, tool) {
		t.Errorf("%v", f.Toolchain)
	}
}

// A server with NVSwitch inside is its own domain; one GPU whose fabric is not ready is in none that is known.
func TestAServerTellsWhatIsNearAndUnwell(t *testing.T) {
	m := &Machine{root: fstest.MapFS{"sys/bus/pci/devices/0000:2a:00.0/numa_node": {Data: []byte("1\n")},
		"sys/class/net/ib3/device/infiniband/mlx5_3/x": {}}, run: tools(map[string]string{
		"nvidia-smi -q":           capture(t, "smi-h100.txt"),
		"nvidia-smi --query-gpu=": "0, GPU-5a0e8c4b-1111-4000-8000-000000000000, 9.0\n1, GPU-5a0e8c4b-1111-4000-8000-000000000001, 9.0\n",
		"nvidia-smi topo -m":      capture(t, "topo.txt"),
	})}
	f := look(t, m)
	a, b := f.GPUs[0], f.GPUs[1]
	if a.Domain != "" || a.Arch != "sm90" || a.NUMA != 0 || !slices.Equal(a.NICs, []string{"ib3", "mlx5_0"}) {
		t.Errorf("%+v", a)
	}
	if b.Domain != wire.DomainUnknown || b.NUMA != 1 || !slices.Equal(b.NICs, []string{"mlx5_4"}) {
		t.Errorf("%+v", b)
	}
	if r := f.Readings[1]; r != (Reading{Uncorrected: 2, RemapPending: true, Margin: -1, MarginKnown: true, Recovery: "Reset"}) {
		t.Errorf("%+v", r)
	}
	// A tool that fails later does not make the GPUs disappear.
	m.run = tools(map[string]string{"nvidia-smi": "FAIL"})
	if again, err := m.Look(t.Context(), true); err == nil || len(again.GPUs) != 2 {
		t.Errorf("%d GPUs, %v", len(again.GPUs), err)
	}
	m.run = tools(nil)
	if again, err := m.Look(t.Context(), true); err == nil || len(again.GPUs) != 2 {
		t.Errorf("after the tool was removed: %d GPUs, %v", len(again.GPUs), err)
	}
}

func TestFabricStates(t *testing.T) {
	for _, c := range []struct {
		f    fabric
		want string
	}{
		{fabric{}, ""},
		{fabric{state: "Not Supported"}, ""},
		{fabric{state: "Not Started"}, wire.DomainUnknown},
		{fabric{state: "In Progress"}, wire.DomainUnknown},
		{fabric{state: "Completed", status: "Success", cluster: "00000000-0000-0000-0000-000000000000", clique: "0"}, ""},
		{fabric{state: "Completed", status: "Success", cluster: "a-b", clique: "1"}, "a-b.1"},
		{fabric{state: "Completed", status: "Insufficient Resources", cluster: "a-b", clique: "1"}, wire.DomainUnknown},
		{fabric{state: "Completed", status: "Success", cluster: "a-b"}, wire.DomainUnknown},
	} {
		if got := c.f.domain(); got != c.want {
			t.Errorf("%+v: %q, want %q", c.f, got, c.want)
		}
	}
}

func TestAscend(t *testing.T) {
	m := &Machine{root: fstest.MapFS{"usr/local/Ascend/ascend-toolkit/latest/version.cfg": {Data: []byte("# version\nruntime_running_version=[9.2.RC1:CANN-9.2]\n")}},
		run: tools(map[string]string{
			"npu-smi info -m":        capture(t, "npu-map.txt"),
			"npu-smi info -t board":  capture(t, "npu-board.txt"),
			"npu-smi info -t memory": capture(t, "npu-memory.txt"),
			"npu-smi info -t health": capture(t, "npu-health.txt"),
		})}
	f := look(t, m)
	if len(f.GPUs) != 2 || f.Toolchain[wire.ToolCANN] != "9.2.RC1" || f.Toolchain[wire.ToolAscend] != "25.5.0" {
		t.Fatalf("%+v, %v", f.GPUs, f.Toolchain)
	}
	if g := f.GPUs[1]; g.Index != 1 || g.Arch != "ascend950" || g.MemoryBytes != 131072<<20 || g.PCI != "0000:c1:00.0" || g.Model != "Ascend 950PR" {
		t.Errorf("%+v", g)
	}
	if f.Readings[0].Unwell != "Alarm" {
		t.Errorf("%+v", f.Readings)
	}
	for name, want := range map[string]string{"Ascend 910B3": "ascend910b", "Ascend950DT": "ascend950", "910B": "", "NVIDIA H100": ""} {
		if got := ascendArch(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestTheKernelsWord(t *testing.T) {
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	root := fstest.MapFS{
		"sys/class/net/lo/operstate":                   file("unknown"),
		"sys/class/net/veth1/operstate":                file("up"),
		"sys/class/net/eth0/operstate":                 file("up"),
		"sys/class/net/eth0/speed":                     file("25000\n"),
		"sys/class/net/eth0/device/numa_node":          file("-1"),
		"sys/class/net/ib0/operstate":                  file("down"),
		"sys/class/net/ib0/speed":                      file("-1"),
		"sys/class/net/ib0/device/numa_node":           file("1"),
		"sys/class/net/ib0/device/infiniband/mlx5_0/x": file(""),
		"sys/class/infiniband/mlx5_0/ports/1/rate":     file("400 Gb/sec (4X NDR)"),
		"sys/class/infiniband/mlx5_1/ports/1/rate":     file("200 Gb/sec (4X HDR)"),
		"sys/class/infiniband/mlx5_1/ports/1/state":    file("4: ACTIVE"),
		"sys/devices/system/node/node0/cpulist":        file("0-47"),
		"sys/devices/system/node/node1/cpulist":        file("48-95"),
		"sys/devices/system/node/possible":             file("0-1"),
		"proc/meminfo":                                 file("MemFree: 5 kB\nMemTotal:       2113462272 kB\n"),
		"proc/mounts": file("/dev/nvme0n1p2 / ext4 rw 0 0\n/dev/nvme0n1p2 /var/snap ext4 rw 0 0\ntmpfs /run tmpfs rw 0 0\n/dev/nvme1n1 /data xfs rw 0 0\n" +
			"/dev/loop3 /snap/x squashfs ro 0 0\n/dev/nvme0n1p1 /boot/efi vfat rw 0 0\n"),
	}
	want := []wire.NIC{{Name: "eth0", Gbps: 25, Up: true, Address: "10.0.0.7"}, {Name: "ib0", Gbps: 400, RDMA: "mlx5_0", NUMA: 1}, {Name: "mlx5_1", RDMA: "mlx5_1", Gbps: 200, Up: true}}
	got := nics(root, func(name string) string {
		if name == "eth0" {
			return "10.0.0.7"
		}
		return ""
	})
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if memory(root) != 2113462272<<10 || numaNodes(root) != 2 {
		t.Errorf("%d bytes, %d nodes", memory(root), numaNodes(root))
	}
	free := int64(123456)
	space := func(string) (int64, int64) { return 1_000_000, free }
	d := disks(root, "/data/agent", space)
	if len(d) != 3 || d[0].Path != "/data/agent" || d[1].Path != "/" || d[2].Path != "/data" || d[0].FreeBytes != 120000 {
		t.Errorf("%+v", d)
	}
	free++
	if again := disks(root, "/data/agent", space); !reflect.DeepEqual(d, again) {
		t.Error("one byte is news")
	}
}

func TestAFileIsReadAtEveryLook(t *testing.T) {
	path := filepath.Join(t.TempDir(), "inventory.json")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"hostname":"rack7","cpus":288,"gpus":[{"index":0,"model":"GB300","memory_bytes":1,"domain":"rack7"}]}`)
	f, err := NewFile(path)
	if err != nil {
		t.Fatal(err)
	}
	found, err := f.Look(t.Context(), false)
	if err != nil || !found.Simulated || found.Hostname != "rack7" || found.CPUs != 288 || len(found.GPUs) != 1 || found.GPUs[0].Domain != "rack7" || found.MemoryBytes < 1 {
		t.Errorf("%+v, %v", found, err)
	}
	write(`{"hostname":"rack7","problems":[{"code":"xid","subject":"gpu:0","message":"79","fatal":true}],"clock_skew_ms":9000}`)
	if found, err = f.Look(t.Context(), false); err != nil || len(found.Problems) != 1 || found.SkewMS != 9000 {
		t.Errorf("%+v, %v", found, err)
	}
	write(`{"hostname":"ra`)
	if found, err = f.Look(t.Context(), false); err == nil || found.Hostname != "rack7" || len(found.Problems) != 1 {
		t.Errorf("half a file: %+v, %v", found, err)
	}
	if _, err := NewFile(path + "x"); err == nil {
		t.Error("no file is no host")
	}
}

func TestThisMachine(t *testing.T) {
	f := look(t, NewMachine(t.TempDir()))
	if f.CPUs < 1 || f.MemoryBytes < 1 || f.Hostname == "" || len(f.Disks) < 1 || f.Toolchain[wire.ToolKernel] == "" || f.Simulated {
		t.Errorf("%+v", f)
	}
}

func FuzzParsers(f *testing.F) {
	for _, name := range []string{"smi-gb200.txt", "smi-h100.txt", "topo.txt", "npu-map.txt", "npu-board.txt", "npu-memory.txt"} {
		f.Add(capture(f, name))
	}
	f.Add("GPU 1:2\n GPU 3\n  ECC Errors\n   Volatile\n    x Uncorrectable : 99999999999999999999")
	f.Add("GPU0 NIC0\nGPU0 X PIX 1 0\nNIC0: a")
	f.Add("0, x, 10.0\n-1, , 999.999")
	f.Fuzz(func(t *testing.T, said string) {
		for _, g := range parseSMI(said).gpus {
			if g.MemoryBytes < 0 || g.reading.Uncorrected < 0 {
				t.Errorf("%+v", g)
			}
		}
		for index, n := range parseTopo(said) {
			if index < 0 || n.numa < -1 {
				t.Errorf("%d: %+v", index, n)
			}
		}
		arch, _ := parseCaps(said)
		if len(arch) > maxGPUs || len(parseChips(said)) > maxGPUs {
			t.Error("more than there can be")
		}
		parseBoard(said)
		parseCANN(said)
	})
}
