"""Recipes with one failing command stop there, and name the stage."""

import re
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor

from recorded_calls import CMD_SH, options_of_all

from pyasr.base.cli import recipe_options

COMMAND = re.compile(r"(?<=\s)(steps|local|utils|\$of_\w+)/[\w$]+\.py(?=\s)")
SHARED = "utils/recipe_decoding.sh"


def with_one_that_fails(text):
    """(command, its stage, the text with this command replaced by `false` and all others by `true`) for each
    command of a script."""
    for found in COMMAND.finditer(text):
        stages = re.findall(r"\bstage (\d+) ", text[: found.start()])
        yield (
            found[0],
            stages[-1] if stages else "0",
            COMMAND.sub("true", text[: found.start()]) + "false" + COMMAND.sub("true", text[found.end() :]),
        )


def with_own_functions(recipe):
    """Text of a recipe's script with the files of `local/` that it sources inserted."""
    return re.sub(
        r"^\. (local/\w+\.sh)$",
        lambda found: (recipe.parent / found[1]).read_text(),
        recipe.read_text(),
        flags=re.M,
    )


def copied(directory, root, recipe, script, functions):
    """Directory with this text of a recipe's script, and the functions that recipes share. `options.sh` sets
    its options."""
    directory.mkdir()
    (directory / "utils").symlink_to(root / "utils")
    for name in ("conf", "local"):
        (directory / name).symlink_to(recipe.with_name(name))
    (directory / "cmd.sh").write_text(CMD_SH)
    (directory / "path.sh").write_text("")
    (directory / "functions.sh").write_text(functions)
    script = script.replace(f". {SHARED}\n", ". ./functions.sh\n").replace(
        'parse_recipe_options "$@"\n', ". ./options.sh\n"
    )
    (directory / "run.sh").write_text(script)
    return directory / "run.sh"


def test_each_recipe_command_replaced_by_false_stops_recipe(root, tmp_path, monkeypatch):
    """Including commands in shared functions. The message has the name of the stage."""
    monkeypatch.setenv("PYASR_SUPERVISED", "1")  # the parent process of the recipe has its own tests
    shared = (root / SHARED).read_text()
    broken = []
    for recipe in sorted((root / "egs").glob("*/s5/run*.sh")):
        found = [
            (recipe, *one, COMMAND.sub("true", shared))
            for one in with_one_that_fails(with_own_functions(recipe))
        ]
        assert found, recipe
        broken += found
    models = root / "egs/amazon_queen/s5/run_models.sh"
    broken += [
        (models, command, "0", COMMAND.sub("true", models.read_text()), functions)
        for command, _, functions in with_one_that_fails(shared)
    ]
    scripts = [
        copied(tmp_path / str(i), root, recipe, *texts) for i, (recipe, _, _, *texts) in enumerate(broken)
    ]
    options = [
        [
            assignments(recipe, "--stage", stage, *words)
            for words in options_of_all(recipe.parent, recipe.name)
        ]
        for recipe, _, stage, *_ in broken
    ]
    with ThreadPoolExecutor(2) as pool:
        ended = pool.map(until_it_fails, scripts, options)
        for (recipe, command, *_), done in zip(broken, ended):
            assert (
                done.returncode == 1
                and "error: stage " in done.stderr
                and re.search("'false[ ']", done.stderr)
            ), (recipe, command, done)


def assignments(recipe, *words):
    """Output of parse_recipe_options for these words, without starting Python for each run."""
    values = recipe_options.parse(recipe_options.read_variables(recipe)[1], list(words), recipe.parent)
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items())


def until_it_fails(script, options):
    """First failing run of a recipe with these options, else the last run."""
    for text in options:
        script.with_name("options.sh").write_text(text)
        done = subprocess.run(
            ["bash", str(script)], cwd=script.parent, capture_output=True, text=True, timeout=60
        )
        if done.returncode:
            break
    return done
