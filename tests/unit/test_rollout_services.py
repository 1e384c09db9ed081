"""What a running server does with a configuration file that has changed."""

from __future__ import annotations

from concurrent.futures import Future

from twoshift.rollout_services import FileChanges
from twoshift.serve.deployments import Deployment, Deployments, DeploymentState
from twoshift.serve.model_settings import ModelSettings
from twoshift.serve.settings import ServeSettings


def test_a_model_that_failed_to_load_is_loaded_once_the_file_names_another_one() -> None:
    settings = ServeSettings(models={"m": ModelSettings(model="m:77")})
    models, loaded, told = Deployments(), list[str](), list[str]()
    deployment = models.add(Deployment("m"))

    def load(name: str) -> Future[None]:
        loaded.append(settings.models[name].model)
        return Future()

    changes = FileChanges(settings, models, lambda: None, load, told.append)
    models.move(deployment, DeploymentState.FAILED, "expected a version of m: 1, 2")
    changes.apply(lambda: ServeSettings(models={"m": ModelSettings(model="m:77")}))
    assert (loaded, told) == ([], [])
    changes.apply(lambda: ServeSettings(models={"m": ModelSettings(model="m:2")}))
    assert (loaded, told) == (["m:2"], [])
