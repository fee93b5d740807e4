"""slurm.pl on a real Slurm with four emulated nodes: every outcome of a job is reported in one sentence."""

import os
import re
import signal
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from runner_case import (
    DIRECTORIES_WITH_THE_WORD,
    ROOT,
    WAIT_S,
    Case,
    begin_in_any_path,
    check_any_path,
    check_directories_with_the_word,
)
from test_run_pl import wait_until

from pyasr.base.errors import UserError
from pyasr.cluster.runner.command_line import parse_request
from pyasr.cluster.runner.status import read_status
from pyasr.cluster.schedulers.batch import script_path, submission
from pyasr.cluster.schedulers.scheduler import call, numbers_of
from pyasr.cluster.schedulers.slurm import Slurm, fate, memory


def job(slurm, name, state="RUNNING"):
    """Slurm's job number of the job with this name, once it is in this state."""
    ask = lambda: slurm.call("squeue", "-h", "-n", name, "-t", state, "-o", "%A").split()
    wait_until(ask, WAIT_S)
    return ask()[0]


KALDI_CONF = """# Default configuration
command sbatch --export=PATH  --ntasks-per-node=1
option time=* --time $0
option mem=* --mem-per-cpu $0
option mem=0          # Do not add anything to qsub_opts
option num_threads=* --cpus-per-task $0 --ntasks-per-node=1
option num_threads=1 --cpus-per-task 1  --ntasks-per-node=1 # Do not add anything to qsub_opts
option max_jobs_run=* -tc $0
default gpu=0
option gpu=0 -p shared
option gpu=* -p gpu --gres=gpu:$0 --time 4:0:0  # this has to be figured out
"""
NO_REQUEUE = "command sbatch --export=ALL --no-requeue\noption nodes=* --nodes=$0\n"


@pytest.fixture(scope="module")
def cases(slurm, tmp_path_factory):
    """All cases that can run concurrently: {name: Case}."""
    directory = tmp_path_factory.mktemp("cases")
    (directory / "site.conf").write_text(NO_REQUEUE)
    (directory / "kaldi.conf").write_text(KALDI_CONF.replace("-p shared", "-p main"))
    words = {
        "success": [
            "--mem",
            "0.1G",
            "JOB=1:3",
            "--max-jobs-run",
            "2",
            "log/a.JOB.log",
            "echo",
            "job JOB",
            "|",
            "tr",
            "j",
            "J",
            ">",
            "out.JOB",
        ],
        "one_of_an_array": [
            "JOB=1:5",
            "log/a.JOB.log",
            "bash",
            "-c",
            "[ JOB != 2 ] || { echo the cause; exit 3; }; [ JOB = 1 ] || sleep 300",
        ],
        "own_words": ["-N", "2", "-t", "60", "x.log", "echo", "nodes=$SLURM_JOB_NUM_NODES"],
        "kaldis_configuration": [
            "--config",
            "../kaldi.conf",
            "--mem",
            "1.5G",
            "--num-threads",
            "1",
            "--max-jobs-run",
            "1",
            "JOB=1:2",
            "x.JOB.log",
            "echo",
            "tasks=$SLURM_NTASKS_PER_NODE",
            "mem=$SLURM_MEM_PER_CPU",
        ],
        **DIRECTORIES_WITH_THE_WORD,
        "killed": ["x.log", "bash", "-c", "kill -9 $$"],
        "lost": ["x.log", "bash", "-c", r"kill -9 \$PPID"],
        "never": ["--config", "../site.conf", "--nodes", "9", "x.log", "true"],
        "cancelled": ["cancelled.log", "sleep", "300"],
        "over_time": ["--time", "10", "over_time.log", "sleep", "300"],
        "node_lost": ["--config", "../site.conf", "--partition", "lonely", "node_lost.log", "sleep", "300"],
    }
    cases = {name: Case(slurm, "slurm.pl", directory / name, *command) for name, command in words.items()}
    end_from_outside(slurm, cases)
    yield cases
    for case in cases.values():
        case.process.kill()


def end_from_outside(slurm, cases):
    """Cancel one job, let the node of another fail, and reduce the time limit of a third to zero."""
    slurm.call("scancel", job(slurm, "cancelled"))
    over_time = job(slurm, "over_time")
    soon = (datetime.now() + timedelta(seconds=5)).isoformat(timespec="seconds")
    slurm.call("scontrol", "update", f"JobId={over_time}", f"EndTime={soon}")
    cases["node_lost"].begun()
    slurm.lose_node("n4")


