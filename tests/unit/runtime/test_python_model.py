from __future__ import annotations

import re
import sys
import threading
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

from twoshift.errors import Broken, BrokenModel, InvalidInput, OutOfMemory, TooLarge
from twoshift.ports import Runtime
from twoshift.runtime import load_model
from twoshift.runtime.python_source import UserExit

MODEL = """
    class Doubler:
        def load(self):
            self.factor = 2

        def predict(self, batch):
            return {"doubled": batch["x"] * self.factor}
"""


def written(folder: Path, source: str = MODEL, name: str = "model.py") -> Path:
    path = folder / name
    path.write_text(dedent(source))
    return path


def loaded(folder: Path, source: str, name: str = "Model") -> Runtime:
    return load_model(f"{written(folder, source)}:{name}")


def refused(model: str) -> str:
    with pytest.raises(InvalidInput) as raised:
        load_model(model)
    return str(raised.value)


def answers(runtime: Runtime, rows: list[Any]) -> dict[str, list[Any]]:
    return {name: array.tolist() for name, array in runtime.launch([runtime.prepare(rows)]).wait().items()}


def test_a_class_in_a_file_is_a_model(tmp_path: Path) -> None:
    runtime = loaded(tmp_path, MODEL, "Doubler")
    assert answers(runtime, [{"x": 1}, {"x": 2.5}]) == {"doubled": [2, 5.0]}
    assert runtime.info.runtime == "python"
    assert runtime.info.device.startswith("cpu: ")


