package update

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"millrace/internal/datafolder"
)

const (
	stateName = "program.json"
	stateMode = 0o600
)

// state is the file.
type state struct {
	Installed   string    `json:"installed"`        // the operator's program
	InstalledAt time.Time `json:"installed_at"`     // its file's time: another one was installed since
	Current     string    `json:"current"`          // "" = the installed one
	Previous    string    `json:"previous"`         // what to go back to; "" = the installed one
	Version     string    `json:"version"`          // of the current one
	Trial       bool      `json:"trial"`            // it has not reached the hub yet
	Fresh       bool      `json:"fresh,omitempty"`  // nobody has become it yet: what ends before says nothing against it
	Failed      []byte    `json:"failed,omitempty"` // digest of the program that failed its trial
	Error       string    `json:"error,omitempty"`
}

func (p *Program) load() {
	text, err := os.ReadFile(p.path(stateName))
	if err == nil {
		err = json.Unmarshal(text, &p.state)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		p.log.Warn("which program is current cannot be read: the one that was started is", "error", err)
		p.state = state{}
	}
}

func (p *Program) save() error {
	text, err := json.Marshal(&p.state)
	if err != nil {
		return err
	}
	return datafolder.WriteFile(p.path(stateName), text, stateMode)
}

func (p *Program) path(names ...string) string {
	return filepath.Join(append([]string{p.dir}, names...)...)
}

func modified(path string) time.Time {
	info, err := os.Stat(path)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime().UTC()
}

func sumOf(path string) ([]byte, error) {
	in, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	sum := sha256.New()
	_, err = io.Copy(sum, in)
	return sum.Sum(nil), err
}