def test_array_job_follows_kaldi_conventions(cases):
    case = cases["success"]
    assert case.end() == (0, "")
    assert [(case / f"out.{job}").read_text() for job in (1, 2, 3)] == ["Job 1\n", "Job 2\n", "Job 3\n"]
    lines = (case / "log/a.2.log").read_text().splitlines()
    assert (
        lines[0] == '# echo "job 2" | tr j J > out.2'
        and lines[1].startswith("# Started at")
        and lines[-1].startswith("# Ended (code 0)")
    )
    assert read_status(case / "log/a.2.log").ok and (case / "q/a.sh").exists()


def test_logs_in_directories_with_any_name(slurm, tmp_path):
    """sbatch --output expands % sequences and removes backslashes."""
    check_any_path(begin_in_any_path(slurm, "slurm.pl", tmp_path))


def test_directories_containing_job_placeholder(cases):
    check_directories_with_the_word(cases)


def test_sbatch_options_as_in_kaldi(cases):
    assert cases["own_words"].end() == (0, "")
    assert "\nnodes=2\n" in (cases["own_words"] / "x.log").read_text()


def test_kaldi_configuration_is_read(cases):
    assert cases["kaldis_configuration"].end() == (0, "")
    assert "\ntasks=1 mem=1536\n" in (cases["kaldis_configuration"] / "x.2.log").read_text()


def test_ranks_inherit_job_environment_with_kaldi_configuration(slurm, tmp_path):
    """Its `--export=PATH` is an option of sbatch, but srun, which mpiexec uses to start ranks, inherits
    it."""
    (tmp_path / "kaldi.conf").write_text(KALDI_CONF.replace("-p shared", "-p main"))
    words = [
        "--config",
        "../kaldi.conf",
        "--num-ranks",
        "4",
        "x.log",
        "bash",
        "-c",
        r"echo threads=\$OMP_NUM_THREADS stop=\${PYASR_STOP_FILE##*/}",
    ]
    case = Case(slurm, "slurm.pl", tmp_path / "ranks", *words)
    assert case.end() == (0, "")
    assert (case / "x.log").read_text().count("threads=1 stop=x.stop\n") == 4


def test_ranks_share_processors_of_enclosing_srun_step(slurm, tmp_path):
    """For example in a shell of `srun --pty bash`."""
    words = [
        "srun",
        "-n",
        "1",
        "-c",
        "2",
        "timeout",
        "60",
        sys.executable,
        str(ROOT / "utils/run.pl"),
        "--num-ranks",
        "2",
        "x.log",
        "echo",
        "here",
    ]
    subprocess.run(words, cwd=tmp_path, env=slurm.environment, check=True, timeout=WAIT_S)
    assert (tmp_path / "x.log").read_text().count("here\n") == 3  # once in the header


def test_more_ranks_than_nodes_with_kaldi_configuration(slurm, tmp_path):
    """Slurm is only asked whether it would accept the job."""
    (tmp_path / "kaldi.conf").write_text(KALDI_CONF.replace("-p shared", "-p main"))
    words = [
        "--config",
        str(tmp_path / "kaldi.conf"),
        "--num-ranks",
        str(2 * slurm.num - 2),
        "--num-threads",
        "1",
    ]
    request = parse_request([*words, str(tmp_path / "x.log"), "true"], Slurm.own)
    program, *words = submission(request, Slurm(), request.jobs)
    script_path(request).parent.mkdir()
    script_path(request).write_text("#!/bin/bash\ntrue\n")
    slurm.call(program, "--test-only", *words)


def test_failing_array_job_is_reported_once(slurm, cases):
    """The report has the command that repeats the job. The other jobs are ended."""
    case = cases["one_of_an_array"]
    code, said = case.end()
    assert (
        code == 1 and "slurm.pl: 1 / 5 failed, log is in log/a.JOB.log" in said and "    | the cause" in said
    )
    assert re.search(r"  job    2 on \S+: exit status 3 \(after [\d.]+ s\)\n", said) and re.search(
        r"again  \S*slurm\.pl JOB=2 log/a\.2\.log bash -c", said
    )
    assert read_status(case / "log/a.2.log").status == 3
    wait_until(lambda: not slurm.call("squeue", "-h", "-n", "a"), WAIT_S)


