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
	"millrace/serving/engine/deepinfer"
)

// version is set by the build.
var version = "dev"

var cli struct {
	agentcmd.Command
	LogLevel    slog.Level       `help:"debug, info, warn or error." default:"info" env:"MILLRACE_LOG_LEVEL"`
	ShowVersion kong.VersionFlag `name:"version" help:"Print the version."`
}

func main() {
	// The first signal ends in order; a second one ends at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	if asked, err := deepinfer.RunIfAsked(ctx, os.Args[1:]); asked {
		exit(err)
		return
	}
	kong.Parse(&cli, kong.Name("millrace-agent"), kong.Description("Runs inference engines on this machine for a Millrace hub."),
		kong.UsageOnError(), kong.Vars{"version": "millrace-agent " + version})
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: cli.LogLevel})))
	cli.Command.Version = version
	exit(cli.Run(ctx))
}

// exit ends the program when something failed.
func exit(err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "millrace-agent: %v\n", err)
		os.Exit(1)
	}
}
