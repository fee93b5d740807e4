"""Requirements on strategies with shards of any sizes, on any communicator."""

from __future__ import annotations

import numpy as np
import torch
from scheme_toys import mixing_of

from pyasr.parallel.strategies import make_strategy, mixing_options

SHARDS = [10, 10, 3, 0, 7, 0, 1, 2]  # utterances of 12 frames
SCHEMES = ["allreduce", "gradient", "fixed-ring", "base2", "d1d", "dpsgd", "easgd"]
ASYNCHRONOUS = [
    mixing_options("adpsgd", payload="bfloat16"),
    mixing_options("adpsgd", random_peers=True),
    mixing_options("hadpsgd", ranks_per_node=2, payload="bfloat16"),
    mixing_options("asgd"),
    mixing_options("asgd", max_distance=2, payload="bfloat16"),
]
NEIGHBOURS = [
    mixing_options("adpsgd", topology="fixed-ring"),
    mixing_options("adpsgd", topology="random-ring", payload="float16"),
    mixing_options("hadpsgd", topology="exponential", ranks_per_node=2),
]
MOVE = 0.1


def check_uneven(comm) -> None:
    """All ranks mix as often as the rank with most data needs, and end with the same parameters, which
    include all updates."""
    for name in SCHEMES:
        strategy, master = make_strategy(comm, mixing_of(name, period_frames=45)), torch.zeros(8)
        strategy.restart(master)
        report = [_epoch(strategy, master, 12 * SHARDS[comm.rank], comm.rank) for _ in range(2)]
        expected = 12 * sum(SHARDS[: comm.size])
        assert [frames for frames, _ in report] == [expected, expected], (name, report)
        assert len({mixings for _, mixings in report}) == 1 and len(set(comm.allgather(report[0][1]))) == 1, (
            name,
            report,
        )
        assert np.array_equal(comm.bcast(master.numpy().copy()), master.numpy()), name
        assert [bool(value) for value in master] == [
            rank < comm.size and shard > 0 for rank, shard in enumerate(SHARDS)
        ], name


def check_uneven_gradients(comm) -> None:
    """Parts of a gradient are sent while ranks with a minibatch compute; ranks without a minibatch take part
    in the sums."""
    for payload in ("float32", "float16"):
        strategy = make_strategy(comm, mixing_options("gradient", payload=payload))
        gradient = torch.zeros(3 << 18)
        added = strategy.sum_gradients()
        added.attach(gradient, [0, 1 << 18, 2 << 18])
        strategy.restart(torch.zeros(8))
        strategy.begin_epoch(16 if comm.rank == 0 else 0, 16)
        added.begin(16 if comm.rank == 0 else 0)
        if comm.rank == 0:
            gradient.fill_(3.0)
            added.ready(2 << 18)
            added.ready(1 << 18)
        added.finish()
        np.testing.assert_allclose(
            [*gradient[:: 1 << 18].tolist(), added.frames],
            np.array([3.0, 3.0, 3.0, 16]) / comm.size,
            rtol=1e-3,
        )
        assert (gradient == gradient[0]).all(), payload


def check_minibatches_of_any_size(comm) -> None:
    """Ranks with any numbers of minibatches, of sizes unknown to other ranks, take the same steps, weight all
    frames equally, and end their epochs together."""
    strategy = make_strategy(comm, mixing_options("gradient"))
    gradient = torch.zeros(8)
    master = torch.zeros(8)
    added = strategy.sum_gradients(of_any_size=True)
    added.attach(gradient, [0])
    strategy.restart(master)
    shards = np.array(SHARDS[: comm.size])
    sizes = np.array(
        [(1 + (5 * np.arange(comm.size) + 3 * step) % 7) * (step < shards) for step in range(max(shards))]
    )
    for _ in range(2):
        strategy.begin_epoch(int(sizes[:, comm.rank].sum()), 7)
        for step, frames in enumerate(sizes):
            added.begin(int(frames[comm.rank]))
            gradient.fill_(float(frames[comm.rank]))
            added.finish()
            np.testing.assert_allclose(
                [*gradient.tolist(), added.frames], frames.sum() / comm.size, rtol=1e-6
            )
            mixing = strategy.step(master, int(frames[comm.rank]))
            assert (mixing.frames, mixing.last, mixing.equal) == (frames.sum(), step == 9, True)


