"""egs/librispeech: mini_librispeech at toy size from the unpacked corpus to word error rates, and the
commands of all subsets."""

import re
from pathlib import Path

import librispeech_recipe
import pytest
from librispeech_recipe import RECIPE
from recorded_calls import calls, recorded_recipe

from pyasr.corpora.librispeech.models import GRAPH_MODEL, RESCORING_MODELS
from pyasr.corpora.librispeech.parts import parts_of

IN_PLACE = {"steps/make_mfcc.py", "steps/compute_cmvn.py", "steps/score.py", "utils/validate_data_dir.py"}
OF_ALL = {"utils/check_install.py", "utils/collect_results.py"}  # need none in particular
DECODED = {"tri2b": [""], "tri3b": ["", "_tgmed", "_fglarge"], "dnn_mini": ["", "_tgmed", "_fglarge"]}


def test_recipe_ends_with_good_word_error_rates(librispeech_run):
    found = librispeech_recipe.wers(librispeech_run[0])
    assert found.keys() == {
        f"{system}/decode_dev_clean_2{suffix}" for system, suffixes in DECODED.items() for suffix in suffixes
    }
    for name, line in found.items():
        assert float(re.search(r"WER ([\d.]+)", line)[1]) < 40, f"{name}: {line}"


def test_page_has_published_rates_and_ours(librispeech_run):
    page = (librispeech_run[0] / "s5/exp_mini/RESULTS.md").read_text()
    rows = {
        cells[1].strip(): cells[2:4]
        for line in page.splitlines()
        if (cells := line.split("|"))[1:] and "decode_" in cells[1]
    }
    wer = re.search(
        r"WER ([\d.]+)", librispeech_recipe.wers(librispeech_run[0])["tri3b/decode_dev_clean_2_tgmed"]
    )[1]
    assert [cell.strip() for cell in rows["tri3b/decode_dev_clean_2_tgmed"]] == ["16.25", wer]
    assert [cell.strip() for cell in rows["tri3b/decode_dev_clean_2_tglarge"]] == ["13.45", "-"]


def test_dictionary_has_stress_and_words_missing_in_lexicon(librispeech_run):
    folder = librispeech_run[0] / "s5/data_mini/local/dict"
    words = dict(line.split(" ", 1) for line in (folder / "lexicon.txt").read_text().splitlines())
    assert words["FEEL"].split()[0] == "F" and words["<UNK>"] == "SPN" and words["MOONY"] == "M UW1 N IY0"
    assert {"IY0 IY1", "AA0 AA1"} <= set((folder / "nonsilence_phones.txt").read_text().splitlines())
    assert "AA0 EH0 IY0" in (folder / "extra_questions.txt").read_text().splitlines()
    assert (folder / "silence_phones.txt").read_text().split() == ["SIL", "SPN"]


def test_repeated_stages_are_up_to_date(librispeech_run):
    place, _ = librispeech_run
    before = librispeech_recipe.wers(place)
    said = librispeech_recipe.run(place, "--stage", "8")
    lines = [line for line in said.splitlines() if re.match(r"[\d:]{8} \w+\.py: ", line)]
    assert len(lines) > 8 and not [line for line in lines if not line.endswith(" is up to date")]
    assert librispeech_recipe.wers(place) == before


@pytest.mark.parametrize(
    "words, message",
    [
        (
            ["--corpus", "", "--stop-stage", "1"],
            "LibriSpeech: no directory was given; give it with --corpus, several separated by ':'",
        ),
        (
            ["--subset", "100", "--stop-stage", "1"],
            "no folder train-clean-100, dev-clean, dev-other, test-clean, test-other below",
        ),
        (["--subset", "10"], "run.sh: error: --subset: '10' is not one of mini 100 460 960"),
        (["--sizes", "small.sh"], "s5/small.sh: no such file"),
        (
            ["--lm-dir", "conf", "--stage", "2", "--stop-stage", "2", "--rescoring", ""],
            "no librispeech-lexicon.txt (lexicon), 3-gram.pruned.3e-7.arpa.gz (tgsmall) below",
        ),
    ],
)
def test_errors_stop_recipe_with_one_sentence(words, message, librispeech_run):
    place, _ = librispeech_run
    said = librispeech_recipe.run(place, *words, status=1)
    errors = [line for line in said.splitlines() if "error: " in line and "run.sh: error: stage " not in line]
    assert len(errors) == 1 and message in errors[0], said


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> Path:
    return recorded_recipe(tmp_path_factory.mktemp("librispeech") / "s5", RECIPE)


