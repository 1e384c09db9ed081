#!/bin/sh
# install.sh PREFIX EXTRAS [PACKAGES]: Twoshift with these extras in an environment of its own, from the folder that has
# pyproject.toml. The Dockerfiles and tests/unit/deploy/test_images.py run it. PACKAGES: more of PyPI, such as "vllm".
set -eu
prefix=$1 extras=$2 packages=${3:-}
"${PYTHON:-python3}" -m venv "$prefix"
# shellcheck disable=SC2086  # several packages are several words
"$prefix/bin/python" -m pip install --no-cache-dir --disable-pip-version-check --quiet -c constraints.txt ".[$extras]" $packages
install -m 644 deploy/images/healthcheck.py "$prefix/healthcheck.py"
"$prefix/bin/twoshift" --version