def test_killed_command_is_reported(cases):
    code, said = cases["killed"].end()
    assert code == 1 and "killed by signal 9" in said and "memory ran out" in said
    assert read_status(cases["killed"] / "x.log").signal == 9


def test_job_without_status_is_reported(cases):
    """The job script was killed with its command. The sentence becomes the job's status for the waiting
    step."""
    code, said = cases["lost"].end()
    assert (
        code == 1
        and "it has ended, says Slurm, but has written no status: it was killed or could not start" in said
    )
    assert read_status(cases["lost"] / "x.log").reason in said


def test_job_that_never_starts_is_cancelled_and_reported(slurm, cases):
    code, said = cases["never"].end()
    assert (
        code == 1
        and "it will never start: it requests more than its partition main has (Slurm says PartitionConfig)"
        in said
    )
    assert not slurm.call("squeue", "-h", "-t", "PENDING", "-n", "x")


def test_cancelled_job_is_reported(cases):
    code, said = cases["cancelled"].end()
    assert code == 1 and "it was cancelled (scancel) (Slurm says CANCELLED)" in said


def test_lost_node_is_reported(cases):
    code, said = cases["node_lost"].end()
    assert code == 1 and "its node n4 was lost (Slurm says NODE_FAIL)" in said, said
    assert read_status(cases["node_lost"] / "node_lost.log").host_lost


def test_exceeded_time_limit_is_reported(cases):
    code, said = cases["over_time"].end()
    assert code == 1 and re.search(
        r"it exceeded its time limit of [\d:]+; ask for more with --time, .* \(Slurm says TIMEOUT\)", said
    ), said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_killed_slurm_pl_leaves_no_job(number, slurm, tmp_path):
    """It ends after its job, if it can wait."""
    case = Case(
        slurm,
        "slurm.pl",
        tmp_path / f"orphan{number}",
        f"orphan{number}.log",
        "trap",
        "true",
        "TERM",
        ";",
        "sleep",
        "300",
    ).begun()
    case.process.send_signal(number)
    assert case.end()[0] != 0
    assert number == signal.SIGKILL or not slurm.call("squeue", "-h", "-n", f"orphan{number}")
    wait_until(lambda: not slurm.call("squeue", "-h", "-n", f"orphan{number}"), WAIT_S)


@pytest.mark.parametrize(
    "words, sentence",
    [
        (
            ["--partition", "nope", "x.log", "true"],
            (
                "error: sbatch refused the job: invalid partition specified: nope; Batch job submission "
                "failed: Invalid partition name specified ("
            ),
        ),
        (["--mem", "8T", "x.log", "true"], "error: sbatch refused the job: "),
        (
            ["--time", "soon", "x.log", "true"],
            "error: --time: 'soon' is not a valid time such as 30, in minutes, 12:00:00 or 2-00:00:00",
        ),
        (["--nodes", "2", "x.log", "true"], "error: --nodes: no such option"),
    ],
)
def test_refused_submissions_are_reported(words, sentence, slurm, tmp_path):
    code, said = Case(slurm, "slurm.pl", tmp_path / "x", *words).end()
    assert code == 1 and sentence in said and said.count("\n") == 1