def test_a_class_in_a_module_is_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "my_models_pkg"
    package.mkdir()
    written(package, "", "__init__.py")
    written(package, MODEL, "small.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert answers(load_model("my_models_pkg.small:Doubler"), [{"x": 4}]) == {"doubled": [8]}


def test_the_checksum_follows_the_source(tmp_path: Path) -> None:
    first = loaded(tmp_path, MODEL, "Doubler")
    second = loaded(tmp_path, MODEL.replace("= 2", "= 3"), "Doubler")
    assert first.info.checksum != second.info.checksum
    assert answers(second, [{"x": 1}]) == {"doubled": [3]}  # and no stale bytecode was run


def test_nothing_is_written_beside_the_users_file(tmp_path: Path) -> None:
    loaded(tmp_path, MODEL, "Doubler")
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.py"]


def test_a_model_may_import_its_neighbours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    written(tmp_path, "FACTOR = 7\n", "neighbour_of_model.py")
    source = """
        import numpy as np
        from neighbour_of_model import FACTOR
        class Model:
            def load(self): ...
            def predict(self, batch): return {"y": batch["x"] * FACTOR}
    """
    assert answers(loaded(tmp_path, source), [{"x": 1}]) == {"y": [7]}


def test_a_missing_file_suggests_the_nearest(tmp_path: Path) -> None:
    written(tmp_path)
    message = refused(f"{tmp_path}/modle.py:Doubler")
    assert "a Python file that exists" in message
    assert f"did you mean {tmp_path}/model.py?" in message


def test_a_missing_module_is_named() -> None:
    assert "'no_such_package_here' is neither in this folder nor installed" in refused(
        "no_such_package_here.models:Model"
    )


def test_a_missing_class_suggests_the_nearest(tmp_path: Path) -> None:
    path = written(tmp_path)
    assert "did you mean Doubler?" in refused(f"{path}:Dubler")
    assert "which defines Doubler" in refused(f"{path}:Zzz")


def test_a_constructor_with_arguments_is_refused(tmp_path: Path) -> None:
    source = """
        class Model:
            def __init__(self, path, size=3): ...
            def load(self): ...
            def predict(self, batch): ...
    """
    assert "its constructor needs path" in refused(f"{written(tmp_path, source)}:Model")


@pytest.mark.parametrize("method", ["load", "predict"])
def test_a_missing_method_is_named(tmp_path: Path, method: str) -> None:
    source = MODEL.replace(f"def {method}(", "def other(")
    assert f"this class has no `{method}`" in refused(f"{written(tmp_path, source)}:Doubler")


def test_all_missing_methods_are_named_at_once(tmp_path: Path) -> None:
    assert "this class has no `load` and no `predict`" in refused(f"{written(tmp_path, 'class Model: ...')}:Model")


@pytest.mark.parametrize(
    ("source", "line", "what"),
    [
        ("x = 1\nimport no_such_package_at_all\n", 2, "ModuleNotFoundError: No module named 'no_such_package_at_all'"),
        ("def f():\n    return 1 / 0\n\nf()\n", 2, "ZeroDivisionError: division by zero"),
        ("x = 1\n\nclass Model\n    pass\n", 3, "SyntaxError"),
        ("import json\n\njson.loads('{')\n", 3, "JSONDecodeError"),
        ("import sys\nsys.exit(3)\n", 2, "SystemExit: 3"),
    ],
)
def test_an_error_while_importing_shows_the_users_own_line(tmp_path: Path, source: str, line: int, what: str) -> None:
    path = written(tmp_path, source)
    message = refused(f"{path}:Model")
    assert f"{path}:{line}: " in message
    assert what in message
    assert "Traceback" not in message


def test_an_error_in_load_shows_the_users_own_line(tmp_path: Path) -> None:
    path = written(tmp_path, MODEL.replace("self.factor = 2", "self.factor = open('/no/such/file')"))
    assert f"{path}:4: FileNotFoundError" in refused(f"{path}:Doubler")


@pytest.mark.parametrize(
    ("result", "found"),
    [
        ("None", "a NoneType"),
        ("[1, 2]", "a list"),
        ("{}", "a dict with 0 columns"),
        ("{'y': [1, 2]}", "a list as 'y'"),
        ("{'y': np.ones(1)}", r"an array of shape \(1,\) as 'y'"),
        ("{'y': np.float64(1)}", "a float64 as 'y'"),
        ("{'y': np.ones(()) }", r"an array of shape \(\) as 'y'"),
        ("{1: np.ones(2)}", "as 1"),
    ],
)
def test_predict_must_return_arrays_with_a_row_each(tmp_path: Path, result: str, found: str) -> None:
    source = f"""
        import numpy as np
        class Model:
            def load(self): ...
            def predict(self, batch): return {result}
    """
    runtime = loaded(tmp_path, source)
    with pytest.raises(Broken, match=f"predict.. returned .*{found}; expected a dict of arrays with 2 rows each"):
        runtime.launch([runtime.prepare([{"x": 1}, {"x": 2}])])


ARRAY = """
    import datetime, decimal
    import numpy as np
    class Model:
        def load(self): ...
        def predict(self, batch):
            column = np.empty(2, dtype=object)
            column[0], column[1] = {values}
            return {{"y": column}}
"""


@pytest.mark.parametrize(("values", "found"), [("'a', object()", "object"), ("Model(), Model()", "Model")])
def test_predict_may_not_return_objects_that_are_no_values(tmp_path: Path, values: str, found: str) -> None:
    runtime = loaded(tmp_path, ARRAY.format(values=values))
    with pytest.raises(BrokenModel, match=f"predict.. returned values of type {found} as 'y'; expected"):
        runtime.launch([runtime.prepare([{"x": 1}, {"x": 2}])])


@pytest.mark.parametrize(
    "values",
    [
        "'a', None", "b'a', np.str_('b')", "1, 2.5", "True, np.float32(1)", "[1, 2], (3,)", "{'a': 1}, np.ones(3)",
        "decimal.Decimal('1.5'), None", "datetime.date(2020, 1, 1), datetime.timedelta(1)",
    ],
)  # fmt: skip
def test_predict_may_return_values_of_any_type_that_has_a_place_in_a_file(tmp_path: Path, values: str) -> None:
    runtime = loaded(tmp_path, ARRAY.format(values=values))
    assert len(runtime.launch([runtime.prepare([{"x": 1}, {"x": 2}])]).wait()["y"]) == 2


def test_the_columns_must_be_those_that_the_class_names(tmp_path: Path) -> None:
    runtime = loaded(tmp_path, MODEL.replace("def load", "outputs = ('tripled',)\n        def load"), "Doubler")
    assert runtime.info.outputs == ("tripled",)
    with pytest.raises(Broken, match="tripled"):
        runtime.launch([runtime.prepare([{"x": 1}])])


def test_what_predict_raises_leaves_as_it_is(tmp_path: Path) -> None:
    runtime = loaded(tmp_path, MODEL.replace("return {", "raise KeyError('mine')\n            return {"), "Doubler")
    with pytest.raises(KeyError, match="mine"):
        runtime.launch([runtime.prepare([{"x": 1}])])


def test_out_of_memory_in_predict_is_told_apart(tmp_path: Path) -> None:
    runtime = loaded(tmp_path, MODEL.replace("return {", "raise MemoryError\n            return {"), "Doubler")
    with pytest.raises(OutOfMemory):
        runtime.launch([runtime.prepare([{"x": 1}])])


OWN_PREPARE = """
    import numpy as np

    class Model:
        max_row_tokens = 8

        def load(self): ...

        def prepare(self, rows):
            return {"n": np.array([float(row["number"]) for row in rows])}

        def tokens(self, batch):
            return [max(1, int(n)) for n in batch["n"]]

        def predict(self, batch):
            return {"n": batch["n"]}
"""


def test_a_class_may_prepare_its_rows_and_count_their_tokens(tmp_path: Path) -> None:
    runtime = loaded(tmp_path, OWN_PREPARE)
    prepared = runtime.prepare([{"number": "3"}, {"number": "1"}])
    assert prepared.lengths.tolist() == [3, 1]
    assert prepared.slice(1, 2).lengths.tolist() == [1]
    assert runtime.info.max_row_tokens == 8


def test_the_row_that_prepare_cannot_take_is_named_with_its_reason(tmp_path: Path) -> None:
    runtime = loaded(tmp_path, OWN_PREPARE)
    with pytest.raises(InvalidInput, match=r"row 2: .*ValueError: could not convert string to float"):
        runtime.prepare([{"number": "3"}, {"number": "1"}, {"number": "?"}, {}])


def test_a_row_with_more_tokens_than_the_model_takes_is_too_large(tmp_path: Path) -> None:
    with pytest.raises(TooLarge, match=r"row 1: too large \(9 tokens\); expected at most 8 tokens"):
        loaded(tmp_path, OWN_PREPARE).prepare([{"number": 1}, {"number": 9}])


def test_token_counts_must_be_one_for_each_row(tmp_path: Path) -> None:
    runtime = loaded(tmp_path, OWN_PREPARE.replace("[max(1, int(n)) for n in batch[", "[0 for n in batch["))
    with pytest.raises(InvalidInput, match="2 whole numbers of at least 1"):
        runtime.prepare([{"number": 1}, {"number": 2}])


def test_prepare_must_keep_every_row(tmp_path: Path) -> None:
    runtime = loaded(tmp_path, OWN_PREPARE.replace("for row in rows]", "for row in rows[1:]]"))
    with pytest.raises(Broken, match=r"prepare\(\) returned \{'n': \(1,\)\}; expected .* 2 rows each"):
        runtime.prepare([{"number": 1}, {"number": 2}])


def test_missing_values_reach_a_class_that_takes_them(tmp_path: Path) -> None:
    runtime = loaded(tmp_path, MODEL.replace("def load", "missing = True\n        def load"), "Doubler")
    assert np.isnan(runtime.launch([runtime.prepare([{"x": None}])]).wait()["doubled"][0])
    with pytest.raises(InvalidInput, match="row 0, field 'x' is missing; expected a value"):
        loaded(tmp_path, MODEL, "Doubler").prepare([{"x": None}])


def test_a_class_says_which_precision_it_runs_in(tmp_path: Path) -> None:
    path = written(tmp_path)
    with pytest.raises(InvalidInput, match="precision"):
        load_model(f"{path}:Doubler", precision="int8")


def test_close_reaches_the_users_class(tmp_path: Path) -> None:
    source = MODEL + f"\n        def close(self): open({str(tmp_path / 'closed')!r}, 'w').close()\n"
    loaded(tmp_path, source, "Doubler").close()
    assert (tmp_path / "closed").exists()


EXITING = """
    import sys

    class Model:
        def load(self):
            pass

        def prepare(self, rows):
            return {"x": __import__("numpy").ones(len(rows))}

        def tokens(self, batch):
            return [1] * len(batch["x"])

        def predict(self, batch):
            return batch

        def close(self):
            pass
"""


def used(runtime: Runtime) -> None:
    runtime.launch([runtime.prepare([{}, {}])]).wait()
    runtime.close()


@pytest.mark.parametrize("method", ["load", "prepare", "tokens", "predict", "close"])
@pytest.mark.parametrize("raised", ["SystemExit: 0", "KeyboardInterrupt"])
def test_an_exit_in_the_users_code_is_that_call_s_error(tmp_path: Path, method: str, raised: str) -> None:
    head = next(line for line in EXITING.splitlines() if f"def {method}(" in line)
    statement = "sys.exit(0)" if raised.startswith("SystemExit") else "raise KeyboardInterrupt"
    source = EXITING.replace(head, f"{head}\n            {statement}")
    found: list[BaseException] = []

    def use() -> None:
        try:
            used(loaded(tmp_path, source))
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=use)  # in the main thread a KeyboardInterrupt is the terminal's
    thread.start()
    thread.join()
    assert isinstance(found[0], InvalidInput if method in ("load", "close") else UserExit)
    assert re.search(rf"model\.py:\d+: {raised}", str(found[0]))


