package console

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// sampleMessage is what the ready examples ask.
const sampleMessage = "Say hello in five words."

// curlSample is a ready command line that asks the same. Nothing in it needs quoting but the JSON for the shell.
func curlSample(base, key string, a Ask) (string, error) {
	body, err := json.Marshal(a.body())
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("curl %s%s \\\n  -H \"Authorization: Bearer %s\" \\\n  -H \"Content-Type: application/json\" \\\n  -d '%s'",
		base, playgroundPath, key, shellQuoted(string(body))), nil
}

// pythonSample asks the same through the official client, unmodified.
func pythonSample(base, key string, a Ask) string {
	var s strings.Builder
	fmt.Fprintf(&s, "from openai import OpenAI\n\nclient = OpenAI(base_url=%s, api_key=%s)\n", quoted(base+"/v1"), quoted(key))
	fmt.Fprintf(&s, "answer = client.chat.completions.create(\n    model=%s,\n    messages=[\n", quoted(a.Model))
	for _, m := range a.messages() {
		fmt.Fprintf(&s, "        {\"role\": %s, \"content\": %s},\n", quoted(m.Role), quoted(m.Content))
	}
	s.WriteString("    ],\n")
	if a.MaxTokens > 0 {
		fmt.Fprintf(&s, "    max_tokens=%d,\n", a.MaxTokens)
	}
	if a.Temperature != nil {
		fmt.Fprintf(&s, "    temperature=%s,\n", strconv.FormatFloat(*a.Temperature, 'g', -1, 64))
	}
	s.WriteString(")\nprint(answer.choices[0].message.content)")
	return s.String()
}

// quoted is a JSON string, which is a Python string too.
func quoted(s string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		return `""` // strings always encode
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// shellQuoted makes text safe between single quotes.
func shellQuoted(s string) string { return strings.ReplaceAll(s, "'", `'\''`) }
