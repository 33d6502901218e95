// Package agentcmd is the agent's command line, shared by the millrace-agent program and by `millrace agent`, which
// `millrace up` starts as its children. It owns flags and signals' meaning to a child; the work is package host's.
package agentcmd

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"millrace/agents/host"
	"millrace/agents/host/engines"
	"millrace/agents/host/update"
	"millrace/internal/datafolder"
)

// parentCheck is how often a child looks whether its parent is still there.
const parentCheck = 100 * time.Millisecond

// Command is the flags, for kong.
type Command struct {
	Hub           string        `help:"Address of the hub's agent listener." placeholder:"https://HOST:PORT" required:"" env:"MILLRACE_HUB"`
	Join          string        `help:"One-time join token from the console; needed at the first start only." placeholder:"TOKEN" env:"MILLRACE_JOIN"`
	Proxy         string        `help:"Proxy on the way to the hub, such as http://proxy:3128; default: the environment's HTTPS_PROXY." placeholder:"URL" env:"MILLRACE_PROXY"`
	Data          string        `help:"Folder of this agent: identity, engines, journal." placeholder:"DIR" env:"MILLRACE_AGENT_DATA"`
	DataListen    string        `help:"Address of the data plane, for gateways; empty = none, gateways come through the hub." placeholder:"IP:PORT" default:"127.0.0.1:0" env:"MILLRACE_DATA_LISTEN"`
	DataURL       string        `help:"Under which address gateways reach the data plane; default: as the hub's network sees it." placeholder:"https://HOST:PORT" env:"MILLRACE_DATA_URL"`
	Inventory     string        `help:"JSON file to be shown in place of this machine's hardware; the host counts as simulated." placeholder:"FILE" type:"existingfile" env:"MILLRACE_INVENTORY"`
	Drain         time.Duration `help:"How long running requests may go on when the agent is told to stop." default:"30s" env:"MILLRACE_DRAIN"`
	Fabric        string        `name:"fabric-listen" help:"Address where other hosts measure the way to this one; 'auto' = the fastest interface's." placeholder:"IP:PORT" env:"MILLRACE_FABRIC_LISTEN"`
	KeepEngines   bool          `help:"Engines outlive this process, and the next one adopts them: for systemd with KillMode=process." env:"MILLRACE_KEEP_ENGINES"`
	Container     string        `name:"container-command" help:"How to run an engine in a container, such as 'podman run --rm --name {name} --network host {env} {devices} -v {dir}:{dir} {image} {args}'. No shell reads it." env:"MILLRACE_CONTAINER_COMMAND"`
	ContainerStop string        `help:"How to stop one; default: RUNTIME stop --time {seconds} {name}." env:"MILLRACE_CONTAINER_STOP"`
	Channel       string        `help:"Release channel of the hub that this program follows; empty = it is updated by hand." placeholder:"NAME" env:"MILLRACE_CHANNEL"`
	ReleaseKey    string        `help:"Public key (ed25519, base64) that must have signed an update." placeholder:"KEY" env:"MILLRACE_RELEASE_KEY"`
	UpdateSpread  time.Duration `help:"In which the hosts of a channel follow it, each at a moment of its own: each drains for its update." default:"30m" env:"MILLRACE_UPDATE_SPREAD"`
	Trial         time.Duration `name:"update-trial" help:"How long a new program may take to reach the hub before the one before is back." default:"2m" env:"MILLRACE_UPDATE_TRIAL"`
	ParentDeath   int           `help:"Die, with every engine, as soon as the process of this id is not the parent any more." placeholder:"PID" default:"0"`

	Version string `kong:"-"`
}

// Run is the agent's life. ctx ends it in order.
func (c *Command) Run(ctx context.Context) error {
	hub, err := url.Parse(c.Hub)
	if err != nil || hub.Scheme != "https" || hub.Host == "" {
		return fmt.Errorf("--hub %q: want https://HOST:PORT", c.Hub)
	}
	data := c.Data
	if data == "" {
		if data, err = defaultData(); err != nil {
			return err
		}
	}
	cfg := host.Config{Hub: "https://" + hub.Host, Join: c.Join, Proxy: c.Proxy, Data: data, DataListen: c.DataListen, DataURL: c.DataURL,
		Inventory: c.Inventory, FabricListen: c.Fabric, DieWithAgent: c.ParentDeath > 0, KeepEngines: c.KeepEngines,
		Drain: c.Drain, Version: c.Version, Channel: c.Channel, UpdateSpread: c.UpdateSpread}
	if err := c.check(&cfg); err != nil {
		return err
	}
	if c.Channel != "" {
		if cfg.Program, err = c.enter(data); err != nil {
			return err
		}
	}
	if c.ParentDeath > 0 {
		go dieWithParent(c.ParentDeath) // ends the process
	}
	err = host.Run(ctx, cfg)
	for errors.Is(err, host.ErrUpdated) {
		slog.Error("the new program cannot be executed: this one goes on", "error", cfg.Program.Switch()) // else it does not return
		err = host.Run(ctx, cfg)
	}
	return err
}

// check refuses flags that contradict each other, and reads the others.
func (c *Command) check(cfg *host.Config) (err error) {
	switch {
	case c.ParentDeath > 0 && c.KeepEngines:
		return errors.New("--keep-engines and --parent-death contradict each other")
	case c.Channel != "" && !c.KeepEngines:
		return errors.New("--channel needs --keep-engines: an update must not stop engines")
	case c.Container != "":
		cfg.Runtime, err = engines.ParseRuntime(c.Container, c.ContainerStop)
	}
	return err
}

// enter finds out which program is current, and becomes it.
func (c *Command) enter(data string) (*update.Program, error) {
	var key ed25519.PublicKey
	if c.ReleaseKey != "" {
		raw, err := base64.StdEncoding.DecodeString(c.ReleaseKey)
		if err != nil || len(raw) != ed25519.PublicKeySize {
			return nil, errors.New("--release-key: want an ed25519 public key, 32 bytes in base64")
		}
		key = raw
	}
	folder, err := datafolder.Open(data)
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	return update.Enter(update.Config{Dir: folder.Path(), Key: key, Platform: runtime.GOOS + "/" + runtime.GOARCH, Trial: c.Trial, Log: slog.Default()})
}

// dieWithParent ends this process without a farewell when it has become an orphan: the next start of its parent must find
// nothing in its way. The kernel then kills the engines.
func dieWithParent(parent int) {
	for os.Getppid() == parent {
		time.Sleep(parentCheck)
	}
	slog.Error("the parent process is gone")
	os.Exit(1)
}

func defaultData() (string, error) {
	if os.Geteuid() == 0 {
		return "/var/lib/millrace-agent", nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", errors.New("no folder: set --data")
	}
	return filepath.Join(home, ".local", "state", "millrace-agent"), nil
}
