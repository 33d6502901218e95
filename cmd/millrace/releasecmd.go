package main

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"millrace/agents/release"
)

// agentReleaseCmd writes the folder that `serve --agent-releases` reads.
type agentReleaseCmd struct {
	Folder   string `arg:"" optional:"" help:"Folder of the releases." type:"path"`
	Channel  string `help:"Channel that hosts follow." default:"stable"`
	Release  string `help:"What the program itself prints as its version." placeholder:"VERSION"`
	Platform string `help:"What it runs on; default: this machine's." placeholder:"OS/ARCH"`
	Program  string `help:"File of the agent's program." type:"existingfile" placeholder:"FILE"`
	KeyFile  string `help:"File with the release key that signs it; without it the program's digest alone is checked." type:"existingfile" placeholder:"FILE"`
	NewKey   string `help:"Make a release key in this file and print its public half, for agents' --release-key. Nothing else is done." type:"path" placeholder:"FILE"`
}

// Run publishes, or makes a key.
func (c *agentReleaseCmd) Run() error {
	if c.NewKey != "" {
		return newReleaseKey(c.NewKey)
	}
	if c.Folder == "" || c.Program == "" || c.Release == "" {
		return errors.New("give the folder, --program FILE and --release VERSION")
	}
	if c.Platform == "" {
		c.Platform = runtime.GOOS + "/" + runtime.GOARCH
	}
	var key ed25519.PrivateKey
	if c.KeyFile != "" {
		text, err := os.ReadFile(c.KeyFile)
		if err != nil {
			return err
		}
		seed, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
		if err != nil || len(seed) != ed25519.SeedSize {
			return fmt.Errorf("%s is no release key: make one with --new-key", c.KeyFile)
		}
		key = ed25519.NewKeyFromSeed(seed)
	}
	if err := release.Publish(c.Folder, c.Channel, c.Release, c.Platform, c.Program, key); err != nil {
		return err
	}
	fmt.Printf("Agents of channel %s on %s go to version %s as they hear of it.\n", c.Channel, c.Platform, c.Release)
	return nil
}

func newReleaseKey(path string) error {
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return err
	}
	out, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = out.WriteString(base64.StdEncoding.EncodeToString(key.Seed()) + "\n")
	if err = errors.Join(err, out.Close()); err != nil {
		return err
	}
	fmt.Println(base64.StdEncoding.EncodeToString(public))
	return nil
}
