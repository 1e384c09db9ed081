"""A server as an application of Ray Serve, for KubeRay's RayService: `import_path: twoshift.ray_app:server`.

The application is one actor with the server: its ports are those of the actor's node. The replicas of its models are
applications of their own, which the server deploys and scales, as `twoshift serve --engine ray` does.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from twoshift.errors import Broken, InvalidInput
from twoshift.extras import needed
from twoshift.serve.settings import ServeSettings, make_settings, read_settings
from twoshift.server import Server

__all__ = ["ServerActor", "server", "settings_of_app"]

_HEALTH_S, _CONNECT_S = 5.0, 2.0
_ANYWHERE = ("0.0.0.0", "::")  # noqa: S104


def server(args: dict[str, Any]) -> Any:
    """The application. `args` are keys of a server's configuration file, or `config`, its path, and keys over it."""
    settings_of_app(args)  # what cannot be used is said before an actor is there
    serve = needed("ray.serve", "ray", "ray_app", "engine")
    deployment = serve.deployment(
        ServerActor, name="twoshift", num_replicas=1, ray_actor_options={"num_cpus": 0},
        health_check_period_s=_HEALTH_S, graceful_shutdown_timeout_s=60.0,
    )  # fmt: skip
    return deployment.bind(args)


def settings_of_app(args: dict[str, Any]) -> ServeSettings:
    """Of a server on this cluster that all pods reach; raises InvalidInput."""
    given = {"host": "0.0.0.0", "engine": "ray", "address": "auto", **args}  # noqa: S104 - a pod's own address
    if given["engine"] != "ray":
        raise InvalidInput("engine", given["engine"], "ray, because Ray Serve runs this server and its replicas")
    config = given.pop("config", None)
    return make_settings(given) if config is None else read_settings(Path(str(config)), given)


class ServerActor:
    """Serves from its start to its end; Ray starts another one where it is not healthy."""

    def __init__(self, args: dict[str, Any]) -> None:
        self._server = Server(settings_of_app(args), note=lambda text: print(text, file=sys.stderr, flush=True))
        self._server.start()

    def check_health(self) -> None:
        """For Ray Serve; raises Broken."""
        host, port = self._server.settings.host, urlsplit(self._server.address).port
        try:
            socket.create_connection(("localhost" if host in _ANYWHERE else host, port or 0), _CONNECT_S).close()
        except OSError as error:
            raise Broken(f"the server at {self._server.address} does not answer ({error})") from error

    async def __call__(self, _request: Any) -> str:
        """Who comes through Ray Serve's own proxy is told where the server is."""
        return f"Send requests to {self._server.address}\n"

    def __del__(self) -> None:
        if (running := getattr(self, "_server", None)) is not None:
            running.close()
