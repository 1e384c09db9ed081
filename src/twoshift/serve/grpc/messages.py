"""The protocol's messages, made here in a pool of their own.

Generated code would put them into the process's default pool, where a client's code has put the same names already.
The table has the fields that are read or written; protobuf skips the others.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

__all__ = ["SERVICE", "message"]

SERVICE = "inference.GRPCInferenceService"
_PACKAGE = "inference"

# A message: its fields as `type name number`; `*` is repeated, `%` a map from strings, `|` one of several.
_MESSAGES = """
ServerLiveRequest:
ServerLiveResponse: bool live 1
ServerReadyRequest:
ServerReadyResponse: bool ready 1
ModelReadyRequest: string name 1, string version 2
ModelReadyResponse: bool ready 1
ServerMetadataRequest:
ServerMetadataResponse: string name 1, string version 2, string* extensions 3
ModelMetadataRequest: string name 1, string version 2
TensorMetadata: string name 1, string datatype 2, int64* shape 3
ModelMetadataResponse: string name 1, string* versions 2, string platform 3, TensorMetadata* inputs 4,
  TensorMetadata* outputs 5

InferParameter: bool| bool_param 1, int64| int64_param 2, string| string_param 3, double| double_param 4,
  uint64| uint64_param 5
InferTensorContents: bool* bool_contents 1, int32* int_contents 2, int64* int64_contents 3, uint32* uint_contents 4,
  uint64* uint64_contents 5, float* fp32_contents 6, double* fp64_contents 7, bytes* bytes_contents 8
InferInputTensor: string name 1, string datatype 2, int64* shape 3, InferParameter% parameters 4,
  InferTensorContents contents 5
InferRequestedOutputTensor: string name 1, InferParameter% parameters 2
ModelInferRequest: string model_name 1, string model_version 2, string id 3, InferParameter% parameters 4,
  InferInputTensor* inputs 5, InferRequestedOutputTensor* outputs 6, bytes* raw_input_contents 7
InferOutputTensor: string name 1, string datatype 2, int64* shape 3
ModelInferResponse: string model_name 1, string model_version 2, string id 3, InferParameter% parameters 4,
  InferOutputTensor* outputs 5, bytes* raw_output_contents 6
ModelStreamInferResponse: string error_message 1, ModelInferResponse infer_response 2

Latest: uint32 num_versions 1
ModelVersionPolicy: Latest latest 1
ModelInput: string name 1, DataType data_type 2, int64* dims 4
ModelOutput: string name 1, DataType data_type 2, int64* dims 3
ModelInstanceGroup: string name 1, int32 count 2, Kind kind 4
ModelQueuePolicy: uint64 default_timeout_microseconds 2, bool allow_timeout_override 3, uint32 max_queue_size 4
ModelDynamicBatching: uint64 max_queue_delay_microseconds 2, ModelQueuePolicy default_queue_policy 6
ModelParameter: string string_value 1
ModelConfig: string name 1, string platform 2, ModelVersionPolicy version_policy 3, int32 max_batch_size 4,
  ModelInput* input 5, ModelOutput* output 6, ModelInstanceGroup* instance_group 7,
  ModelDynamicBatching dynamic_batching 11, ModelParameter% parameters 14, string backend 17
ModelConfigRequest: string name 1, string version 2
ModelConfigResponse: ModelConfig config 1

StatisticDuration: uint64 count 1, uint64 ns 2
InferStatistics: StatisticDuration success 1, StatisticDuration fail 2, StatisticDuration queue 3,
  StatisticDuration compute_input 4, StatisticDuration compute_infer 5, StatisticDuration compute_output 6
ModelStatistics: string name 1, string version 2, uint64 inference_count 4, uint64 execution_count 5,
  InferStatistics inference_stats 6
ModelStatisticsRequest: string name 1, string version 2
ModelStatisticsResponse: ModelStatistics* model_stats 1

ModelIndex: string name 1, string version 2, string state 3, string reason 4
RepositoryIndexRequest: string repository_name 1, bool ready 2
RepositoryIndexResponse: ModelIndex* models 1
ModelRepositoryParameter: string| string_param 3
RepositoryModelLoadRequest: string repository_name 1, string model_name 2, ModelRepositoryParameter% parameters 3
RepositoryModelLoadResponse:
RepositoryModelUnloadRequest: string repository_name 1, string model_name 2
RepositoryModelUnloadResponse:
"""
_ENUMS = {
    "DataType": [
        "TYPE_INVALID", "TYPE_BOOL", "TYPE_UINT8", "TYPE_UINT16", "TYPE_UINT32", "TYPE_UINT64", "TYPE_INT8",
        "TYPE_INT16", "TYPE_INT32", "TYPE_INT64", "TYPE_FP16", "TYPE_FP32", "TYPE_FP64", "TYPE_STRING", "TYPE_BF16",
    ],
    "Kind": ["KIND_AUTO", "KIND_GPU", "KIND_CPU", "KIND_MODEL"],
}  # fmt: skip
_Field = descriptor_pb2.FieldDescriptorProto


def _file() -> descriptor_pb2.FileDescriptorProto:
    made = descriptor_pb2.FileDescriptorProto(name="twoshift_inference.proto", package=_PACKAGE, syntax="proto3")
    for name, values in _ENUMS.items():
        enum = made.enum_type.add(name=name)
        for number, value in enumerate(values):
            enum.value.add(name=value, number=number)
    for line in _MESSAGES.replace("\n  ", " ").split("\n"):
        name, _, fields = line.partition(":")
        if name:
            described = made.message_type.add(name=name)
            for field in filter(None, fields.split(",")):
                _add_field(described, *field.split())
    return made


def _add_field(described: descriptor_pb2.DescriptorProto, kind: str, name: str, number: str) -> None:
    field = described.field.add(name=name, number=int(number), label=_Field.LABEL_OPTIONAL)
    if kind.endswith("%"):
        entry = described.nested_type.add(name=f"{name.title()}Entry")
        entry.options.map_entry = True
        _add_field(entry, "string", "key", "1")
        _add_field(entry, kind[:-1], "value", "2")
        kind = f"{described.name}.{entry.name}*"
    if kind.endswith("*"):
        field.label = _Field.LABEL_REPEATED
    if kind.endswith("|"):
        if not described.oneof_decl:
            described.oneof_decl.add(name="choice")
        field.oneof_index = 0
    _set_type(field, kind.rstrip("*|"))


def _set_type(field: _Field, kind: str) -> None:
    if kind.islower():
        field.type = _Field.Type.Value(f"TYPE_{kind.upper()}")
    else:
        field.type = _Field.TYPE_ENUM if kind in _ENUMS else _Field.TYPE_MESSAGE
        field.type_name = f".{_PACKAGE}.{kind}"


_pool = descriptor_pool.DescriptorPool()
_pool.Add(_file())


def message(name: str) -> Any:
    """The class of a message."""
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
