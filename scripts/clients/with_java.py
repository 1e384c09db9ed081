"""Java's HttpClient, with its defaults."""

import shutil
from pathlib import Path

from checks import URL, check, expect, ran

java = shutil.which("java")
if java is None:
    print("skip\tno java on this machine", flush=True)
    raise SystemExit
print(f"version\t{ran([java, '-version']).split()[2].strip(chr(34))}", flush=True)


@check("embeddings, twice over one connection")
def _() -> None:
    said = ran([java, str(Path(__file__).with_name("Client.java")), URL])
    expect(not said.strip(), said)
