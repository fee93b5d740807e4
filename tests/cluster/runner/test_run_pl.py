"""run.pl: Kaldi's command line and log conventions, limits, failures; no process remains."""

import os
import platform
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from pyasr.base.host.device_lock import claim
from pyasr.cluster.runner.command_line import parse_request, protect, shell_word
from pyasr.cluster.runner.failure_report import ELSEWHERE, HERE, HINTS, hint
from pyasr.cluster.runner.runner_config import read_runner_config
from pyasr.cluster.runner.status import JobStatus, read_status, write_status


def run_pl(*words, cwd, timeout=60):
    return subprocess.run(
        ["run.pl", *map(str, words)], cwd=cwd, capture_output=True, text=True, timeout=timeout
    )


def test_array_job_follows_kaldi_conventions(tmp_path):
    done = run_pl(
        "--mem",
        "2G",
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
        cwd=tmp_path,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert [(tmp_path / f"out.{job}").read_text() for job in (1, 2, 3)] == ["Job 1\n", "Job 2\n", "Job 3\n"]
    lines = (tmp_path / "log/a.2.log").read_text().splitlines()
    assert lines[0] == '# echo "job 2" | tr j J > out.2'
    assert re.fullmatch(r"# Started at \w{3} \w{3} +\d+ [\d:]{8} \d{4}", lines[1])
    assert lines[2:4] == [f"# Running on {platform.node()}", "#"]
    assert re.fullmatch(r"# Accounting: time=\d+ threads=1", lines[-2])
    assert re.fullmatch(r"# Ended \(code 0\) at \w{3} .*, elapsed time \d+ seconds", lines[-1])
    status = read_status(tmp_path / "log/a.2.log")
    assert (
        status.ok
        and status.job == 2
        and status.signal is None
        and status.begin <= status.end
        and status.peak_memory_mb > 0
    )


def test_single_job_and_number_of_threads(tmp_path):
    assert (
        run_pl(
            "--num-threads", "3", "x.log", "echo", "$OMP_NUM_THREADS $NUMBA_NUM_THREADS", cwd=tmp_path
        ).returncode
        == 0
    )
    assert "3 3\n" in (tmp_path / "x.log").read_text()


def test_concurrent_jobs_stay_below_limit(tmp_path):
    """Every job records how many jobs run at the same time."""
    script = "touch run.JOB; sleep 0.1; ls run.* | wc -l > seen.JOB; rm run.JOB"
    limits = ["--max-jobs-run", "2", "--max-jobs-run=10", "-tc", "5"]  # the lowest limit counts, as in Kaldi
    assert run_pl(*limits, "JOB=1:6", "x.JOB.log", "bash", "-c", script, cwd=tmp_path).returncode == 0
    assert max(int((tmp_path / f"seen.{job}").read_text()) for job in range(1, 7)) == 2


def test_failure_is_reported_once_and_stops_other_jobs(tmp_path):
    script = "if [ JOB = 2 ]; then echo the cause; cat no.such.file; exit 7; fi; sleep 60; touch slept.JOB"
    done = run_pl("--max-jobs-run", "3", "JOB=1:9", "log/a.JOB.log", "bash", "-c", script, cwd=tmp_path)
    assert done.returncode == 1 and not list(tmp_path.glob("slept.*"))
    assert "run.pl: 1 / 9 failed, log is in log/a.JOB.log" in done.stderr
    assert re.search(r"job    2 on \S+: exit status 7", done.stderr)
    # once in the log's line, once in the command that repeats the job
    assert "    | the cause" in done.stderr and done.stderr.count("the cause") == 2
    assert "an input is missing" in done.stderr
    again = re.search(r"again  (.*)", done.stderr)[1]
    assert read_status(tmp_path / "log/a.2.log").status == 7
    assert read_status(tmp_path / "log/a.1.log").stopped and not (tmp_path / "log/a.7.log").exists()
    (tmp_path / "no.such.file").write_text("")
    repeated = subprocess.run(
        again.replace("exit 7", "exit 0"), shell=True, cwd=tmp_path, capture_output=True, timeout=300
    )
    assert repeated.returncode == 0 and read_status(tmp_path / "log/a.2.log").ok


def test_trailer_is_separate_from_unfinished_last_line(tmp_path):
    """A killed job may leave a progress line without a line end. The trailer starts on a new line."""
    done = run_pl("x.log", "printf", "error: lost", ";", "exit", "3", cwd=tmp_path)
    assert done.returncode == 1 and "\n    | error: lost\n" in done.stderr
    assert [line.split(" ", 2)[1] for line in (tmp_path / "x.log").read_text().splitlines()[-2:]] == [
        "Accounting:",
        "Ended",
    ]


def test_command_line_of_any_length_runs(tmp_path):
    """A long command runs like any other, in a shell with the same options and name."""
    names = [f"{name:020}" for name in range(12_000)]
    done = run_pl(
        "x.log",
        "echo",
        *names,
        ">",
        "names",
        ";",
        "echo",
        "$0",
        ";",
        "cat",
        ";",
        "false",
        "|",
        "cat",
        cwd=tmp_path,
    )
    assert done.returncode == 1 and (tmp_path / "names").read_text().split() == names
    assert (
        "\nbash\n# Accounting" in (tmp_path / "x.log").read_text()
        and read_status(tmp_path / "x.log").status == 1
    )


def test_report_escapes_terminal_control_sequences(tmp_path):
    """Control sequences in output and in names of log directories are escaped. Tabs and line breaks of the
    command stay."""
    log = os.fsdecode(bytes(tmp_path) + b"/l\xe9g/x.log")
    command = [
        "run.pl",
        log,
        "bash",
        "-c",
        r"printf '\033]0;pwned\007\033[31mred\302\233K\ta\377é\n'" + "\nexit 3",
    ]
    printed = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=60)
    kept = subprocess.run(
        command,
        cwd=tmp_path,
        capture_output=True,
        timeout=60,
        env={**os.environ, "PYASR_REPORT": str(tmp_path / "report")},
    )
    assert (printed.returncode, kept.returncode, kept.stderr) == (1, 1, b"")
    for report in (printed.stderr.decode(), (tmp_path / "report").read_text(encoding="utf-8") + "\n"):
        assert r"    | \x1b]0;pwned\x07\x1b[31mred\x9bK" + "\ta" in report and "é\n" in report
        assert all(
            character.isprintable() or character in "\n\t" for character in report
        ) and report.endswith("\n")


