package bench

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// binary builds the program that is killed.
func binary(t *testing.T) string {
	t.Helper()
	if given := os.Getenv("MILLRACE_TEST_BINARY"); given != "" {
		return given
	}
	path := filepath.Join(t.TempDir(), "millrace")
	cmd := exec.Command("go", "build", "-o", path, "millrace/cmd/millrace")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return path
}

func slow() bool { return os.Getenv("MILLRACE_SLOW") != "" }

func pick(usual, long int) int {
	if slow() {
		return long
	}
	return usual
}

// After every kill the books agree with what each client was told.
func TestBooksAgreeAfterKills(t *testing.T) {
	program := binary(t)
	for name, c := range map[string]CrashConfig{
		"of everything":    {UpKills: pick(10, 200)},
		"of gateways only": {GatewayKills: pick(50, 10_000)},
	} {
		t.Run(name, func(t *testing.T) {
			c.Binary, c.Out = program, t.Output()
			if err := Crash(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		})
	}
}
