"""Write deploy/kustomize from the Helm chart: one definition of the manifests, for people with and without Helm."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
HELM = Path(sys.executable).parent / "helm"  # of the package helm-binary
CHART, VALUES = ROOT / "deploy/helm/twoshift", ROOT / "deploy/helm/values"
_NAME = "twoshift"  # of the release and its namespace
_OF_HELM = ("helm.sh/chart", "app.kubernetes.io/managed-by")
_SCALING = ("ScaledObject", "ServiceMonitor", "PrometheusRule", "ConfigMap")
_ABOUT = "# Written by scripts/write_manifests.py from the Helm chart.\n"


def rendered(values: str, *more: str, name: str = _NAME) -> list[dict[str, Any]]:
    """The chart's manifests with the values of a file, as Helm renders them."""
    command = [HELM, "template", name, CHART, "--namespace", name, "--values", VALUES / f"{values}.yaml", *more]
    done = subprocess.run(command, capture_output=True, text=True)  # noqa: S603
    if done.returncode:
        raise RuntimeError(done.stderr)
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def kustomize_files() -> dict[Path, str]:
    """What belongs into deploy/kustomize, by path."""
    folder, config = ROOT / "deploy/kustomize", f"{_NAME}-config"
    base = rendered("cpu-small", "--set", f"existingSecret={config}")
    scaling = [each for each in rendered("gpu-spot") if each["kind"] in _SCALING]
    settings = yaml.safe_load((VALUES / "cpu-small.yaml").read_text(encoding="utf-8"))["config"]
    return {
        folder / "base/manifests.yaml": _text(base),
        folder / "base/twoshift.toml": settings,
        folder / "gpu-spot/scaling.yaml": _text(scaling),
    }


def _text(manifests: list[dict[str, Any]]) -> str:
    return _ABOUT + yaml.dump_all(
        [_without_helm(each) for each in manifests], Dumper=_Dumper, sort_keys=False, width=120
    )


class _Dumper(yaml.SafeDumper):
    """Texts as YAML has them: hera changes how all others write them, once it is imported."""


_Dumper.add_representer(str, yaml.representer.SafeRepresenter.represent_str)


def _without_helm(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_helm(each) for key, each in value.items() if key not in _OF_HELM}
    return [_without_helm(each) for each in value] if isinstance(value, list) else value


if __name__ == "__main__":
    for path, text in kustomize_files().items():
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(ROOT))
