package engines

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"millrace/agents/wire"
	"millrace/internal/ids"
	"millrace/serving/engine"
)

// recordEnd follows the name of an engine's folder: its record lies beside the folder, which the engine, or whoever breaks
// into its container, may write to.
const recordEnd = ".process.json"

func recordOf(dir string) string { return dir + recordEnd }

// record tells a later agent which process an engine is, and all that is needed to go on with it. A number alone proves
// nothing: it may be reused, so the start time within one boot is compared.
type record struct {
	Engine  ids.ID `json:"engine"`
	Program string `json:"program"`
	PID     int    `json:"pid,omitempty"`
	Start   string `json:"start,omitempty"` // clock ticks after boot
	Boot    string `json:"boot,omitempty"`

	Unit      ids.ID       `json:"unit"`
	Desired   wire.Desired `json:"desired"`             // that it was started for
	Spec      engine.Spec  `json:"spec"`                // as it was started: with ports
	Ports     []int        `json:"ports"`               // that it holds
	Host      string       `json:"host,omitempty"`      // where its HTTP listens; "" = loopback
	Argv      string       `json:"argv"`                // digest of its command line
	Container string       `json:"container,omitempty"` // its name, when it runs in one
	StartedMS int64        `json:"started_ms"`
	Restarts  int          `json:"restarts"`
}

func digest(c *engine.Command) string {
	sum := sha256.Sum256([]byte(strings.Join(append([]string{c.Path}, c.Args...), "\x00")))
	return hex.EncodeToString(sum[:8])
}

// found completes a record once the process runs.
func (r *record) found(pid int) {
	r.PID, r.Start, r.Boot = pid, startTime(pid), bootID()
}

func (r *record) write(dir string) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	tmp := recordOf(dir) + ".new"
	_ = os.Remove(tmp) // whatever it is: it is not written through
	out, err := os.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, secretMode)
	if err != nil {
		return err
	}
	_, err = out.Write(text)
	if err := errors.Join(err, out.Close()); err != nil {
		return err
	}
	return os.Rename(tmp, recordOf(dir))
}

func removeRecord(dir string) { _ = os.Remove(recordOf(dir)) }

// records reads what an earlier agent left, by folder. What cannot be read names nobody.
func records(root string, log *slog.Logger) (map[string]record, error) {
	files, err := filepath.Glob(filepath.Join(root, "*"+recordEnd))
	if err != nil {
		return nil, err
	}
	out := map[string]record{}
	for _, path := range files {
		dir := strings.TrimSuffix(path, recordEnd)
		r, err := readRecord(dir)
		if err != nil {
			log.Warn("the record of an engine cannot be read", "file", path, "error", err)
		}
		out[dir] = r
	}
	return out, nil
}

func readRecord(dir string) (r record, err error) {
	text, err := os.ReadFile(recordOf(dir))
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	return r, err
}

// alive proves that the very process of the record still runs.
func (r *record) alive() bool {
	return r.PID > 1 && r.Start != "" && r.Boot == bootID() && startTime(r.PID) == r.Start
}
