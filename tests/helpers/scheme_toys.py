"""Options for tests of all parallel schemes, which have different options."""

from __future__ import annotations

import dataclasses

from pyasr.parallel.mixing.register import option_kinds
from pyasr.parallel.strategies import MixingOptions, mixing_options


def names_of(kind: type) -> set[str]:
    return {field.name for field in dataclasses.fields(kind)}


def mixing_of(parallel: str = "allreduce", **values) -> MixingOptions:
    """Options with those values that the scheme has an option for; each value must belong to some scheme."""
    kinds = option_kinds()
    assert values.keys() <= set().union(*map(names_of, kinds.values()))
    return mixing_options(
        parallel, **{name: value for name, value in values.items() if name in names_of(kinds[parallel])}
    )


def changed_mixing(options: MixingOptions, **values) -> MixingOptions:
    """Options with some values changed; other values are kept if the scheme has the option."""
    return mixing_of(**{"parallel": options.parallel, **dataclasses.asdict(options.scheme), **values})


def changed_groups(options, **groups):
    """Options of a training with some fields of some groups changed."""
    mixing = {"mixing": changed_mixing(options.mixing, **groups.pop("mixing"))} if "mixing" in groups else {}
    return dataclasses.replace(
        options,
        **mixing,
        **{name: dataclasses.replace(getattr(options, name), **fields) for name, fields in groups.items()},
    )
