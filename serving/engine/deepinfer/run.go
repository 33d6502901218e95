package deepinfer

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"millrace/serving/engine/dsml"
)

// Command is the subcommand of the agent's program that is the adapter.
const Command = "deepinfer-adapter"

// Times and limits of a run.
const (
	headTimeout = 10 * time.Second
	stopTime    = 10 * time.Second // for running answers, then for the engine, to end
	maxSocket   = 100              // bytes of a Unix socket's path; Linux takes 107
)

// RunIfAsked is the adapter when args, without the program's name, ask for it; false when they do not.
func RunIfAsked(ctx context.Context, args []string) (bool, error) {
	if len(args) == 0 || args[0] != Command {
		return false, nil
	}
	return true, Run(ctx, args[1:])
}

// config is the adapter's flags.
type config struct {
	port   int
	model  string
	socket string
	ep     int
	v4     bool
	plain  bool
	engine []string
}

func parse(args []string) (config, error) {
	var c config
	f := flag.NewFlagSet(Command, flag.ContinueOnError)
	f.IntVar(&c.port, "port", 0, "HTTP `port` on 127.0.0.1")
	f.StringVar(&c.model, "model", "", "the `name` to serve under")
	f.StringVar(&c.socket, "socket", "", "the engine's Unix socket, a `path`")
	f.IntVar(&c.ep, "ep", 0, "the EP `size` that the engine must have")
	f.BoolVar(&c.v4, "v4", false, "prompts of DeepSeek V4 instead of V4.1")
	f.BoolVar(&c.plain, "no-thinking", false, "requests that say nothing of thinking do not think")
	f.Usage = func() {
		fmt.Fprintf(f.Output(), "%s [flags] -- ENGINE ARGUMENTS…\nMakes a Chat Completions server of a DeepInfer engine, which it starts.\n", Command)
		f.PrintDefaults()
	}
	if err := f.Parse(args); err != nil {
		return c, err
	}
	c.engine = f.Args()
	switch {
	case c.port < 1 || c.model == "" || c.socket == "":
		return c, errors.New("deepinfer: --port, --model and --socket are needed")
	case len(c.socket) > maxSocket:
		return c, fmt.Errorf("deepinfer: the socket's path is longer than %d bytes: give the agent a folder with a shorter one: %s", maxSocket, c.socket)
	case len(c.engine) == 0:
		return c, errors.New("deepinfer: say which engine to run, after --")
	}
	return c, nil
}

// Run starts the engine and serves before it until ctx ends, a drain has ended, or the engine dies: that is an error.
func Run(ctx context.Context, args []string) error {
	c, err := parse(args)
	if err != nil {
		return err
	}
	if err := os.Remove(c.socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("deepinfer: an old socket is in the way: %w", err)
	}
	ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", c.port))
	if err != nil {
		return fmt.Errorf("deepinfer: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	version := dsml.V41
	if c.v4 {
		version = dsml.V4
	}
	a := New(Settings{Client: overSocket(c.socket), Base: "http://engine", Model: c.model, EP: c.ep,
		Options: dsml.Options{Version: version, ThinkByDefault: !c.plain}, Drained: stop})
	engine := start(ctx, c.engine)
	srv := &http.Server{Handler: a, ReadHeaderTimeout: headTimeout}
	var tasks sync.WaitGroup
	defer tasks.Wait()
	failed := make(chan error, 1)
	tasks.Go(func() { failed <- srv.Serve(ln) })
	select {
	case err = <-failed:
		stop()
		<-engine
		return fmt.Errorf("deepinfer: %w", err)
	case err = <-engine:
		_ = srv.Close()
		if ctx.Err() == nil {
			return fmt.Errorf("deepinfer: the engine is gone: %w", err)
		}
		return nil
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	if srv.Shutdown(last) != nil {
		_ = srv.Close()
	}
	<-engine
	return nil
}

// overSocket reaches the engine.
func overSocket(path string) *http.Client {
	var d net.Dialer
	return &http.Client{Transport: &http.Transport{
		DialContext:         func(ctx context.Context, _, _ string) (net.Conn, error) { return d.DialContext(ctx, "unix", path) },
		DisableCompression:  true,
		MaxIdleConnsPerHost: 256,
	}}
}

var errExited = errors.New("it exited with status 0")

// start runs the engine and gives the error with which it ended. With ctx's end it is told to end,
// which lets what runs end first; it dies with this process, however that dies.
func start(ctx context.Context, argv []string) <-chan error {
	ended := make(chan error, 1)
	go func() { // ends with the engine
		runtime.LockOSThread() // the engine dies with its parent's thread
		defer runtime.UnlockOSThread()
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		cmd.WaitDelay = stopTime
		err := cmd.Run()
		if err == nil {
			err = errExited
		}
		ended <- err
	}()
	return ended
}
