package main

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"
)

type msgParams = anthropic.MessageNewParams

func anthropicClient(a ask, more ...option.RequestOption) *anthropic.Client {
	c := anthropic.NewClient(append([]option.RequestOption{option.WithBaseURL(a.URL), option.WithAPIKey(a.Key)}, more...)...)
	return &c
}

// msgSeen counts as the other API does: what was read from the cache is part of the prompt.
func msgSeen(m anthropic.Message, resp *http.Response) (got answer) {
	got.Request, got.Finish = resp.Header.Get("Request-Id"), string(m.StopReason)
	if m.StopSequence != "" {
		got.Finish += ": " + m.StopSequence
	}
	for _, b := range m.Content {
		switch b.Type {
		case "text":
			got.Text += b.Text
		case "thinking":
			got.Reasoning += b.Thinking
		case "tool_use":
			got.Calls = append(got.Calls, call{b.ID, b.Name, string(b.Input)})
		}
	}
	u := m.Usage
	got.Usage.Prompt, got.Usage.Completion, got.Usage.Cached = u.InputTokens+u.CacheReadInputTokens, u.OutputTokens, u.CacheReadInputTokens
	got.Usage.Reasoning = u.OutputTokensDetails.ThinkingTokens
	return got
}

func msgWhole(a ask, p msgParams) (got answer, raw anthropic.Message, err error) {
	var resp *http.Response
	c := anthropicClient(a)
	m, err := c.Messages.New(context.Background(), a.msg(p), option.WithResponseInto(&resp))
	if err != nil {
		return got, raw, err
	}
	return msgSeen(*m, resp), *m, nil
}

// msgStream lets the client put the answer together.
func msgStream(a ask, p msgParams) (got answer, raw anthropic.Message, err error) {
	var resp *http.Response
	c := anthropicClient(a)
	stream := c.Messages.NewStreaming(context.Background(), a.msg(p), option.WithResponseInto(&resp))
	defer stream.Close()
	pieces := 0
	for stream.Next() {
		e := stream.Current()
		if e.Type == "content_block_delta" {
			pieces++
		}
		if err := raw.Accumulate(e); err != nil {
			return got, raw, err
		}
	}
	if err := stream.Err(); err != nil {
		return got, raw, err
	}
	got = msgSeen(raw, resp)
	got.Pieces = pieces
	return got, raw, nil
}

func msgUser(text string) anthropic.MessageParam {
	return anthropic.NewUserMessage(anthropic.NewTextBlock(text))
}

func (a ask) msg(p msgParams) msgParams {
	if p.Model == "" {
		p.Model = anthropic.Model(a.Model)
	}
	if p.MaxTokens == 0 {
		p.MaxTokens = 2000
	}
	if p.Messages == nil {
		p.Messages = []anthropic.MessageParam{msgUser(a.Story)}
	}
	return p
}

func (a ask) msgTools() (tools []anthropic.ToolUnionParam) {
	for _, name := range a.toolNames() {
		var required []string
		for _, r := range a.Tools[name]["required"].([]any) {
			required = append(required, r.(string))
		}
		schema := anthropic.ToolInputSchemaParam{Properties: a.Tools[name]["properties"], Required: required, ExtraFields: map[string]any{"additionalProperties": false}}
		tools = append(tools, anthropic.ToolUnionParamOfTool(schema, name))
	}
	return tools
}

// msgLoop is two turns: the model thinks and calls both functions, and gets their results.
func msgLoop(t turn[msgParams, anthropic.Message]) func(ask) (saw, error) {
	return func(a ask) (saw, error) {
		p := msgParams{Messages: []anthropic.MessageParam{msgUser("Please call get_weather and get_time.")},
			Tools: a.msgTools(), Thinking: anthropic.ThinkingConfigParamOfEnabled(1024)}
		first, raw, err := t(a, p)
		if err != nil {
			return saw{}, err
		}
		sealed := true
		for _, b := range raw.Content {
			sealed = sealed && (b.Type != "thinking" || b.Signature != "")
		}
		var results []anthropic.ContentBlockParamUnion
		for _, c := range first.Calls {
			results = append(results, anthropic.NewToolResultBlock(c.ID, "sunny", false))
		}
		p.Messages = append(p.Messages, raw.ToParam(), anthropic.NewUserMessage(results...))
		second, _, err := t(a, p)
		return saw{Turns: []answer{first, second}, Sealed: &sealed}, err
	}
}

// msgLeave goes in the middle of an answer.
func msgLeave(a ask) (got saw, err error) {
	var resp *http.Response
	c := anthropicClient(a, option.WithBaseURL(a.Leave))
	stream := c.Messages.NewStreaming(context.Background(), a.msg(msgParams{MaxTokens: 1500,
		Thinking:     anthropic.ThinkingConfigParamUnion{OfAdaptive: &anthropic.ThinkingConfigAdaptiveParam{}},
		OutputConfig: anthropic.OutputConfigParam{Effort: anthropic.OutputConfigEffortMax}}), option.WithResponseInto(&resp))
	defer stream.Close()
	for got.Pieces < 25 && stream.Next() {
		if stream.Current().Type == "content_block_delta" {
			got.Pieces++
		}
	}
	if err := stream.Err(); err != nil {
		return got, err
	}
	got.Request = resp.Header.Get("Request-Id")
	return got, nil
}

func anthropicExplain(err error) (failure, error) {
	var e *anthropic.Error
	if !errors.As(err, &e) {
		return failure{}, err
	}
	return failure{Status: e.StatusCode, Type: string(e.Type()), Message: e.Message, Request: e.RequestID}, nil
}

