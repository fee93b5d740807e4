"""Command line of run.pl, queue.pl and slurm.pl: accepted words, and one sentence for each mistake."""

import subprocess

import pytest
from test_run_pl import run_pl

from pyasr.cluster.runner.command_line import parse_request


@pytest.mark.parametrize(
    "words, sentence",
    [
        ([], "expected a log file and a command"),
        (["x.log"], "expected a log file and a command"),
        (
            ["JOB=a:b", "x.JOB.log", "true"],
            "'JOB=a:b': neither a range of jobs such as JOB=1:4 nor the name of a log file; correct it, or "
            "write ./JOB=a:b",
        ),
        (["JOB=1:2:3", "x.JOB.log", "true"], "'JOB=1:2:3': neither a range of jobs such as JOB=1:4"),
        (
            ["--mem", "2G", "JOB=1:2", "JOB=1:3", "x.JOB.log", "true"],
            "JOB=1:3: a second range of jobs, after JOB=1:2; give only one (a step "
            "adds its own: remove yours from --cmd or cmd.sh)",
        ),
        (
            ["J=1:2", "JOB=3", "x.JOB.log", "true"],
            "JOB=3: a second range of jobs, after J=1:2; give only one",
        ),
        (["--max-jobs-run"], "--max-jobs-run: a value is missing"),
        (["--max-jobs-run", "many", "x.log", "true"], "'many' is not a whole number"),
        (["--num-threads", "0", "x.log", "true"], "'0' is not a whole number of at least 1"),
        (
            ["--mem", "lots", "x.log", "true"],
            "--mem: 'lots' is not a valid amount of memory such as 500M or 4G",
        ),
        (["--share-devices", "yes", "x.log", "true"], "--share-devices: 'yes' is neither true nor false"),
        (["--gpu", "-1", "x.log", "true"], "--gpu: '-1' is not a whole number of at least 0"),
        (["--config", "none.conf", "x.log", "true"], "none.conf: no such file or directory"),
        (["-pe", "smp"], "-pe: a value is missing"),
        (["-notify", "--mem", "2G", "x.log", "true"], "-notify: a value is expected after it, not '--mem'"),
        (["-notify", "JOB=1:2", "x.JOB.log", "true"], "-notify: a value is expected after it, not 'JOB=1:2'"),
        (
            ["-mem", "2G", "x.log", "true"],
            "-mem: write --mem, with two dashes; an option with one dash is passed to the scheduler",
        ),
        (
            ["JOB=3:1", "x.JOB.log", "true"],
            "JOB=3:1: the range is empty; give the first and the last job, such as JOB=1:4",
        ),
        (["JOB=1:0", "x.JOB.log", "true"], "JOB=1:0: the range is empty"),
        (
            ["x\ny.log", "true"],
            "the name of a log file contains a line break; rename the file or its directory",
        ),
        (
            ["JOB=0:3", "x.JOB.log", "true"],
            "JOB=0:3: Grid Engine has no job 0; number the jobs from 1, with every runner",
        ),
        (["JOB=1:2", "x.log", "true"], "put JOB into its name"),
        (["--num-ranks", "2", "JOB=1:2", "x.JOB.log", "true"], "remove the range of jobs"),
        (["/proc/none/x.log", "true"], "no such file or directory"),
        ([".", "true"], "'.' is a directory; give the name of a log file, such as x.log"),
        (
            ["/dev/null", "true"],
            "'/dev/null' is no file next to which the job's status can be written; give the name of a log "
            "file, such as x.log",
        ),
        (["", "true"], "'' is a directory; give the name of a log file, such as x.log"),
        (["..", "true"], "'..' is a directory; give the name of a log file, such as ../x.log"),
        (["/", "true"], "'/' is a directory; give the name of a log file, such as /x.log"),
        (
            ["file/x.log", "true"],
            "error: file: a file in the place of a directory; check the path, or move the file elsewhere",
        ),
        (["file/log/x.log", "true"], "file/log: Not a directory; check the path"),
    ],
)
def test_invalid_command_lines_give_one_sentence(words, sentence, tmp_path):
    (tmp_path / "file").write_text("")
    done = run_pl(*words, cwd=tmp_path)
    assert done.returncode == 1 and sentence in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "words, raw, name",
    [
        (["-l", "h_rt=30:00", "JOB=1:2", "x.JOB.log"], ("-l", "h_rt=30:00"), "JOB"),
        (
            ["JOB=1:2", "-l", "h_rt=30:00", "-v", "N=1:2", "x.JOB.log"],
            ("-l", "h_rt=30:00", "-v", "N=1:2"),
            "JOB",
        ),
        (["-l", "s_rt=10:00", "x.log"], ("-l", "s_rt=10:00"), ""),
    ],
)
def test_scheduler_values_like_job_ranges_are_not_ranges(words, raw, name):
    request = parse_request([*words, "true"])
    assert (request.raw, request.name) == (raw, name)


def test_scheduler_options_only_warn_in_run_pl(tmp_path):
    done = run_pl("-l", "mem=2G", "-q", "all.q", "-V", "x.log", "echo", "hello", cwd=tmp_path)
    assert done.returncode == 0 and "\nhello\n" in (tmp_path / "x.log").read_text()
    assert done.stderr == (
        "run.pl: warning: -l mem=2G -q all.q -V has no effect: options with one dash are for a scheduler, "
        "and run.pl runs jobs on this machine\n"
    )


@pytest.mark.parametrize(
    "runner, words, sentence",
    [
        (
            "slurm.pl",
            ["-l", "mem=2G"],
            "-l mem=2G: sbatch does not take this option here; resources are --mem, --time and --gpu",
        ),
        (
            "slurm.pl",
            ["-V"],
            (
                "-V: sbatch does not take this option here; remove it: jobs always get this environment and "
                "directory"
            ),
        ),
        (
            "slurm.pl",
            ["-pe", "smp", "4"],
            "-pe smp 4: sbatch does not take this option here; threads are --num-threads, ranks --num-ranks",
        ),
        (
            "queue.pl",
            ["-p", "gpu"],
            "-p gpu: qsub does not take this option here; a queue is --partition NAME or -q NAME",
        ),
        ("queue.pl", ["-N", "2"], "-N 2: qsub does not take this option here; Grid Engine chooses the hosts"),
        (
            "queue.pl",
            ["-t", "1:00:00"],
            "-t 1:00:00: qsub does not take this option here; a time limit is --time, and the range of jobs "
            "JOB=1:N",
        ),
    ],
)
def test_options_of_other_scheduler_are_refused(runner, words, sentence, tmp_path):
    done = subprocess.run(
        [runner, "--dry-run", *words, "x.log", "true"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (1, f"{runner}: error: {sentence}\n")


def test_options_common_to_both_schedulers_are_accepted(tmp_path):
    for runner, words in (
        ("slurm.pl", "-p gpu -N 2 -t 30 -q high -c 2"),
        ("queue.pl", "-p -100 -q all.q -l h_rt=60 -c sx -V"),
    ):
        done = subprocess.run(
            [runner, "--dry-run", *words.split(), "x.log", "true"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0 and f" {words} " in done.stdout, done.stderr


@pytest.mark.parametrize("runner", ["run.pl", "queue.pl", "slurm.pl"])
def test_every_runner_prints_usage(runner, tmp_path):
    usage = f"{runner} [options] [JOB=1:N] LOG COMMAND ARGUMENTS..."
    for words in ([], ["x.log"]):
        done = subprocess.run([runner, *words], cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (
            1,
            f"{runner}: error: expected a log file and a command: {usage}\n",
        )
    done = subprocess.run([runner, "--help"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and usage in done.stdout
