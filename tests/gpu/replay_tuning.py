"""What a search would have lost by building fewer candidates: replays rules on the records of a search that tried all.

    kiln explain MODEL.pt2 --target cuda --candidates --json > MODEL.candidates.json      (each model)
    kiln tune-log --data-dir DATA | python3 replay_tuning.py MODEL.candidates.json ...

Of each rule: the share of candidates that it builds, the geometric mean by which its best candidate is slower than the
best of all, the kernels where that is more than 1 % and 5 %, and the worst. Kernels of which fewer than two candidates
were timed are left out, as are candidates that call a library. A candidate's time is that of its screening; what was
built and not timed (it spills, or is wrong) counts as a build that cannot win."""

import collections
import json
import math
import sys
from collections.abc import Callable, Iterable

# A kernel's candidates, best guess first: the schedule and its time, or none.
Candidates = list[tuple[str, float | None]]
Rule = Callable[[Candidates], set[str]]  # which of them are built

# Templates that are expected to be far behind another one (compiler_core/kernels/registry.cc, keep_near).
FAR = {"cuda.matmul": {"cuda.matmul.wgmma"},
       "cuda.convolution": {"cuda.convolution.wgmma", "cuda.convolution.depthwise"}}
FORMS = ("im2col", "shared", "storage", "copy", "map", "stream")  # decisions that are ways to do it, not sizes


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
}


def read_kernels(logs: Iterable[str], lists: Iterable[str]) -> list[Candidates]:
    times: dict[tuple[str, str], float] = {}
    for line in logs:
        record = json.loads(line)
        if record["verdict"] == "ok" and record["median_us"]:
            times.setdefault((record["workload"], record["schedule"]), record["median_us"])
    kernels: dict[str, Candidates] = {}
    for text in lists:
        for kernel in json.loads(text)["kernels"]:
            kernels[kernel["workload"]] = [
                (each["schedule"], times.get((kernel["workload"], each["schedule"])))
                for each in kernel["candidates"] if not each["template"].startswith("cublaslt")]
    return [some for some in kernels.values() if sum(us is not None for _, us in some) > 1]


def judge(rule: Rule, kernels: list[Candidates]) -> tuple[float, list[float]]:
    """The share of candidates that are built, and by kernel how much slower the best of them is."""
    built, slower = 0, []
    for candidates in kernels:
        chosen = rule(candidates)
        built += len(chosen)
        slower.append(best_of(each for each in candidates if each[0] in chosen) / best_of(candidates))
    return built / sum(map(len, kernels)), slower


def main() -> None:
    lists = []
    for path in sys.argv[1:]:
        with open(path) as file:
            lists += [line for line in file if line.strip()]
    kernels = read_kernels(sys.stdin, lists)
    if not kernels:
        raise SystemExit("no kernel of these lists has records of two candidates")
    print(f"{len(kernels)} kernels, {sum(map(len, kernels))} candidates")
    for name, rule in RULES.items():
        share, slower = judge(rule, kernels)
        mean = math.exp(sum(map(math.log, slower)) / len(slower))
        print(f"{name:42} builds {share:4.0%}  slower by {mean - 1:.2%}, {sum(x > 1.01 for x in slower)} by 1 %, "
              f"{sum(x > 1.05 for x in slower)} by 5 %, at most {max(slower) - 1:.0%}")


if __name__ == "__main__":
    main()
