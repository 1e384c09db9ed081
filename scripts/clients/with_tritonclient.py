"""Triton's clients over HTTP and gRPC."""

import numpy as np
import tritonclient.grpc
import tritonclient.http
from checks import GRPC, TEXTS, URL, check, expect, version

version("tritonclient")


def tried(module, address: str) -> None:
    client = module.InferenceServerClient(address)
    expect(client.is_server_ready() and client.is_model_ready("minilm"), "not ready")
    over_grpc = module is tritonclient.grpc
    more = {"as_json": True} if over_grpc else {}
    metadata = client.get_model_metadata("minilm", **more)
    config = client.get_model_config("minilm", **more)
    config = config["config"] if over_grpc else config
    for kind in ("input", "output"):
        shapes = [[-1, *map(int, each.get("dims", ()))] for each in config[kind]]
        expect([list(map(int, each["shape"])) for each in metadata[f"{kind}s"]] == shapes, (metadata, config))
    for shape in ((3,), (3, 1)):
        text = module.InferInput("text", shape, "BYTES")
        text.set_data_from_numpy(np.array([each.encode() for each in TEXTS], object).reshape(shape))
        found = client.infer("minilm", [text]).as_numpy("embedding")
        expect(found.shape == (3, 384) and np.allclose(found[0], found[2], atol=1e-5), found.shape)


@check("http: metadata, config and infer")
def _() -> None:
    tried(tritonclient.http, URL.removeprefix("http://"))


@check("grpc: metadata, config and infer")
def _() -> None:
    tried(tritonclient.grpc, GRPC)


@check("http: an unknown path raises an exception with a message")
def _() -> None:
    try:
        tritonclient.http.InferenceServerClient(URL.removeprefix("http://")).get_trace_settings()
    except tritonclient.http.InferenceServerException as error:
        expect("path" in str(error), error)
    else:
        raise AssertionError("it was found")
