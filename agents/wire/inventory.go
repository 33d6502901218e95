package wire

import "millrace/internal/ids"

// Inventory is what a machine is made of. Its JSON form is also the file that describes a simulated host.
type Inventory struct {
	Hostname    string            `json:"hostname"`
	CPUs        int               `json:"cpus"`
	MemoryBytes int64             `json:"memory_bytes"`
	NUMANodes   int               `json:"numa_nodes,omitempty"` // 0 = unknown
	GPUs        []GPU             `json:"gpus"`
	NICs        []NIC             `json:"nics,omitempty"`
	Disks       []Disk            `json:"disks,omitempty"`
	Toolchain   map[string]string `json:"toolchain,omitempty"` // version by component: the Tool… names
}

// Components of a toolchain.
const (
	ToolNVIDIA = "nvidia_driver"
	ToolCUDA   = "cuda" // what the driver supports at most
	ToolAscend = "ascend_driver"
	ToolCANN   = "cann"
	ToolKernel = "kernel"
)

// GPU is one accelerator.
type GPU struct {
	Index       int      `json:"index"`
	UUID        string   `json:"uuid,omitempty"`
	Model       string   `json:"model"`
	Arch        string   `json:"arch,omitempty"` // sm90, sm100, ascend950; "" = unknown, fits nothing that asks
	MemoryBytes int64    `json:"memory_bytes"`
	Domain      string   `json:"domain"`           // scale-up domain; "" = the host, DomainUnknown = not to be planned on
	NUMA        int      `json:"numa,omitempty"`   // node
	NICs        []string `json:"nics,omitempty"`   // names of interfaces, nearest first
	Fault       string   `json:"fault,omitempty"`  // why it cannot be used; "" = it can
	Serial      string   `json:"serial,omitempty"` // of the board
	PCI         string   `json:"pci,omitempty"`    // domain:bus:device.function
}

// DomainUnknown is the domain of a GPU that belongs to a fabric whose state it does not (yet) tell.
const DomainUnknown = "?"

// NIC is a network interface.
type NIC struct {
	Name    string `json:"name"`
	Gbps    int    `json:"gbps"`           // of the link; 0 = unknown
	RDMA    string `json:"rdma,omitempty"` // the device's name, such as mlx5_0
	Up      bool   `json:"up"`
	NUMA    int    `json:"numa,omitempty"`
	Address string `json:"address,omitempty"` // where the unit's peers reach it
}

// Disk is a place for caches and weights.
type Disk struct {
	Path      string `json:"path"`
	Bytes     int64  `json:"bytes"`
	FreeBytes int64  `json:"free_bytes"`
}

// Problem is something wrong with a host now.
type Problem struct {
	Code    string `json:"code"`    // the Problem… names
	Subject string `json:"subject"` // gpu:3, nic:eth0, disk:/data, host
	Message string `json:"message"`
	Fatal   bool   `json:"fatal"` // its subject must not be used
	SinceMS int64  `json:"since_ms"`
}

// Codes of problems.
const (
	ProblemXid   = "xid"
	ProblemECC   = "ecc"
	ProblemHeat  = "heat"
	ProblemLost  = "lost" // was there before
	ProblemNIC   = "nic_down"
	ProblemClock = "clock_skew"
	ProblemDisk  = "disk_full"
)

// PeerLink is a measured way from this host to another.
type PeerLink struct {
	Peer string  `json:"peer"` // host id
	Gbps float64 `json:"gbps"`
	RTT  int64   `json:"rtt_us"`
	AtMS int64   `json:"at_ms"`
}

// Peer is a host that the hub names to be measured: agents ask nobody else.
type Peer struct {
	Host    ids.ID `json:"host"`
	Address string `json:"address"` // host:port of its probe listener
}
