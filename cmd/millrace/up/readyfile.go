package up

import (
	"encoding/json"
	"fmt"
	"io"

	"millrace/internal/datafolder"
)

// Ready is what --ready-file holds once everything serves. It carries secrets: the file's mode is 0600.
type Ready struct {
	URL              string   `json:"url"`
	AdminLoginURL    string   `json:"admin_login_url"`    // one-time
	CustomerLoginURL string   `json:"customer_login_url"` // one-time
	AdminToken       string   `json:"admin_token"`        // bearer of the control API
	APIKey           string   `json:"api_key"`            // the demo customer's
	Models           []string `json:"models"`
	MetricsURL       string   `json:"metrics_url"`
	PID              int      `json:"pid"`
}

func (r Ready) write(path string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := datafolder.WriteFile(path, append(b, '\n'), 0o600); err != nil {
		return fmt.Errorf("ready file: %w", err)
	}
	return nil
}

// print tells a person where things are. The API key is shown only when it was made in this start.
func (r Ready) print(w io.Writer, keyIsNew, simulated bool) {
	key := r.APIKey
	fmt.Fprintf(w, "\nMillrace is ready.\n\n")
	fmt.Fprintf(w, "  Console, operator   %s\n", r.AdminLoginURL)
	fmt.Fprintf(w, "  Console, customer   %s\n", r.CustomerLoginURL)
	fmt.Fprintf(w, "                      (each link signs in once)\n")
	if keyIsNew {
		fmt.Fprintf(w, "  Demo API key        %s   (shown once)\n", key)
	} else {
		fmt.Fprintf(w, "  Demo API key        the one shown at the first start\n")
		key = "$MILLRACE_API_KEY"
	}
	if simulated {
		fmt.Fprintf(w, "  Engines             simulated: real protocol and timing, made-up text\n")
	}
	fmt.Fprintf(w, "  Payments            test payments: no money moves, test cards are on the payment page\n")
	fmt.Fprintf(w, "  Metrics             %s\n\n", r.MetricsURL)
	if len(r.Models) > 0 {
		fmt.Fprintf(w, "Try it:\n\n  curl %s/v1/chat/completions \\\n    -H 'Authorization: Bearer %s' -H 'Content-Type: application/json' \\\n    -d '{\"model\": \"%s\", \"stream\": true, \"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}'\n\n", r.URL, key, r.Models[0])
	}
	fmt.Fprintf(w, "Ctrl-C stops everything and keeps the data.\n")
}
