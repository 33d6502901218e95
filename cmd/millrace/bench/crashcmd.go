package bench

import (
	"context"
	"fmt"
	"os"
)

// CrashCmd is `millrace bench crash`.
type CrashCmd struct {
	Up       int    `help:"Kills of the whole up." default:"10"`
	Gateways int    `help:"Kills of a gateway process alone." default:"50"`
	Dir      string `help:"Folder to work in; default: a temporary one, kept only when something is wrong." placeholder:"DIR" type:"path"`
	Seed     uint64 `help:"Of the load and the moments, to have a run again; 0 = by chance." default:"0"`
}

// Run kills, compares and reports. It fails when the books do not agree with what the clients were told.
func (c *CrashCmd) Run(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if c.Up < 0 || c.Gateways < 0 || c.Up+c.Gateways == 0 {
		return fmt.Errorf("bench crash: nothing is to be killed: give --up or --gateways")
	}
	return Crash(ctx, CrashConfig{Binary: self, Dir: c.Dir, UpKills: c.Up, GatewayKills: c.Gateways, Seed: c.Seed, Out: os.Stdout})
}
