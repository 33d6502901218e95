// Package responses knows OpenAI's Responses API as clients speak it: it checks a request, writes the Chat Completions
// request that says the same, and renders an engine's answer as a response object or as its stream of events.
//
// It owns the shapes and the names: which member is at fault, which function name stands for which tool, which item a part
// of an answer becomes. It does not own storage: what came before a request is given to it as items.
//
// Words. Item: an element of input or output. Flat name: the unique function name under which an engine knows a tool that
// the client keeps in a namespace.
//
// Invariants: sequence numbers count from 0 without gaps; items open and close in their order; every delta lies between
// its item's added and done events; the last event repeats, byte for byte, the items that were shown; after an error
// nothing says that all is well.
package responses
