"""What a server has learned of its models, for the planner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from twoshift.errors import InvalidInput
from twoshift.policy.cost import CallCost
from twoshift.policy.plan.row import RowSize
from twoshift.serve.deployments import Deployment
from twoshift.serve.derived import Derived
from twoshift.serve.keys import Caller
from twoshift.serve.measured_curves import MeasuredCurve

__all__ = ["ServedCurves"]


class ServedCurves:
    """What a server has learned of its models, as far as a caller may use them."""

    def __init__(self, models: Mapping[str, Deployment], caller: Caller) -> None:
        self._derived = {
            name: derived
            for name, each in models.items()
            if (not caller.models or name in caller.models) and isinstance(derived := each.derived_now(), Derived)
        }

    def names(self) -> Sequence[str]:
        """Models of rows that are ready."""
        return sorted(self._derived)

    def get(self, name: str, /) -> MeasuredCurve:
        """A call that has the device to itself."""
        if (found := self._derived.get(name)) is None:
            none = "the name of a loaded model; no model is ready yet"
            known = f"the profile of one of these models: {', '.join(self.names())}" if self._derived else none
            raise InvalidInput("profile", name, known)
        about = f"measured by this server for {name}"
        return MeasuredCurve(CallCost.from_dict(found.curves["whole"]), RowSize.uniform(found.row_tokens), about)
