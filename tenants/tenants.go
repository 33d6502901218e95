// Package tenants owns who a customer is: organizations, their projects and members, people, how they sign in, and the
// bearers of the control API. It does not own API keys (tenants/keys), rate limits (tenants/limits), money or models.
//
// Words: an operator runs Millrace and sells tokens; an organization is a customer; a member is a person in it with one
// role; a control token is an operator's program.
//
// Invariants: every function checks its Actor; every change is audited in its own transaction; secrets are stored as
// hashes only; an organization never loses its last owner; a sign-in link works once.
package tenants
