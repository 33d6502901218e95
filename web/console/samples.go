package console

import (
	"encoding/json"
	"fmt"
	"strings"
)

// curlSample is a ready command line. Nothing in it needs escaping but the JSON's single quotes.
func curlSample(base, key, model string) string {
	return fmt.Sprintf("curl %s/v1/chat/completions \\\n  -H \"Authorization: Bearer %s\" \\\n  -H \"Content-Type: application/json\" \\\n  -d '%s'",
		base, key, shellQuoted(chatBody(model, "Say hello in five words.")))
}

// pythonSample uses the official client, unmodified.
func pythonSample(base, key, model string) string {
	return fmt.Sprintf(`from openai import OpenAI

client = OpenAI(base_url=%s, api_key=%s)
answer = client.chat.completions.create(
    model=%s,
    messages=[{"role": "user", "content": "Say hello in five words."}],
)
print(answer.choices[0].message.content)`, quoted(base+"/v1"), quoted(key), quoted(model))
}

func chatBody(model, message string) string {
	return fmt.Sprintf(`{"model": %s, "messages": [{"role": "user", "content": %s}]}`, quoted(model), quoted(message))
}

// quoted is a JSON string, which is a Python string too.
func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		return `""` // strings always marshal
	}
	return string(b)
}

func shellQuoted(s string) string { return strings.ReplaceAll(s, "'", `'\''`) }
