"""Main memory of the host, and limits of control groups."""

import pytest

from pyasr.base.host import host_memory


@pytest.mark.parametrize(
    "files",
    [
        {"memory.max": "1000", "memory.current": "700", "memory.stat": "anon 500\ninactive_file 150\n"},
        {
            "memory.limit_in_bytes": "1000",
            "memory.usage_in_bytes": "700",
            "memory.stat": "cache 9\ntotal_inactive_file 150\n",
        },
    ],
)
def test_cgroup_limits_bound_free_and_total_memory(files, tmp_path):
    """The minimum of the memory left by a group and its parents, and their lowest limit."""
    version = "" if "memory.max" in files else "memory"
    (tmp_path / "own").write_text(f"3:cpuset:/\n{'4:memory' if version else '0:'}:/job_7/step_0\n")
    step = tmp_path / "root" / version / "job_7" / "step_0"
    step.mkdir(parents=True)
    places = tmp_path / "root", tmp_path / "own"
    assert host_memory.free_in_group(*places) == host_memory.limit_of_group(*places) == float("inf")
    for name, text in files.items():
        (step.parent / name).write_text(text)
    (step / "memory.max").write_text("max\n")
    assert host_memory.free_in_group(*places) == 450 and host_memory.limit_of_group(*places) == 1000
    assert host_memory.free_in_group(tmp_path / "root", tmp_path / "nothing") is None


def test_free_memory_of_this_host_is_below_total():
    assert 0 < host_memory.free_bytes() < host_memory.total_bytes()
