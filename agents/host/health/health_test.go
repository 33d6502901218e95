package health

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/agents/host/inventory"
	"millrace/agents/wire"
)

var start = time.Unix(1_800_000_000, 0)

func gpus(n int) inventory.Found {
	f := inventory.Found{Readings: map[int]inventory.Reading{}}
	for i := range n {
		f.GPUs = append(f.GPUs, wire.GPU{Index: i, UUID: fmt.Sprintf("GPU-%d", i), Model: "H200", PCI: fmt.Sprintf("0000:%02x:00.0", 0x18+i)})
	}
	return f
}

// codes are "code subject!", with the mark for fatal ones.
func codes(all []wire.Problem) string {
	var out []string
	for _, p := range all {
		mark := ""
		if p.Fatal {
			mark = "!"
		}
		out = append(out, p.Code+" "+p.Subject+mark)
	}
	return strings.Join(out, ", ")
}

func TestXidLines(t *testing.T) {
	for line, want := range map[string]string{
		"4,1234,987654321,-;NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.": "0000:3b:00 79 fatal",
		"[1234.5] NVRM: Xid (PCI:00000008:01:00): 48, pid=1, Ch 8":                                                        "0008:01:00 48 fatal",
		"NVRM: Xid (PCI:0000:18:00): 31, pid=4242, name=python3, Ch 00000008, MMU Fault":                                  "0000:18:00 31 programs",
		"NVRM: Xid (PCI:0000:18:00): 94, Contained: SM":                                                                   "0000:18:00 94 noted",
		"NVRM: Xid (PCI:0000:18:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)":        "0000:18:00 154 fatal",
		"NVRM: Xid (PCI:0000:18:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)":        "0000:18:00 154 programs",
		"NVRM: Xid (PCI:0000:18:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 03":                                            "0000:18:00 149 fatal",
		"NVRM: Xid (PCI:0000:18:00): 145, RLW_REMAP Nonfatal XC0 i0 Link 03":                                              "0000:18:00 145 noted",
		"NVRM: Xid (PCI:0000:18:00): 99999, x":                                                                            "",
		"NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05":                                              "",
	} {
		x, ok := ParseXid(line)
		got := ""
		if ok {
			v, _ := x.judge()
			got = fmt.Sprintf("%s %d %s", x.PCI, x.Code, []string{"programs", "noted", "fatal"}[v])
		}
		if got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

func TestAnXidFaultsItsGPUUntilTheDriverTakesItBack(t *testing.T) {
	w := New(nil)
	see := func() (wire.Inventory, []wire.Problem) { return w.See(gpus(2), 0, start) }
	w.Xid(Xid{PCI: "0000:19:00", Code: 31}, start)
	if _, p := see(); len(p) != 0 {
		t.Errorf("a program's error: %s", codes(p))
	}
	w.Xid(Xid{PCI: "0000:19:00", Code: 79}, start.Add(-time.Hour))
	w.Xid(Xid{PCI: "0000:19:00", Code: 94}, start) // a lesser one after it
	inv, p := see()
	if codes(p) != "xid gpu:1!" || inv.GPUs[1].Fault == "" || inv.GPUs[0].Fault != "" || p[0].SinceMS != start.Add(-time.Hour).UnixMilli() {
		t.Errorf("%s, %+v", codes(p), inv.GPUs)
	}
	w.Xid(Xid{PCI: "0000:19:00", Code: 154, Text: "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"}, start)
	if inv, p = see(); len(p) != 0 || inv.GPUs[1].Fault != "" {
		t.Errorf("after the reset: %s", codes(p))
	}
	w.Xid(Xid{PCI: "0000:19:00", Code: 119}, start)
	w.Forget()
	if _, p = see(); len(p) != 0 {
		t.Errorf("forgotten: %s", codes(p))
	}
}

func TestWhatTheHardwareSays(t *testing.T) {
	for _, c := range []struct {
		r    inventory.Reading
		want string
	}{
		{inventory.Reading{}, ""},
		{inventory.Reading{Uncorrected: 1}, "ecc gpu:0"},
		{inventory.Reading{RemapPending: true, Uncorrected: 3}, "ecc gpu:0"},
		{inventory.Reading{RemapFailed: true}, "ecc gpu:0!"},
		{inventory.Reading{Recovery: "Reset"}, "xid gpu:0!"},
		{inventory.Reading{Recovery: "Drain P2P"}, ""},
		{inventory.Reading{Unwell: "Alarm"}, "xid gpu:0!"},
		{inventory.Reading{Margin: 1, MarginKnown: true}, ""},
		{inventory.Reading{Margin: 0, MarginKnown: true}, "heat gpu:0"},
		{inventory.Reading{Margin: -5}, ""},
	} {
		w, f := New(nil), gpus(1)
		f.Readings[0] = c.r
		w.See(f, 0, start)
		if _, p := w.See(f, 0, start.Add(time.Minute)); codes(p) != c.want {
			t.Errorf("%+v: %q, want %q", c.r, codes(p), c.want)
		}
	}
}

// A GPU that vanishes makes nvidia-smi count anew. The others keep the index by which plans name them.
func TestAVanishedGPUKeepsItsPlace(t *testing.T) {
	w := New(nil)
	w.See(gpus(4), 0, start)
	f := gpus(4)
	f.GPUs = slices.Delete(f.GPUs, 1, 2)
	for i := range f.GPUs {
		f.GPUs[i].Index = i
	}
	f.Readings = map[int]inventory.Reading{2: {Recovery: "Reset"}} // of the last
	inv, p := w.See(f, 0, start.Add(time.Second))
	if len(inv.GPUs) != 4 || inv.GPUs[1].Fault != "" || codes(p) != "xid gpu:3!" {
		t.Errorf("a blink: %+v, %s", inv.GPUs, codes(p))
	}
	inv, p = w.See(f, 0, start.Add(20*time.Second))
	if codes(p) != "lost gpu:1!, xid gpu:3!" || inv.GPUs[1].UUID != "GPU-1" || inv.GPUs[1].Fault == "" || inv.GPUs[3].UUID != "GPU-3" {
		t.Errorf("%+v, %s", inv.GPUs, codes(p))
	}
	if n, ok := w.Device(3); !ok || n != 2 {
		t.Errorf("the fourth is now number %d, %v", n, ok)
	}
	if _, ok := w.Device(1); ok {
		t.Error("the lost one has a number")
	}
	again := New(w.Known()) // the agent restarts
	inv, _ = again.See(f, 0, start)
	if _, p = again.See(f, 0, start.Add(time.Minute)); len(inv.GPUs) != 4 || codes(p) != "lost gpu:1!, xid gpu:3!" {
		t.Errorf("after a restart: %+v, %s", inv.GPUs, codes(p))
	}
	f = gpus(4)
	f.GPUs[1].UUID = "GPU-new" // the board was replaced
	again.See(f, 0, start.Add(2*time.Minute))
	if inv, p = again.See(f, 0, start.Add(4*time.Minute)); codes(p) != "" || inv.GPUs[1].UUID != "GPU-new" {
		t.Errorf("after the repair: %+v, %s", inv.GPUs, codes(p))
	}
}

// A cable that comes and goes every half minute is one problem from its first day to its last.
func TestAFlappingNICIsOneProblem(t *testing.T) {
	w := New(nil)
	f := inventory.Found{}
	changes, before := 0, ""
	at := start
	for round := range 40 {
		up := round%2 == 0
		f.NICs = []wire.NIC{{Name: "eth0", Up: up}, {Name: "eth1"}}
		for range 3 { // three looks, ten seconds apart
			_, p := w.See(f, 0, at)
			if now := codes(p); now != before {
				changes, before = changes+1, now
			}
			at = at.Add(10 * time.Second)
		}
	}
	if changes != 1 || before != "nic_down nic:eth0" {
		t.Errorf("%d changes, at last %q", changes, before)
	}
	f.NICs[0].Up = true
	w.See(f, 0, at)
	if _, p := w.See(f, 0, at.Add(3*time.Minute)); len(p) != 0 {
		t.Errorf("steady again: %s", codes(p))
	}
}

func TestDisksAndClocksHaveSlack(t *testing.T) {
	w, at := New(nil), start
	see := func(free int64, skew time.Duration) string {
		at = at.Add(2 * time.Minute)
		f := inventory.Found{}
		f.Disks = []wire.Disk{{Path: "/data", Bytes: 100, FreeBytes: free}}
		_, p := w.See(f, skew, at)
		return codes(p)
	}
	for _, c := range []struct {
		free int64
		skew time.Duration
		want string
	}{
		{50, 0, ""},
		{7, 1500 * time.Millisecond, ""},
		{4, -5 * time.Second, "disk_full disk:/data"},
		{4, -5 * time.Second, "disk_full disk:/data, clock_skew host"},
		{7, 1500 * time.Millisecond, "disk_full disk:/data, clock_skew host"},
		{50, 0, "disk_full disk:/data, clock_skew host"}, // not for long enough
		{50, 0, ""},
	} {
		if got := see(c.free, c.skew); got != c.want {
			t.Errorf("%d free, %s off: %q, want %q", c.free, c.skew, got, c.want)
		}
	}
}

func TestAFilesProblemsFault(t *testing.T) {
	w, f := New(nil), gpus(2)
	f.Problems = []wire.Problem{{Code: wire.ProblemXid, Subject: "gpu:1", Message: "Xid 79", Fatal: true}}
	f.SkewMS = 5000
	w.See(f, 0, start)
	inv, p := w.See(f, 0, start.Add(time.Minute))
	if codes(p) != "xid gpu:1!, clock_skew host" || inv.GPUs[1].Fault != "Xid 79" || inv.GPUs[0].Fault != "" {
		t.Errorf("%s, %+v", codes(p), inv.GPUs)
	}
}

func TestFollowReadsOldMessagesFirst(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kmsg")
	line := "4,1,5000000,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=1, gone\n"
	if err := os.WriteFile(path, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	got := make(chan Xid, 1)
	done := make(chan error, 1)
	go func() { done <- Follow(t.Context(), path, func(x Xid, _ time.Time) { got <- x }) }()
	if x := <-got; x.Code != 79 {
		t.Errorf("%+v", x)
	}
	if stamp(line) != 5*time.Second || stamp("x") != 0 || stamp("1,2,-3;") != 0 {
		t.Error("times after boot")
	}
	if err := Follow(t.Context(), path+"x", nil); err == nil {
		t.Error("a log that is not there")
	}
}

func FuzzParseXid(f *testing.F) {
	f.Add("NVRM: Xid (PCI:0000:3b:00): 79, pid=1, gone")
	f.Add("4,1,5000000,-;NVRM: Xid (PCI:00000008:01:00.0): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)")
	f.Fuzz(func(t *testing.T, line string) {
		if x, ok := ParseXid(line); ok {
			if x.Code < 0 || len(x.Text) > maxXidText || x.PCI == "" {
				t.Errorf("%+v", x)
			}
			x.judge()
		}
		stamp(line)
	})
}