def test_killed_job_and_failing_pipe_are_reported(tmp_path):
    done = run_pl("x.log", "bash", "-c", "kill -9 $$", cwd=tmp_path)
    assert done.returncode == 1 and "killed by signal 9" in done.stderr and "memory ran out" in done.stderr
    assert read_status(tmp_path / "x.log").signal == 9
    assert run_pl("x.log", "false", "|", "cat", cwd=tmp_path).returncode == 1


def test_dry_run_with_closed_reader_ends_quietly(tmp_path):
    """For example, the reader is `head`."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        ["run.pl", "--dry-run", "x.log", "true"],
        cwd=tmp_path,
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


def test_stale_status_is_ignored(tmp_path):
    assert run_pl("x.log", "true", cwd=tmp_path).returncode == 0
    run_pl("x.log", "false", cwd=tmp_path)
    assert not read_status(tmp_path / "x.log").ok


def test_files_of_ranks_are_removed_before_scheduler_restarts_them(tmp_path):
    """User files that are named like a marker stay."""
    for name in ("x.spec", "own"):
        (tmp_path / f"{name}.alive").mkdir()
        for left in (tmp_path / f"{name}.alive" / "host.7", tmp_path / f"{name}.error"):
            left.touch()
        mark = f"{name}.done"
        assert (
            run_pl("--num-ranks", "1", "--done-marker", mark, "y.log", "touch", mark, cwd=tmp_path).returncode
            == 0
        )
    assert sorted(
        str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.suffix in (".error", ".7")
    ) == ["own.alive/host.7", "own.error"]


def test_missing_done_marker_fails_the_job(tmp_path):
    (tmp_path / "mark").write_text("of an earlier run")
    assert run_pl("--done-marker", "mark", "x.log", "true", cwd=tmp_path).returncode == 1
    assert run_pl("--done-marker", "mark", "x.log", "touch", "mark", cwd=tmp_path).returncode == 0


QUEUE_CONF = """# as in Kaldi's recipes
command qsub -v PATH -cwd -S /bin/bash -j y -l arch=*64*
option mem=* -l mem_free=$0,ram_free=$0
option mem=0          # Do not add anything to qsub_opts
option num_threads=* -pe smp $0
option num_threads=1
option max_jobs_run=* -tc $0
default gpu=0
option gpu=0
option gpu=* -l gpu=$0 -q g.q
option allow_k20=true -l 'hostname=!g01*'
default num_threads=3
"""


def test_kaldi_config_file_gives_defaults(tmp_path):
    """The command line overrides the file. The file may declare further options."""
    (tmp_path / "queue.conf").write_text(QUEUE_CONF)
    config = read_runner_config(tmp_path / "queue.conf")
    assert config.command == "qsub -v PATH -cwd -S /bin/bash -j y -l arch=*64*"
    assert config.options["mem"] == {"*": "-l mem_free=$0,ram_free=$0", "0": ""}
    assert config.options["allow_k20"] == {"true": "-l 'hostname=!g01*'"}
    for words, threads in ((["--allow-k20", "true"], 3), (["--num-threads", "2"], 2)):
        done = run_pl(
            "--config", "queue.conf", *words, "x.log", "echo", "threads=$OMP_NUM_THREADS", cwd=tmp_path
        )
        assert done.returncode == 0 and f"threads={threads}\n" in (tmp_path / "x.log").read_text(), (
            done.stderr
        )
    (tmp_path / "queue.conf").write_text("option max-hosts=* -l hosts=$0\ndefault num-threads=3")
    done = run_pl(
        "--config",
        "queue.conf",
        "--max-hosts",
        "3",
        "x.log",
        "echo",
        "threads=$OMP_NUM_THREADS",
        cwd=tmp_path,
    )
    assert (done.returncode, done.stderr) == (0, "") and "threads=3\n" in (tmp_path / "x.log").read_text()
    for line, sentence in (
        ("options mem=*", "queue.conf:1: 'options mem=*' is none of"),
        ("default num_threads=x", "--num-threads: 'x' is not"),
        (
            "default gpus=0",
            "queue.conf: 'default gpus=0', but no line 'option gpus=...' declares it; add one",
        ),
        (
            "\ncommand qsub -l 'arch=*64*",
            "queue.conf:2: 'command qsub -l 'arch=*64*' ends within quotation marks",
        ),
        ("option mem=* -l 'mem=$0", "queue.conf:1: 'option mem=* -l 'mem=$0' ends within quotation marks"),
    ):
        (tmp_path / "queue.conf").write_text(line + "\n")
        done = run_pl("--config", "queue.conf", "x.log", "true", cwd=tmp_path)
        assert done.returncode == 1 and sentence in done.stderr and done.stderr.count("\n") == 1


def test_queue_options_have_no_effect(tmp_path):
    """As in Kaldi's run.pl, each has one value; options that the configuration declares are known."""
    (tmp_path / "queue.conf").write_text(QUEUE_CONF)
    words = [
        "--config",
        "queue.conf",
        "--allow-k20",
        "true",
        "--allow-k80=no",
        "JOB=1:2",
        "--max-hosts",
        "3",
        "x.JOB.log",
        "echo",
        "job",
        "JOB",
    ]
    done = run_pl(*words, cwd=tmp_path)
    no_option = "has no effect: run.pl has no such option (see run.pl --help)\n"
    assert (done.returncode, done.stderr) == (
        0,
        f"run.pl: warning: --allow-k80 no {no_option}run.pl: warning: --max-hosts 3 {no_option}",
    )
    assert "\njob 2\n" in (tmp_path / "x.2.log").read_text()
    done = subprocess.run(["queue.pl", *words], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and done.stderr.startswith(
        "queue.pl: error: --allow-k80: no such option; known are --num-threads "
    )


def test_every_job_has_its_own_gpus(tmp_path, monkeypatch):
    """GPUs come from CUDA_VISIBLE_DEVICES. The lock directory of a GPU exists while a job has it, and no
    other job can create it."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    script = (
        r"mkdir gpu.\$CUDA_VISIBLE_DEVICES && echo \$CUDA_VISIBLE_DEVICES > had.JOB && sleep 0.1 && "
        r"rmdir gpu.\$CUDA_VISIBLE_DEVICES"
    )
    done = run_pl(
        "--gpu", "1", "--max-jobs-run", "5", "JOB=1:5", "x.JOB.log", "bash", "-c", script, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert {(tmp_path / f"had.{job}").read_text() for job in range(1, 6)} == {"4\n", "7\n"}
    assert run_pl("--gpu", "2", "x.log", "echo", "has=$CUDA_VISIBLE_DEVICES", cwd=tmp_path).returncode == 0
    assert "has=4,7\n" in (tmp_path / "x.log").read_text()
    done = run_pl("--gpu", "3", "x.log", "true", cwd=tmp_path)
    assert (
        done.returncode == 1
        and "--gpu 3: only 2 GPU(s) of this machine are available; request fewer" in done.stderr
    )


SSH = """#!/bin/bash
while [[ $1 == -* ]]; do shift; done
export CUDA_VISIBLE_DEVICES=of_$1
eval "exec ${*:2}"
"""


def test_ranks_on_other_hosts_keep_their_gpu_variables(tmp_path, monkeypatch):
    """So do all other environment variables. The hosts are simulated by a program that sets the variables of
    a scheduler."""
    (tmp_path / "ssh").write_text(SSH)
    (tmp_path / "ssh").chmod(0o755)
    (tmp_path / "hosts").write_text("here\nthere\n")
    here = dict(
        HYDRA_LAUNCHER_EXEC=tmp_path / "ssh",
        HYDRA_HOST_FILE=tmp_path / "hosts",
        CUDA_VISIBLE_DEVICES="4,7",
        OF_A_USER="kept",
    )
    for name, value in here.items():
        monkeypatch.setenv(name, str(value))
    script = r"echo has=\$CUDA_VISIBLE_DEVICES \$OF_A_USER"
    assert run_pl("--num-ranks", "2", "x.log", "bash", "-c", script, cwd=tmp_path).returncode == 0
    assert set(re.findall(r"(?m)^has=(.*)", (tmp_path / "x.log").read_text())) == {
        "of_here kept",
        "of_there kept",
    }


@pytest.fixture
def start_with_gpus(tmp_path, monkeypatch):
    """Function (name, options) that starts a run.pl with GPUs. Its job prints its GPUs and waits for the file
    `end`."""
    monkeypatch.setenv("PYASR_LOCKS", str(tmp_path / "locks"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    begun = []

    def begin(name, *words):
        command = [
            "run.pl",
            *words,
            f"{name}.log",
            "bash",
            "-c",
            r"echo has=\$CUDA_VISIBLE_DEVICES; until [ -e end ]; do sleep 0.05; done",
        ]
        begun.append(subprocess.Popen(command, cwd=tmp_path))
        wait_until(lambda: b"\nhas=" in read(tmp_path / f"{name}.log") or begun[-1].poll() is not None)
        return begun[-1]

    yield begin
    (tmp_path / "end").touch()
    for runner in begun:
        runner.wait(60)


def has(log):
    return re.search(r"(?m)^has=(.*)", log.read_text())[1]


def test_two_runners_on_one_machine_take_different_gpus(start_with_gpus, tmp_path):
    """The second takes another GPU, the third is refused, a sharing one is not. GPUs of an ended runner are
    free."""
    first, _ = start_with_gpus("a", "--gpu", "1"), start_with_gpus("b", "--gpu", "1")
    assert (has(tmp_path / "a.log"), has(tmp_path / "b.log")) == ("4", "7")
    done = run_pl("--gpu", "1", "c.log", "true", cwd=tmp_path)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and not (tmp_path / "c.log").exists()
    assert re.match(
        rf"run.pl: error: GPU 4 \(4\) is used by process {first.pid} on \S+ since .* \(log: "
        rf"{tmp_path}/a.log\), GPU 7 as well; wait",
        done.stderr,
    )
    assert run_pl("--gpu", "1", "--share-devices", "true", "d.log", "true", cwd=tmp_path).returncode == 0
    first.send_signal(signal.SIGTERM)
    first.wait(10)
    assert run_pl("--gpu", "1", "e.log", "echo", "has=$CUDA_VISIBLE_DEVICES", cwd=tmp_path).returncode == 0
    assert has(tmp_path / "e.log") == "4"


def test_gpus_of_killed_runner_are_released_after_its_jobs_ended(start_with_gpus, tmp_path):
    """Its guard holds the locks until then. Here, the guard kills a job that ignores the request to end."""
    script = r"trap : TERM; echo \$$ > pid; until [ -e end ]; do sleep 0.05; done"
    runner = subprocess.Popen(["run.pl", "--gpu", "2", "a.log", "bash", "-c", script], cwd=tmp_path)
    wait_until(lambda: read(tmp_path / "pid").endswith(b"\n"))
    runner.kill()
    runner.wait(10)
    (lock,) = claim([["4"]], {}, Path("x.log"), patience_s=60)
    lock.release()
    assert read(Path("/proc") / (tmp_path / "pid").read_text().strip() / "cmdline") == b""


def test_runner_releases_gpus_that_no_waiting_job_needs(start_with_gpus, tmp_path):
    """One of its two jobs has ended."""
    script = r"until [ JOB = 1 -o -e end ]; do sleep 0.05; done"
    runner = subprocess.Popen(
        ["run.pl", "--gpu", "1", "--max-jobs-run", "2", "JOB=1:2", "x.JOB.log", "bash", "-c", script],
        cwd=tmp_path,
    )
    wait_until(lambda: read_status(tmp_path / "x.1.log"))
    start_with_gpus("a", "--gpu", "1")
    assert has(tmp_path / "a.log") == "4"
    (tmp_path / "end").touch()
    assert runner.wait(60) == 0


@pytest.mark.parametrize(
    "listed, seen",
    [("GPU 0: NVIDIA H200 (UUID: GPU-1)\nGPU 1: NVIDIA H200 (UUID: GPU-2)\n", "0"), (None, "unset")],
)
def test_gpus_are_listed_by_driver(listed, seen, tmp_path, monkeypatch):
    """Without a driver or a GPU, jobs run as without --gpu."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text(
        f"#!/bin/sh\nprintf '{listed}'\n" if listed else "#!/bin/sh\necho 'No devices were found'; exit 6\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    assert (
        run_pl("--gpu", "1", "x.log", "echo", "has=${CUDA_VISIBLE_DEVICES-unset}", cwd=tmp_path).returncode
        == 0
    )
    assert f"has={seen}\n" in (tmp_path / "x.log").read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_killed_run_pl_leaves_no_process(number, tmp_path, default_sighup):
    mark = f"30{os.getpid()}{number}"
    runner = subprocess.Popen(
        [
            "run.pl",
            "--max-jobs-run",
            "4",
            "JOB=1:2",
            "x.JOB.log",
            "bash",
            "-c",
            f"sleep {mark} & sleep {mark} | cat; echo JOB",
        ],
        cwd=tmp_path,
        stderr=subprocess.DEVNULL,
    )
    count = lambda: len(
        [
            p
            for p in Path("/proc").glob("[0-9]*/cmdline")
            if mark.encode() in read(p) and b"sleep\0" in read(p)
        ]
    )
    wait_until(lambda: count() == 4)
    runner.send_signal(number)
    assert runner.wait(10) != 0
    wait_until(lambda: count() == 0)