def follow(commands: list[list[str]], subset: str, made: set[str]) -> set[str]:
    """Outputs of these commands. The inputs of each must be among the outputs of earlier ones."""
    made = set(made)
    for program, *words in commands:
        if program in OF_ALL:
            continue
        paths = [word for word in words if re.match("(data|exp)(_mini)?(/|$)", word)]
        outputs = [] if program in IN_PLACE else [paths.pop(0 if program == "utils/combine_data.py" else -1)]
        missing = [path for path in paths if not {path, str(Path(path).parent)} & made]
        assert not missing, f"{program} {' '.join(words)}: {missing} were not made before"
        made |= {str(Path(path, name)) for path in outputs for name in parts_made(program, subset)}
    return made


def parts_made(program: str, subset: str) -> list[str]:
    """Names of the outputs below the directory given to a program with several outputs; for other programs,
    the directory itself."""
    if program == "local/prepare_librispeech.py":
        return [part.replace("-", "_") for part in parts_of(subset)]
    return ["lexicon", GRAPH_MODEL, *RESCORING_MODELS] if program == "local/get_lms.py" else ["."]


@pytest.mark.parametrize(
    "subset, systems",
    [
        ("mini", {"mono", "tri1", "tri2b", "tri3b"}),
        ("100", {"tri4b"}),
        ("460", {"tri4b", "tri5b"}),
        ("960", {"tri4b", "tri5b", "tri6b"}),
    ],
)
def test_each_command_finds_its_inputs(subset, systems, recorded):
    first = calls(recorded, "run.sh", "--subset", subset)
    then = calls(recorded, "run_models.sh", "--subset", subset)
    made = follow(then, subset, follow(first, subset, set()))
    decoded = {path.split("/")[1] for path in made if "/decode_" in path}
    assert decoded == systems | {f"dnn_{subset}", f"lfmmi_{subset}"}


def test_sizes_equal_published_ones(recorded):
    trained = {
        words[-1].removeprefix("exp/"): words
        for words in calls(recorded, "run.sh", "--subset", "960")
        if "train_" in words[0]
    }
    found = {}
    for system, words in trained.items():
        if "--num-leaves" in words:
            at = words.index("--num-leaves")
            found[system] = (int(words[at + 1]), int(words[at + 3]), words[-4].removeprefix("data/"))
    assert found == {
        "tri1": (2000, 10_000, "train_clean_100_tri1"),
        "tri2b": (2500, 15_000, "train_clean_100_tri2b"),
        "tri3b": (2500, 15_000, "train_clean_100_tri2b"),
        "tri4b": (4200, 40_000, "train_clean_100"),
        "tri5b": (5000, 100_000, "train_clean_460"),
        "tri6b": (7000, 150_000, "train_960"),
    }
    sizes = {
        words[-1]: words[1:3]
        for words in calls(recorded, "run.sh", "--subset", "100")
        if words[0] == "utils/subset_data_dir.py"
    }
    assert sizes == {
        "data/train_clean_100_mono": ["--shortest", "2000"],
        "data/train_clean_100_tri1": ["--random", "5000"],
        "data/train_clean_100_tri2b": ["--random", "10000"],
    }


def test_test_sets_use_parameters_of_their_dev_sets(recorded):
    scored = [words for words in calls(recorded, "run.sh", "--subset", "100") if words[0] == "steps/score.py"]
    sources = {words[words.index("--params-from") + 1] for words in scored if "test_other" in words[-1]}
    assert {Path(source).name for source in sources} == {
        f"decode_dev_other{suffix}" for suffix in ("", "_tgmed", "_tglarge", "_fglarge")
    }
    only = calls(recorded, "run.sh", "--subset", "100", "--test-kinds", "clean", "--rescoring", "")
    assert {Path(words[-1]).name for words in only if words[0] == "steps/score.py"} == {
        "decode_dev_clean",
        "decode_test_clean",
    }
