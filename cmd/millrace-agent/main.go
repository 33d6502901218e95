// Command millrace-agent is the host agent: it joins a Millrace hub, runs the engines that the hub desires on this
// machine, and carries gateways' requests to them.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"millrace/agents/host/agentcmd"
)

// version is set by the build.
var version = "dev"

var cli struct {
	agentcmd.Command
	LogLevel    slog.Level       `help:"debug, info, warn or error." default:"info" env:"MILLRACE_LOG_LEVEL"`
	ShowVersion kong.VersionFlag `name:"version" help:"Print the version."`
}

func main() {
	kong.Parse(&cli, kong.Name("millrace-agent"), kong.Description("Runs inference engines on this machine for a Millrace hub."),
		kong.UsageOnError(), kong.Vars{"version": "millrace-agent " + version})
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: cli.LogLevel})))
	// The first signal ends in order; a second one ends at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	cli.Command.Version = version
	if err := cli.Run(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "millrace-agent: %v\n", err)
		os.Exit(1)
	}
}
