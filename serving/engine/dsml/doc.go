// Package dsml is the raw completion profile: it serves chat on engines that only continue a text. It renders a Chat
// Completions body to the prompt that DeepSeek V4 and V4.1 were trained on, and reads the model's text back as reasoning,
// content and tool calls, which these models write in a markup named DSML.
//
// It owns the prompt and the markup. It knows no tokenizer, opens no connection and counts no money. It is held against
// DeepSeek's own deepseek-recipe in its tests; where it differs on purpose, docs/raw-profile.md says so.
//
// # How a driver uses it
//
//	prompt, err := dsml.Render(chatBody, dsml.Options{Version: dsml.V41, ThinkByDefault: true})
//	body := prompt.AppendRequest(nil, chatBody, dsml.Request{Model: …, MaxTokens: …}) // PrepareChat: what is POSTed
//	stream := dsml.NewStream(prompt.Parse, nil)
//	for each data of the answer's events { chunk, err = stream.Add(chunk[:0], data) } // one Chat Completions chunk
//
// Every chunk goes to serving/protocol's answers and to the driver's Usage as if the engine had sent it. Once Stream.Done
// reports true the answer is over, whatever the engine still says, and the driver may stop it. Errors of Render are faults
// of kind Invalid that name the member; Prompt.Ignored names what has no effect.
//
// # Invariants
//
// Rendering: text of a request is never part of a special segment, whatever it spells.
// Parsing: any cut of the same text, within characters too, gives the same reasoning, content and calls; text that is no
// markup comes out as it is; pieces hold whole characters; the tokens that steer a dialogue never come out as content or
// reasoning; the arguments of a call that ended are one JSON object; a call that did not end never looks as if it had:
// the answer then ends with "length". Memory is bounded, nothing panics.
package dsml
