"""`twoshift run` over CSV: the model gets the types that the rows have in Parquet, and nothing kept is lost."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from job_runs import JobFolder
from pyarrow import csv

pytestmark = pytest.mark.slow

KINDS = """
import numpy as np


class Kinds:
    missing = True

    def load(self): pass

    def predict(self, batch):
        rows = len(next(iter(batch.values())))
        return {name: np.array([values.dtype.name] * rows, object) for name, values in batch.items()}
"""


def _booster(path: Path, names: tuple[str, ...] | None = ("amount", "age", "hour")) -> None:
    xgboost = pytest.importorskip("xgboost")
    random = np.random.default_rng(7)
    values = random.normal(size=(200, 3))
    data = xgboost.DMatrix(values, values @ [1.0, 2.0, 4.0], feature_names=names)
    xgboost.train({"max_depth": 3, "verbosity": 0}, data, 4).save_model(path)


def _transactions(rows: int) -> pa.Table:
    random = np.random.default_rng(3)
    amounts = [None if k % 10 == 3 else round(float(x), 2) for k, x in enumerate(random.normal(50, 20, rows))]
    ages = [int(x) for x in random.integers(18, 90, rows)]
    return pa.table({"id": range(rows), "amount": amounts, "age": ages, "hour": [k % 24 for k in range(rows)]})


@pytest.mark.parametrize("packed", [False, True])
def test_a_tabular_model_scores_csv_as_it_scores_parquet(job: JobFolder, packed: bool) -> None:
    _booster(job.path / "fraud.ubj")
    table = _transactions(120)
    pq.write_table(table, job.path / "tx.parquet")
    csv.write_csv(table, job.path / "tx.csv")
    name = "tx.csv"
    if packed:
        (job.path / "tx.csv.gz").write_bytes(gzip.compress((job.path / "tx.csv").read_bytes()))
        name = "tx.csv.gz"
    options = ["--model", "fraud.ubj", "--columns", "amount,age,hour", "--keep", "id", "--shard-rows", "50"]
    for given, out in ((name, "from-csv"), ("tx.parquet", "from-parquet")):
        job.options = [given, *options]
        job.run("-o", out)
    assert job.rows("from-csv") == job.rows("from-parquet")
    assert {row["error"] for row in job.rows("from-csv")} == {None}


def test_a_model_without_names_takes_the_columns_in_the_order_that_is_given(job: JobFolder) -> None:
    _booster(job.path / "named.ubj")
    _booster(job.path / "plain.ubj", names=None)
    csv.write_csv(_transactions(60), job.path / "tx.csv")
    for model in ("named", "plain"):
        job.options = ["tx.csv", "--model", f"{model}.ubj", "--columns", "amount,age,hour", "--keep", "id"]
        job.run("-o", model)
    assert job.rows("plain") == job.rows("named")
    assert {row["error"] for row in job.rows("plain")} == {None}


def test_a_users_class_gets_arrays_of_the_types_that_parquet_gives_it(job: JobFolder) -> None:
    (job.path / "kinds.py").write_text(KINDS)
    header = "whole,real,is_new,zip,when,huge,power,word,gap\n"
    line = "{k},{k}.5,true,0012{k},2026-01-0{k},1234567890123456789{k},{k}e3,w{k},\n"
    (job.path / "in.csv").write_text(header + "".join(line.format(k=k) for k in range(1, 10)))
    job.options = ["in.csv", "--model", "kinds.py:Kinds"]
    job.run()
    (kinds,) = {tuple(row.values()) for row in job.rows()}
    assert dict(zip([*header.strip().split(",")], kinds, strict=False)) == {
        "whole": "int64", "real": "float64", "is_new": "bool", "zip": "object", "when": "object", "huge": "object",
        "power": "float64", "word": "object", "gap": "float64",
    }  # fmt: skip
    job.options += ["--types", "zip=int,whole=float,power=string"]
    job.run("-o", "told")
    (kinds,) = {(row["zip"], row["whole"], row["power"]) for row in job.rows("told")}
    assert kinds == ("int64", "float64", "object")


def test_what_is_kept_or_used_as_text_comes_back_as_it_was(job: JobFolder) -> None:
    (job.path / "echo.py").write_text(
        "import numpy as np\nclass Echo:\n def load(self): pass\n"
        " def prepare(self, rows): return {'t': np.array(rows, object)}\n"
        " def predict(self, b): return {'said': b['t']}\n"
    )
    values = ["00123", "1e5", "NaN", '""', "true", "2026-01-02", "12345678901234567890", "NULL", "-0", "+5", " 7 "]
    names = [f"c{k}" for k in range(len(values))]
    (job.path / "in.csv").write_text(f"{','.join(names)}\n" + f"{','.join(values)}\n" * 3)
    for place, name in enumerate(names):
        job.options = ["in.csv", "--model", "echo.py:Echo", "--text", name, "--keep", ",".join(names)]
        job.run("-o", f"out{place}")
        first = job.rows(f"out{place}")[0]
        expected = [True if value == "true" else value.strip('"') for value in values]
        assert [first[each] for each in names] == expected
        assert first["said"] == values[place].strip('"')
        if place >= 2:  # the same for every column: three are enough
            break


def test_a_value_that_does_not_fit_is_an_error_that_says_where_it_is(job: JobFolder) -> None:
    rows = [f"{k},{k}.5" for k in range(30_000)]
    rows[29_000] = "29000,twelve"
    (job.path / "in.csv").write_text("id,x\n" + "\n".join(rows) + "\n")
    job.options = ["in.csv", "--model", "m.py:Square", "--columns", "x", "--keep", "id", "--shard-rows", "10000"]
    job.run()
    (bad,) = [row for row in job.rows() if row["error"] is not None]
    assert bad["id"] == 29_000
    assert bad["error"] == "in.csv, row 29001: column x: 'twelve' is not a float"
    assert bad["squared"] is None


def test_types_are_frozen_with_the_plan(job: JobFolder) -> None:
    (job.path / "in.csv").write_text("id,x\n" + "".join(f"{k},{k}\n" for k in range(200)))
    job.options = ["in.csv", "--model", "m.py:Square", "--columns", "x", "--keep", "id", "--shard-rows", "50"]
    job.run()
    assert json.loads((job.out / "_twoshift" / "plan.json").read_text())["types"] == {"x": "int"}
    said = job.run("--types", "x=float", expect=2).err
    assert "types was not given, now x=float" in said


@pytest.mark.parametrize(
    ("types", "said"),
    [
        ("y=float", "--types: 'y' cannot be used; expected a column of in.csv (id, x)"),
        ("x=decimal", "--types: 'x=decimal' cannot be used; expected bool, float, int or string"),
        ("x", "--types: 'x' cannot be used; expected columns with types, such as amount=float,zip=string"),
        ("x=float,x=int", "--types: 'x=float,x=int' cannot be used; expected each column once; x occurs 2 times"),
    ],
)
def test_types_that_cannot_be_are_refused(job: JobFolder, types: str, said: str) -> None:
    (job.path / "in.csv").write_text("id,x\n1,2\n")
    job.options = ["in.csv", "--model", "m.py:Square", "--columns", "x", "--types", types]
    assert said in job.run(expect=2).err


def test_rows_of_which_none_can_be_scored_are_refused_by_file_and_row(job: JobFolder) -> None:
    _booster(job.path / "fraud.ubj")
    lines = ["id,amount,age,hour", *[",,"] * 70, *(f"{k},much,old,late" for k in range(99))]
    (job.path / "tx.csv").write_text("\n".join(lines) + "\n")
    job.options = ["tx.csv", "--model", "fraud.ubj", "--columns", "amount,age,hour"]
    told = job.run(expect=2).err
    assert "INPUTS: none of the first 99 rows can be scored; tx.csv, row 71: field 'amount': 'much' cannot" in told
    assert told.rstrip().endswith("expected a number")
    assert told.count("cannot be used") <= 1
    assert "row 0" not in told
    assert "tx.csv' cannot be used" not in told


def test_a_stray_quote_is_refused_and_no_row_is_lost_in_silence(job: JobFolder) -> None:
    rows = [f"{k},{k}.5" for k in range(1000)]
    rows[600] = '600,"stray'
    (job.path / "in.csv").write_text("id,x\n" + "\n".join(rows) + "\n")
    job.options = ["in.csv", "--model", "m.py:Square", "--columns", "x", "--keep", "id"]
    said = job.run(expect=2).err
    assert "in.csv" in said
    assert "the quote that opens on line 602 never closes" in said
    assert not (job.out / "_SUCCESS").exists()
