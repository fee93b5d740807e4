"""utils/recipe.sh: every failure is reported, no process remains, options are checked."""

import fcntl
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from test_run_pl import children

RECIPE = """#!/usr/bin/env bash
# A recipe that fails on demand.

CDPATH='' cd "$(dirname "$0")" || exit 1
. utils/recipe.sh || exit 1

corpus=""      # a copy of the corpus (path)
discs=""       # where its parts lie (paths)
num=3          # a count
ranks=2        # of them (at least 1)
rate=0.5       # a number
quick=false    # the short version
what=ok        # what to do
fruit="fig pear apple"    # what to eat (any of these)
drink=tea      # to it (one of tea water)
seeds="1 2 3"  # of fruit
sizes="1 2"    # of it (may be empty)
parse_recipe_options "$@"
echo "num=$num rate=$rate quick=$quick corpus=$corpus"

if stage 1 "Fine things"; then
  true
fi
if stage 2 "Things that may go wrong"; then
  case $what in
    step) false ;;
    pipe) false | cat ;;
    subshell) (false; true) ;;
    function) helper() { false; echo not reached; }; helper ;;
    substitution) word=$(false); echo "$word" ;;
    unset) echo "$nothing" ;;
    spawn) spawn bad sh -c 'echo the cause; exit 3'; spawn good true; join ;;
    spawned_function) helper() { echo before; false; echo not reached; }; spawn bad helper; join ;;
    forgotten) spawn bad sh -c 'sleep 0.2; echo the cause; exit 3' ;;
    hang) spawn one sleep "30$PPID"; sleep "30$PPID" ;;
    status) sh -c "exit $num" ;;
    ok) spawn a sh -c 'sleep 0.1; echo done > done'; join; cat done ;;
    ask) read -r answer; echo "answered $answer" ;;
    password) read -r answer </dev/tty ;;
    escape_codes) spawn good printf 'fine\\033[31m\\n'
                  spawn bad sh -c 'printf "\\033]0;pwned\\007\\ta\\377é\\000z\\n"; exit 3'; join ;;
  esac
fi
if stage 3 "After it"; then
  echo after
fi
"""


@pytest.fixture
def recipe(tmp_path, root) -> Path:
    """The recipe above in its own directory, with utils next to it as in real recipes."""
    (tmp_path / "s5").mkdir()
    (tmp_path / "s5" / "utils").symlink_to(root / "utils")
    path = tmp_path / "s5" / "run.sh"
    path.write_text(RECIPE)
    path.chmod(0o755)
    return path


