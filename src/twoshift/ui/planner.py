"""The planner among the console's pages, with the curves that the server has measured."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from markupsafe import Markup

from twoshift.serve.deployments import Deployment
from twoshift.serve.http.messages import Reply
from twoshift.serve.served_curves import ServedCurves
from twoshift.ui.plan_page import PlanPaths, figures_markup, page_markup
from twoshift.ui.visit import Visit, html

__all__ = ["PlannerPages"]

_PATHS = PlanPaths("/console/plan", "/console/plan/figures", "/v1/plan")


class PlannerPages:
    """For every session: it is told no more than the models that its key may use."""

    def __init__(self, models: Mapping[str, Deployment]) -> None:
        self._models = models
        self.pages = {_PATHS.page: self._page, _PATHS.figures: self._figures}

    async def _page(self, visit: Visit) -> Reply:
        curves = ServedCurves(self._models, visit.session.caller)
        made = await asyncio.to_thread(page_markup, visit.query, curves, _PATHS)
        return visit.page("plan.html", made=Markup(made))  # noqa: S704 - `plan_page` escapes what it is given

    async def _figures(self, visit: Visit) -> Reply:
        curves = ServedCurves(self._models, visit.session.caller)
        made = await asyncio.to_thread(figures_markup, visit.query, curves)
        return html(made.encode())
