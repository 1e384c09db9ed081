"""`plan ui`: the planner as a page in the browser, without a server of models."""

from __future__ import annotations

import webbrowser
from typing import Annotated

import typer

from twoshift.cli.commands import command
from twoshift.cli.output import note
from twoshift.cli.params import whole
from twoshift.cli.plan.app import app
from twoshift.cli.plan.curves import StoredCurves
from twoshift.errors import InvalidInput

__all__ = ["ui_command"]


@command(app, "ui", "twoshift plan ui")
def ui_command(
    port: Annotated[int, whole("Port on 127.0.0.1.", least=0, most=65535, shown="a free port")] = 0,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the address without opening a browser.")
    ] = False,
) -> None:
    """Open the planner in a browser: cost, knee, memory and roofline for a batch size, price, model and device."""
    from twoshift.ui.plan_server import PlanServer

    try:
        server = PlanServer(port, StoredCurves())
    except OSError as error:
        raise InvalidInput("port", port, f"another port; this port cannot be opened ({error.strerror})") from error
    with server:
        note(f"The planner is at {server.address}, for this machine only. Press Ctrl-C to stop the planner.")
        if not no_browser:
            webbrowser.open(server.address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            note("Stopped.")
