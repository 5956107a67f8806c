"""Variables of the environment without which a program cannot run."""

from __future__ import annotations

import ast

from rankup.check.facts.program.code import ProgramCode
from rankup.check.facts.program.module import Call, Module, full_name
from rankup.check.facts.program.value import constants


def required_variables(program: ProgramCode) -> dict[str, tuple[Module, ast.AST]]:
    """The variables without which the program ends with an error, and where: those that it neither sets nor asks for.

    Empty if it sets variables whose names are not known.
    """
    found: dict[str, tuple[Module, ast.AST]] = {}
    own: set[str] = set()
    for module in program.modules:
        if any(name.partition(".")[0] == "idr_torch" for name, _, _ in module.imported):
            own |= {"MASTER_ADDR", "MASTER_PORT"}  # the package sets them when it is imported
        for node in module.of(ast.Subscript):
            scope = module.scope_of(node)
            if full_name(module, scope, node.value) != "os.environ":
                continue
            name = node.slice.value if isinstance(node.slice, ast.Constant) else None
            if not isinstance(node.ctx, ast.Load):
                if not isinstance(name, str):
                    return {}
                own.add(name)
            elif isinstance(name, str) and scope in program.running and not _conditional(module, node):
                found.setdefault(name, (module, node))
        for compare in module.of(ast.Compare):  # if "RANK" in os.environ: elsewhere it is set
            if isinstance(compare.left, ast.Constant):
                own.add(str(compare.left.value))
    for call in program.calls:
        if call.name in {"os.environ.setdefault", "os.putenv", "os.environ.get", "os.getenv"}:
            first = call.argument("key", 0)
            own |= (
                {first.value} if isinstance(first, ast.Constant) and isinstance(first.value, str) else set()
            )
        elif call.name in {"os.environ.update", "dotenv.load_dotenv"}:
            return {}
    for call in program.inits:
        for name in of_group(program, call):
            if not _conditional(call.module, call.node):
                found.setdefault(name, (call.module, call.node))
    return {name: place for name, place in found.items() if name not in own}


def reads_variable(program: ProgramCode, name: str) -> bool:
    """Whether the program reads ``name`` anywhere, or asks for it."""
    asked = [call.argument("key", 0) for call in program.named("os.environ.get", "os.getenv")]
    for module in program.modules:
        asked += [node.slice for node in module.of(ast.Subscript)]
        asked += [compare.left for compare in module.of(ast.Compare)]
    return any(isinstance(node, ast.Constant) and node.value == name for node in asked)


def of_group(program: ProgramCode, call: Call) -> list[str]:
    """What ``init_process_group`` reads from the environment."""
    method = call.argument("init_method", 1)
    if call.spread or call.argument("store", 5) is not None:
        return []
    if method is not None and constants(program.values.of(method, call.scope)) not in (["env://"], [None]):
        return []
    if method is not None and len(program.values.of(method, call.scope)) > 1:
        return []  # an option, whose default alone is known
    needed = ["MASTER_ADDR", "MASTER_PORT"]
    needed += ["RANK"] if call.argument("rank", 4) is None else []
    return needed + (["WORLD_SIZE"] if call.argument("world_size", 3) is None else [])


def _conditional(module: Module, node: ast.AST) -> bool:
    """Whether something decides if a node runs, in the function that holds it."""
    return any(
        isinstance(holder, (ast.If, ast.IfExp, ast.Try, ast.BoolOp, ast.With, ast.While, ast.Lambda))
        for holder, _ in module.ancestors(node)
    )
