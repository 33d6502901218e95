package control

import (
	"millrace/internal/ids"
	"millrace/serving/fleet"
	"millrace/serving/plan"
)

// PlanDetail is a plan with its units, and how it differs from its parent.
type PlanDetail struct {
	Plan     Plan        `json:"plan"`
	Outdated bool        `json:"outdated"`
	Frozen   string      `json:"frozen,omitempty"`
	Moves    []PlanMove  `json:"moves"`
	Unmet    []PlanUnmet `json:"unmet"`
	Units    []PlanUnit  `json:"units"`
}

// PlanMove is one difference to the parent, with its reason.
type PlanMove struct {
	Kind   string `json:"kind"`
	UnitID string `json:"unit_id,omitempty"`
	Text   string `json:"text"`
}

// PlanUnmet is a part of a demand that could not be placed, and why.
type PlanUnmet struct {
	ModelID string   `json:"model_id"`
	Units   int      `json:"units"`
	Reasons []string `json:"reasons"`
}

// PlanUnit is a unit and where it is put.
type PlanUnit struct {
	ID       string        `json:"id"`
	Name     string        `json:"name"`
	ModelID  string        `json:"model_id"`
	Why      string        `json:"why"`
	Ends     string        `json:"ends,omitempty"`
	Replicas []PlanReplica `json:"replicas"`
}

// PlanReplica is one engine of a unit. expert is its EP size when that is not the recipe's.
type PlanReplica struct {
	Role   string      `json:"role"`
	Domain string      `json:"domain"`
	Expert int         `json:"expert,omitempty"`
	Shards []PlanShard `json:"shards"`
}

// PlanShard is an engine's part on one host.
type PlanShard struct {
	HostID string `json:"host_id"`
	Host   string `json:"host"`
	GPUs   []int  `json:"gpus"`
}

func (a *api) detail(c *call, id ids.ID) (PlanDetail, error) {
	v, err := a.Placement.Plan(c, c.actor, id)
	if err != nil {
		return PlanDetail{}, err
	}
	out := PlanDetail{Plan: planOf(v.PlanInfo), Outdated: v.Outdated, Frozen: v.Body.Frozen, Moves: movesOf(v.Body.Moves), Unmet: unmetOf(v.Body.Unmet), Units: []PlanUnit{}}
	for i := range v.Body.Units {
		out.Units = append(out.Units, planUnitOf(&v.Body.Units[i], &v))
	}
	return out, nil
}

func planUnitOf(u *plan.Unit, v *fleet.PlanView) PlanUnit {
	out := PlanUnit{ID: ids.Format(ids.Unit, u.ID), Name: u.Name, ModelID: ids.Format(ids.Model, u.Model), Why: u.Why, Ends: u.Ends}
	for _, p := range u.Pools {
		for _, r := range p.Replicas {
			replica := PlanReplica{Role: p.Role, Domain: r.Domain, Expert: r.Expert}
			for _, s := range r.Shards {
				replica.Shards = append(replica.Shards, PlanShard{HostID: ids.Format(ids.Host, s.Host), Host: v.Hosts[s.Host], GPUs: append([]int{}, s.GPUs...)})
			}
			out.Replicas = append(out.Replicas, replica)
		}
	}
	return out
}

func movesOf(list []plan.Move) []PlanMove {
	out := make([]PlanMove, len(list))
	for i, m := range list {
		out[i] = PlanMove{Kind: m.Kind, UnitID: format(ids.Unit, m.Unit), Text: m.Text}
	}
	return out
}

func unmetOf(list []plan.Unmet) []PlanUnmet {
	out := make([]PlanUnmet, len(list))
	for i, u := range list {
		out[i] = PlanUnmet{ModelID: ids.Format(ids.Model, u.Model), Units: u.Units, Reasons: append([]string{}, u.Reasons...)}
	}
	return out
}
