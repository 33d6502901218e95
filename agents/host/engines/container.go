package engines

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"millrace/internal/ids"
	"millrace/serving/engine"
)

// Runtime runs engines in containers by an operator's own commands, with what stands in braces filled in. No shell reads
// them, and nothing that comes from the control side becomes a word of its own but the engine's arguments.
type Runtime struct{ start, stop []string }

// Words of a runtime's commands. Those marked * stand alone and become any number of words.
const (
	wordName    = "{name}"    // the container's
	wordImage   = "{image}"   // as the unit's spec says
	wordDir     = "{dir}"     // the unit's folder
	wordProgram = "{program}" // the engine's program, for --entrypoint; without it the arguments begin with it
	wordArgs    = "{args}"    // *
	wordEnv     = "{env}"     // * --env KEY=VALUE …
	wordDevices = "{devices}" // * --device …: the GPUs that the unit may use
	wordSeconds = "{seconds}" // of the stop command: how long the engine may take
)

// DefaultStop fits podman and docker: %s is the runtime.
const defaultStop = "%s stop --time {seconds} {name}"

const stopMargin = 10 * time.Second // for a stop command beyond the time that it is given

// ParseRuntime checks the commands. An empty stop command is made for podman and docker.
func ParseRuntime(start, stop string) (*Runtime, error) {
	r := &Runtime{start: strings.Fields(start)}
	if len(r.start) == 0 {
		return nil, errors.New("--container-command is empty")
	}
	if stop == "" {
		stop = fmt.Sprintf(defaultStop, r.start[0])
	}
	r.stop = strings.Fields(stop)
	alone := []string{wordArgs, wordEnv, wordDevices}
	known := append([]string{wordName, wordImage, wordDir, wordProgram}, alone...)
	if err := checkWords("--container-command", r.start, known, alone, []string{wordName, wordImage, wordArgs, wordEnv}); err != nil {
		return nil, err
	}
	if err := checkWords("--container-stop", r.stop, []string{wordName, wordSeconds}, nil, []string{wordName}); err != nil {
		return nil, err
	}
	if _, err := exec.LookPath(r.start[0]); err != nil {
		return nil, fmt.Errorf("--container-command: %w", err)
	}
	return r, nil
}

func checkWords(flag string, words, known, alone, needed []string) error {
	met := map[string]bool{}
	for i, w := range words {
		for rest := w; ; {
			open := strings.IndexByte(rest, '{')
			if open < 0 {
				break
			}
			end := strings.IndexByte(rest[open:], '}')
			if end < 0 {
				return fmt.Errorf("%s: a brace is not closed in %q", flag, w)
			}
			name := rest[open : open+end+1]
			switch {
			case !slices.Contains(known, name):
				return fmt.Errorf("%s: there is no %s: choose from %s", flag, name, strings.Join(known, " "))
			case slices.Contains(alone, name) && w != name:
				return fmt.Errorf("%s: %s must stand alone, not in %q", flag, name, w)
			case i == 0:
				return fmt.Errorf("%s begins with the runtime's name", flag)
			}
			met[name] = true
			rest = rest[open+end+1:]
		}
	}
	for _, n := range needed {
		if !met[n] {
			return fmt.Errorf("%s needs %s", flag, n)
		}
	}
	return nil
}

// wrap makes an engine's command one that runs it in a container.
func (r *Runtime) wrap(name, dir string, s *engine.Spec, c engine.Command) engine.Command {
	env := c.Env
	args := c.Args
	if !slices.ContainsFunc(r.start, func(w string) bool { return strings.Contains(w, wordProgram) }) {
		args = append([]string{c.Path}, c.Args...)
	}
	var devices []string
	if slices.Contains(r.start, wordDevices) && len(s.Devices) > 0 {
		var inside string
		devices, inside = deviceWords(s)
		env = append(slices.Clone(env), inside) // the last one holds: inside, they are counted anew
	}
	fill := strings.NewReplacer(wordName, name, wordImage, s.Container, wordDir, dir, wordProgram, c.Path)
	var words []string
	for _, w := range r.start {
		switch w {
		case wordArgs:
			words = append(words, args...)
		case wordEnv:
			for _, kv := range env {
				words = append(words, "--env", kv)
			}
		case wordDevices:
			words = append(words, devices...)
		default:
			words = append(words, fill.Replace(w))
		}
	}
	return engine.Command{Path: words[0], Args: words[1:], Files: c.Files, Host: c.Host}
}

// checkImage refuses what the runtime would take for one of its own options.
func checkImage(image string) error {
	if strings.HasPrefix(image, "-") || strings.ContainsAny(image, " \t\r\n") {
		return fmt.Errorf("%q is no container image: mend the unit's recipe", image)
	}
	return nil
}

// deviceWords names the GPUs as podman and docker know them (CDI), or Ascend's device files, and tells the engine to take
// all of them.
func deviceWords(s *engine.Spec) (words []string, inside string) {
	all := make([]string, len(s.Devices))
	for i, n := range s.Devices {
		all[i] = strconv.Itoa(i)
		if s.Ascend {
			words = append(words, "--device", "/dev/davinci"+strconv.Itoa(n))
		} else {
			words = append(words, "--device", "nvidia.com/gpu="+strconv.Itoa(n))
		}
	}
	if s.Ascend {
		return append(words, "--device", "/dev/davinci_manager", "--device", "/dev/devmm_svm", "--device", "/dev/hisi_hdc"),
			"ASCEND_RT_VISIBLE_DEVICES=" + strings.Join(all, ",")
	}
	return words, "CUDA_VISIBLE_DEVICES=" + strings.Join(all, ",")
}

// end stops a container by its own command: killing the runtime's client would leave it running. An error is of no use to
// anybody: the container may be gone.
func (r *Runtime) end(name string, within time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), within+stopMargin)
	defer cancel()
	fill := strings.NewReplacer(wordName, name, wordSeconds, strconv.Itoa(int(within/time.Second)))
	words := make([]string, len(r.stop))
	for i, w := range r.stop {
		words[i] = fill.Replace(w)
	}
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Env, cmd.WaitDelay = inherited(), time.Second
	return cmd.Run()
}

// containerName is of one engine, so that the next one's does not meet it.
func containerName(eng ids.ID) string { return "millrace-" + eng.String() }
