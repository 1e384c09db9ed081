"""What a model folder or file is, where it is none that runs here: said by name, with what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from twoshift.errors import UnusableModel
from twoshift.runtime.encoder.fields import Fields, decoded

__all__ = ["check_file", "check_folder"]

_OWN = "wrap the model in your own Python class: file.py:Class"
_HEADS = (
    ("ForTokenClassification", f"labels tokens (named entities); {_OWN}"),
    ("ForQuestionAnswering", f"finds answers in a passage; {_OWN}"),
    ("ForMultipleChoice", f"chooses among answers; {_OWN}"),
    ("ForNextSentencePrediction", f"predicts whether two sentences follow each other; {_OWN}"),
    ("ForConditionalGeneration", f"generates text from text; {_OWN}, or save its encoder alone as an embedding model"),
    ("ForSpeechSeq2Seq", f"transcribes speech; {_OWN}"),
    ("ForCTC", f"transcribes speech; {_OWN}"),
    ("ForAudioClassification", f"labels sounds; {_OWN}"),
    ("ForImageClassification", f"labels images; export it to ONNX and use the .onnx file, or {_OWN}"),
    ("ForObjectDetection", f"finds objects in images; {_OWN}"),
    ("ColBERT", f"embeds every token (late interaction); {_OWN}"),
)
_TEXT_AND_IMAGES = ("clip", "siglip", "siglip2", "align", "blip", "chinese_clip", "altclip", "clipseg")
_IMAGES = ("vit", "deit", "beit", "swin", "swinv2", "convnext", "convnextv2", "resnet", "dinov2", "dinov3_vit")
_SPARSE = ("SpladePooling", "SparseAutoEncoder", "SparseStaticEmbedding", "MLMTransformer")


def check_folder(path: Path) -> None:
    """Raise UnusableModel where the folder holds something that is no text encoder; what it holds decides."""
    for is_one, told in _FOLDERS:
        if (found := is_one(path)) is not None:
            raise UnusableModel("model", str(path), told.format(found, path=path))


def check_file(path: Path) -> None:
    """Raise UnusableModel where the file's kind is known and does not run here."""
    if (told := _FILES.get(path.suffix.lower())) is not None:
        raise UnusableModel("model", str(path), told.format(path=path, folder=path.absolute().parent))


def _adapter(path: Path) -> str | None:
    if not (path / "adapter_config.json").is_file() or (path / "model.safetensors").is_file():
        return None
    return Fields.read(path / "adapter_config.json").text("base_model_name_or_path") or "its base model"


def _saved_model(path: Path) -> str | None:
    return "" if (path / "saved_model.pb").is_file() else None


def _sparse(path: Path) -> str | None:
    kinds = _module_kinds(path)
    return next((kind for kind in kinds if kind in _SPARSE), _saved_as(path, "SparseEncoder"))


def _late(path: Path) -> str | None:
    own = Fields.read_if_there(path / "config_sentence_transformers.json")
    return "maxsim" if own.text("similarity_fn_name").lower() == "maxsim" else _saved_as(path, "MultiVectorEncoder")


def _saved_as(path: Path, kind: str) -> str | None:
    own = Fields.read_if_there(path / "config_sentence_transformers.json")
    return kind if own.text("model_type") == kind else None


def _of_model_type(kinds: tuple[str, ...]) -> Callable[[Path], str | None]:
    def found(path: Path) -> str | None:
        named = Fields.read_if_there(path / "config.json").text("model_type")
        return named if named in kinds else None

    return found


def _headed(ending: str) -> Callable[[Path], str | None]:
    def found(path: Path) -> str | None:
        if "Pooling" in _module_kinds(path):  # saved to embed, whatever it was made from
            return None
        classes = Fields.read_if_there(path / "config.json").texts("architectures")
        return next((name for name in classes if name.endswith(ending)), None)

    return found


def _module_kinds(path: Path) -> list[str]:
    modules = path / "modules.json"
    listed = decoded(modules) if modules.is_file() else []
    each = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    return [Fields(modules, one).text("type").rpartition(".")[2] for one in each]


_FOLDERS: tuple[tuple[Callable[[Path], str | None], str], ...] = (
    (_adapter, "is an adapter (LoRA) for {}; merge it with peft's merge_and_unload() and save the merged model"),
    (_saved_model, "is a TensorFlow SavedModel; convert it: python -m tf2onnx.convert --saved-model {path} "
     "--output model.onnx"),
    (_sparse, ("is a sparse encoder ({}, such as SPLADE): its vectors have one number per word, which is not "
               "supported; ") + _OWN),
    (_late, "embeds every token ({}: late interaction); " + _OWN),
    (_of_model_type(_TEXT_AND_IMAGES), "embeds texts and images ({}); " + _OWN),
    (_of_model_type(_IMAGES), "is an image model ({}); export it to ONNX and use the .onnx file, or " + _OWN),
    *((_headed(ending), "({}) " + told) for ending, told in _HEADS),
)  # fmt: skip
_FILES = {
    ".gguf": "is a GGUF file, which llama.cpp reads; serve the file with llama-server and use that server as "
    "the model (http://host:port/v1#name), or use the model's Hugging Face folder",
    ".pt": "is a PyTorch pickle or a TorchScript program; use the folder that contains this file and config.json "
    "({folder}), export the model to ONNX, or " + _OWN,
    ".keras": "is a Keras model; export it: model.export('model.onnx', format='onnx')",
    ".pb": "is a TensorFlow graph; convert its SavedModel with tf2onnx to an .onnx file",
    ".tflite": "is a TensorFlow Lite model; convert it: python -m tf2onnx.convert --tflite {path} --output model.onnx",
    ".plan": "is a TensorRT engine for one kind of GPU and one version of TensorRT; use the original .onnx file",
    ".mlmodel": "is a Core ML model, which Apple's devices run; use the original model",
    ".pmml": "is a PMML file; save the model itself (.skops, .ubj, .onnx), or " + _OWN,
    ".safetensors": "contains only weights; use the folder with this file, config.json and tokenizer.json: {folder}",
}
_FILES |= dict.fromkeys((".pth", ".bin", ".ckpt", ".pt2"), _FILES[".pt"])
_FILES |= {".h5": _FILES[".keras"], ".hdf5": _FILES[".keras"], ".engine": _FILES[".plan"]}
_FILES |= {".trt": _FILES[".plan"], ".mlpackage": _FILES[".mlmodel"]}
