// Package protocol knows the clients' dialects: it reads and checks their requests, and turns an engine's Chat
// Completions stream into the answer a client was promised, streamed or whole.
//
// It owns the shapes of both sides. It opens no connections, counts no money and knows no engine by name: what engines
// add to OpenAI's dialect is dropped here, whoever adds it. Text is spliced, never decoded: a chunk costs well under a
// microsecond when it looks like the one before it.
//
// Invariants of an answer: one id, time and model throughout; the role comes first; exactly one finish reason a choice;
// usage at most once and only when asked for; nothing that only the engine named reaches the client.
package protocol
