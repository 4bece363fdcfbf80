"""What a search would have lost by building fewer candidates: replays rules on the records of a search that tried all.

    kiln explain MODEL.pt2 --target cuda --candidates --json > MODEL.candidates.json      (each model)
    builds MODEL.pt2 ... --each BUILDS.jsonl                                        (what each takes a compiler)
    kiln tune-log --data-dir DATA | python3 replay_tuning.py [--builds BUILDS.jsonl] MODEL.candidates.json ...

With --worker-log LOG and --recorded FILE it also writes the kernels as `fleet_simulation --recorded` takes them.

Of each rule: the share of candidates that it builds, or of what they take compilers, the geometric mean by which its
best candidate is slower than the best of all, the kernels where that is more than 1 % and 5 %, and the worst. Kernels
of which fewer than two candidates were timed are left out, as are candidates that call a library. A candidate's time is
that of its screening; what was built and not timed (it spills, or is wrong) counts as a build that cannot win."""

import argparse
import collections
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

# A kernel's candidates, best guess first: the schedule and its time, or none.
Candidates = list[tuple[str, float | None]]
Rule = Callable[[Candidates], set[str]]  # which of them are built

# Templates that are expected to be far behind another one (compiler_core/kernels/registry.cc, keep_near).
FAR = {"cuda.matmul": {"cuda.matmul.wgmma"},
       "cuda.convolution": {"cuda.convolution.wgmma", "cuda.convolution.depthwise"}}
FORMS = ("im2col", "shared", "storage", "copy", "map", "stream")  # decisions that are ways to do it, not sizes


LEASE = re.compile(r"(\d+) candidates of \w+ (\w+), .*open (\d+), verify (\d+), time (\d+)")


def template_of(schedule: str) -> str:
    return schedule.split(maxsplit=1)[0]


def form_of(schedule: str) -> str:
    name, *decisions = schedule.split()
    return " ".join([name, *(decision for decision in decisions if decision.split("=")[0] in FORMS)])


def best_of(candidates: Iterable[tuple[str, float | None]]) -> float:
    return min((us for _, us in candidates if us is not None), default=math.inf)


def first(count: int) -> Rule:
    return lambda candidates: {schedule for schedule, _ in candidates[:count]}


def without_far(candidates: Candidates) -> set[str]:
    names = {template_of(schedule) for schedule, _ in candidates}
    near = {schedule for schedule, _ in candidates if not FAR.get(template_of(schedule), set()) & names}
    right = any(us is not None for schedule, us in candidates if schedule in near)
    return near if right else {schedule for schedule, _ in candidates}


def distance(one: str, other: str) -> float:
    """ScheduleList::distance()"""
    (name, *decisions), (other_name, *others) = one.split(), other.split()
    if name != other_name or len(decisions) != len(others):
        return math.inf
    total = 0.0
    for decision, another in zip(decisions, others, strict=True):
        (what, x), (other_what, y) = decision.split("="), another.split("=")
        if what != other_what or (x != y and min(int(x), int(y)) <= 0):
            return math.inf
        total += min(1, abs(math.log2(int(x) / int(y)))) if x != y else 0
    return total


def without_variants(alike: float, near: float) -> Rule:
    """Passes over what is like others of which none came near the best (coordinator's tuning_variants.cc)."""
    def built(candidates: Candidates) -> set[str]:
        ahead: Candidates = []
        for candidate in candidates:
            if all(distance(candidate[0], original[0]) > alike for original in ahead):
                ahead.append(candidate)
        chosen = {schedule for schedule, _ in ahead}
        bound = near * best_of(ahead)
        for schedule, _ in candidates:
            best = best_of(original for original in ahead if distance(schedule, original[0]) <= alike)
            if best == math.inf or best <= bound:
                chosen.add(schedule)
        return chosen
    return built


def leaders(kind_of: Callable[[str], str], count: int, reach: float) -> Rule:
    """The first `count` of each kind, and the others of kinds whose best of those is within `reach` of the best."""
    def built(candidates: Candidates) -> set[str]:
        kinds: dict[str, Candidates] = collections.defaultdict(list)
        for candidate in candidates:
            kinds[kind_of(candidate[0])].append(candidate)
        ahead = {kind: best_of(some[:count]) for kind, some in kinds.items()}
        bound = reach * min(ahead.values())
        return {schedule for kind, some in kinds.items()
                for schedule, _ in (some if ahead[kind] <= bound else some[:count])}
    return built


RULES: dict[str, Rule] = {
    "all": lambda candidates: {schedule for schedule, _ in candidates},
    "without what is expected to be far": without_far,
    **{f"the first {count}": first(count) for count in (4, 6, 8)},
    **{f"{count} of a template, the rest within {reach:g}": leaders(template_of, count, reach)
       for count in (1, 2) for reach in (1.1, 1.25, 1.5)},
    **{f"{count} of a form, the rest within {reach:g}": leaders(form_of, count, reach)
       for count in (1, 2) for reach in (1.1, 1.25, 1.5)},
    **{f"like others ({alike:g}), none within {near:g}": without_variants(alike, near)
       for alike in (1.5, 2, 2.5, 3) for near in (1.05, 1.07, 1.1, 1.15)},
}


