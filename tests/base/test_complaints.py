"""System errors while a program reads its own modules, for example from a failing file server, also end it
with one sentence."""

import os
import subprocess
import sys

import pytest

UNREADABLE = """
import errno, importlib.machinery as machinery, os
of_file = machinery.SourceFileLoader.get_data
def get_data(self, path):
    if path.endswith(os.environ["UNREADABLE"]):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
    return of_file(self, path)
machinery.SourceFileLoader.get_data = get_data
"""
MISSING = """
import os, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["MISSING"]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Finder())
"""
PROGRAMS = [
    ("utils/run.pl", "pyasr/base/host/granted_gpus.py"),
    ("steps/make_mfcc.py", "pyasr/base/cli/option_uses.py"),
    ("egs/toy/s5/local/make_corpus.py", "pyasr/base/outputs/output.py"),
    ("-m pyasr.base.jobs.job", "pyasr/base/cli/options.py"),
]


def run(tmp_path, site: str, program: list[str], **environment) -> subprocess.CompletedProcess:
    (tmp_path / "sitecustomize.py").write_text(site)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    # modules are read from source
    of_python = {
        "PYTHONPATH": path,
        "PYTHONPYCACHEPREFIX": str(tmp_path / "none"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return subprocess.run(
        [sys.executable, *program],
        env={**os.environ, **of_python, **environment},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("program, module", PROGRAMS)
def test_unreadable_module_gives_one_sentence(program, module, root, tmp_path):
    done = run(
        tmp_path,
        UNREADABLE,
        program.split() if program.startswith("-m") else [root / program],
        UNREADABLE=module,
    )
    name = "" if program.startswith("-m") else f"{program.rpartition('/')[2]}: "
    assert done.returncode == 1 and done.stderr.startswith(f"{name}error: ") and done.stderr.count("\n") == 1
    assert f"{module}: too many files are open in this process" in done.stderr


def test_missing_module_gives_one_sentence(root, tmp_path):
    done = run(tmp_path, MISSING, [root / "utils/run.pl"], MISSING="json.decoder")
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert done.stderr.startswith(
        "run.pl: error: a part of the program cannot be loaded (No module named 'json.decoder'); run the same"
    )


def test_other_programs_keep_their_traceback(root, tmp_path):
    program = tmp_path / "own.py"
    program.write_text("import pyasr\nopen('/no/such/file')\n")
    done = run(tmp_path, "", [program], PYTHONPATH=str(root))
    assert done.returncode == 1 and "Traceback" in done.stderr
