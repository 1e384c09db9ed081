"""The economics: tables, caps, fleets, memory, roofline, regime. Pure arithmetic over a cost curve."""

from twoshift.policy.plan.cold_start import ColdStart, plan_cold_start
from twoshift.policy.plan.fleet import FleetAsk, FleetPlan, FleetRow, plan_fleet
from twoshift.policy.plan.memory import PRECISION_BYTES, KvShape, MemoryPlan, plan_memory
from twoshift.policy.plan.regime import Regime, RegimeAsk, RegimePlan, plan_regime
from twoshift.policy.plan.replicas import ReplicasAsk, ReplicasPlan, plan_replicas
from twoshift.policy.plan.roofline import DEVICES, Device, Roofline, call_work, plan_roofline
from twoshift.policy.plan.row import Curve, RowSize
from twoshift.policy.plan.table import (
    BATCH_LIMIT,
    SWEEP_BATCHES,
    Cap,
    CostRow,
    CostTable,
    Sweep,
    cap,
    cost_table,
    knee,
    largest_batch,
    sweep,
)
from twoshift.policy.plan.tokens import (
    QUANTISATION_SPEEDUP,
    Lever,
    LeverEffect,
    TokensPlan,
    batch_lever,
    model_lever,
    padding_lever,
    plan_tokens,
    quantisation_lever,
    spot_lever,
)

__all__ = [
    "BATCH_LIMIT",
    "DEVICES",
    "PRECISION_BYTES",
    "QUANTISATION_SPEEDUP",
    "SWEEP_BATCHES",
    "Cap",
    "ColdStart",
    "CostRow",
    "CostTable",
    "Curve",
    "Device",
    "FleetAsk",
    "FleetPlan",
    "FleetRow",
    "KvShape",
    "Lever",
    "LeverEffect",
    "MemoryPlan",
    "Regime",
    "RegimeAsk",
    "RegimePlan",
    "ReplicasAsk",
    "ReplicasPlan",
    "Roofline",
    "RowSize",
    "Sweep",
    "TokensPlan",
    "batch_lever",
    "call_work",
    "cap",
    "cost_table",
    "knee",
    "largest_batch",
    "model_lever",
    "padding_lever",
    "plan_cold_start",
    "plan_fleet",
    "plan_memory",
    "plan_regime",
    "plan_replicas",
    "plan_roofline",
    "plan_tokens",
    "quantisation_lever",
    "spot_lever",
    "sweep",
]