def check_uneven_asynchronous(comm) -> None:
    """Ranks without data wait for the others; all frames are reported, and every minibatch contributes to the
    one model. This also holds in 16 bits: up to rounding if moves are summed, exactly if both ends of an
    exchange change by the same amount."""
    for options in ASYNCHRONOUS:
        if options.parallel == "asgd" and comm.size == 2:
            continue
        strategy, master = make_strategy(comm, options), torch.zeros(8)
        strategy.restart(master)
        learns = [comm.size == 1 or options.parallel != "asgd" or rank > 0 for rank in range(comm.size)]
        frames = [12 * shard * learning for shard, learning in zip(SHARDS, learns)]
        report = [_epoch(strategy, master, frames[comm.rank], comm.rank, sum(frames))[0] for _ in range(2)]
        assert report == [sum(frames)] * 2, (options, report, frames)
        assert np.array_equal(comm.bcast(master.numpy().copy()), master.numpy()), options
        if options.parallel == "hadpsgd":  # a minibatch counts by its fraction of the node's frames
            assert [value > 0 for value in master] == [bool(own) for own in frames] + [False] * (
                8 - comm.size
            ), (options, master)
        else:
            expected = [2 * MOVE * -(-own // 16) / strategy.num_averaged for own in frames]
            rtol = 2.0**-8 if options.parallel == "asgd" and options.scheme.payload == "bfloat16" else 1e-4
            np.testing.assert_allclose(master.numpy()[: comm.size], expected, rtol=rtol, err_msg=str(options))


def check_uneven_neighbours(comm) -> None:
    """The same for strategies that mix with what neighbours have published: the model has the updates of all
    ranks, once each."""
    for options in NEIGHBOURS:
        strategy, master = make_strategy(comm, options), torch.zeros(8)
        strategy.restart(master)
        frames = [12 * shard for shard in SHARDS[: comm.size]]
        report = [_epoch(strategy, master, frames[comm.rank], comm.rank, sum(frames))[0] for _ in range(2)]
        assert report == [sum(frames)] * 2, (options, report, frames)
        assert np.array_equal(comm.bcast(master.numpy().copy()), master.numpy()), options
        assert [value > 0 for value in master] == [bool(own) for own in frames] + [False] * (8 - comm.size), (
            options,
            master,
        )


def check_neighbours_do_not_wait(comm) -> None:
    """The first rank ends after one update. The last rank continues after its first update only when all
    others have ended. These mix with the last published weights and do not wait. Every rank must be one of
    four or more."""
    first, last, side = comm.rank == 0, comm.rank == comm.size - 1, comm.split(0)
    for options in NEIGHBOURS[:2]:
        strategy, master = make_strategy(comm, options), torch.zeros(8)
        strategy.restart(master)
        strategy.begin_epoch(10**6, 16)
        for step in range(1 if first else 2 if last else 20):
            if last and step:
                for rank in range(1, comm.size - 1):
                    side.receive(np.zeros(1), 1, rank)
            master[comm.rank] += MOVE
            strategy.step(master, 16)
        if not (first or last):
            side.send(np.zeros(1), comm.size - 1, 1)
        assert strategy.step(master, 0).equal
        assert np.array_equal(comm.bcast(master.numpy().copy()), master.numpy()), options
        # their neighbours are those two
        if options.scheme.topology == "fixed-ring" and comm.rank in (1, comm.size - 2):
            assert max(strategy.peer.staleness) >= 18


def _epoch(
    strategy, master: torch.Tensor, num_frames: int, rank: int, all_frames: int = 0
) -> tuple[int, int]:
    """(reported frames, mixings) of an epoch in which each minibatch of up to 16 frames changes the rank's
    own parameter. Strategies in which a rank draws from all data get `all_frames`."""
    strategy.begin_epoch(all_frames or num_frames, 16)
    report, mixings, mixing = 0, 0, None
    while mixing is None or not mixing.last:
        frames = min(16, num_frames)
        num_frames -= frames
        master[rank] += MOVE * (frames > 0)
        mixing = strategy.step(master, frames)
        if mixing is not None:
            report, mixings = report + mixing.frames, mixings + 1
    return report, mixings
