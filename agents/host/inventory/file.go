package inventory

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"

	"millrace/agents/wire"
)

// File is a simulated host: the JSON form of wire.Inventory, with what is wrong with it beside. It is read at every look,
// so that who writes the file makes a GPU fail or a cable come out.
type File struct {
	path string
	last Found
}

// NewFile reads a simulated host's file, for the first time now.
func NewFile(path string) (*File, error) {
	f := &File{path: path}
	_, err := f.Look(context.Background(), true)
	return f, err
}

// Look implements Source. A file that is being written is an error, beside what was last read.
func (f *File) Look(context.Context, bool) (Found, error) {
	found, err := f.read()
	if err != nil {
		return f.last, fmt.Errorf("the inventory file %s: %w", f.path, err)
	}
	f.last = found
	return found, nil
}

func (f *File) read() (Found, error) {
	in, err := os.Open(f.path)
	if err != nil {
		return Found{}, err
	}
	defer in.Close()
	text, err := io.ReadAll(io.LimitReader(in, maxFile))
	if err != nil {
		return Found{}, err
	}
	var said struct {
		wire.Inventory

		Problems []wire.Problem `json:"problems"`
		SkewMS   int64          `json:"clock_skew_ms"`
	}
	if err := json.Unmarshal(text, &said); err != nil {
		return Found{}, err
	}
	if len(said.GPUs) > maxGPUs {
		return Found{}, fmt.Errorf("%d GPUs: at most %d", len(said.GPUs), maxGPUs)
	}
	found := Found{Inventory: said.Inventory, Problems: said.Problems, SkewMS: said.SkewMS, Simulated: true}
	root := os.DirFS("/")
	if found.CPUs == 0 {
		found.CPUs = runtime.NumCPU()
	}
	if found.MemoryBytes == 0 {
		found.MemoryBytes = memory(root)
	}
	if found.Hostname == "" {
		found.Hostname, _ = os.Hostname()
	}
	return found, nil
}
