// Command millrace is the whole product in one program: `up` for a trial on one machine, `serve` for production roles, and
// the operator's tools beside them.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	_ "time/tzdata" // the image has no zone files

	"github.com/alecthomas/kong"

	"millrace/internal/seal"
)

// version is set by the build.
var version = "dev"

var cli struct {
	LogLevel slog.Level `help:"debug, info, warn or error." default:"info" env:"MILLRACE_LOG_LEVEL"`

	Up               upCmd               `cmd:"" help:"Start everything on this machine: database, bus, gateway, console, two agents with engines."`
	Serve            serveCmd            `cmd:"" help:"Play one or more roles against a database and a bus."`
	Migrate          migrateCmd          `cmd:"" help:"Bring the database's schema to this version."`
	Reconcile        reconcileCmd        `cmd:"" help:"Prove that engines, usage, ledger and budgets agree; exit code 1 when a difference is unexplained."`
	Export           exportCmd           `cmd:"" help:"Write usage, costs, revenue or accounting months into a folder of CSV, JSON Lines or Parquet files; can be resumed."`
	Check            checkCmd            `cmd:"" help:"Look whether what this installation needs outside of it is as it must be."`
	Operator         operatorCmd         `cmd:"" help:"Print a link that signs an operator in to the console; the first one is made so."`
	SimEngine        simEngineCmd        `cmd:"" help:"A simulated engine on loopback: vLLM's protocol, made-up text."`
	SimDeepInfer     simDeepInferCmd     `cmd:"" name:"sim-deepinfer" help:"A simulated engine behind DeepInfer's adapter." hidden:""`
	DeepInferAdapter deepInferAdapterCmd `cmd:"" passthrough:"" name:"deepinfer-adapter" help:"The adapter before a DeepInfer engine, as an agent runs it." hidden:""`
	Bench            benchCmd            `cmd:"" help:"Measure this program on this machine, beside something to compare it with."`
	RawUpstream      rawUpstreamCmd      `cmd:"" help:"Fixed answers as cheaply as possible, for benches." hidden:""`
	Agent            agentCmd            `cmd:"" help:"The host agent, as up runs it. On other hosts use millrace-agent." hidden:""`
	AgentRelease     agentReleaseCmd     `cmd:"" name:"agent-release" help:"Put an agent's program into a release channel that hosts follow; or make a release key."`
	MasterKey        masterKeyCmd        `cmd:"" help:"Print a new master key, for serve."`
	CA               caCmd               `cmd:"" name:"ca" help:"Make the installation's certificate authority, for serve."`
	Version          versionCmd          `cmd:"" help:"Print the version."`
}

func main() {
	k := kong.Parse(&cli, kong.Name("millrace"), kong.Description("From inference engines to a service that is sold."), kong.UsageOnError())
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: cli.LogLevel})))
	// The first signal ends in order; a second one ends at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	k.BindTo(ctx, (*context.Context)(nil))
	if err := k.Run(); err != nil {
		var code exitCode
		if errors.As(err, &code) {
			os.Exit(int(code))
		}
		fmt.Fprintf(os.Stderr, "millrace: %s\n", strings.TrimSpace(err.Error()))
		os.Exit(1)
	}
}

// exitCode ends the program with a code and without a message: the command has said everything.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

type masterKeyCmd struct{}

func (masterKeyCmd) Run() error {
	fmt.Println(seal.Generate())
	return nil
}

type versionCmd struct{}

func (versionCmd) Run() error {
	fmt.Println("millrace", version)
	return nil
}
