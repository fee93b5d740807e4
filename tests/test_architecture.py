"""Rules for the code that a program can check: imports between packages, lengths of lines, functions and
files, docstrings of programs."""

import ast
import functools
import re
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import architecture_picture
import pytest
from steps_here import step_of

from pyasr.base.cli.options import defaults

ROOT = Path(__file__).resolve().parents[1]
MAX_FUNCTION_LINES, MAX_FILE_LINES, MAX_COLUMNS, MAX_SHARED_LINES, MAX_MODULES = 70, 700, 110, 25, 15
MAX_POSITIONAL = 9


def python_files(*folders: str) -> list[Path]:
    """All Python sources in these folders, without data of recipes."""
    return sorted(
        path
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
        if not {"data", "exp", "corpus"} & set(path.relative_to(ROOT).parts[2:-1])
        or folder.startswith("pyasr")
    )


class Function(NamedTuple):
    """A function of a source file. `positional` is the number of parameters that a call may give by position,
    without self and cls."""

    name: str
    lineno: int
    length: int
    has_docstring: bool
    decorators: tuple[str, ...]
    positional: int


class Source(NamedTuple):
    """What the rules need to know of a source file, from one pass over its tree.

    imports               full names of the modules that it imports, anywhere in it
    undocumented          public classes at the top of the file without a docstring, as `LINE: NAME`
    has_star_in_index     whether there is an `x[a, *b]` (Python 3.11), which ast accepts for any version
    """

    imports: frozenset[str]
    docstring: str | None
    classes: tuple[str, ...]
    undocumented: tuple[str, ...]
    functions: tuple[Function, ...]
    has_star_in_index: bool


@functools.cache
def oldest_python() -> tuple[int, ...]:
    """The oldest Python that pyproject.toml allows."""
    metadata = (ROOT / "pyproject.toml").read_text()
    return tuple(map(int, re.search(r'requires-python = ">=(\d+)\.(\d+)"', metadata).groups()))


@functools.cache
def source_of(path: Path) -> Source:
    """A file as `source_in` describes its text."""
    return source_in(path.read_text(encoding="utf-8"), str(path))


def source_in(text: str, name: str) -> Source:
    """The source in a text; raises SyntaxError if the grammar of the oldest Python does not allow it."""
    tree = ast.parse(text, name, feature_version=oldest_python())
    imports, classes, functions, star = set(), [], [], False
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: relative import"
            imports |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ClassDef):
            classes.append(node.name)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            functions.append(function_of(node))
        elif isinstance(node, ast.Subscript):
            star |= has_star(node.slice)
    undocumented = [
        f"{node.lineno}: {node.name}"
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name[0] != "_" and not ast.get_docstring(node)
    ]
    return Source(
        frozenset(imports),
        ast.get_docstring(tree),
        tuple(classes),
        tuple(undocumented),
        tuple(functions),
        star,
    )


