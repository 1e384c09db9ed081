"""Third-party clients against a real server, each in an environment of its own: `make clients`.

Environments are made once, under build/clients. A client that cannot be installed is left out with a word.
"""

from __future__ import annotations

import argparse
import re
import sys

from environments import CLIENTS, ROOT, Client, Left, Outcome
from serving import TwoshiftServer

_TABLE = re.compile(r"(<!-- table -->\n).*?(<!-- end -->)", re.DOTALL)
DOCS = ROOT / "docs" / "clients.md"


def main() -> int:
    """The exit code: 1 where a check has failed."""
    parser = argparse.ArgumentParser(prog="make clients", description=__doc__)
    parser.add_argument("names", nargs="*", help="only these clients (default: all)")
    parser.add_argument("--write", action="store_true", help="write the table into docs/clients.md")
    parser.add_argument("--list", action="store_true", help="print the clients and end")
    asked = parser.parse_args()
    wanted = _wanted(asked.names)
    if asked.list:
        print("\n".join(client.name for client in wanted))
        return 0
    with TwoshiftServer(ROOT / "build" / "clients" / "home") as server:
        print(f"== server at {server.url}", flush=True)
        outcomes = [_tried(client, server) for client in wanted]
    table = "\n".join(["| client | version | what was run | result |", "|---|---|---|---|", *map(_row, outcomes)])
    print(f"\n{table}")
    if asked.write:
        DOCS.write_text(_TABLE.sub(lambda found: f"{found[1]}\n{table}\n\n{found[2]}", DOCS.read_text()))
    return int(any(each.failed for each in outcomes))


def _wanted(names: list[str]) -> list[Client]:
    known = {client.name: client for client in CLIENTS}
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"unknown clients: {', '.join(unknown)}; known are {', '.join(known)}")
    return [known[name] for name in names] if names else list(CLIENTS)


def _tried(client: Client, server: TwoshiftServer) -> Outcome:
    print(f"== {client.name}", flush=True)
    try:
        outcome = client.run(server.environ)
    except Left as left:
        outcome = Outcome(client.name, "", left=str(left))
    for what in outcome.passed:
        print(f"  pass  {what}")
    for what, reason in outcome.failed.items():
        print(f"  FAIL  {what}: {reason}")
    if outcome.left:
        print(f"  left out: {outcome.left}")
    return outcome


def _row(outcome: Outcome) -> str:
    if outcome.left:
        return f"| {outcome.name} | | | left out: {_cell(outcome.left)} |"
    what = "; ".join([*outcome.passed, *outcome.failed])
    result = "; ".join(f"**fails**: {name}: {reason}" for name, reason in outcome.failed.items()) or "passes"
    return f"| {outcome.name} | {outcome.version} | {_cell(what)} | {_cell(result)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    sys.exit(main())