def by_workload(records: Iterable[dict[str, Any]], lists: Iterable[str]) -> dict[str, Candidates]:
    times: dict[tuple[str, str], float] = {}
    for record in records:
        if record["verdict"] == "ok" and record["median_us"]:
            times.setdefault((record["workload"], record["schedule"]), record["median_us"])
    kernels: dict[str, Candidates] = {}
    for text in lists:
        for kernel in json.loads(text)["kernels"]:
            kernels[kernel["workload"]] = [
                (each["schedule"], times.get((kernel["workload"], each["schedule"])))
                for each in kernel["candidates"] if not each["template"].startswith("cublaslt")]
    return kernels


def is_known(candidates: Candidates) -> bool:
    return sum(us is not None for _, us in candidates) > 1


def read_kernels(logs: Iterable[str], lists: Iterable[str]) -> list[Candidates]:
    return list(filter(is_known, by_workload(map(json.loads, logs), lists).values()))


def judge(rule: Rule, kernels: list[Candidates], costs: list[list[float]] | None = None) -> tuple[float, list[float]]:
    """The share of candidates that are built, weighed by costs, and by kernel how much slower the best of them is."""
    costs = costs or [[1.0] * len(candidates) for candidates in kernels]
    built, slower = 0.0, []
    for candidates, cost in zip(kernels, costs, strict=True):
        chosen = rule(candidates)
        built += sum(each for (schedule, _), each in zip(candidates, cost, strict=True) if schedule in chosen)
        slower.append(best_of(each for each in candidates if each[0] in chosen) / best_of(candidates))
    return built / sum(map(sum, costs)), slower


def recorded(records: list[dict[str, Any]], lists: list[str], builds: dict[tuple[str, str], float],
             log: str) -> Iterator[str]:
    """The kernels of each program as fleet_simulation takes them. The worker's log says what a kernel's first lease,
    its screening, took to open and by candidate, and the others of it, which are its final. What a library's
    candidates took is the first candidate's."""
    keys = {record["kernel_key"][:12]: record["workload"] for record in records}
    leases: dict[str, list[tuple[int, int, int]]] = collections.defaultdict(list)
    for count, key, opened, verify, timed in LEASE.findall(log):
        leases[keys[key]].append((int(count), int(opened), int(verify) + int(timed)))
    libraries = collections.Counter(record["workload"] for record in records
                                    if record["template"].startswith("cublaslt"))
    for program, text in enumerate(lists):
        for workload, candidates in by_workload(records, [text]).items():
            if workload not in leases:
                continue
            (count, opened, device_ms), *finals = leases[workload]
            final_ms = sum(final[2] for final in finals) / max(1, sum(final[0] for final in finals))
            yield f"kernel {program} {opened} {final_ms:.1f}"
            calls = 1 + libraries[workload]
            for schedule, us in candidates:
                build_ms = builds.get((workload, schedule), 0)  # none: its text is another's, too, or it is in reserve
                if build_ms > 0 or us is not None:
                    yield f"candidate {build_ms:.1f} {calls * device_ms / count:.1f} {us or 0:.3f} {schedule}"
                    calls = 1


def lines_of(path: str) -> list[str]:
    with open(path) as file:
        return [line for line in file if line.strip()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lists", nargs="+")
    parser.add_argument("--builds")
    parser.add_argument("--worker-log")
    parser.add_argument("--recorded")
    options = parser.parse_args()
    lists = [line for path in options.lists for line in lines_of(path)]
    records = [json.loads(line) for line in sys.stdin]
    known = {name: some for name, some in by_workload(records, lists).items() if is_known(some)}
    if not known:
        raise SystemExit("no kernel of these lists has records of two candidates")
    kernels = list(known.values())
    builds = {(each["workload"], each["schedule"]): each["ms"]
              for each in map(json.loads, lines_of(options.builds) if options.builds else [])}
    if options.recorded:
        with open(options.recorded, "w") as file:
            log = "".join(lines_of(options.worker_log))
            file.writelines(line + "\n" for line in recorded(records, lists, builds, log))
    costs = [[builds.get((name, schedule), 0.0) for schedule, _ in some] for name, some in known.items()]
    print(f"{len(kernels)} kernels, {sum(map(len, kernels))} candidates")
    for name, rule in RULES.items():
        share, slower = judge(rule, kernels, costs if builds else None)
        mean = math.exp(sum(map(math.log, slower)) / len(slower))
        print(f"{name:42} builds {share:4.0%}  slower by {mean - 1:.2%}, {sum(x > 1.01 for x in slower)} by 1 %, "
              f"{sum(x > 1.05 for x in slower)} by 5 %, at most {max(slower) - 1:.0%}")


if __name__ == "__main__":
    main()
