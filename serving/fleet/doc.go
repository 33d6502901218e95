// Package fleet brings committed plans about: it keeps demands and plans, and moves units state by state until what runs on
// the hosts is what the current plan says.
//
// It owns the tables placement_policies, plans, host_maintenance, fleet_settings, control_leases and unit_events, the rows of
// units that a plan owns, and what operators say of hosts (cordon, drain, facts). It does not own where units go (serving/plan
// decides), what an engine is told (serving/recipe renders), hosts' identities and reports (agents/hub), or requests.
//
// Words. Group: the rows of one replica, an engine that may span hosts; what fails or is restarted is a group. Room: the GPUs
// of a group are held by nobody else. Leaving: a unit that the plan no longer wants, or wants only until another serves.
// Held: a GPU on which an engine runs or may run, whatever the plan says. Shape: the hosts, GPUs and EP size of a group.
//
// Invariants: one control plane acts at a time, and every write of it checks its term and its plan in the same transaction; each
// step is one transaction, so that whoever continues after a crash continues from the stored state; all groups of a unit start
// together, and it serves only when each of its roles is ready; no GPU is given to two engines; the last serving unit of a
// model is not stopped for a switch; when more than a share of the hosts is lost at once, nothing moves.
package fleet
