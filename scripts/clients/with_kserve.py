"""KServe's client: both protocols over REST."""

import asyncio

from checks import URL, check, expect, version
from kserve import InferenceRESTClient, InferInput, InferRequest
from kserve.inference_client import RESTConfig

version("kserve")


@check("protocol v1: ready and predict")
def _() -> None:
    async def run() -> dict:
        client = InferenceRESTClient(RESTConfig(protocol="v1", timeout=60))
        expect(await client.is_server_live(URL), "not live")
        expect(await client.is_model_ready(URL, "table"), "not ready")
        return await client.infer(URL, {"instances": [[1, 2], {"a": 3, "b": 4}]}, model_name="table")

    found = asyncio.run(run())
    expect(found == {"predictions": [3.0, 7.0]}, found)


@check("protocol v2: ready and infer")
def _() -> None:
    async def run() -> list:
        client = InferenceRESTClient(RESTConfig(protocol="v2", timeout=60))
        expect(await client.is_server_ready(URL) and await client.is_model_ready(URL, "minilm"), "not ready")
        text = InferInput("text", [2], "BYTES", data=["a red fox", "an old road"])
        return (await client.infer(URL, InferRequest("minilm", [text]), model_name="minilm")).outputs[0].shape

    found = asyncio.run(run())
    expect(found == [2, 384], found)
