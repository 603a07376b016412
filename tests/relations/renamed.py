"""Relation N, the pure part: groups have other names, in another order; records of one moment come otherwise."""

from __future__ import annotations

from dataclasses import replace

from tests.histories.world import World


def names_of(world: World) -> dict[str, str]:
    """Return for each group another name, so that they are in the opposite order."""
    groups = sorted({one.group_id for one in world.log})
    return {one: f"renamed-{len(groups) - n:04}-of" for n, one in enumerate(groups)}


def renamed(world: World, names: dict[str, str]) -> World:
    """Return the world in which groups have these names; records of groups in one moment are in the opposite order.

    The records of one group stay in their order.
    """
    log = [one._replace(group_id=names[one.group_id]) for one in world.log]
    return replace(
        world,
        log=sorted(log, key=lambda one: (one.at, one.group_id)),
        lag=sorted(
            (one._replace(group_id=names.get(one.group_id, one.group_id)) for one in world.lag),
            key=lambda one: (one.at, one.group_id),
        ),
        copies=[(at, names.get(group, group), *rest) for at, group, *rest in world.copies],
    )