def test_ctrl_c_in_the_main_thread_is_nobody_s_error(tmp_path: Path) -> None:
    head = "def predict(self, batch):"
    runtime = loaded(tmp_path, EXITING.replace(head, f"{head}\n            raise KeyboardInterrupt"))
    with pytest.raises(KeyboardInterrupt):
        used(runtime)


def test_what_close_raises_is_told_with_the_users_own_line(tmp_path: Path) -> None:
    runtime = loaded(tmp_path, MODEL + "\n        def close(self): raise ValueError('bye')\n", "Doubler")
    with pytest.raises(InvalidInput, match=r"because its code could not close: .*model\.py:\d+: ValueError: bye"):
        runtime.close()


@pytest.mark.parametrize(
    ("attribute", "expected"),
    [
        (
            "max_row_tokens = 'many'",
            "a class whose attribute `max_row_tokens` is a whole number of at least 1, not 'many'",
        ),
        ("max_row_tokens = 0", "`max_row_tokens` is a whole number"),
        ("outputs = 5", "a class whose attribute `outputs` is a list of column names, not 5"),
        ("tokens = property(lambda self: 1 / 0)", "its code could not provide its attributes: "),
    ],
)
def test_an_attribute_that_cannot_be_is_refused(tmp_path: Path, attribute: str, expected: str) -> None:
    source = MODEL.replace("def load", f"{attribute}\n\n        def load")
    assert expected in refused(f"{written(tmp_path, source)}:Doubler")
