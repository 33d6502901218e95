package health

import (
	"regexp"
	"strconv"
	"strings"
)

// Xid is an error that NVIDIA's kernel module wrote to the kernel log:
//
//	NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
type Xid struct {
	PCI  string // domain:bus:device
	Code int
	Text string // the module's own words behind the code
}

var xidLine = regexp.MustCompile(`NVRM: Xid \(PCI:([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})(?:\.\d)?\): (\d{1,4})\b(?:, ?(.*))?`)

// maxXidText bounds the module's words: they may quote a process's name.
const maxXidText = 200

// ParseXid reads one line of the kernel log.
func ParseXid(line string) (Xid, bool) {
	m := xidLine.FindStringSubmatch(line)
	if m == nil {
		return Xid{}, false
	}
	code, err := strconv.Atoi(m[2])
	if err != nil {
		return Xid{}, false
	}
	words := strings.ToValidUTF8(strings.TrimSpace(m[3]), "?")
	return Xid{PCI: slot(m[1]), Code: code, Text: words[:min(len(words), maxXidText)]}, true
}

// slot is domain:bus:device of an address, as the kernel writes it.
func slot(address string) string {
	address, _, _ = strings.Cut(strings.ToLower(address), ".")
	if domain, rest, ok := strings.Cut(address, ":"); ok && len(domain) > 4 {
		return domain[len(domain)-4:] + ":" + rest
	}
	return address
}

// verdict says what an Xid means for who wants to use the GPU.
type verdict uint8

const (
	programs verdict = iota // a program's own mistake: the GPU is well
	noted                   // hardware, to be looked at; the GPU goes on
	fatal                   // nothing runs right on this GPU until it is reset, the host restarted, or the board replaced
	inText                  // the line itself says whether it is fatal
)

// xids is NVIDIA's "XID Errors" catalogue (docs.nvidia.com/deploy/xid-errors, r575 and later) read for one question: may
// anything new start on this GPU? Codes that are not here are programs' own errors (13, 31, 43, 45, 68, 69 …) or unknown.
var xids = map[int]struct {
	what    string
	verdict verdict
}{
	48:  {"double-bit memory error", fatal},
	62:  {"the GPU's internal controller halted", fatal},
	63:  {"a memory row is to be exchanged at the next reset", noted},
	64:  {"a memory row could not be marked for exchange", fatal},
	74:  {"NVLink error", fatal},
	79:  {"the GPU has fallen off the bus", fatal},
	92:  {"many single-bit memory errors", noted},
	94:  {"a memory error that ended one program", noted},
	95:  {"a memory error that was not contained", fatal},
	109: {"a context switch timed out", noted},
	110: {"a security fault", fatal},
	119: {"the GPU's system processor does not answer", fatal},
	120: {"the GPU's system processor failed", fatal},
	121: {"an error on the link to the processor, corrected", noted},
	136: {"the link to the processor failed in training", fatal},
	140: {"a memory error that was not recovered", fatal},
	143: {"the GPU could not be initialised", fatal},
	144: {"NVLink: SAW error", inText},
	145: {"NVLink: RLW error", inText},
	146: {"NVLink: TLW error", inText},
	147: {"NVLink: TREX error", inText},
	148: {"NVLink: NVLPW_CTRL error", inText},
	149: {"NVLink: NETIR error", inText},
	150: {"NVLink: MSE error", inText},
	151: {"a key rotation failed", fatal},
	154: {"the driver asks for a recovery", inText},
}

// recovery is Xid 154, which says what the driver wants done from now on: the last one of a GPU counts.
const recovery = 154

// judge gives the verdict on one Xid, and words for people.
func (x Xid) judge() (verdict, string) {
	known, ok := xids[x.Code]
	if !ok {
		return programs, ""
	}
	v := known.verdict
	if v == inText {
		v = noted
		switch {
		case x.Code == recovery:
			_, to, _ := strings.Cut(x.Text, " to ")
			switch {
			case strings.Contains(to, "Reset") || strings.Contains(to, "Reboot") || strings.Contains(to, "Drain and Reset"):
				v = fatal
			case strings.Contains(to, "None"):
				v = programs
			}
		case strings.Contains(x.Text, "Nonfatal"):
		case strings.Contains(x.Text, "Fatal"):
			v = fatal
		}
	}
	words := "Xid " + strconv.Itoa(x.Code) + ": " + known.what
	if x.Code >= 144 && x.Text != "" {
		words += " (" + x.Text + ")"
	}
	return v, words
}
