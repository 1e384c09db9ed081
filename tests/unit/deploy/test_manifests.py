"""What is deployed: manifests that Kubernetes takes, with commands that the program takes."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import kserve_types
import pytest
from metric_names import asked_metrics, exported_metrics, expressions, llm_metric_names, stream_metrics
from program_words import parsed

from twoshift.batch.piece_settings import piece_of
from twoshift.errors import InvalidInput
from twoshift.units import parse_duration

yaml = pytest.importorskip("yaml")
kubernetes_validate = pytest.importorskip("kubernetes_validate")

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"
KUBERNETES = "1.32"
SETS = ("cpu-small", "gpu-spot", "llm")
FILES = sorted(path for folder in ("jobs", "kserve", "ray") for path in (DEPLOY / folder).glob("*.yaml"))
ON_RAY = ("RayJob", "RayService")
CRDS = os.environ.get("TWOSHIFT_CRDS")  # a folder with the CustomResourceDefinitions of a cluster
Manifest = dict[str, Any]


def _script() -> Any:
    spec = importlib.util.spec_from_file_location("write_manifests", ROOT / "scripts/write_manifests.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCRIPT = _script()


@cache
def rendered(values: str) -> list[Manifest]:
    if not SCRIPT.HELM.is_file():
        pytest.skip("the package helm-binary is not installed")
    return SCRIPT.rendered(values)


def manifests(source: str) -> list[Manifest]:
    """Of a set of values, or of a file."""
    if source in SETS:
        return rendered(source)
    return list(yaml.safe_load_all((DEPLOY / source).read_text(encoding="utf-8")))


def pod_specs(value: Any) -> Iterator[Manifest]:
    """Every pod in a manifest, whatever its kind: what has containers."""
    if isinstance(value, dict):
        if "containers" in value:
            yield {"containers": value["containers"], "volumes": value.get("volumes", [])}
        if "container" in value:  # of Argo, which names it itself
            yield {"containers": [{"name": "main", **value["container"]}]}
        for each in value.values():
            yield from pod_specs(each)
    elif isinstance(value, list):
        for each in value:
            yield from pod_specs(each)


SOURCES = (*SETS, *(str(path.relative_to(DEPLOY)) for path in FILES))
OF_OTHERS = (
    "ScaledObject",
    "ServiceMonitor",
    "PrometheusRule",
    "ServingRuntime",
    "InferenceService",
    "WorkflowTemplate",
    "RayJob",
    "RayService",
)


@pytest.mark.parametrize("source", SOURCES)
def test_kubernetes_takes_every_manifest_and_every_pod_of_other_kinds(source: str) -> None:
    for each in manifests(source):
        if each["kind"] not in OF_OTHERS:
            kubernetes_validate.validate(each, KUBERNETES, strict=True)
        for spec in pod_specs(each):
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec}
            kubernetes_validate.validate(pod, KUBERNETES, strict=True)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("replica=2", "replica"),
        ("keda.maxReplica=2", "maxReplica"),
        ("ports.http=http", "ports"),
    ],
)
def test_helm_refuses_a_value_that_the_chart_does_not_have(given: str, told: str) -> None:
    rendered("cpu-small")  # skips where there is no Helm
    with pytest.raises(RuntimeError, match=rf"values don't meet the specifications(?s:.)*{told}"):
        SCRIPT.rendered("cpu-small", "--set", given)


def test_an_unknown_field_is_found() -> None:
    (deployment,) = (each for each in rendered("llm") if each["kind"] == "Deployment")
    deployment = json.loads(json.dumps(deployment))
    deployment["spec"]["template"]["spec"]["containers"][0]["livenessprobe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, KUBERNETES, strict=True)


def _keeps(model: Any, manifest: Manifest) -> None:
    """The class that was generated from the definition knows each field."""
    kept = model.model_validate(manifest).model_dump(by_alias=True, exclude_unset=True, mode="json")
    assert kept["spec"] == manifest["spec"]


@pytest.mark.slow
def test_keda_and_the_prometheus_operator_take_their_manifests() -> None:
    keda = pytest.importorskip("cloudcoil.models.keda.v1alpha1")
    operator = pytest.importorskip("cloudcoil.models.prometheus_operator.v1")
    kinds = {
        "ScaledObject": keda.ScaledObject,
        "ServiceMonitor": operator.ServiceMonitor,
        "PrometheusRule": operator.PrometheusRule,
    }
    found = [each for name in SETS for each in rendered(name) if each["kind"] in kinds]
    assert {each["kind"] for each in found} == set(kinds)
    for each in found:
        _keeps(kinds[each["kind"]], each)


@pytest.mark.slow
def test_argo_takes_its_template() -> None:
    argo = pytest.importorskip("hera.workflows.models")
    (template,) = manifests("jobs/workflow-template.yaml")
    _keeps(argo.WorkflowTemplate, template)


@pytest.mark.skipif(not kserve_types.is_installed(), reason="the package kserve is not installed")
def test_kserve_takes_its_runtimes_and_its_service() -> None:
    kinds = {"ServingRuntime": "V1alpha1ServingRuntime", "InferenceService": "V1beta1InferenceService"}
    found = [each for path in (DEPLOY / "kserve").glob("*.yaml") for each in manifests(f"kserve/{path.name}")]
    assert {each["kind"] for each in found} == set(kinds)
    for each in found:
        assert kserve_types.unknown_fields(kinds[each["kind"]], each) == []
    found[0]["spec"]["modelformats"] = {}
    assert kserve_types.unknown_fields(kinds[found[0]["kind"]], found[0]) == [".spec.modelformats"]


def _strict(schema: Any) -> Any:
    """As `kubectl apply --validate=strict` reads it: no unknown field, and numbers or texts where both may be."""
    if isinstance(schema, list):
        return [_strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    read = {key: _strict(each) for key, each in schema.items()}
    if "x-kubernetes-int-or-string" in read:
        return {"type": ["integer", "string"]}
    if isinstance(read.get("properties"), dict) and not read.get("x-kubernetes-preserve-unknown-fields"):
        read.setdefault("additionalProperties", False)
    return read


def _definitions() -> dict[tuple[str, str], Any]:
    found: dict[tuple[str, str], Any] = {}
    for path in Path(CRDS or "").glob("*.yaml"):
        for each in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            spec = each["spec"]
            for version in spec["versions"]:
                name = f"{spec['group']}/{version['name']}", spec["names"]["kind"]
                found[name] = version["schema"]["openAPIV3Schema"]
    return found


@pytest.mark.skipif(not CRDS, reason="TWOSHIFT_CRDS names no folder with CustomResourceDefinitions")
def test_the_definitions_of_a_cluster_take_the_manifests() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    definitions, checked = _definitions(), set[str]()
    for each in (each for source in SOURCES for each in manifests(source) if each["kind"] in OF_OTHERS):
        schema = _strict(definitions[each["apiVersion"], each["kind"]])
        schema["properties"]["metadata"] = {"type": "object"}
        jsonschema.Draft202012Validator(schema).validate(each)
        checked.add(each["kind"])
    assert checked == set(OF_OTHERS)


def config_of(values: str) -> str:
    for each in rendered(values):
        if each["kind"] == "Secret":
            return each["stringData"]["twoshift.toml"]
    return (DEPLOY / f"helm/values/{values}.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize("values", SETS)
def test_a_server_takes_its_arguments_and_ends_inside_the_grace_period(
    values: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (deployment,) = (each for each in rendered(values) if each["kind"] == "Deployment")
    spec = deployment["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    file = tmp_path / "twoshift.toml"
    file.write_text(config_of(values), encoding="utf-8")
    words = [each.replace("/etc/twoshift/twoshift.toml", str(file)) for each in container["args"]]
    settings = parsed(words, monkeypatch)
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert (settings.host, settings.port, settings.grpc_port) == ("0.0.0.0", ports["http"], ports.get("grpc"))  # noqa: S104
    needed_s = container["lifecycle"]["preStop"]["sleep"]["seconds"] + settings.grace_s
    assert spec["terminationGracePeriodSeconds"] > needed_s
    startup = container["startupProbe"]
    longest_s = max(parse_duration(each.load_timeout, "load_timeout") for each in settings.models.values())
    assert startup["periodSeconds"] * startup["failureThreshold"] > longest_s


def test_every_piece_of_an_indexed_job_has_a_pod_and_every_pod_a_piece() -> None:
    (job,) = manifests("jobs/indexed-job.yaml")
    args = job["spec"]["template"]["spec"]["containers"][0]["args"]
    words = [word.replace("$(JOB_COMPLETION_INDEX)", str(job["spec"]["completions"] - 1)) for word in args]
    piece, pieces = piece_of(words[words.index("--piece") + 1])
    assert (piece + 1, job["spec"]["completionMode"]) == (pieces, "Indexed")


def test_a_ray_service_has_a_server_that_takes_its_arguments_and_a_place_for_it() -> None:
    pytest.importorskip("uvloop")
    from twoshift import ray_app

    service, door = manifests("ray/ray-service.yaml")
    (app,) = yaml.safe_load(service["spec"]["serveConfigV2"])["applications"]
    assert app["import_path"] == f"{ray_app.__name__}:{ray_app.server.__name__}"
    settings = ray_app.settings_of_app(app["args"])
    assert (settings.engine, settings.address, settings.host) == ("ray", "auto", "0.0.0.0")  # noqa: S104
    head = service["spec"]["rayClusterConfig"]["headGroupSpec"]
    (placed,) = app["deployments"]
    room = json.loads(json.loads(head["rayStartParams"]["resources"]))
    assert placed["ray_actor_options"]["resources"].items() <= room.items()
    ports = {each["name"]: each["containerPort"] for each in head["template"]["spec"]["containers"][0]["ports"]}
    assert (ports["serve"], door["spec"]["ports"][0]["targetPort"]) == (settings.port, "serve")
    assert head["template"]["metadata"]["labels"].items() <= door["spec"]["selector"].items()


@pytest.mark.parametrize("args", [{"engine": "local"}, {"config": "no-such.toml"}, {"modles": {}}])
def test_a_ray_service_that_cannot_start_is_refused_before_it_has_an_actor(args: Manifest) -> None:
    pytest.importorskip("uvloop")
    from twoshift import ray_app

    with pytest.raises(InvalidInput):
        ray_app.server(args)


def test_tls_is_of_the_server_its_probes_its_service_and_its_scrapes() -> None:
    found = {each["kind"]: each for each in rendered("llm")}
    spec = found["Deployment"]["spec"]["template"]["spec"]
    (container,), volumes = spec["containers"], {each["name"]: each for each in spec["volumes"]}
    folder = next(each["mountPath"] for each in container["volumeMounts"] if each["name"] == "tls")
    assert [f"--tls-cert {folder}/tls.crt" in (words := " ".join(container["args"])), folder in words] == [True, True]
    assert volumes["tls"]["secret"]["secretName"] == "chat-tls"
    probes = [container[f"{name}Probe"]["httpGet"]["scheme"] for name in ("startup", "liveness", "readiness")]
    assert set(probes) == {"HTTPS"}
    assert [port["appProtocol"] for port in found["Service"]["spec"]["ports"]] == ["https"]
    scrape = found["ServiceMonitor"]["spec"]["endpoints"][0]
    assert (scrape["scheme"], scrape["tlsConfig"]["serverName"]) == ("https", "twoshift.twoshift.svc")


def argo_words(spec: Manifest) -> Iterator[str]:
    given = {f"{{{{workflow.parameters.{each['name']}}}}}": each["value"] for each in spec["arguments"]["parameters"]}
    for word in spec["templates"][0]["container"]["args"]:
        yield given.get(word, word)


def commands() -> Iterator[tuple[str, list[str]]]:
    for path in FILES:
        for each in manifests(str(path.relative_to(DEPLOY))):
            named = f"{path.name} {each['metadata']['name']}"
            if each["kind"] == "RayJob":
                yield named, shlex.split(each["spec"]["entrypoint"])[1:]
            elif each["kind"] == "RayService":
                continue
            elif each["kind"] == "WorkflowTemplate":
                yield named, list(argo_words(each["spec"]))
            else:
                for spec in pod_specs(each):
                    yield named, [_filled(one) for one in spec["containers"][0]["args"]]


def _filled(word: str) -> str:
    """As KServe and Kubernetes fill in what is set for each pod."""
    return word.replace("{{.Name}}", "search").replace("$(JOB_COMPLETION_INDEX)", "15")


@pytest.mark.parametrize(("named", "words"), list(commands()), ids=[name for name, _ in commands()])
def test_the_program_takes_the_commands_of_jobs_and_of_kserve(
    named: str, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = parsed(words, monkeypatch)
    if words[0] == "serve":
        assert (settings.port, list(settings.models)) == (8080, ["search"])
        assert settings.models["search"].model.startswith("/mnt/models")
    else:
        assert settings.output == "s3://corpus/embedded"


@pytest.mark.slow
def test_a_real_server_answers_the_probes_and_exports_the_metrics_that_scale_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("prometheus_client", "httptools", "uvloop", "pyarrow", "sqlalchemy"):
        pytest.importorskip(name)
    from twoshift import Server

    monkeypatch.setenv("TWOSHIFT_HOME", str(tmp_path))
    shown = [each for source in SOURCES for each in manifests(source)]
    probes = set(re.findall(r'"path": "(/[^"]+)", "port"', json.dumps(shown)))
    assert probes == {"/healthz", "/readyz", "/v2/health/ready", "/v2/health/live"}
    with Server(f"{ROOT}/examples/sentiment.py:Sentiment", slo_ms=50, port=0) as server:
        for probe in probes:
            with urllib.request.urlopen(server.address + probe) as reply:  # noqa: S310
                assert reply.status == 200
        with urllib.request.urlopen(server.address + "/metrics") as reply:  # noqa: S310
            exported = exported_metrics(reply.read().decode()) | llm_metric_names() | stream_metrics()
    assert 'lane="online"' in json.dumps(manifests("llm")).replace("\\", "")
    asked = asked_metrics(expressions(shown))
    assert len(asked) > 30
    assert asked.keys() <= exported.keys()
    for name, labels in asked.items():
        assert labels <= exported[name] or not exported[name], name


def test_no_pod_writes_to_its_root_or_has_capabilities() -> None:
    seen = 0
    for each in (each for source in SOURCES for each in manifests(source) if each["kind"] not in ON_RAY):
        for spec in pod_specs(each):
            seen += 1
            context = spec["containers"][0]["securityContext"]
            assert context["readOnlyRootFilesystem"]
            assert context["capabilities"] == {"drop": ["ALL"]}
    assert seen == len(SETS) + 7


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("keda.minReplicas=0", "use 1 or more"),
        ("keda.cooldownSeconds=30", "use 120 or more"),
        ("priorityClasses.create=false", "batchQuota counts pods by PriorityClass"),
    ],
)
def test_values_that_cannot_work_are_refused_with_what_to_change(option: str, said: str) -> None:
    rendered("gpu-spot")
    with pytest.raises(RuntimeError, match=said):
        SCRIPT.rendered("gpu-spot", "--set", option)


def test_the_kustomize_files_are_those_of_the_chart() -> None:
    rendered("cpu-small")
    for path, text in SCRIPT.kustomize_files().items():
        assert path.read_text(encoding="utf-8") == text, f"run {Path(sys.executable).name} scripts/write_manifests.py"


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kustomize_builds_the_base_and_the_overlay() -> None:
    built = subprocess.run(["kubectl", "kustomize", DEPLOY / "kustomize/gpu-spot"], capture_output=True, check=True)
    found = {each["kind"]: each for each in yaml.safe_load_all(built.stdout)}
    for kind, each in found.items():
        if kind not in OF_OTHERS:
            kubernetes_validate.validate(each, KUBERNETES, strict=True)
    spec = found["Deployment"]["spec"]["template"]["spec"]
    assert spec["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert spec["volumes"][0]["secret"]["secretName"] == found["Secret"]["metadata"]["name"]