def guards(runner):
    """Guards of a runner: its children that run no other program."""
    return children(runner.pid, read(Path(f"/proc/{runner.pid}/cmdline")).rstrip(b"\0"))


def children(parent: int, program: bytes) -> list[int]:
    """Children of this process that run this program."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            is_child = path.joinpath("stat").read_text().rpartition(")")[2].split()[1] == str(parent)
            found += (
                [int(path.name)]
                if is_child and path.joinpath("cmdline").read_bytes().startswith(program + b"\0")
                else []
            )
        except OSError:
            pass
    return found


def kill_guard(runner):
    wait_until(lambda: guards(runner))
    (guard,) = guards(runner)
    os.kill(guard, signal.SIGKILL)
    # a killed process is listed until it is scheduled again
    wait_until(lambda: guard not in guards(runner))
    return guard


def born(pid: int) -> bytes:
    """Start time of a process, b"" if it is absent or a zombie. PIDs are reused."""
    state, *fields = read(Path(f"/proc/{pid}/stat")).rpartition(b")")[2].split() or [b"Z"]
    return b"" if state == b"Z" else fields[18]


def test_runner_continues_if_its_guard_is_killed(tmp_path):
    """A new guard takes over the running jobs, and ends them if the runner is killed as well."""
    script = r"echo \$\$ > pid.JOB; until [ -e end.JOB ]; do sleep 0.05; done"
    runner = subprocess.Popen(
        ["run.pl", "--max-jobs-run", "2", "JOB=1:3", "x.JOB.log", "bash", "-c", script],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: read(tmp_path / "pid.1") and read(tmp_path / "pid.2"))
    kill_guard(runner)
    wait_until(lambda: guards(runner))
    (tmp_path / "end.1").touch()
    wait_until(lambda: read(tmp_path / "pid.3").endswith(b"\n"))
    left = {pid: born(pid) for pid in (int((tmp_path / f"pid.{job}").read_text()) for job in (2, 3))}
    assert all(left.values())
    kill_guard(runner)
    wait_until(lambda: guards(runner))
    runner.kill()
    assert runner.communicate(timeout=60)[1] == "" and read_status(tmp_path / "x.1.log").ok
    wait_until(lambda: not any(born(pid) == begin for pid, begin in left.items()))


def test_job_with_closed_output_ends_by_sigpipe(tmp_path):
    """As in a shell."""
    done = run_pl("x.log", "bash", "-c", r"kill -PIPE \$\$", cwd=tmp_path, timeout=60)
    assert done.returncode == 1 and "killed by signal 13" in done.stderr


def test_run_pl_under_nohup_survives_hangup(tmp_path):
    """Its job survives, too."""
    script = r"kill -HUP \$PPID \$\$; sleep 0.2; echo continued"
    done = subprocess.run(
        ["nohup", "run.pl", "x.log", "bash", "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, "continued\n" in (tmp_path / "x.log").read_text()) == (0, True), done


def read(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


def wait_until(condition, timeout_s=60):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.05)


def test_background_processes_of_job_are_ended(tmp_path):
    run_pl("x.log", "bash", "-c", r"sleep 100 & echo \$! > pid", cwd=tmp_path)
    pid = int((tmp_path / "pid").read_text())
    wait_until(lambda: b"sleep" not in read(Path(f"/proc/{pid}/cmdline")))


@pytest.mark.parametrize(
    "word", ["plain", "two words", "$HOME", "a'b", 'say "x"', "back\\slash and $x `y`", "semi;colon", "", "*"]
)
def test_quoted_words_reach_job_unchanged(word, tmp_path):
    line = "printf %s " + shell_word(protect(word))
    assert subprocess.run(["bash", "-c", line], capture_output=True, text=True, cwd=tmp_path).stdout == word


def test_words_with_single_dash_are_ignored(tmp_path):
    """run.pl ignores them, whatever they are."""
    words = [
        "-N",
        "2",
        "-t",
        "60",
        "-V",
        "-cwd",
        "-v",
        "A=b",
        "-p",
        "-100",
        "-j",
        "y",
        "-sync",
        "y",
        "-q=all.q",
        "-pe",
        "smp",
        "3",
    ]
    for place in (words + ["JOB=1:2"], ["JOB=1:2"] + words):
        assert run_pl(*place, "x.JOB.log", "echo", "threads=$OMP_NUM_THREADS", cwd=tmp_path).returncode == 0
        assert "threads=1\n" in (tmp_path / "x.2.log").read_text()
    request = parse_request([*words, "x.log", "true"])
    assert " ".join(request.raw) == "-N 2 -t 60 -V -cwd -v A=b -p -100 -j y -q=all.q -pe smp 3"


def test_options_may_stand_before_or_after_range():
    request = parse_request(
        ["--mem", "2G", "JOB=2:4", "--gpu=1", "-pe", "smp", "4", "-tc", "3", "x.JOB.log", "a", "--nj", "JOB"]
    )
    assert (list(request.jobs), request.mem, request.gpu, request.words) == (
        [2, 3, 4],
        "2G",
        1,
        ("a", "--nj", "JOB"),
    )
    assert request.max_jobs_run == 3


def test_every_hint_matches_a_log():
    logs = {
        0: "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        1: "OSError: [Errno 28] No space left on device",
        2: "numpy.core._exceptions._ArrayMemoryError / MemoryError",
        3: "Bus error (core dumped)",
        4: "Illegal instruction (core dumped)",
        5: "ModuleNotFoundError: No module named 'numba'",
        6: "OSError: [Errno 24] Too many open files",
        7: "bash: mpiexec: command not found",
        8: "RuntimeError: CUDA error: no CUDA-capable device is detected",
        9: "SRILM: license file not found",
        10: "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)",
        11: "FileNotFoundError: [Errno 2] No such file or directory: 'data/train/text'",
        12: "bash: line 1: sox: command not found",
        13: "PermissionError: [Errno 13] Permission denied: 'exp'",
        14: "application called MPI_Abort(MPI_COMM_WORLD, 1) - process 0",
        15: "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES",
    }
    status = JobStatus(1, 1, None, False, "host", 0.0, 1.0, 10.0, "x")
    assert len(logs) == len(HINTS)
    for number, (_, sentence) in enumerate(HINTS):
        for more_memory in (HERE, ELSEWHERE):
            assert hint(logs[number], status, more_memory) == sentence.format(**more_memory), number


def test_abandoned_job_writes_no_status(tmp_path):
    """The runner declared its host lost and recorded its status. The ranks continue in another job with the
    same log name."""
    lost = JobStatus(1, 1, None, False, "host", 0.0, 1.0, 10.0, "x", reason="its host was lost", run_id="7")
    write_status(tmp_path / "lost.log", lost)
    run_pl("--run-id", "7", "x.log", "cp", "lost.status", "x.status", cwd=tmp_path)
    assert read_status(tmp_path / "x.log") == lost and "# Ended" not in (tmp_path / "x.log").read_text()
    run_pl("--run-id", "8", "x.log", "cp", "lost.status", "x.status", cwd=tmp_path)
    assert (
        read_status(tmp_path / "x.log").run_id == "8"
        and "# Ended (code 0)" in (tmp_path / "x.log").read_text()
    )
    run_pl("--num-ranks", "1", "y.log", "mv", "y.log", "y.1.log", cwd=tmp_path)
    assert (
        (tmp_path / "y.1.log").exists()
        and not (tmp_path / "y.log").exists()
        and not (tmp_path / "y.status").exists()
    )


def test_user_file_named_like_status_file_is_renamed_and_kept(tmp_path):
    """A message reports it."""
    done = run_pl("build.log", "echo", "built", ">", "build.status", cwd=tmp_path)
    assert (
        done.returncode == 1
        and (tmp_path / "build.status.kept").read_text() == "built\n"
        and read_status(tmp_path / "build.log").status == 1
    )
    report = (
        "build.status: the job's command has written this file, but it is the name of the job's status "
        "file; it was renamed to"
    )
    assert f"| error: {report} " in done.stderr