func msgErrors(a ask) (saw, error) {
	try := func(p msgParams, more ...option.RequestOption) func(*http.Client) error {
		return func(h *http.Client) error {
			p.MaxTokens = 60
			c := anthropicClient(a, append(more, option.WithHTTPClient(h))...)
			_, err := c.Messages.New(context.Background(), a.msg(p))
			return err
		}
	}
	long := msgParams{Model: anthropic.Model(a.Small), Messages: []anthropic.MessageParam{msgUser(a.TooLong)}, MaxTokens: 60}
	streamed := func(h *http.Client) error {
		c := anthropicClient(a, option.WithHTTPClient(h))
		stream := c.Messages.NewStreaming(context.Background(), long)
		defer stream.Close()
		for stream.Next() {
		}
		return stream.Err()
	}
	return failures([]refusal{
		{"bad_key", try(msgParams{}, option.WithAPIKey("mr_live_nobody"))},
		{"no_model", try(msgParams{Model: "acme/none"})},
		{"no_credit", try(msgParams{}, option.WithAPIKey(a.PoorKey))},
		{"overflow", try(long)},
		{"overflow_stream", streamed},
		{"bad_value", try(msgParams{}, option.WithJSONSet("temperature", 9))},
	}, anthropicExplain)
}

func msgModels(a ask) (got saw, err error) {
	c := anthropicClient(a)
	all := c.Models.ListAutoPaging(context.Background(), anthropic.ModelListParams{})
	for all.Next() {
		got.Models = append(got.Models, all.Current().ID)
	}
	if err := all.Err(); err != nil {
		return got, err
	}
	m, err := c.Models.Get(context.Background(), a.Model, anthropic.ModelGetParams{})
	if err != nil {
		return got, err
	}
	got.Model = m.ID
	return got, nil
}

// msgCount asks what a prompt will be billed as, and then what it is.
func msgCount(a ask) (got saw, err error) {
	p := a.msg(msgParams{Messages: []anthropic.MessageParam{msgUser("Please call get_weather.")}, Tools: a.msgTools(), System: []anthropic.TextBlockParam{{Text: "You are a miller."}}})
	var tools []anthropic.MessageCountTokensToolUnionParam
	for _, t := range p.Tools {
		tools = append(tools, anthropic.MessageCountTokensToolUnionParam{OfTool: t.OfTool})
	}
	c := anthropicClient(a)
	n, err := c.Messages.CountTokens(context.Background(), anthropic.MessageCountTokensParams{Model: p.Model, Messages: p.Messages, Tools: tools,
		System: anthropic.MessageCountTokensParamsSystemUnion{OfTextBlockArray: p.System}})
	if err != nil {
		return got, err
	}
	got.Counted = n.InputTokens
	got.answer, _, err = msgWhole(a, p)
	return got, err
}

// msgBearer gives the key as a token.
func msgBearer(a ask) (got saw, err error) {
	var resp *http.Response
	c := anthropic.NewClient(option.WithBaseURL(a.URL), option.WithAuthToken(a.Key))
	m, err := c.Messages.New(context.Background(), a.msg(msgParams{MaxTokens: 10}), option.WithResponseInto(&resp))
	if err != nil {
		return got, err
	}
	got.answer = msgSeen(*m, resp)
	return got, nil
}

func msgPlain(ask) msgParams  { return msgParams{} }
func msgLength(ask) msgParams { return msgParams{MaxTokens: 20} }
func msgStop(ask) msgParams   { return msgParams{StopSequences: []string{"question"}} }
func msgThink(ask) msgParams {
	return msgParams{Thinking: anthropic.ThinkingConfigParamOfEnabled(1024)}
}
func msgBroken(a ask) msgParams { return msgParams{Model: anthropic.Model(a.Broken)} }
func msgForced(a ask) msgParams {
	return msgParams{Tools: a.msgTools(), ToolChoice: anthropic.ToolChoiceUnionParam{OfAny: &anthropic.ToolChoiceAnyParam{}}}
}
func msgShape(ask) msgParams {
	return msgParams{OutputConfig: anthropic.OutputConfigParam{Format: anthropic.JSONOutputFormatParam{Schema: forecast}}}
}
func msgPicture(a ask) msgParams {
	media, data, _ := strings.Cut(strings.TrimPrefix(a.Image, "data:"), ";base64,")
	return msgParams{MaxTokens: 20, Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(a.Story), anthropic.NewImageBlockBase64(media, data))}}
}

var messagesScenarios = []scenario{
	{"whole", once(msgWhole, msgPlain)}, {"stream", once(msgStream, msgPlain)},
	{"length", once(msgWhole, msgLength)}, {"length stream", once(msgStream, msgLength)},
	{"stop", once(msgWhole, msgStop)}, {"stop stream", once(msgStream, msgStop)},
	{"think", once(msgWhole, msgThink)}, {"think stream", once(msgStream, msgThink)},
	{"tools", msgLoop(msgWhole)}, {"tools stream", msgLoop(msgStream)},
	{"forced", once(msgWhole, msgForced)}, {"forced stream", once(msgStream, msgForced)},
	{"structured", shaped(msgWhole, msgShape)}, {"structured stream", shaped(msgStream, msgShape)},
	{"image", once(msgWhole, msgPicture)}, {"image stream", once(msgStream, msgPicture)},
	{"bearer", msgBearer}, {"errors", msgErrors}, {"broken", breaks(msgStream, msgBroken)}, {"leave", msgLeave},
	{"models", msgModels}, {"count", msgCount},
}
