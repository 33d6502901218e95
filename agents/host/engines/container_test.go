package engines

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"millrace/agents/internal/testengine"
	"millrace/agents/wire"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/serving/engine"
)

// fakeRuntime is a container runtime in a script: run executes what is in the image, here, behind a client that does not
// pass signals on, and stop ends it by name.
func fakeRuntime(t *testing.T) (path, dir string) {
	t.Helper()
	dir = t.TempDir()
	path = filepath.Join(dir, "fakeman")
	script := `#!/bin/sh
dir=` + dir + `
verb=$1; shift
case $verb in
run)
  while [ $# -gt 0 ]; do
    case $1 in
    --name) name=$2; shift 2;;
    --env) export "$2"; echo "$2" >> $dir/env; shift 2;;
    --device) echo "$2" >> $dir/devices; shift 2;;
    *) image=$1; shift; break;;
    esac
  done
  echo "$image" > $dir/image
  trap '' TERM
  "$@" & echo $! > "$dir/$name"; wait $!
  while kill -0 $(cat "$dir/$name") 2>/dev/null; do wait; done;;
stop)
  echo "$1 $2" >> $dir/stops
  kill $(cat "$dir/$2");;
esac
`
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return path, dir
}

func TestAnEngineRunsInAContainer(t *testing.T) {
	t.Parallel()
	path, dir := fakeRuntime(t)
	r, err := ParseRuntime(path+" run --name {name} {env} {devices} {image} {args}", path+" stop {seconds} {name}")
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{board: newBoard()}
	b.Supervisor, err = New(Config{Dir: t.TempDir(), Drain: patience, Clock: clock.System, Board: b.board, DieWithAgent: true, Runtime: r,
		Log: slog.New(slog.DiscardHandler), Client: func(ids.ID, engine.Driver) *http.Client { return http.DefaultClient },
		Device: func(index int) (int, error) { return index - 1, nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Stop(context.Background()) })
	unit := ids.New()
	d := testengine.Desired(unit)
	d.Spec = []byte(strings.Replace(string(d.Spec), "{", `{"Container":"acme/engine:1","Devices":[5,7],`, 1))
	b.Apply([]wire.Desired{d})
	b.ready(t, unit)
	if err := b.ask(t, unit, 1); err != nil {
		t.Error(err)
	}
	said := func(name string) string {
		text, _ := os.ReadFile(filepath.Join(dir, name))
		return strings.TrimSpace(string(text))
	}
	if said("image") != "acme/engine:1" || said("devices") != "nvidia.com/gpu=4\nnvidia.com/gpu=6" {
		t.Errorf("image %q, devices %q", said("image"), said("devices"))
	}
	env := strings.Split(said("env"), "\n")
	at := slices.Index(env, "CUDA_VISIBLE_DEVICES=0,1")
	if at < 0 || slices.Contains(env[at+1:], "CUDA_VISIBLE_DEVICES=4,6") {
		t.Errorf("inside, GPUs are counted anew: %q", env)
	}
	b.Apply(nil)
	until(t, "the unit to be gone", func() bool { return len(b.Observed()) == 0 })
	if stops := said("stops"); !strings.HasPrefix(stops, "15 millrace-") {
		t.Errorf("stopped by %q", stops)
	}
}

func TestRuntimeCommandsAreChecked(t *testing.T) {
	for start, want := range map[string]string{
		"":                                       "empty",
		"sh run {name} {image} {args}":           "{env}",
		"sh run {name} {env} {image}":            "{args}",
		"sh run --x={args} {name} {env} {image}": "alone",
		"sh run {name} {env} {image} {args} {secrets}":  "{secrets}",
		"sh run {name {env} {image} {args}":             "not closed",
		"{image} run {name} {env} {args}":               "begins with",
		"no-such-runtime-9 {name} {env} {image} {args}": "no-such-runtime-9",
		"sh run --name {name} {env} {image} {args} {":   "not closed",
	} {
		if _, err := ParseRuntime(start, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q in it", start, err, want)
		}
	}
	r, err := ParseRuntime("sh run --entrypoint {program} --name {name} -v {dir}:{dir} {env} {image} {args}", "")
	if err != nil {
		t.Fatal(err)
	}
	c := r.wrap("n", "/d", &engine.Spec{Container: "i; rm -rf /"}, engine.Command{Path: "p", Args: []string{"--a", "b c"}, Env: []string{"K={image}"}})
	want := []string{"run", "--entrypoint", "p", "--name", "n", "-v", "/d:/d", "--env", "K={image}", "i; rm -rf /", "--a", "b c"}
	if c.Path != "sh" || !slices.Equal(c.Args, want) {
		t.Errorf("%q %q", c.Path, c.Args)
	}
	if _, err := ParseRuntime("sh run {name} {env} {image} {args}", "sh stop {image}"); err == nil {
		t.Error("a stop command that names no container")
	}
}

func TestImagesAreNoOptions(t *testing.T) {
	for image, good := range map[string]bool{"acme/engine:1": true, "registry:5000/a@sha256:00": true, "--privileged": false, "-v=/:/host": false, "a b": false} {
		if err := checkImage(image); err == nil != good {
			t.Errorf("%q: %v", image, err)
		}
	}
}
