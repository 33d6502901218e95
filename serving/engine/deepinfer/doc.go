// Package deepinfer is the process before a DeepInfer engine: the engine continues prompts and nothing more, over a Unix
// socket; the adapter makes a Chat Completions server of it, with package dsml rendering prompts and reading answers.
//
// It owns the HTTP towards the agent, the engine's process while it runs it, and ids of what runs. It does not own the markup
// (dsml), tokens or batches (the engine). docs/deepinfer-adapter.md is the contract with the engine.
//
// Invariants: a client that leaves, a cancel and an answer that is over each end the engine's work at once, by closing its
// connection; no text of a client is ever a special token; what the engine counts is passed on as it is; when the engine
// dies, the adapter ends with an error, so that its supervisor sees one death and not a half.
package deepinfer
