"""What has to be ordered before A may have traffic: its model, and a rehearsed breach."""

import logging
from uuid import uuid4

from monitors.labels import Phase
from monitors.preparing import LoadOrder
from monitors.redlines import RolloutLines
from rollout import phases
from rollout.dataplane import DataPlane, DataPlaneError, Refused
from rollout.ledger import Ledger
from rollout.plan import ModelToLoad, RolloutPlan
from rollout.reading import Reading
from rollout.state import Decision, RolloutState, Signals

log = logging.getLogger(__name__)


class Preparation:
    """One leader's. Every order may be repeated, so that a tick may make good for a lost one."""

    def __init__(
        self, plane: DataPlane, ledger: Ledger, lines: RolloutLines, reading: Reading
    ) -> None:
        self._plane = plane
        self._ledger = ledger
        self._lines = lines
        self._reading = reading

    async def go_on(self, state: RolloutState, signals: Signals) -> Decision | None:
        """Order what is missing; the decision to give up, where that is refused for good."""
        plan = state.plan
        if plan is None or state.phase is not Phase.PREPARE or state.frozen:
            return None
        if plan.model is not None and signals.seen and signals.loading is None:
            return await self._load(plan, plan.model)
        await self._prove_alarm(plan, state, signals)
        return None

    async def _load(self, plan: RolloutPlan, model: ModelToLoad) -> Decision | None:
        """At the start, and again where the order was lost or the data plane started anew."""
        order = LoadOrder(
            leader_epoch=self._ledger.leader_epoch,
            load=model.load,
            checkpoint=model.checkpoint,
            version=plan.version,
            hurry=model.hurry,
        )
        try:
            await self._plane.load(plan.canary, order)
        except Refused as err:
            return phases.refused(err.why)
        except DataPlaneError as err:
            log.warning("the load is not ordered: %s", err)
        return None

    async def _prove_alarm(self, plan: RolloutPlan, state: RolloutState, signals: Signals) -> None:
        """Order a rehearsed breach where only that is missing; another one when it failed."""
        under_way = self._reading.rehearsal
        waits = under_way is not None and not under_way.ended
        if waits or not phases.wants_alarm(state, signals):
            return
        rehearsal = self._reading.rehearse(plan, uuid4().hex, self._lines.alarm_s)
        try:
            await self._plane.rehearse(plan.canary, rehearsal.order(self._ledger.leader_epoch))
        except DataPlaneError as err:
            log.warning("a breach cannot be rehearsed: %s", err)
            rehearsal.fail(f"the data plane did not take the order: {err}")