def function_of(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Function:
    names = [known.arg for known in (*node.args.posonlyargs, *node.args.args)]
    return Function(
        node.name,
        node.lineno,
        node.end_lineno - node.lineno + 1,
        bool(ast.get_docstring(node)),
        tuple(map(ast.unparse, node.decorator_list)),
        len(names) - (names[:1] in (["self"], ["cls"])),
    )


def has_star(index: ast.expr) -> bool:
    """Whether an index is `a, *b` without parentheses."""
    return isinstance(index, ast.Tuple) and any(
        isinstance(part, ast.Starred) and index.col_offset == index.elts[0].col_offset for part in index.elts
    )


def imports_of(path: Path) -> frozenset[str]:
    """Full names of the modules that a file imports, anywhere in it."""
    return source_of(path).imports


def layers() -> dict[str, set[str]]:
    """The table of docs/architecture.md: {package: packages that it may import}."""
    return architecture_picture.layers(architecture_picture.PAGE.read_text())


def test_picture_equals_table():
    """`python tests/architecture_picture.py` writes it again."""
    page = architecture_picture.PAGE.read_text()
    assert "graph TD" in page and page == architecture_picture.with_picture(page)
    graph = {"a": {"b", "c"}, "b": {"c"}, "c": set()}
    assert architecture_picture.reduced(graph) == {"a": {"b"}, "b": {"c"}, "c": set()}


def test_table_names_every_package():
    packages = {
        path.name for path in (ROOT / "pyasr").iterdir() if path.is_dir() and path.name != "__pycache__"
    }
    assert packages == set(layers())


@pytest.mark.parametrize("package", sorted(layers()))
def test_packages_import_only_what_table_allows(package):
    allowed = layers()[package] | {package}
    for path in python_files(f"pyasr/{package}"):
        used = {name.split(".")[1] for name in imports_of(path) if name.startswith("pyasr.")} - {
            "__version__"
        }
        assert used <= allowed, (
            f"{path.relative_to(ROOT)} imports pyasr.{', pyasr.'.join(sorted(used - allowed))}"
        )


def sub_packages() -> dict[str, set[str]]:
    """The rows of docs/architecture.md for folders of packages: {folder: folders of its package that it may
    import}; `PACKAGE/` stands for the modules directly in it."""
    rows = re.findall(r"(?m)^\| `(\w+/[\w/]*)` \|.*\| ([\w /-]+) \|$", architecture_picture.PAGE.read_text())
    assert len(dict(rows)) == len(rows), "two rows for one folder"
    return {
        folder: {place(folder.partition("/")[0], name) for name in allowed.replace("-", " ").split()}
        for folder, allowed in rows
    }


def place(package: str, name: str) -> str:
    return f"{package}/" if name == "top" else f"{package}/{name}"


def folder_of(path: Path) -> str:
    """The folder of a module of a package, as in the table."""
    package, *folders = path.relative_to(ROOT / "pyasr").parts[:-1]
    return "/".join([package, *folders]) if folders else f"{package}/"


def folder_of_module(name: str) -> str | None:
    """The folder of a module, or of a package with code, by its full name; None if there is none."""
    path = ROOT / Path(*name.split("."))
    module, package = path.with_suffix(".py"), path / "__init__.py"
    if module.exists() and name.count(".") > 1:
        return folder_of(module)
    return folder_of(package) if package.exists() and package.stat().st_size else None


def divided() -> dict[str, set[str]]:
    """{package with sub-packages: its folders with modules}."""
    found: dict[str, set[str]] = {}
    for path in python_files("pyasr"):
        if path.parent != ROOT / "pyasr" and path.name != "__init__.py":
            found.setdefault(path.relative_to(ROOT / "pyasr").parts[0], set()).add(folder_of(path))
    return {package: folders for package, folders in found.items() if folders != {f"{package}/"}}


def test_table_names_every_folder():
    assert set().union(*divided().values()) == sub_packages().keys()


@pytest.mark.parametrize("folder", sorted(sub_packages()))
def test_sub_packages_import_only_what_table_allows(folder):
    package = folder.partition("/")[0]
    allowed = sub_packages()[folder] | {folder}
    for path in sorted((ROOT / "pyasr" / folder).glob("*.py")):
        used = {folder_of_module(name) for name in imports_of(path) if name.startswith(f"pyasr.{package}.")}
        used -= {None}
        assert used <= allowed, f"{path.relative_to(ROOT)} imports {', '.join(sorted(used - allowed))}"


@pytest.mark.parametrize("allowed", [layers(), sub_packages()], ids=["packages", "sub-packages"])
def test_table_has_no_cycle(allowed):
    found = cycle(allowed)
    assert not found, f"cyclic imports: {' -> '.join(found)}"


def module_imports() -> dict[str, set[str]]:
    """{module of pyasr: modules of pyasr that it imports anywhere, lazily and for type checks included}."""
    paths = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in python_files("pyasr")
    }
    return {name: imports_of(path) & paths.keys() - {name} for name, path in paths.items()}


