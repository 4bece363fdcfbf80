"""An AOT graph as a function: Kiln programs for the partitions that Kiln takes, the rest eager."""

from __future__ import annotations

import logging
import operator
import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch._guards import TracingContext

from kiln import _inductor_parts
from kiln._arrays import dense_strides
from kiln._cuda_graphs import Boxed, CapturePlanner
from kiln._emit import Emitter, NotEmittable, value_of
from kiln._generator_state import ignore_generator_state
from kiln._in_place import is_final_write, is_write, write_eager, write_in_place
from kiln._layout import layout_of
from kiln._native import library
from kiln._partition import WRITES, Partition, Refusal, has_effect, is_inlined, main_device, partitions, refusals
from kiln._settings import Settings
from kiln._steps import CompiledGraph, EagerStep, KilnStep, Step
from kiln._torch import target_of
from kiln._triton_calls import is_memory_for_triton, is_triton_call, write_where_it_lies
from kiln.client import Program
from kiln.errors import KilnError

log = logging.getLogger("kiln")


class GraphReport:
    """The report on one graph; ``kiln.explain`` lists them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.partitions: list[tuple[Partition, Program | None]] = []
        self.refused: list[Refusal] = []
        self.failures: list[str] = []
        self.in_inductor: set[fx.Node] = set()


def place_of(node: fx.Node) -> str:
    """The line of the user's source that a node comes from."""
    lines = [line for line in str(node.meta.get("stack_trace") or "").splitlines()
             if line.strip(" ~^")]  # newer versions of torch underline the expression
    return lines[-2].strip() + ": " + lines[-1].strip() if len(lines) > 1 else ""


#: The names of the ops that a kernel of a family may compute.
_OPS_OF = {"convolution": "convolution", "attention": "attention", "attention_gradient": "attention",
           "matmul": r"(mm|matmul|^linear)(_|$)", "products": r"(mm|matmul|^linear)(_|$)"}


def _nodes_to_blame(nodes: Sequence[fx.Node], failure: str) -> list[fx.Node]:
    """The nodes whose kernel has no right candidate. ``failure``: the service's error, which names the family."""
    found = re.match(r"no candidate of the (\w+) kernel ", failure)
    names = _OPS_OF.get(found[1]) if found else None
    return [node for node in nodes if names and re.search(names, str(node.target).split(".")[-2:][0])]