def run(recipe, *words, cwd=None, timeout=120, program=None):
    """Run the recipe from `cwd`. No option may make it hang."""
    return subprocess.run(
        [*filter(None, [program]), str(recipe), *words],
        cwd=cwd or recipe.parent,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def test_successful_recipe_prints_stages_and_no_errors(recipe):
    done = run(recipe)
    assert done.returncode == 0 and done.stderr == ""
    assert "== stage 2: Things that may go wrong (" in done.stdout and done.stdout.endswith("after\n")


def test_recipe_with_closed_streams_finishes(recipe):
    done = subprocess.run(["bash", "-c", '"$0" <&- >&- 2>&-', str(recipe)], timeout=120)
    assert done.returncode == 0 and (recipe.parent / "done").exists()


@pytest.mark.parametrize(
    "what, command",
    [
        ("step", "'false'"),
        ("pipe", "'... | cat'"),
        ("subshell", "'( false; true )'"),
        ("function", "'false'"),
        ("substitution", "'word=$(false)'"),
        ("unset", ""),
        ("spawn", "'join'"),
        ("spawned_function", "'join'"),
        ("forgotten", ""),
    ],
)
def test_failure_stops_recipe_and_names_command(what, command, recipe):
    done = run(recipe, "--what", what)
    assert done.returncode == 1
    assert "not reached" not in done.stdout + done.stderr
    assert f"run.sh: error: stage 2 (Things that may go wrong): {command}" in done.stderr
    if command:
        line = next(
            number for number, text in enumerate(RECIPE.splitlines(), 1) if text.startswith(f"    {what}) ")
        )
        assert f"run.sh line {line})" in done.stderr
    if what != "forgotten":  # this one is found at the end
        assert "after" not in done.stdout
    if what in ("spawn", "forgotten"):
        assert (
            "'bad' failed; the last lines of exp/log/spawn.bad.log" in done.stderr
            and "    | the cause" in done.stderr
        )
        assert "'good' failed" not in done.stderr


@pytest.mark.parametrize(
    "status, cause",
    [
        (126, ": not executable; check its permissions with ls -l"),
        (127, ": command not found; source path.sh before it"),
        (137, ": killed by signal 9, usually because memory ran out (see dmesg)"),
        (141, ": the program that reads its output has exited"),
        (3, ""),
    ],
)
def test_likely_cause_of_status_is_named(status, cause, recipe):
    done = run(recipe, "--what", "status", "--num", str(status))
    assert done.returncode == status
    assert f"""'sh -c "exit $num"' failed with status {status}{cause} (run.sh line """ in done.stderr
    assert done.stderr.endswith(
        "run.sh: fix the error and run the same command again; completed steps are not repeated\n"
    )


def test_shown_log_lines_are_escaped(recipe):
    done = run(recipe, "--what", "escape_codes")
    assert done.returncode == 1 and "\nfine\\x1b[31m\n" in done.stdout
    assert (
        "the last lines of exp/log/spawn.bad.log:\n    | \\x1b]0;pwned\\x07\ta\\xffé\\x00z\n" in done.stderr
    )
    assert "\x1b" not in done.stdout + done.stderr


def test_stages_limit_what_runs(recipe):
    done = run(recipe, "--stage", "2", "--stop-stage=2")
    assert "stage 1" not in done.stdout and "stage 2" in done.stdout and "after" not in done.stdout


@pytest.mark.parametrize(
    "words, given",
    [
        (["--stage", "99"], "--stage 99 --stop-stage 1000"),
        (["--stop-stage", "0"], "--stage 0 --stop-stage 0"),
    ],
)
def test_empty_stage_range_is_reported(words, given, recipe):
    done = run(recipe, *words)
    assert (done.returncode, done.stderr) == (
        1,
        f"run.sh: error: no stage was run: {given} selects none of this recipe's stages, 1 to 3\n",
    )


@pytest.mark.parametrize(
    "line", ["train_cmd=run.pl --mem 2G", "export train_cmd=run.pl --mem 2G", "decode_cmd=queue.pl -l mem=2G"]
)
def test_unquoted_runner_in_cmd_sh_is_reported(line, recipe):
    (recipe.parent / "cmd.sh").write_text(f"# how jobs are run\n{line}\n")
    recipe.write_text(RECIPE.replace("parse_recipe_options", ". ./cmd.sh\nparse_recipe_options"))
    done = run(recipe)
    found = re.search(
        r"(?m)^run.sh: error: '(.*)' failed with status \d+; (.*) \(cmd.sh line 2\)$", done.stderr
    )
    assert done.returncode != 0 and found, done.stderr
    assert found[1] == line and found[2] == 'quote values that contain spaces: train_cmd="run.pl --mem 2G"'


@pytest.mark.parametrize(
    "words, line",
    [
        ([], "num=3 rate=0.5 quick=false corpus="),
        (["--num", "7", "--rate=-1e-3"], "num=7 rate=-1e-3 quick=false corpus="),
        (["--quick"], "num=3 rate=0.5 quick=true corpus="),
        (["--quick", "--num=-2"], "num=-2 rate=0.5 quick=true corpus="),
        (["--quick", "false", "--rate", "2"], "num=3 rate=2 quick=false corpus="),
        (["--corpus", "/a b/$x'c"], "num=3 rate=0.5 quick=false corpus=/a b/$x'c"),
        (["--corpus", ""], "num=3 rate=0.5 quick=false corpus="),
        (["--fruit", " apple  fig"], "num=3 rate=0.5 quick=false corpus="),
        (["--drink", "water"], "num=3 rate=0.5 quick=false corpus="),
        (["--seeds", "4"], "num=3 rate=0.5 quick=false corpus="),
        (["--seeds=2 30"], "num=3 rate=0.5 quick=false corpus="),
        (["--sizes", ""], "num=3 rate=0.5 quick=false corpus="),
    ],
)
def test_valid_options(words, line, recipe):
    done = run(recipe, *words)
    assert done.returncode == 0 and done.stdout.splitlines()[0] == line


@pytest.mark.parametrize(
    "words, sentence",
    [
        (["--num"], "--num: a value is missing after it"),
        (["--num", "--quick"], "--num: a value is missing after it"),
        (["--num", "abc"], "--num: 'abc' is not a whole number"),
        (["--num=3.5"], "--num: '3.5' is not a whole number"),
        (["--ranks", "0"], "--ranks: 0 is too small; give 1 or more"),
        (["--ranks=-1"], "--ranks: -1 is too small; give 1 or more"),
        (["--rate", "fast"], "--rate: 'fast' is not a number"),
        (["--quick=maybe"], "--quick: 'maybe' is not true or false"),
        (["--quick", "yes"], "--quick: 'yes' is not true or false"),
        (["--nmu", "3"], "--nmu: no such option; did you mean --num?"),
        (["--zzz"], "--zzz: no such option; see --help"),
        (["three"], "three: a recipe takes only options, which begin with two dashes; see --help"),
        (["-n", "3"], "-n: a recipe takes only options, which begin with two dashes; see --help"),
        (["-stage", "2"], "-stage: a recipe takes only options, which begin with two dashes; write --stage"),
        (
            ["stop_stage=2"],
            "stop_stage=2: a recipe takes only options, which begin with two dashes; write --stop-stage",
        ),
        (["--stage", "two"], "--stage: 'two' is not a whole number"),
        (["--stage"], "--stage: a value is missing after it"),
        (["--stage="], "--stage: '' is not a whole number"),
        (["--stage", "2.5"], "--stage: '2.5' is not a whole number"),
        (
            ["--stage", "99999999999999999999"],
            "--stage: '99999999999999999999' is too large; give at most 18 digits",
        ),
        (
            ["--stage", "3", "--stop-stage", "2"],
            "--stop-stage 2 comes before --stage 3, so no stage would run; give 3 or more",
        ),
        (
            ["--seeds", "1 99999999999999999999"],
            "--seeds: '1 99999999999999999999' is too large; give at most 18 digits",
        ),
        (
            ["--fruit", "pear plum"],
            "--fruit: 'plum' is not one of fig pear apple; give one or more of these, separated by spaces",
        ),
        (["--seeds", "1,2"], "--seeds: '1,2' is not a list of whole numbers separated by spaces"),
        (["--seeds", "1 two"], "--seeds: '1 two' is not a list of whole numbers separated by spaces"),
        (["--seeds="], "--seeds: '' is not a list of whole numbers separated by spaces"),
        (["--sizes", "small"], "--sizes: 'small' is not a list of whole numbers separated by spaces"),
        (["--fruit=pear,fig"], "--fruit: 'pear,fig' is not one of fig pear apple"),
        (["--drink", "milk"], "--drink: 'milk' is not one of tea water"),
        (["--drink", "tea water"], "--drink: 'tea water' is not one of"),
    ],
)
def test_invalid_options_give_one_sentence(words, sentence, recipe):
    done = run(recipe, *words)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith(f"run.sh: error: {sentence}") and done.stderr.count("\n") == 1


def test_help_lists_the_recipe_variables(recipe):
    done = run(recipe, "--num", "5", "--help")
    assert done.returncode == 0 and done.stderr == ""
    assert "A recipe that fails on demand." in done.stdout
    for flag, help, default in (
        ("num", "a count", "3"),
        ("quick", "the short version", "false"),
        ("stop-stage", "last stage", "1000"),
    ):
        assert any(
            f"--{flag} " in line and help in line and line.endswith(f"[{default}]")
            for line in done.stdout.splitlines()
        )


@pytest.mark.parametrize(
    "place, name",
    [
        (".", "s5/run.sh"),
        ("other", "../s5/run.sh"),
        ("other", "{}"),
        ("s5", "./run.sh"),
        ("s5/s5", "../run.sh"),
    ],
)
def test_paths_are_relative_to_callers_directory(place, name, recipe, tmp_path):
    """For any way of calling the recipe, even if the same path exists below the recipe's directory."""
    (tmp_path / place).mkdir(exist_ok=True)
    (tmp_path / "s5" / "s5").mkdir(exist_ok=True)
    (tmp_path / "s5" / "s5" / "run.sh").write_text("echo another recipe")
    done = run(name.format(recipe), "--corpus", "queen.1c", "--stop-stage", "0", cwd=tmp_path / place)
    assert done.stdout == f"num=3 rate=0.5 quick=false corpus={tmp_path / place / 'queen.1c'}\n"


def test_each_of_several_paths_is_relative_to_callers_directory(recipe, tmp_path):
    recipe.write_text(recipe.read_text().replace("corpus=$corpus", "discs=$discs"))
    (tmp_path / "e:f").mkdir()
    for given, expected in (
        ("a:/b c:d", f"{tmp_path}/a:/b c:{tmp_path}/d"),
        (":a:", f"{tmp_path}/a"),
        ("", ""),
        ("e:f", f"{tmp_path}/e:f"),
        ("/a:~/b", f"/a:{Path.home()}/b"),
    ):
        done = run("s5/run.sh", "--discs", given, "--stop-stage", "0", cwd=tmp_path)
        assert done.stdout == f"num=3 rate=0.5 quick=false discs={expected}\n"


def test_exported_cdpath_is_ignored(recipe, tmp_path, root, monkeypatch):
    """Neither another recipe of the same name nor other sourced files are used."""
    shutil.copytree(recipe.parent, tmp_path / "other/s5", symlinks=True)
    (tmp_path / "other/s5/run.sh").write_text("echo another recipe")
    monkeypatch.setenv("CDPATH", f"{tmp_path / 'other'}:{root}:.")
    done = run("s5/run.sh", "--corpus", "queen.1c", "--stop-stage", "1", cwd=tmp_path)
    assert (
        done.stdout.startswith(
            f"num=3 rate=0.5 quick=false corpus={tmp_path}/queen.1c\n\n== stage 1: Fine things ("
        )
        and not done.stderr
    )


def test_last_sourced_copy_is_first_on_paths(root, tmp_path):
    """Two copies are sourced in turn in one shell. Each is on the path once."""
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "path.sh").write_text(
            (root / "path.sh").read_text().replace("|| pyasr_build_environment", "|| true")
        )
    script = ". a/path.sh; . b/path.sh; . a/path.sh; . a/path.sh; echo $PATH; echo $PYTHONPATH"
    given = {"PATH": f"/nowhere b:{os.environ['PATH']}", "PYTHONPATH": "/of/a/user"}
    done = subprocess.run(["bash", "-euc", script], cwd=tmp_path, env=given, capture_output=True, text=True)
    paths, modules = done.stdout.splitlines()
    there = [f"{tmp_path}/{name}/{part}" for name in "ab" for part in (".venv/bin", "utils", "steps")]
    assert (paths.split(":")[:7], paths.count(str(tmp_path))) == ([*there, "/nowhere b"], 6)
    assert modules == f"{tmp_path}/a:{tmp_path}/b:/of/a/user"
    del given["PYTHONPATH"]
    done = subprocess.run(["bash", "-euc", script], cwd=tmp_path, env=given, capture_output=True, text=True)
    # an empty entry would stand for the current directory
    assert done.stdout.splitlines()[1] == f"{tmp_path}/a:{tmp_path}/b"


