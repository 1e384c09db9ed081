"""The wheel and the source archive, installed and run outside the checkout."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import urllib.request
import venv
import zipfile
from pathlib import Path

import pytest
from programs import environment

from twoshift import __version__
from twoshift.quickstart import FILES

pytest.importorskip("build", reason="the dev extra is not installed")
for needs in ("httptools", "sqlalchemy", "pyarrow"):
    pytest.importorskip(needs)
pytestmark = pytest.mark.slow

_ROOT = Path(__file__).parents[2]
_FILES = ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "MANIFEST.in")
_MODEL = """
class Doubled:
    example = {"x": 1.0}

    def load(self):
        pass

    def predict(self, batch):
        return {"y": 2 * batch["x"]}
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source archive, and the wheel that was made of it: of a copy, since a build writes into it."""
    copy = tmp_path_factory.mktemp("checkout")
    for name in _FILES:
        shutil.copy(_ROOT / name, copy / name)
    shutil.copytree(_ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "-o", "dist"], cwd=copy, check=True, capture_output=True
    )
    return copy / "dist"


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel, over the packages that the tests have."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    (wheel,) = built.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--disable-pip-version-check", str(wheel)], check=True, capture_output=True)
    (own,) = folder.glob("lib/python*/site-packages")
    others = [each for each in sys.path if each.endswith("site-packages")]
    (own / "others.pth").write_text("".join(f"{each}\n" for each in others))  # as they are, without what those add
    return folder


@pytest.fixture
def outside(installed: Path, tmp_path: Path) -> Path:
    """A folder of a user's, with a model and some rows."""
    (tmp_path / "m.py").write_text(_MODEL)
    (tmp_path / "in.jsonl").write_text("".join(f'{{"x": {x}}}\n' for x in range(5)))
    where = [installed / "bin" / "python", "-c", "import twoshift; print(twoshift.__file__)"]
    found = subprocess.run(where, cwd=tmp_path, env=_environment(tmp_path), capture_output=True, text=True, check=True)
    assert Path(found.stdout.strip()).is_relative_to(installed)
    return tmp_path


def _environment(folder: Path) -> dict[str, str]:
    return {name: value for name, value in environment(folder / "home").items() if name != "PYTHONPATH"}


def test_the_archives_have_every_file_of_the_source_and_one_version(built: Path) -> None:
    (wheel,), (source,) = built.glob("*.whl"), built.glob("*.tar.gz")
    assert wheel.name.startswith(f"twoshift-{__version__}-")
    assert source.name == f"twoshift-{__version__}.tar.gz"
    names = set(zipfile.ZipFile(wheel).namelist())
    expected = {str(path.relative_to(_ROOT / "src")) for path in (_ROOT / "src" / "twoshift").rglob("*.py")}
    assert expected | {"twoshift/py.typed", *(f"twoshift/quickstart/{name}" for name in FILES)} <= names
    with tarfile.open(source) as archive:
        assert f"twoshift-{__version__}/CHANGELOG.md" in archive.getnames()


def test_the_changelog_begins_with_this_version() -> None:
    found = re.search(r"^## (\S+)", (_ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert found
    assert found[1] == __version__


def test_the_program_says_its_version(installed: Path, outside: Path) -> None:
    done = subprocess.run(
        [installed / "bin" / "twoshift", "--version"],
        cwd=outside,
        env=_environment(outside),
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, f"twoshift {__version__}\n")


def test_a_hint_names_the_wheel_that_is_installed(built: Path, installed: Path, outside: Path) -> None:
    code = "from twoshift.extras import install_command; print(install_command('serve', ['httptools']))"
    asked = [installed / "bin" / "python", "-c", code]
    said = subprocess.run(asked, cwd=outside, env=_environment(outside), capture_output=True, text=True, check=True)
    (wheel,) = built.glob("*.whl")
    assert shlex.split(said.stdout) == ["pip", "install", f"{wheel}[serve]"]


def test_a_job_runs(installed: Path, outside: Path) -> None:
    words = ["run", "in.jsonl", "--model", "m.py:Doubled", "--columns", "x", "-o", "out", "--output-format", "jsonl"]
    done = subprocess.run(
        [installed / "bin" / "twoshift", *words], cwd=outside, env=_environment(outside), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert (outside / "out" / "_SUCCESS").exists()


def test_a_server_answers(installed: Path, outside: Path) -> None:
    words = [installed / "bin" / "twoshift", "serve", "m.py:Doubled", "--slo-ms", "60000", "--port", "0"]
    with subprocess.Popen(words, cwd=outside, env=_environment(outside), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = ""
        try:
            for line in process.stderr:
                said += line
                if found := re.match(r"Ready at (\S+)", line):
                    asked = urllib.request.Request(f"{found[1]}/v1/score/Doubled", b'{"rows": [{"x": 4}]}')  # noqa: S310
                    with urllib.request.urlopen(asked, timeout=120) as reply:  # noqa: S310
                        assert b"8" in reply.read()
                    process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0, said
        finally:
            process.kill()
    assert "Ready at" in said
