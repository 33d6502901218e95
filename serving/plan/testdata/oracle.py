"""Solves instances of placement exactly with OR-tools' CP-SAT: reads them as JSON from standard input, and writes them with
the least score, term by term, to standard output. It knows the rules from docs/placement.md, not from the planner."""

import json
import sys

from ortools.sat.python import cp_model

TERMS = ["unplaced", "kind", "scatter", "crowd", "stranded"]
SECONDS = 4.0  # for one term of one instance


def split(gpus, host):
    """As few hosts as give each the same number of GPUs."""
    if gpus <= host:
        return gpus, 1
    each = next(s for s in range(host, 0, -1) if gpus % s == 0)
    return each, gpus // each


def model(p):
    m = cp_model.CpModel()
    domains, hosts = p["domains"], []
    for i, d in enumerate(domains):
        hosts += [(i, j) for j in range(len(d["used"]))]
    load = {h: [] for h in hosts}
    kind, scatter, unplaced, crowd = [], [], [], []
    for di, d in enumerate(p["demands"]):
        touched = {}  # failure domain -> one variable a unit
        last = None
        for u in range(d["units"]):
            placed = m.new_bool_var("")
            unplaced.append(d["weight"] * (1 - placed))
            if last is not None:
                m.add(placed <= last)  # units of a demand are alike
            last = placed
            nets = {n: m.new_bool_var("") for n in sorted({x["network"] for x in domains})}
            m.add(sum(nets.values()) == placed)
            at_failure = {}
            for pool in d["pools"]:
                inside = {}  # domain -> variables, one a replica
                for _ in range(pool["replicas"]):
                    in_domain = {}
                    for i, x in enumerate(domains):
                        if len(x["used"]) * x["host"] < pool["gpus"]:
                            continue
                        each, count = split(pool["gpus"], x["host"])
                        y = m.new_bool_var("")
                        m.add_implication(y, nets[x["network"]])
                        shards = []
                        for j, used in enumerate(x["used"]):
                            if x["host"] - used < each:
                                continue
                            z = m.new_bool_var("")
                            shards.append(z)
                            load[i, j].append(each * z)
                            at_failure.setdefault(x["failure"][j], []).append(z)
                        m.add(sum(shards) == count * y)
                        in_domain[i] = y
                        inside.setdefault(i, []).append(y)
                        kind.append(x["kind"] * pool["gpus"] * y)
                    m.add(sum(in_domain.values()) == placed)
                if pool["replicas"] > 1:
                    any_of = []
                    for ys in inside.values():
                        b = m.new_bool_var("")
                        m.add_max_equality(b, ys)
                        any_of.append(b)
                    scatter.append(sum(any_of) - placed)
            if d.get("spread"):
                for f, zs in at_failure.items():
                    b = m.new_bool_var("")
                    m.add_max_equality(b, zs)
                    touched.setdefault(f, []).append(b)
        for bs in touched.values():  # n units of a failure domain are n(n-1)/2 pairs
            steps = [m.new_bool_var("") for _ in bs]
            m.add(sum(steps) == sum(bs))
            for k in range(1, len(steps)):
                m.add_implication(steps[k], steps[k - 1])
            crowd += [k * s for k, s in enumerate(steps)]
    stranded = []
    for i, x in enumerate(domains):
        size = len(x["used"]) * x["host"]
        limit = size - p["spares"] if p["spares"] and size >= p["spares_from"] else size
        used = sum(x["used"])
        mine = [t for j in range(len(x["used"])) for t in load[i, j]]
        m.add(sum(mine) <= max(0, limit - used))
        room = max(0, min(size - used, limit - used))
        started(m, stranded, room, used, mine)
        for j, u in enumerate(x["used"]):
            m.add(sum(load[i, j]) <= x["host"] - u)
            if len(x["used"]) > 1:
                started(m, stranded, x["host"] - u, u, load[i, j])
    return m, {"unplaced": sum(unplaced), "kind": sum(kind), "scatter": sum(scatter), "crowd": sum(crowd), "stranded": sum(stranded)}


def started(m, stranded, free, used, load):
    """What is free of a domain or host counts once it is started; the score tells the change."""
    if used > 0:
        stranded.append(-sum(load))
        return
    b = m.new_bool_var("")
    m.add(sum(load) <= free * b)
    m.add(sum(load) >= b)
    stranded.append(free * b - sum(load))


def solve(p):
    """The terms one after another: each is held at its least while the next is minimised, as long as that can be proved."""
    m, terms = model(p)
    best, proved = {}, 0
    for name in TERMS:
        term = terms[name]
        if isinstance(term, int):
            best[name] = term
            proved += 1
            continue
        m.minimize(term)
        solver = cp_model.CpSolver()
        solver.parameters.max_time_in_seconds = SECONDS
        solver.parameters.num_workers = 2
        if solver.solve(m) != cp_model.OPTIMAL:
            break
        best[name] = round(solver.objective_value)
        proved += 1
        m.add(term == best[name])
    p["best"], p["proved"] = {t: best.get(t, 0) for t in TERMS}, proved


def main():
    puzzles = json.load(sys.stdin)
    for i, p in enumerate(puzzles):
        solve(p)
        if i % 20 == 19:
            print(f"{i + 1} of {len(puzzles)} solved", file=sys.stderr)
    json.dump(puzzles, sys.stdout)


main()
