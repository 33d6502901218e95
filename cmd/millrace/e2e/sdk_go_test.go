package e2e

import (
	"context"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// goSDK is the program of the official Go clients: a module of its own, so that Millrace does not depend on them.
var goSDK = sync.OnceValues(func() (string, error) {
	bin := filepath.Join(filepath.Dir(millrace), "sdk-go")
	ctx, cancel := context.WithTimeout(context.Background(), installLimit)
	defer cancel()
	out, err := exec.CommandContext(ctx, "go", "build", "-C", filepath.Join(sdk, "go"), "-o", bin, ".").CombinedOutput()
	return string(out) + bin, err
})

func TestOfficialGoClients(t *testing.T) {
	if !slow() {
		t.Skip("the official Go clients take minutes to compile: run with MILLRACE_SLOW=1 (make test-slow)")
	}
	sdkProgram{
		apis: threeAPIs,
		command: func(t *testing.T) []string {
			bin, err := goSDK()
			if err != nil {
				t.Fatalf("the official clients cannot be built: %v\n%s", err, bin)
			}
			return []string{bin}
		},
	}.prove(t)
}
