"""How a model is loaded, wherever it is: settings that commands, jobs and servers share."""

from __future__ import annotations

from typing import Annotated

from twoshift.declare import setting
from twoshift.values import FLAG, text, whole

__all__ = ["Device", "Precision", "RegistryLocation", "Threads", "TrustPickle"]

Device = Annotated[str, setting("Device to run the model on: auto, cpu, cuda or cuda:N.", text("NAME"))]
Precision = Annotated[
    str | None, setting("Precision to run the model in: fp32, bf16 or int8.", text("NAME"), shown="the model's own")
]
Threads = Annotated[
    int | None,
    setting(
        "Number of CPU threads per forward call.",
        whole(most=4096),
        shown="all usable cores, or fewer if that is faster",
    ),
]
TrustPickle = Annotated[
    bool,
    setting(
        "Allow pickle and joblib model files. Such files can run any code: load only files that you trust.",
        FLAG,
        "--trust-pickle",
    ),
]
RegistryLocation = Annotated[
    str | None,
    setting(
        "Registry with the model's versions: a folder or an s3:// prefix.",
        text("LOCATION"),
        "--registry",
        shown="TWOSHIFT_REGISTRY, or a folder in TWOSHIFT_HOME",
    ),
]