def cycle(imports: dict[str, set[str]]) -> list[str]:
    """Names that import each other in a cycle, the first one also at the end; empty if there is no cycle."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return error.args[1][::-1]
    return []


def test_cycle_is_found():
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) in (["b", "c", "b"], ["c", "b", "c"])
    assert not cycle({"a": {"b", "c"}, "b": {"c"}})


def test_modules_form_no_cycle():
    found = cycle(module_imports())
    assert not found, f"cyclic imports: {' -> '.join(found)}"


# Its name is written next to features and in models, so a change would make these unreadable.
KEPT_MODULES = {"pyasr/feats/options.py"}


def used_twice(places: list[tuple[str, str]]) -> dict[str, list[str]]:
    """{name: its places} of the names that have several."""
    found: dict[str, list[str]] = {}
    for name, place in places:
        found.setdefault(name, []).append(place)
    return {name: several for name, several in found.items() if len(several) > 1}


def test_duplicate_names_are_found():
    assert used_twice([("Step", "a"), ("Loss", "a"), ("Step", "b")]) == {"Step": ["a", "b"]}


def test_module_names_are_unique():
    names = [
        (path.stem, str(path.relative_to(ROOT)))
        for path in python_files("pyasr")
        if path.name != "__init__.py"
    ]
    assert not used_twice([(name, path) for name, path in names if path not in KEPT_MODULES])


def test_class_names_are_unique():
    """Private ones included."""
    classes = [
        (name, str(path.relative_to(ROOT)))
        for path in python_files("pyasr")
        for name in source_of(path).classes
    ]
    assert not used_twice(classes)


def test_number_of_modules_per_folder_is_limited():
    folders = {path.parent for path in python_files("pyasr")}
    for folder in folders:
        modules = [path for path in folder.glob("*.py") if path.name != "__init__.py"]
        assert len(modules) <= MAX_MODULES, (
            f"{folder.relative_to(ROOT)} has {len(modules)} modules; divide it into sub-packages"
        )


def test_test_files_lie_in_folders_of_their_modules():
    """A file of tests of a package, tests/PACKAGE/FOLDER/test_MODULE.py, tests a module of that folder if any
    module has this name."""
    folders: dict[str, set[Path]] = {}
    for path in python_files("pyasr"):
        folders.setdefault(path.stem, set()).add(path.relative_to(ROOT / "pyasr").parent)
    for package in sorted(layers()):
        for path in (ROOT / "tests" / package).rglob("test_*.py"):
            homes = folders.get(path.stem.removeprefix("test_"))
            assert homes is None or path.relative_to(ROOT / "tests").parent in homes, (
                f"{path.relative_to(ROOT)}: its module is in pyasr/{' and pyasr/'.join(map(str, homes))}"
            )


def test_library_imports_no_scripts():
    for path in python_files("pyasr"):
        assert not {name.partition(".")[0] for name in imports_of(path)} & {
            "steps",
            "utils",
            "egs",
            "local",
            "tests",
        }, path


@pytest.mark.parametrize(
    "library, homes",
    [
        ("mpi4py", {"pyasr/parallel/communication/mpi_comm.py"}),
        ("kaldiio", {"pyasr/io"}),
        ("onnx", {"pyasr/export/onnx_graph.py"}),
        ("sentencepiece", {"pyasr/lang/lang_dirs/subwords.py"}),
        ("tensorboardX", {"pyasr/train/job/tensorboard.py"}),
        ("triton", {"pyasr/tensor"}),
    ],
)
def test_wrapped_libraries_are_imported_in_one_place(library, homes):
    for path in python_files("pyasr", "steps", "utils"):
        if library in {name.partition(".")[0] for name in imports_of(path)}:
            assert any(str(path.relative_to(ROOT)).startswith(home) for home in homes), (
                f"{path} imports {library}"
            )


def test_oracles_are_imported_by_tests_only():
    oracles = {
        "kaldi_native_fbank",
        "kaldi_native_io",
        "kaldi_decoder",
        "kaldi_hmm_gmm",
        "riva",
        "phonetisaurus",
        "onnxruntime",
        "vosk",
        "lhotse",
        "kaldingram",
        "desphere",
        "asrfront",
        "hypothesis",
        "pytest",
    }
    for path in python_files("pyasr", "steps", "utils", "egs"):
        assert not oracles & {name.partition(".")[0] for name in imports_of(path)}, path


def test_job_start_imports_no_heavy_modules():
    """run.pl and the check of a command line must not wait for torch, numpy or numba."""
    code = (
        "import sys, pyasr.cluster.runner.local_runner, pyasr.cluster.ranks.jobs, pyasr.base.cli.step; "
        "print([m for m in ('torch', 'numpy', 'numba') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


def test_sources_are_python_3_10():
    """According to the grammar of the oldest Python that pyproject.toml allows."""
    for path in python_files("pyasr", "steps", "utils", "egs", "benchmarks", "tests"):
        assert not source_of(path).has_star_in_index, f"{path}: x[a, *b] is Python 3.11; write x[(a, *b)]"


def test_newer_syntax_is_found():
    assert source_in("x[a, *b]", "").has_star_in_index and not source_in("x[(a, *b)]", "").has_star_in_index
    with pytest.raises(SyntaxError):
        source_in("try:\n    f()\nexcept* OSError:\n    pass", "")  # Python 3.11


@pytest.mark.parametrize("folder", ["pyasr", "steps", "utils", "egs", "benchmarks", "tests"])
def test_lengths_of_files_and_functions_are_limited(folder):
    for path in python_files(folder):
        lines = path.read_text().splitlines()
        assert len(lines) <= MAX_FILE_LINES, f"{path}: {len(lines)} lines"
        wide = [i for i, line in enumerate(lines, 1) if len(line) > MAX_COLUMNS]
        assert not wide or folder == "tests", f"{path}:{wide[:5]}: more than {MAX_COLUMNS} columns"
        for function in source_of(path).functions:
            assert function.length <= MAX_FUNCTION_LINES, (
                f"{path}:{function.lineno}: {function.name} has {function.length} lines"
            )


def test_modules_and_public_names_are_documented():
    for path in python_files("pyasr"):
        source = source_of(path)
        assert path.name == "__init__.py" or source.docstring, f"{path}: no docstring"
        assert not source.undocumented, f"{path}: no docstring of a class: {source.undocumented}"


def test_public_functions_are_documented():
    """Public functions of more than eight lines."""
    for path in python_files("pyasr"):
        for function in source_of(path).functions:
            known = function.name.startswith("_") or function.length <= 8 or function.has_docstring
            assert known, f"{path.relative_to(ROOT)}:{function.lineno}: {function.name} has no docstring"


def scripts() -> list[Path]:
    return [path for folder in ("steps", "utils") for path in sorted((ROOT / folder).glob("*.py"))]


@pytest.mark.parametrize("script", scripts(), ids=lambda path: path.name)
def test_scripts_document_inputs_outputs_and_example(script):
    """One sentence; Reads; Writes; an example that names the script."""
    text = script.read_text()
    assert text.startswith("#!/usr/bin/env python3\n") and script.stat().st_mode & 0o111, (
        f"{script} is not executable"
    )
    doc = source_of(script).docstring
    assert doc and re.match(r"\S.*\.", doc.replace("\n", " ")), f"{script}: no sentence"
    assert re.search(r"\bReads?\b", doc) and re.search(r"[Ww]rites?\b", doc), (
        f"{script}: what does it read, what does it write?"
    )
    assert re.search(rf"(?m)^ +\S*{script.name}", doc), f"{script}: no example"


@pytest.mark.parametrize("script", ["steps/train_dnn.py", "utils/check_install.py"])
def test_invalid_option_gives_one_sentence_and_status_1(script):
    """An unknown option, as a user sees it."""
    done = subprocess.run(
        [sys.executable, str(ROOT / script), "--no-such-option"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1 and "no such option" in done.stderr and done.stderr.count("\n") == 1


def test_functions_have_few_positional_parameters():
    """Kernels of numba included. Kernels of Triton are excepted, because they take no records."""
    found, on_gpu = {}, 0
    for path in python_files("pyasr", "steps", "utils"):
        for function in source_of(path).functions:
            if "triton.jit" in function.decorators:
                on_gpu += 1
            else:
                place = f"{path.relative_to(ROOT)}:{function.lineno} {function.name}"
                found[place] = function.positional
    assert not {name: number for name, number in found.items() if number > MAX_POSITIONAL}
    assert on_gpu and max(found.values()) == MAX_POSITIONAL
    (example,) = source_in("def f(self, a, /, b, c=1, *, d): ...", "").functions
    assert example.positional == 3


@pytest.mark.parametrize("step", sorted(path.name for path in (ROOT / "steps").glob("*.py")))
def test_steps_with_nj_option_use_it(step):
    sources = [
        ROOT / "steps" / step,
        *(ROOT / f"{name.replace('.', '/')}.py" for name in imports_of(ROOT / "steps" / step)),
    ]
    reads_it = any(
        "jobs.nj" in path.read_text(encoding="utf-8")
        for path in sources
        if path.exists() and "cluster" not in path.parts
    )
    assert reads_it == ("nj" in defaults(step_of(step)[1]).get("jobs", {}))


def test_no_scaffolding_in_sources():
    for path in python_files("pyasr", "steps", "utils", "egs", "benchmarks"):
        found = re.search(
            r"\b(TODO|FIXME|XXX|HACK)\b|^\s*(print\(.DEBUG|breakpoint\(|import pdb)", path.read_text(), re.M
        )
        assert not found, f"{path}: {found[0]}"


def shared_block(files: dict[str, str]) -> tuple[str, str, str] | None:
    """(file, file, first line) of a run of more than MAX_SHARED_LINES consecutive non-blank lines that two
    texts have in common."""
    first: dict[tuple[str, ...], str] = {}
    for name, text in files.items():
        lines = [line for line in text.splitlines() if line.strip()]
        for i in range(len(lines) - MAX_SHARED_LINES):
            block = tuple(lines[i : i + MAX_SHARED_LINES + 1])
            if (other := first.setdefault(block, name)) != name:
                return other, name, block[0]
    return None


def test_recipes_share_steps_instead_of_copies():
    block = [f"line {i}" for i in range(MAX_SHARED_LINES + 1)]
    texts = {"a": "\n\n".join(["x", *block]), "b": "\n".join([*block, "y"])}
    assert (
        shared_block(texts) == ("a", "b", "line 0")
        and shared_block(texts | {"b": "\n".join(block[1:])}) is None
    )
    listed = subprocess.run(["git", "ls-files", "egs"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip(
            "not a clone of the repository: files of recipes cannot be distinguished from their outputs"
        )
    paths = [ROOT / name for name in listed.stdout.splitlines()]
    files = {str(path): path.read_text() for path in paths if path.is_file() and not path.is_symlink()}
    assert len(files) > 10 and shared_block(files) is None
