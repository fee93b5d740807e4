"""A runner under a real scheduler."""

import re
import subprocess
import sys
from pathlib import Path

from test_run_pl import wait_until

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 300  # for commands that take seconds on an idle machine
DIRECTORIES_WITH_THE_WORD = {
    "word_in_a_name": ["JOBX=1:2", "JOBS/log/a.JOBX.log", "echo", "job", "JOBX"],
    "a_directory_each": ["JOB=1:2", "exp/JOB/log/a.log", "echo", "job", "JOB"],
}

ANY_NAME = "a:b,c d%a%j\\x$HOME'[1]{y}*?#;&|<>()!~`@=\té"
ANY_PATHS = {
    ANY_NAME: [
        "JOB=1:2",
        f"{ANY_NAME}/log/{ANY_NAME}.JOB.log",
        "until",
        "cat",
        "words",
        ";",
        "do",
        "sleep",
        "0.1",
        ";",
        "done",
    ],
    '-dash:"': ["./-d/log/-x:%.log", "until", "cat", "words", ";", "do", "sleep", "0.1", ";", "done"],
}


class Case:
    """A command of `runner` (slurm.pl, queue.pl) in a directory of its own. Log and job have the same name if
    the log is named after the directory."""

    def __init__(self, cluster, runner, directory, *words):
        directory.mkdir()
        self.directory, self.log = directory, directory / f"{directory.name}.log"
        command = [sys.executable, ROOT / "utils" / runner, *map(str, words)]
        self.process = subprocess.Popen(
            command,
            cwd=directory,
            env=cluster.environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def __truediv__(self, name):
        return self.directory / name

    def begun(self):
        """Wait until the job runs."""
        wait_until(self.log.exists, WAIT_S)
        return self

    def end(self):
        """Exit status and messages, without the progress reports of runs longer than 20 seconds."""
        said, errors = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode, said + re.sub(r"(?m)^\d\d:\d\d:\d\d \S+: .* jobs, .*\n", "", errors)


def check_directories_with_the_word(cases):
    """Directories whose names contain "JOB": one with that literal name, as steps call it, and one per job.
    The output of the job script itself has a valid path."""
    assert cases["word_in_a_name"].end() == (0, "") and cases["a_directory_each"].end() == (0, "")
    assert "\njob 2\n" in (cases["word_in_a_name"] / "JOBS/log/a.2.log").read_text()
    assert sorted(path.name for path in (cases["word_in_a_name"] / "JOBS/q").iterdir()) == [
        "a.1.out",
        "a.2.out",
        "a.sh",
    ]
    assert "\njob 2\n" in (cases["a_directory_each"] / "exp/2/log/a.log").read_text()
    assert sorted(path.name for path in (cases["a_directory_each"] / "exp/q").iterdir()) == [
        "a.1.out",
        "a.2.out",
        "a.sh",
    ]


def begin_in_any_path(cluster, runner, directory):
    """Cases whose directories and logs have characters that are special for schedulers and shells."""
    cases = {name: Case(cluster, runner, directory / name, *words) for name, words in ANY_PATHS.items()}
    for name in ANY_PATHS:
        (directory / name / "words").write_text(f"of {name}\n")
    return cases


def check_any_path(cases):
    """All cases succeeded, and every file is in its place, including the output of the job script."""
    for name in ANY_PATHS:
        assert cases[name].end() == (0, ""), name
    many, one = (cases[name].directory for name in ANY_PATHS)
    assert [
        f"\nof {ANY_NAME}\n" in (many / ANY_NAME / f"log/{ANY_NAME}.{job}.log").read_text() for job in (1, 2)
    ] == [True, True]
    assert '\nof -dash:"\n' in (one / "-d/log/-x:%.log").read_text()
    assert sorted(path.name for path in (many / ANY_NAME / "q").iterdir()) == [
        f"{ANY_NAME}.1.out",
        f"{ANY_NAME}.2.out",
        f"{ANY_NAME}.sh",
    ]
    assert sorted(path.name for path in (one / "-d/q").iterdir()) == ["-x:%.out", "-x:%.sh"]
    assert sorted(path.name for path in many.iterdir()) == [ANY_NAME, "words"] and sorted(
        path.name for path in one.iterdir()
    ) == ["-d", "words"]