def test_missing_slurm_is_reported(tmp_path):
    words = [sys.executable, ROOT / "utils/slurm.pl", "x.log", "true"]
    done = subprocess.run(
        words,
        cwd=tmp_path,
        env={**os.environ, "PATH": str(Path(sys.executable).parent)},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert done.returncode == 1 and done.stderr.startswith(
        "slurm.pl: error: there is no program 'sbatch' on PATH"
    )


def test_dry_run_prints_submission(tmp_path):
    """With a configuration in Kaldi's format; missing options have their defaults."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/slurm.conf").write_text(
        "command sbatch --export=PATH -A asr\noption gpu=* -p gpu --gres=gpu:$0\noption mem=* --mem=$0\n"
    )
    words = [
        "--dry-run",
        "--gpu",
        "2",
        "--mem",
        "4G",
        "--num-threads",
        "3",
        "-C",
        "fast",
        "JOB=2:5",
        "--max-jobs-run",
        "2",
        "exp/log/a.JOB.log",
        "wc",
        "a b",
        "|",
        "cat",
    ]
    done = subprocess.run(["slurm.pl", *words], cwd=tmp_path, capture_output=True, text=True, timeout=WAIT_S)
    command, _, script = done.stdout.partition("\n\n")
    assert command == (
        "sbatch --export=PATH -A asr -p gpu --gres=gpu:2 --mem=4G --cpus-per-task=3 -C fast --parsable "
        "--job-name=a --output=/dev/null --array=2-5%2 exp/q/a.sh"
    )
    assert f"cd {tmp_path} || exit 1\n" in script
    assert script.endswith(
        "utils/run.pl --num-threads 3 --gpu 2 JOB=$SLURM_ARRAY_TASK_ID exp/log/a.JOB.log wc 'a b' '|' cat\n\n"
    )
    assert not (tmp_path / "exp").exists()
    done = subprocess.run(
        ["slurm.pl", "--gpu", "1", "--dry-run", "--num-ranks", "4", "x.log", "true"],
        cwd=tmp_path.parent,
        capture_output=True,
        text=True,
    )
    assert done.stdout.startswith(
        "sbatch --export=ALL --gres=gpu:1 --ntasks=4 --signal=B:USR1@120 --parsable"
    )


@pytest.mark.parametrize(
    "options, expected",
    [
        (
            ["JOB=1:4", "--max-jobs-run", "2"],
            "-p shared --parsable --job-name=a --output=/dev/null --array=1-4%2",
        ),
        (
            ["--mem", "1.5G", "--num-threads", "3"],
            (
                "--ntasks-per-node=1 -p shared --mem-per-cpu 1536M --cpus-per-task 3 --ntasks-per-node=1 "
                "--parsable"
            ),
        ),
        (
            ["--gpu", "1", "--time", "8:0:0"],
            "--ntasks-per-node=1 -p gpu --gres=gpu:1 --time 4:0:0 --time 8:0:0 --parsable",
        ),
        (
            ["--num-ranks", "4", "--num-threads", "2"],
            "--export=PATH -p shared --ntasks=4 --signal=B:USR1@120 --cpus-per-task 2 --parsable",
        ),
        (
            ["--num-ranks", "4", "--num-threads", "1"],
            "--export=PATH -p shared --ntasks=4 --signal=B:USR1@120 --cpus-per-task 1 --parsable",
        ),
        (["--num-ranks", "1"], "--export=PATH --ntasks-per-node=1 -p shared --ntasks=1 "),
    ],
)
def test_submission_with_kaldi_configuration(options, expected, tmp_path):
    """Several ranks may share a node. The array option limits the number of concurrent jobs."""
    (tmp_path / "kaldi.conf").write_text(KALDI_CONF)
    log = "a.JOB.log" if "JOB=1:4" in options else "a.log"
    request = parse_request(["--config", str(tmp_path / "kaldi.conf"), *options, log, "true"], Slurm.own)
    words = " ".join(submission(request, Slurm(), request.jobs))
    assert words.startswith("sbatch --export=PATH ") and expected in words and "-tc" not in words, words


@pytest.mark.parametrize(
    "declared, is_kept",
    [
        ("command sbatch --ntasks-per-node 1", False),
        ("command sbatch --ntasks-per-node=2", True),
        ("option num_ranks=* --ntasks=$0 --ntasks-per-node=1", True),
    ],
)
def test_ranks_per_node_follow_configuration(declared, is_kept, tmp_path):
    """A site may configure a line for ranks."""
    (tmp_path / "site.conf").write_text(declared)
    request = parse_request(
        ["--config", str(tmp_path / "site.conf"), "--num-ranks", "4", "x.log", "true"], Slurm.own
    )
    words = submission(request, Slurm(), request.jobs)
    assert ("--ntasks-per-node" in " ".join(words)) == is_kept and "--ntasks=4" in words and "1" not in words


@pytest.mark.parametrize(
    "amount, expected",
    [
        ("4G", "4G"),
        ("500", "500"),
        ("0", "0"),
        ("100m", "100m"),
        ("1.5G", "1536M"),
        ("1.5GiB", "1536M"),
        ("2GiB", "2G"),
        ("2Gb", "2G"),
        ("0.5T", "524288M"),
        ("100.5", "101M"),
        ("1500.5k", "2M"),
    ],
)
def test_memory_is_formatted_for_slurm(amount, expected):
    assert memory(amount) == expected


@pytest.mark.parametrize(
    "declared, flags",
    [
        ("option gpu=* -p gpu --gres=gpu:$0", ""),
        ("option gpu=* -p gpu --gres=gpu:$0\noption gpu=0 -p shared", "-p shared "),
        ("option gpu=* -p gpu --gres=gpu:$0\ndefault gpu=1", "-p gpu --gres=gpu:1 "),
        ("default gpu=2", "--gres=gpu:2 "),
        ("", ""),
    ],
)
def test_jobs_without_gpu_option_request_none(declared, flags, tmp_path):
    (tmp_path / "site.conf").write_text(declared)
    request = parse_request(["--config", str(tmp_path / "site.conf"), "x.log", "true"], Slurm.own)
    assert " ".join(submission(request, Slurm(), request.jobs)).startswith(
        f"sbatch --export=ALL {flags}--parsable"
    )


def test_environment_variables_are_added_to_options(tmp_path, monkeypatch):
    """Environment variables are inserted as bash would, because Kaldi's runners call sbatch through bash."""

    def words(*options):
        return Slurm().site_words(
            parse_request(["--config", str(tmp_path / "site.conf"), *options, "x.log", "true"], Slurm.own)
        )

    monkeypatch.setenv("ACC", "asr")
    monkeypatch.delenv("QOS", raising=False)
    line = """sbatch -A $ACC -C "${ACC}_$ACC" '$ACC' \\$ACC"""
    (tmp_path / "site.conf").write_text(f"command {line}\noption long=* --qos=$QOS")
    bash = subprocess.run(["bash", "-c", f"printf '%s\\n' {line}"], capture_output=True, text=True)
    assert words() == bash.stdout.splitlines() and words()[2] == "asr"
    with pytest.raises(
        UserError,
        match=(
            "^'option long=[*] --qos=[$]QOS' in the runner's configuration: the variable QOS is not set; "
            "export it"
        ),
    ):
        words("--long", "true")


def test_unclosed_quotes_in_option_value_are_refused(tmp_path):
    (tmp_path / "site.conf").write_text("option nodes=* --nodelist=$0")
    request = parse_request(
        ["--config", str(tmp_path / "site.conf"), "--nodes", "n1'", "x.log", "true"], Slurm.own
    )
    with pytest.raises(UserError, match="^--nodes n1': '--nodelist=n1'' ends within quotation marks"):
        submission(request, Slurm(), request.jobs)


@pytest.mark.parametrize("cut", [False, True])
def test_long_task_lists_are_not_truncated(cut, slurm, monkeypatch):
    """Slurm truncates such lists by default. Pending tasks under one number, even unnamed ones, must not
    count as lost."""
    for name in ("PATH", "SLURM_CONF"):
        monkeypatch.setenv(name, slurm.environment[name])
    if cut:
        monkeypatch.setattr("pyasr.cluster.schedulers.slurm.call", lambda words, **environment: call(words))
    tasks = [task for task in range(1, 400) if task % 3]
    number = slurm.call(
        "sbatch",
        "--parsable",
        "--hold",
        f"--array={','.join(map(str, tasks))}%2",
        "-o",
        "/dev/null",
        "--wrap=true",
    ).strip()
    fates = Slurm().fates(number, tasks)
    slurm.call("scancel", number)
    assert sorted(fates) == tasks and all(fate.active for fate in fates.values())


def test_scontrol_output_is_parsed():
    assert (
        numbers_of("1-3,7%2") == [1, 2, 3, 7] and numbers_of("0") == [0] and numbers_of("2-4:1") == [2, 3, 4]
    )
    assert numbers_of("1,3,7,...%2") == [1, 3, 7]
    waits = fate({"JobState": "PENDING", "Reason": "ReqNodeNotAvail,_Reserved_for_maintenance"})
    assert waits.active and waits.reason == "waits: ReqNodeNotAvail,_Reserved_for_maintenance"
    assert (
        fate({"JobState": "PENDING", "Reason": "Resources"}).reason == ""
        and fate({"JobState": "COMPLETING"}).active
    )
    assert waits.waits and not fate({"JobState": "RUNNING"}).waits
    assert fate({"JobState": "OUT_OF_MEMORY"}).reason.startswith("it used more memory than it had requested")
    assert not fate({"JobState": "FAILED", "Reason": "NonZeroExitCode"}).reason
