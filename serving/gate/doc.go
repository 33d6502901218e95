// Package gate is the request pipeline: the only way to an engine. It admits a request (limits, model, price, hold, unit),
// relays the engine's stream to the client, counts what was delivered, and leaves exactly one usage event and one settled
// hold per admitted request, however it ends.
//
// It owns tickets, attempts, stage deadlines and the billing of endings. It does not own identity or dialect checks (its
// callers do those first), nor prices, budgets and the log: those it sees through the ports it declares.
//
// Words. Ticket: the proof of admission; only Admit makes one, and Serve, the only thing that reaches engines, uses it
// up. Attempt: one try at one unit, with an id of its own. Leg: one engine's part of an attempt at a unit of several, with an
// id of its own towards its agent (docs/pd.md). Delivered: tokens in bytes that were written to the client.
//
// Invariants: an engine is reached only with a ticket; retries happen only before the first token, but for
// an answer of a unit of several engines that another can go on with; a prompt is billed once; the last byte of an answer
// leaves after the usage log has acknowledged it; the charge never exceeds the hold.
package gate
