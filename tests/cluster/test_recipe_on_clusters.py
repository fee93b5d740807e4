"""The whole toy recipe under each scheduler, which its cmd.sh finds by itself: the WERs are those of this machine alone."""

import pytest
import toy_recipe

RUNNERS = {"slurm": ("slurm.pl", "slurm.pl"), "grid": ("queue.pl", "queue.pl --gpu 1")}  # the hosts of the latter say that they have GPUs


@pytest.fixture(scope="module")
def recipes(toy_run, slurm, grid, tmp_path_factory):
    """Both at once, since jobs wait for schedulers most of the time: {scheduler: (process, directory)}."""
    found = {}
    for name, cluster in (("slurm", slurm), ("grid", grid)):
        directory = tmp_path_factory.mktemp(name)
        found[name] = toy_recipe.start(directory, cluster.environment), directory
    yield found
    for process, _ in found.values():
        process.kill()


@pytest.mark.parametrize("name", RUNNERS)
def test_the_recipe_comes_to_the_same_word_error_rates(name, recipes, toy_run):
    process, directory = recipes[name]
    said = directory / "recipe.log"
    assert process.wait(600) == 0, said.read_text()[-4000:]
    assert "jobs are run by {}, those that train networks by {} (cmd.sh)".format(*RUNNERS[name]) in said.read_text()
    with_jobs = {path.parents[1] for path in directory.rglob("log/*.status")}
    assert with_jobs and with_jobs == {path.parents[1] for path in directory.rglob("q/*.sh")}
    assert toy_recipe.wers(directory) == toy_run[1]
