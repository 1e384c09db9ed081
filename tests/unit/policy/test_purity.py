"""What import-linter cannot see: the deciding code opens, prints and remembers nothing."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import twoshift.policy

FOLDER = Path(twoshift.policy.__file__).parent
FILES = sorted(FOLDER.rglob("*.py"))
FORBIDDEN_CALLS = {"open", "print", "input", "exec", "eval", "breakpoint", "__import__"}
MUTABLE = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(FOLDER)))
def test_a_policy_has_no_side_door(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        assert not isinstance(node, ast.Global), f"line {node.lineno}: a global"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in FORBIDDEN_CALLS, f"line {node.lineno}: {node.func.id}()"
        if isinstance(node, ast.Attribute):
            assert ast.unparse(node) not in {"np.random", "numpy.random"}, f"line {node.lineno}: randomness"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(FOLDER)))
def test_what_a_policy_module_holds_is_constant(path: Path) -> None:
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, MUTABLE):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            name = ast.unparse(target)
            # A table that is written once, in capitals, and never written to.
            assert name == "__all__" or name.isupper(), f"line {node.lineno}: {name} can change"