def test_path_sh_ignores_and_preserves_cdpath(root, tmp_path, monkeypatch):
    (tmp_path / root.name).mkdir()
    monkeypatch.setenv("CDPATH", str(tmp_path))
    done = subprocess.run(
        ["bash", "-c", f'. {root.name}/path.sh && echo "$PYASR_ROOT $CDPATH"'],
        cwd=root.parent,
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.stderr) == (f"{root} {tmp_path}\n", "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_killed_recipe_leaves_no_process(number, recipe, default_sighup):
    process = subprocess.Popen(
        [str(recipe), "--what", "hang"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    wait_until(lambda: num_sleeping(f"30{process.pid}") == 2)
    process.send_signal(number)
    assert process.wait(10) == (-9 if number == signal.SIGKILL else 128 + number)
    wait_until(lambda: num_sleeping(f"30{process.pid}") == 0)


PATIENT = (
    "import sys; from pyasr.cluster.runner import processes; processes.SAVING_S = 3600; "
    "sys.exit(processes.supervise(sys.argv[1:]))"
)


def test_second_signal_ends_recipe_at_once():
    """Also processes that do not end by themselves. After the first signal they have time, here an hour, to
    save their state."""
    command = [
        sys.executable,
        "-c",
        PATIENT,
        "bash",
        "-c",
        "trap '' TERM; echo begun; while true; do sleep 0.1; done",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGTERM)
    assert process.stderr.readline() == "bash: stopped by signal 15; run the same command again to resume\n"
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(4)
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 128 + signal.SIGTERM


def test_recipe_under_nohup_survives_hangup(recipe):
    """SIGTERM still ends it."""
    process = subprocess.Popen(
        ["nohup", str(recipe), "--what", "hang"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    wait_until(lambda: num_sleeping(f"30{process.pid}") == 2)
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGTERM and "stopped by signal 15;" in said
    wait_until(lambda: num_sleeping(f"30{process.pid}") == 0)


def test_killed_shell_is_reported(recipe):
    """The killed shell cannot print the report itself."""
    process = subprocess.Popen(
        [str(recipe), "--what", "hang"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    wait_until(lambda: num_sleeping(f"30{process.pid}") == 2)
    os.kill(children(process.pid, b"bash")[0], signal.SIGKILL)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGKILL
    assert said == (
        "run.sh: error: its shell was killed by signal 9 from outside; run the same command again to resume\n"
    )
    wait_until(lambda: num_sleeping(f"30{process.pid}") == 0)


@pytest.mark.parametrize(
    "words, status, said",
    [
        (["{recipe}", "--what", "ask"], 0, "answered yes\r\n"),
        (
            ["{recipe}", "--what", "password"],
            1,
            "/dev/tty: No such device or address",
        ),  # in the way of ssh and sudo
        # the terminal belongs to its shell
        (["bash", "-c", "set -m; {recipe} --what ask & wait $!"], 1, "'read -r answer' failed with status 1"),
    ],
)
def test_recipe_that_reads_from_terminal_ends(words, status, said, recipe):
    ours, its = os.openpty()
    process = subprocess.Popen(
        [word.format(recipe=recipe) for word in words],
        stdin=its,
        stdout=its,
        stderr=its,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(its)
    try:
        os.write(ours, b"yes\n")
        shown = b"".join(iter(lambda: read_terminal(ours), b"")).decode()
        assert process.wait(10) == status and said in shown, shown
    finally:
        os.close(ours)  # ends all programs that still wait


def read_terminal(fd: int) -> bytes:
    """Next output on the terminal; empty if all programs on the terminal have ended."""
    assert select.select([fd], [], [], 30)[0], "it hangs"
    try:
        return os.read(fd, 1000)
    except OSError:
        return b""


def num_sleeping(seconds: str) -> int:
    """Number of processes `sleep SECONDS`."""
    found = 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += path.read_bytes() == f"sleep\0{seconds}\0".encode()
        except OSError:
            pass
    return found


def wait_until(condition, timeout_s=120):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.05)


def recipe_scripts(root) -> list[Path]:
    """All scripts of recipes that source utils/recipe.sh."""
    return [
        path
        for path in sorted((root / "egs").glob("*/s5/**/*.sh"))
        if re.search(r"^\. .*utils/recipe\.sh", path.read_text(), re.MULTILINE)
    ]


@pytest.mark.parametrize("utils", ["absent", "../../../utils"])
def test_recipe_copied_out_of_its_directory_does_nothing(utils, root, tmp_path):
    """For example the copy that sbatch runs, or a link that an archive unpacked as a file."""
    if utils != "absent":
        (tmp_path / "utils").write_text(utils)
    scripts = recipe_scripts(root)
    assert len(scripts) > 4
    for script in scripts:
        (tmp_path / "job1").mkdir(exist_ok=True)
        copy = Path(
            shutil.copy(
                script,
                tmp_path / "job1" / "slurm_script"
                if script.parent.name == "local"
                else tmp_path / "slurm_script",
            )
        )
        done = run(copy, cwd=tmp_path, program="bash")
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), (script, done)
        assert done.stderr.startswith(f"{copy}: error: no ") and "sbatch --wrap" in done.stderr


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="no shellcheck (apt-get install shellcheck)")
def test_shell_scripts_pass_shellcheck(root):
    """Word splitting is intended where recipes keep options in a variable. All other checks must pass."""
    scripts = [
        root / "path.sh",
        root / "tests" / "run.sh",
        root / ".ci" / "run",
        *sorted((root / "utils").glob("*.sh")),
    ]
    done = [
        subprocess.run(
            ["shellcheck", "-x", "-s", "bash", *map(str, scripts)], cwd=root, capture_output=True, text=True
        )
    ]
    for recipe in sorted((root / "egs").glob("*/s5")):
        scripts = sorted(
            str(path.relative_to(recipe)) for path in [*recipe.glob("run*.sh"), *recipe.glob("local/**/*.sh")]
        )
        done.append(
            subprocess.run(
                ["shellcheck", "-x", "-P", "SCRIPTDIR:.", "-s", "bash", "-e", "SC2086", *scripts],
                cwd=recipe,
                capture_output=True,
                text=True,
            )
        )
    assert all(one.returncode == 0 for one in done), "\n".join(one.stdout for one in done)


@pytest.fixture
def cmd_sh(root, tmp_path):
    """Function that runs cmd.sh with these cluster programs (as shell functions) and no others."""

    def run(**programs):
        (tmp_path / "bin").mkdir()
        for name, text in {**dict.fromkeys(("sinfo", "qsub", "qconf"), "exit 1"), **programs}.items():
            (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
            (tmp_path / "bin" / name).chmod(0o755)
        (tmp_path / "s5").mkdir()
        (tmp_path / "s5" / "utils").symlink_to(root / "utils")
        (tmp_path / "s5" / "run.sh").write_text(
            f"set -e; PYASR_SUPERVISED=1; . utils/recipe.sh; . {root}/egs/toy/s5/cmd.sh"
        )
        environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
        return subprocess.run(
            ["bash", "./run.sh"], cwd=tmp_path / "s5", env=environment, capture_output=True, text=True
        )

    return run


def test_cmd_sh_uses_run_pl_without_cluster(cmd_sh):
    """Also if sbatch exists without a cluster. Jobs on one machine find GPUs by themselves."""
    done = cmd_sh(sbatch="")
    assert done.stdout == "jobs are run by run.pl, those that train networks by run.pl (cmd.sh)\n", (
        done.stderr
    )
    assert "run.sh: sbatch is installed, but Slurm does not answer\n" in done.stderr


@pytest.mark.parametrize(
    "gpu, programs",
    [
        (
            "slurm.pl --gpu 1",
            {"sbatch": "", "sinfo": r"""[ "$*" = -h ] || printf '(null)\ngpu:h200:8(S:0-1)\n'"""},
        ),
        ("slurm.pl", {"sbatch": "", "sinfo": r"""[ "$*" = -h ] || printf '(null)\n'"""}),
        ("queue.pl --gpu 1", {"qconf": "", "qsub": "echo 'verification: found suitable queue(s)'"}),
        ("queue.pl", {"qconf": "", "qsub": "echo 'Unable to run job: unknown resource \"gpu\"' >&2; exit 1"}),
    ],
)
def test_cmd_sh_requests_gpus_if_cluster_has_some(gpu, programs, cmd_sh):
    done = cmd_sh(**programs)
    assert (
        done.stdout == f"jobs are run by {gpu.split()[0]}, those that train networks by {gpu} (cmd.sh)\n"
    ), done.stderr


def test_recipes_train_networks_with_gpu_runner(root):
    """Only networks use it."""
    trainings = {
        path.name
        for path in (root / "steps").glob("*.py")
        if "pyasr.train.steps.on_ranks" in path.read_text()
    }
    used = [
        found
        for path in (root / "egs").glob("*/s5/**/*.sh")
        for found in re.findall(r'steps/(\w+\.py)\b.*--cmd "\$(\w+)"', path.read_text())
    ]
    assert {step for step, _ in used} & trainings and all(
        (runner == "cuda_cmd") == (step in trainings) for step, runner in used
    ), used


def test_unknown_command_gives_one_sentence(root):
    done = subprocess.run(
        [sys.executable, root / "utils/supervise.py", "no-such-program"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (
        1,
        "supervise.py: error: no-such-program: no such file or directory\n",
    )