class GraphCompiler:
    """Compiles one graph. ``example_inputs`` are the placeholders' values as they will come."""

    def __init__(self, module: fx.GraphModule, example_inputs: Sequence[Any], settings: Settings, name: str,
                 captures: CapturePlanner) -> None:
        self._module, self._graph, self._settings, self._captures = module, module.graph, settings, captures
        self.report = GraphReport(name)
        placeholders = [node for node in self._graph.nodes if node.op == "placeholder"]
        for node, value in zip(placeholders, example_inputs, strict=True):
            node.meta["val"] = value  # strides may have been reported otherwise since tracing
        self._slot_of: dict[fx.Node, int] = {node: index for index, node in enumerate(placeholders)}
        self._constants: dict[int, Any] = {}
        for node in self._graph.nodes:
            if node.op == "get_attr":
                constant = operator.attrgetter(str(node.target))(module)
                if isinstance(constant, torch.Tensor):
                    node.meta.setdefault("val", constant)
                    self._constants[self._slot(node)] = constant
        self._trusted = set(placeholders)
        self._device = main_device(self._graph)
        self._rows: dict[fx.Node, fx.Node] = {}  # writes of one row: see write_in_place()
        self._output = next(node for node in self._graph.nodes if node.op == "output")
        #: strides of outputs that are not those that torch inferred
        self.strides: dict[fx.Node, tuple[Any, ...]] = {}

    def _slot(self, node: fx.Node) -> int:
        return self._slot_of.setdefault(node, len(self._slot_of))

    def compile(self) -> Boxed | CompiledGraph:
        """The graph as a boxed function; eager, and it says so, when Kiln fails for whatever reason."""
        if self._settings.strict:
            library()  # else a broken installation would pass every test, eager
        try:
            library()  # else what is missing would be said of every op
            return self._compile()
        except Exception as error:
            if self._settings.strict and not isinstance(error, KilnError):
                raise
            log.debug("the graph runs eager", exc_info=True)
            self.strides.clear()
            self._say_failure(f"{type(error).__name__}: {error}")
            return self._eager()

    def _returned(self) -> list[fx.Node]:
        """The results that the caller of the model sees: what a forward saves for its backward comes after them."""
        results = self._output.args[0]
        if self.report.name == "forward":
            context = TracingContext.try_get()
            metadata = context.fw_metadata if context is not None else None
            results = results[:metadata.num_forward_returns] if metadata is not None else results
        return [] if self.report.name == "backward" else [each for each in results if isinstance(each, fx.Node)]

    def _compile(self) -> CompiledGraph:
        target_of(self._device)
        ignore_generator_state(self._graph)
        write_where_it_lies(self._graph)
        self._rows.update(write_in_place(self._graph))
        self.report.refused = refusals(self._graph, self._device)
        trusted = frozenset(self._trusted)
        while (steps := self._steps()) is None or self._makes_eager(steps):  # more nodes are refused each time
            self._trusted = set(trusted)
            self.strides.clear()
            self.report.partitions.clear()
            self.report.in_inductor.clear()
        results = fx.map_arg(self._output.args[0], lambda node: (self._slot(node),))
        inlined = [node for node in self._output.all_input_nodes if is_inlined(node, self._not_kiln)]
        if inlined:
            last = self._eager_step(inlined, inlined)
            if last is not None:
                steps.append(last)
        done = set(self._rows.values())
        final = self._eager_step([node for node in self._graph.nodes if is_final_write(node) and node not in done], [])
        if final is not None:
            steps.append(final)
        self._plan_clearing(steps)
        self._say_refusals()
        said = [(self._sentence(each), place_of(each.node)) for each in self._surprises()]
        capture = self._captures.plan(self._module, self.report.name, bool(steps))
        announces = capture is None and self.report.name == "backward" and self._captures.forward_is_captured
        return CompiledGraph(self._device, len(self._slot_of), self._constants, steps, list(results), said, capture,
                             announces)

    def _makes_eager(self, steps: Sequence[Step]) -> bool:
        """Makes rows that no program writes in place those of eager ops; whether there were any."""
        written = {index for step in steps if isinstance(step, KilnStep) for index in step.written_in_place}
        others = {writer: final for writer, final in self._rows.items() if self._slot(writer) not in written}
        for writer, final in others.items():
            write_eager(self._graph, writer, final)
            del self._rows[writer]
        self.report.refused += [Refusal(writer, WRITES) for writer in others if writer not in self._not_kiln]
        return bool(others)

    def _steps(self) -> list[Step] | None:
        """Those of all partitions. None: some nodes more are refused, since a kernel of theirs could not be made."""
        self._not_kiln = {each.node for each in self.report.refused}
        steps: list[Step] = []
        for partition in partitions(self._graph, self.report.refused, self._returned()):
            known = len(self.report.refused)
            step = self._kiln_step(partition) if partition.in_kiln else None
            if len(self.report.refused) > known:
                return None
            steps += self._uncovered_steps(partition) if step is None else [step]
        return steps

    def _eager(self) -> Boxed:
        from functorch.compile import make_boxed_func

        boxed: Boxed = make_boxed_func(self._module.forward)
        return boxed

    def _plan_clearing(self, steps: list[Step]) -> None:
        seen = {self._slot(node) for node in self._output.all_input_nodes} | set(self._constants)
        for step in reversed(steps):
            # The last one's inputs live as long as the slots.
            step.clears = [] if step is steps[-1] else [index for index in set(step.reads) if index not in seen]
            seen.update(step.reads)

    def _read_outside(self, nodes: Sequence[fx.Node]) -> list[fx.Node]:
        """The nodes that others read: other partitions, arithmetic on sizes, or the caller."""
        inside = set(nodes)
        return [node for node in nodes if any(user not in inside for user in node.users)
                and not (isinstance(value_of(node), (list, tuple)))]

    def _uncovered_steps(self, partition: Partition) -> list[Step]:
        """The steps of what is not Kiln's: eager ones, and Inductor's where it is to compile what it can."""
        asked = self._settings.uncovered == "inductor"
        steps: list[Step] = []
        for fit, nodes in _inductor_parts.split(partition.nodes) if asked else [(False, partition.nodes)]:
            step = self._eager_step(nodes, in_inductor=fit)
            if step is not None:
                self.report.partitions.append((Partition(False, nodes), None))
                self.report.in_inductor.update(nodes if fit else ())
                steps.append(step)
        return steps

    def _eager_step(self, nodes: Sequence[fx.Node], results: Sequence[fx.Node] | None = None,
                    in_inductor: bool = False) -> EagerStep | None:
        outputs = list(self._read_outside(nodes) if results is None else results)
        if not outputs and not any(has_effect(node) for node in nodes):
            return None
        graph = fx.Graph()
        copied: dict[fx.Node, fx.Node] = {}
        reads: list[fx.Node] = []
        inside = set(nodes)

        def copy(node: fx.Node) -> fx.Node:
            if node in copied:
                return copied[node]
            if node in inside or is_inlined(node, self._not_kiln) or (
                    node.op == "get_attr" and node not in self._slot_of):  # a module of a higher-order op
                copied[node] = graph.node_copy(node, copy)
            else:
                reads.append(node)
                copied[node] = graph.placeholder(node.name)
            return copied[node]

        for node in nodes:
            copy(node)
        graph.output(tuple(copied[node] for node in outputs))
        # Placeholders come first, whatever was met first.
        anchor = next(iter(graph.nodes))
        for node in [each for each in graph.nodes if each.op == "placeholder"]:
            if node is not anchor:
                anchor.prepend(node)
        order = [node.name for node in graph.nodes if node.op == "placeholder"]
        by_name = {copied[node].name: node for node in reads}
        step = EagerStep(fx.GraphModule(self._module, graph), [self._slot(by_name[name]) for name in order],
                         [self._slot(node) for node in outputs], in_inductor)
        step.load(self._settings, self._device)
        return step

    def _kiln_step(self, partition: Partition) -> KilnStep | None:
        outputs = self._read_outside(partition.nodes)
        if not outputs:
            return None
        try:
            emitter, reads, orders = self._emit(partition.nodes, outputs)
            trusted = frozenset(i for i, node in enumerate(reads) if node in self._trusted)
            held = {node: self._rows[node].all_input_nodes[0] for node in outputs if node in self._rows}
            changed = [(output, reads.index(held[node])) for output, node in enumerate(outputs)
                       if node in held and held[node] in reads]
            step = KilnStep(emitter.to_json(), [self._slot(node) for node in reads],
                            [self._slot(node) for node in outputs], trusted, orders, changed=changed)
            step.load(self._settings, self._device)
        except (KilnError, NotEmittable) as error:
            blamed = _nodes_to_blame(partition.nodes, str(error))
            self.report.refused += [Refusal(node, str(error)) for node in blamed]
            if not blamed:
                self._say_failure(str(error))
            for node in outputs:
                self.strides.pop(node, None)
            return None
        self.report.partitions.append((partition, step.program))
        self._trusted.update(outputs)
        return step

    def _emit(self, nodes: Sequence[fx.Node], outputs: Sequence[fx.Node]) -> tuple[
            Emitter, list[fx.Node], list[tuple[int, ...] | None]]:
        emitter = Emitter(takes_one=self._settings.takes_one)
        inside = set(nodes)
        reads: dict[fx.Node, None] = {}
        views: dict[fx.Node, None] = {}  # that are inlined, in order

        def read(node: fx.Node) -> None:
            for operand in node.all_input_nodes:
                if operand in inside or operand in views or not isinstance(value_of(operand), torch.Tensor):
                    continue
                if is_inlined(operand, self._not_kiln):
                    read(operand)
                    views.setdefault(operand)
                else:
                    reads.setdefault(operand)

        for node in nodes:
            read(node)
        for node in reads:
            value = value_of(node)
            strides = None
            symbolic = any(isinstance(size, torch.SymInt) for size in value.shape)
            if symbolic and layout_of(value) != (None, True):
                strides = dense_strides(value.shape)  # Kiln reads sizes that calls choose in row-major order only
                self._trusted.discard(node)
            emitter.add_input(node.name, value, strides)
        for node in (*views, *nodes):
            if node.target is operator.getitem:
                emitter.add_getitem(node)
            else:
                emitter.add_node(node)
        orders: list[tuple[int, ...] | None] = []
        for node in outputs:
            value = value_of(node)
            order, dense = layout_of(value)
            emitter.add_output(node.name, value, order)
            orders.append(order)
            if not dense:
                self.strides[node] = dense_strides(value.shape)
        return emitter, list(reads), orders

    def _say_refusals(self) -> None:
        for refusal in self._surprises():
            self._settings.say_once(self._sentence(refusal), place_of(refusal.node))

    def _surprises(self) -> list[Refusal]:
        return [each for each in self.report.refused
                if not is_write(each.node) and not is_triton_call(each.node) and not is_memory_for_triton(each.node)]

    def _sentence(self, refusal: Refusal) -> str:
        where = "in Inductor" if refusal.node in self.report.in_inductor else "eager"
        return f"{refusal.op} runs {where}: {refusal.why}"

    def _say_failure(self, why: str) -> None:
        self.report.failures.append(why)
        self._settings.say_once(f"a part of the model runs eager: {why}", "")

