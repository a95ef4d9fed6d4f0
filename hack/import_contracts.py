"""Define kinds of import contracts for import-linter; pyproject.toml states the contracts.

The contracts ignore tests, which may import everything. They also ignore modules named `testing`, except the contract
about those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import cast

import grimp
from importlinter import Contract, ContractCheck, fields, output
from importlinter.application import contract_utils
from importlinter.contracts.layers import LayersContract


def is_test(module: str) -> bool:
    return module.endswith(("_test", ".conftest"))


def is_testing(module: str) -> bool:
    """Report whether the module is shared by tests."""
    return module.endswith(".testing")


class LayersOfProgram(LayersContract):
    """Check layers: a module imports only from its own layer and from lower ones."""

    type_name = "layers_of_program"

    def check(self, graph: grimp.ImportGraph, verbose: bool) -> ContractCheck:
        _leave_out(graph, lambda module: is_test(module) or is_testing(module))
        return super().check(graph, verbose)


class TestingContract(Contract):
    """Check that only tests import modules named `testing`."""

    type_name = "testing_for_tests"
    ignore_imports = fields.SetField(subfield=fields.ImportExpressionField(), required=False)

    def check(self, graph: grimp.ImportGraph, verbose: bool) -> ContractCheck:
        contract_utils.remove_ignored_imports_and_report(
            graph=graph,
            ignore_imports=self.ignore_imports,  # type: ignore[arg-type]
            unmatched_alerting=contract_utils.AlertLevel.ERROR,
        )
        wrong = [
            (importer, imported)
            for imported in sorted(filter(is_testing, graph.modules))
            for importer in sorted(graph.find_modules_that_directly_import(imported))
            if not is_test(importer) and not is_testing(importer)
        ]
        return ContractCheck(kept=not wrong, metadata={"wrong": wrong})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for importer, imported in check.metadata["wrong"]:
            output.print_error(f"{importer} imports {imported}, but is not a test")


class OneWayContract(Contract):
    """Check that no two files import each other, directly or through others.

    `circles_of_types` lists the circles that are allowed, because only imports for types close them. Each entry lists
    the modules of a circle with spaces between them. A listed circle that no longer exists, or has other members,
    breaks the contract too.
    """

    type_name = "one_way"
    circles_of_types = fields.SetField(subfield=fields.StringField(), required=False)

    def check(self, graph: grimp.ImportGraph, verbose: bool) -> ContractCheck:
        names_of_circles = cast(set[str] | None, self.circles_of_types) or set()
        listed = {frozenset(names.split()) for names in names_of_circles}
        found = circles(graph)
        roots = [str(name) for name in self.session_options["root_packages"]]
        as_program_runs = circles(grimp.build_graph(*roots, exclude_type_checking_imports=True))
        return ContractCheck(
            kept=not as_program_runs and found == listed,
            metadata={"run": as_program_runs, "new": found - listed, "gone": listed - found},
        )

    def render_broken_contract(self, check: ContractCheck) -> None:
        said = {
            "run": "these import each other",
            "new": "these import each other for their types",
            "gone": "listed, but no longer a circle",
        }
        for kind, what in said.items():
            for circle in sorted(check.metadata[kind], key=sorted):
                output.print_error(f"{what}: {' '.join(sorted(circle))}")


def circles(graph: grimp.ImportGraph) -> set[frozenset[str]]:
    """Return the sets of modules that import each other."""
    _leave_out(graph, is_test)
    return {frozenset(circle) for circle in _circles(graph)}


def _circles(graph: grimp.ImportGraph) -> Iterator[set[str]]:
    seen: set[str] = set()
    for module in sorted(graph.modules):
        if module not in seen:
            circle = graph.find_upstream_modules(module) & graph.find_downstream_modules(module) | {module}
            seen |= circle
            if len(circle) > 1:
                yield circle


def _leave_out(graph: grimp.ImportGraph, unwanted: Callable[[str], bool]) -> None:
    for module in filter(unwanted, list(graph.modules)):
        graph.remove_module(module)
